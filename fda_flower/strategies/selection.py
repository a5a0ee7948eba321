"""How a strategy judges its rounds by labels held out from training, at the target or at the sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.common import log

from fda_flower.errors import ConfigError, invalid
from fda_flower.metrics import METRICS
from fda_flower.records.record import Record, choose, chosen_round, has_stopped
from fda_flower.strategies.roster import Node
from fda_flower.strategies.round import Round
from fda_flower.wire.protocol import VALIDATION, EvaluateRequest, split_held_out

PREFIX = f"{VALIDATION}-"
IN_TRAIN_REPLY = {f"eval-{PREFIX}{name}": f"{PREFIX}{name}" for name in METRICS}
"""Figures that come with the evaluation of a trained model: their names in the reply and in the record."""


@dataclass(frozen=True)
class Selection:
    """The choice of a round.

    Attributes
    ----------
    by : {"target", "sources"}
        Whose labels are held out.
    patience : int, optional
        After so many rounds without a better figure the run stops. Default: never.
    metric : str, optional
        The figure that chooses, a key of `METRICS`. Default: the first that the target reports.
    known : Mapping[int, float]
        Figures that are known beforehand, by round, as those of cross-validation.
    """

    by: str = "target"
    patience: int | None = None
    metric: str | None = None
    known: Mapping[int, float] = field(default_factory=dict)

    def requests(self, round: Round) -> dict[Node, EvaluateRequest]:
        """Return what sources are asked to evaluate, if they choose."""
        if self.by != "sources" or round.warmup:
            return {}
        config = {**round.config, VALIDATION: "only"}
        return {node: EvaluateRequest(round.arrays, config) for node in round.sources}

    def judge(self, round: Round, history: Sequence[Record], evaluates_trained: bool) -> None:
        """Move the figures of a round's evaluation to where its record has them, and choose."""
        record = round.record
        figures = [round.held_out.pop(node, {}) for node in round.nodes if self._judges(node)]
        target = record["target"] or {}
        _, trained = split_held_out(target)
        for name in trained:
            del target[f"{PREFIX}{name}"]
        if round.warmup:
            return
        if evaluates_trained:
            figures = [trained]
        name = self.metric or default_metric(figures)
        values = [found[name] for found in figures if name in found]
        by = self.by
        if round.number in self.known:
            values, by = [self.known[round.number]], "folds"
        elif not values:
            return
        elif len(values) < len(figures):
            missing = len(figures) - len(values)
            log(WARNING, "Round %d: %d sources did not judge the model", round.number, missing)
            return
        higher = METRICS[name].higher_is_better
        value = float(np.mean(values))
        record |= choose(history, round.number, value, by=by, higher_is_better=higher)
        if self.by == "sources":
            for node, value in zip(round.sources, values, strict=True):
                record["sources"].get(node.domain, {})[VALIDATION] = value

    def is_chosen(self, record: Record) -> bool:
        """Whether a round is the one chosen so far."""
        return bool(chosen_round([record]) == record["round"])

    def may_stop(self, history: Sequence[Record]) -> bool:
        """Whether the run ends with the next round, unless that is better."""
        return self.patience is not None and has_stopped(history, self.patience - 1)

    def has_stopped(self, history: Sequence[Record]) -> bool:
        """Whether the run has ended with the rounds that it has."""
        return has_stopped(history, self.patience)

    def stops(self, history: Sequence[Record]) -> bool:
        """Whether the run ends with the rounds that it has; the log says so."""
        if not self.has_stopped(history):
            return False
        chosen = chosen_round(history)
        log(INFO, "Stopped after round %d: none was better than round %d", len(history), chosen)
        return True

    def _judges(self, node: Node) -> bool:
        return node.is_target == (self.by == "target")


def default_metric(figures: Sequence[Mapping[str, float]]) -> str:
    """Return the first figure of `METRICS` that anyone reports.

    Examples
    --------
    >>> default_metric([{"loss": 0.7, "accuracy": 0.5}])
    'accuracy'
    """
    return next((name for name in METRICS if any(name in found for found in figures)), next(iter(METRICS)))


def check_selection(
    what: str, strategy: Any, validation: str | float | None, folds: int, select_by: str, patience: int | None
) -> None:
    """Raise a `ConfigError` if a method cannot choose its round as the settings of a run say.

    `what` names the method in messages; `strategy` may be a centralised reference. `folds` is 0 for a share.
    """
    if validation is None:
        given = {"patience": patience, "select-by": None if select_by == "target" else select_by}
        for name, value in given.items():
            if value is not None:
                raise invalid(
                    name,
                    value,
                    "add validation, such as validation=0.2",
                    "but no labels are held out to choose by",
                )
        return
    if strategy.evaluate_every > 1:
        raise invalid(
            "evaluate-every",
            strategy.evaluate_every,
            "leave one of them out",
            f"but validation is {validation}, which judges each round",
        )
    if select_by == "sources" and folds:
        raise invalid(
            "validation",
            validation,
            "give one, such as 0.2",
            "but with select-by=sources it is a share of each source's samples",
        )
    if select_by == "sources" and (strategy.evaluates_own or strategy.evaluates_trained):
        raise ConfigError(
            f"select-by is sources, but {what} has no model that the sources could evaluate as the target "
            "does: leave it out, so that labels of the target choose",
            thing="select-by",
            value=select_by,
        )
    if getattr(strategy, "chooses_itself", False):  # a reference only
        raise invalid(
            "validation",
            validation,
            "leave it out, and give the method option validation_share",
            f"but {what} chooses its model itself, by samples of the sources",
        )
    if patience is not None and strategy.ends_with_an_evaluation:
        raise invalid(
            "patience",
            patience,
            "leave it out",
            f"but {what} evaluates in the last round in another way than before",
        )
