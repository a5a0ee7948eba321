"""Labelled samples: selection, concatenation, digests."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import Outcomes
from fda_flower.datasets.drawing import Generator
from fda_flower.errors import ConfigError
from fda_flower.names.tasks import Task

Array = NDArray[Any]

TYPES = {
    "x": ("float32", "float64", "uint8"),
    "y": ("int64", "float32", "float64"),
    "groups": ("int64",),
    "values": ("float64",),
}
"""What samples hold; float64 is for networks of that type."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Labelled images, or rows of features, in NumPy arrays; networks get tensors that share their memory.

    Attributes
    ----------
    x : NDArray
        Images in [0, 1], float32, shape ``(n, channels, height, width)``, or uint8 in [0, 255]; or features,
        float32, shape ``(n, features)``; or an object with the methods of `ImageFiles`.
    y : NDArray
        Classes, int64, shape ``(n,)``; or, if the task is a regression, float32, ``(n, outputs)``; or what
        follows from `outcomes`.
    noise : float
        Standard deviation of the Gaussian noise that every access draws and adds.
    groups : NDArray, optional
        The group of each sample, such as a patient, int64, shape ``(n,)``; groups are held out as a whole.
        Default: every sample is its own.
    what : str, optional
        What `y` says, a name of `fda_flower.names.tasks.TASKS`. Default: integers are classes, and real
        numbers a regression's.
    outcomes : Outcomes, optional
        What happened to patients, from which `y` follows anew whenever some are selected, as each label
        depends on all of them.
    values : NDArray, optional
        The numbers of a table's columns as they were read: float64, shape ``(n, columns)``, NaN where one is
        missing.

    Raises
    ------
    ConfigError
        If they are no arrays, such as tensors, or of another type.
    """

    x: Any
    y: Array
    noise: float = 0.0
    groups: Array | None = None
    what: Task | None = None
    outcomes: Outcomes | None = None
    values: Array | None = None

    def __post_init__(self) -> None:
        for name, types in TYPES.items():
            if (value := getattr(self, name)) is None or (name == "x" and hasattr(value, "listing")):
                continue
            kind = type(value)
            if kind not in (np.ndarray, np.memmap):
                what, remedy = kind.__qualname__, "a NumPy array, for a tensor x.numpy()"
            elif value.dtype not in types:
                what, remedy = str(value.dtype), f"{' or '.join(types)}, as by {name}.astype('{types[0]}')"
            else:
                continue
            message = f"the samples' {name} is of the type {what}"
            raise ConfigError(message, thing=name, value=what, remedy=f"give {remedy}")

    @classmethod
    def of_outcomes(cls, x: Any, outcomes: Outcomes, **fields: Any) -> "Samples":
        """Return the samples of patients, with other `fields`."""
        return cls(x, _labels(outcomes), what="survival", outcomes=outcomes, **fields)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def task(self) -> Task:
        """What a model predicts of them."""
        return self.what or ("regression" if self.y.dtype.kind == "f" else "classes")

    @property
    def truth(self) -> Any:
        """What outputs are compared with: the outcomes if there are any, else `y`."""
        return self.y if self.outcomes is None else self.outcomes

    @property
    def units(self) -> int:
        """The number of independent units: of groups, such as patients, or else of samples."""
        return len(self) if self.groups is None else len(np.unique(self.groups))

    def take(self, *positions: Array) -> "Samples":
        """Return the samples at positions, one array of positions after the other."""
        indices = np.concatenate(positions)
        groups, values = (None if each is None else each[indices] for each in (self.groups, self.values))
        outcomes = None if self.outcomes is None else self.outcomes.take(indices)
        y = self.y[indices] if outcomes is None else _labels(outcomes)
        x = self.x.take(indices, 0)
        return replace(self, x=x, y=y, groups=groups, outcomes=outcomes, values=values)

    def joined(self, others: "Samples") -> "Samples":
        """Return these samples followed by others of the same kind, with the noise of these.

        Raise a `ConfigError` if the groups of one part alone are known: then nobody knows those of both.
        """
        if (self.groups is None) != (others.groups is None):
            why = "some samples have groups, such as patients, and the others have none"
            raise ConfigError(why, thing="groups", remedy="give the groups of all, or of none")
        x = np.concatenate([self.x, others.x]) if isinstance(self.x, np.ndarray) else self.x.joined(others.x)
        groups, values = (
            None if one is None or two is None else np.concatenate([one, two])
            for one, two in ((self.groups, others.groups), (self.values, others.values))
        )
        y, outcomes = np.concatenate([self.y, others.y]), self.outcomes
        if outcomes is not None and others.outcomes is not None:
            outcomes = outcomes.joined(others.outcomes)
            y = _labels(outcomes)
        return replace(self, x=x, y=y, groups=groups, outcomes=outcomes, values=values)

    def digest(self) -> str:
        """Return a digest of all numbers, labels and groups; image files count by their names and sizes."""
        inputs = self.x.tobytes() if isinstance(self.x, np.ndarray) else self.x.listing()
        others = b"".join(each.tobytes() for each in (self.y, self.groups) if each is not None)
        if self.outcomes is not None:
            others += self.outcomes.times.tobytes() + self.outcomes.events.tobytes()
        return hashlib.blake2b(inputs + others, digest_size=8).hexdigest()

    def order(self, generator: Generator) -> NDArray[np.int64]:
        """Return all positions in random order."""
        return generator.permutation(len(self))

    def by_class(self, generator: Generator) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield each class present, by number, with its samples' positions in random order."""
        for label in np.unique(self.y).tolist():
            members = np.flatnonzero(self.y == label)
            yield label, members[generator.permutation(len(members))]

    def of_classes(self, others: "Samples") -> "Samples":
        """Return the samples whose class occurs in `others`."""
        return self.take(np.flatnonzero(np.isin(self.y, others.y)))

    def without_labels(self) -> "Samples":
        """Return the samples without labels: ``y`` is -1, or NaN for a regression."""
        y = np.full_like(self.y, np.nan if self.y.dtype.kind == "f" else -1)
        return replace(self, y=y, outcomes=None)

    def scaled(self) -> "Samples":
        """Return the samples with images of uint8 in [0, 1]."""
        if self.x.dtype != np.uint8:
            return self
        return replace(self, x=self.x.astype(np.float32) / np.float32(255))

    def in_memory(self) -> "Samples":
        """Return the samples with image files decoded, if they fit into memory."""
        return self if isinstance(self.x, np.ndarray) else replace(self, x=self.x.in_memory)


def _labels(outcomes: Outcomes) -> NDArray[np.float32]:
    return outcomes.labels.astype(np.float32)
