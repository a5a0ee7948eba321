"""What the mixture of a target consists of: settings, checked without loading torch."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from fda_flower.aggregation import PRIOR
from fda_flower.errors import ConfigError, check_choice, unknown

MEMBERS = ("sources", "target", "tuned", "head", "blend", PRIOR)
"""The members that there are: the sources' model; the target's own; the sources' model fine-tuned; its last
layer alone fine-tuned; FedDAF's blend of the sources' model and the target's own; the labels' frequencies."""

MANY_LABELS = 500
"""With so many labels the longer snapshot of the fine-tuned model is `LONG_IF_MANY`, else `LONG`."""

LONG, LONG_IF_MANY = 30, 10


@dataclass(frozen=True)
class MixturePlan:
    """What a mixture consists of.

    Attributes
    ----------
    folds : int
        ``K``: each model is also trained without each of the folds.
    epochs : tuple of int
        Epochs after which the fine-tuned model becomes a member. Default: 1 and 30, with 500 labels or more
        1 and 10.
    members : tuple of str
        Some of `MEMBERS`.
    views : {"all", "full"}
        Whether a prediction takes the models of all views, or only those of all labels.

    Raises
    ------
    ConfigError
        If a number or a word cannot work.
    """

    folds: int = 4
    epochs: tuple[int, ...] = ()
    members: tuple[str, ...] = ("sources", "target", "tuned", PRIOR)
    views: Literal["all", "full"] = "all"

    def __post_init__(self) -> None:
        if not isinstance(self.folds, int) or self.folds < 2:
            raise ConfigError(f"folds is {self.folds}, it must be a whole number of at least 2")
        if not _grow(self.epochs):
            given = list(self.epochs) if isinstance(self.epochs, Iterable) else self.epochs
            raise ConfigError(f"epochs is {given}: give numbers of epochs that grow, such as 1,30")
        for name in self.members:
            if name not in MEMBERS:
                raise unknown("member", name, MEMBERS)
        if not set(self.members) - {PRIOR} or len(set(self.members)) < len(self.members):
            raise ConfigError(
                f"members is {', '.join(self.members) or 'empty'}: name some of {', '.join(MEMBERS)}, each "
                "once, and one that is a model"
            )
        check_choice("views", self.views, ("all", "full"))

    def check_labels(self, labels: int, groups: int | None = None) -> None:
        """Raise a `ConfigError` if there are too few labels for the folds, or groups of them, if any."""
        if labels < 2 * self.folds:
            raise ConfigError(
                f"the target has {labels} labelled samples, but a mixture with {self.folds} folds needs "
                f"{2 * self.folds}: give more samples, fewer folds (method option folds), or another method"
            )
        if groups is not None and groups < self.folds:
            raise ConfigError(
                f"the target's labelled samples are of {groups} groups, but a mixture with {self.folds} "
                f"folds needs {self.folds}: give samples of more groups, fewer folds (method option folds), "
                "or another method"
            )

    def snapshots(self, labels: int) -> tuple[int, ...]:
        """Return the epochs after which the fine-tuned model becomes a member."""
        return self.epochs or (1, LONG_IF_MANY if labels >= MANY_LABELS else LONG)

    @property
    def models(self) -> int:
        """The models in a prediction."""
        trained = {"target": 1, "tuned": len(self.epochs) or 2, "head": 1, "blend": 1}
        views = 1 + self.folds if self.views == "all" else 1
        count = sum(number * views for name, number in trained.items() if name in self.members)
        return count + ("sources" in self.members)

    def epochs_of(self, labels: int, own_epochs: int, evaluations: int) -> int:
        """Return the epochs of all labels that the target trains in a run; its own model has `own_epochs`.

        All labels and all but each of ``K`` folds make ``1 + K (K − 1)/K = K`` epochs.
        """
        own = own_epochs if {"target", "blend"} & set(self.members) else 0
        tuned = self.snapshots(labels)[-1] * sum(name in self.members for name in ("tuned", "head"))
        return self.folds * (own + tuned * evaluations)

    def to_text(self) -> str:
        """Return the plan as JSON, for `from_text` in another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "MixturePlan":
        """Return the plan that `to_text` wrote."""
        fields = json.loads(text)
        return cls(fields["folds"], tuple(fields["epochs"]), tuple(fields["members"]), fields["views"])


def _grow(numbers: object) -> bool:
    """Whether these are whole numbers above 0, each larger than the one before."""
    if not isinstance(numbers, tuple | list) or not all(isinstance(number, int) for number in numbers):
        return False
    return all(before < number for before, number in zip([0, *numbers], numbers, strict=False))
