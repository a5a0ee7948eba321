"""Conformal prediction: sets of classes, or intervals, that hold the label of a new sample as often as asked.

Each of ``n`` labelled samples has a score, the error of a model that was fitted without it: ``1 − p(y)``, or
``|y − f(x)|`` in a regression. If a new sample comes as these ones did, its score is equally likely to have
each of the ``n + 1`` ranks, and is at most the ``⌈(n+1)c⌉``-th smallest of theirs in a share ``c`` of cases.
So the set holds all classes whose score would be that small, and ``c`` can be at most ``n/(n+1)``.

A patient's samples are alike, and only patients come one like the other. So each of ``G`` units, such as
patients, has the weight ``1/(G+1)``, which its scores share equally, and the rest is at infinity: the
threshold is the smallest score up to which the weights sum to ``c`` (hierarchical conformal prediction). It
holds for a sample of a new patient, and ``c`` can be at most ``G/(G+1)``; with one sample each it is the
score of the rank above.

A new sample's score is of the model of all labels. As with the jackknife, the share is exact only as far as
leaving one label out changes predictions little.

References
----------
Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", Springer, 2005; Barber, Candès, Ramdas
and Tibshirani, "Predictive inference with the jackknife+", Annals of Statistics 49, 2021; Dunn, Wasserman and
Ramdas, "Distribution-free prediction sets for two-layer hierarchical models", Journal of the American
Statistical Association 118, 2023; Lee, Barber and Willett, "Distribution-free inference with hierarchical
data", arXiv 2306.06342, 2023 (equation 5).
"""

import bisect
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.units import Units

Array = NDArray[np.float64]

ENOUGH = 2
"""A class has its own threshold with this many times the units that a coverage needs: with fewer, it is the
class's largest score or the next, and sets are large."""


def exact(coverage: float) -> Fraction:
    """Return the fraction that a decimal number stands for, such as 9/10 for 0.9."""
    return Fraction(str(float(coverage)))


def threshold(
    scores: NDArray[np.floating], coverage: float, sizes: NDArray[np.integer] | None = None
) -> float:
    """Return the ``⌈(n+1)c⌉``-th smallest of ``n`` scores, shape ``(n,)``; ``c`` is the `coverage`.

    With `sizes`, the number of scores of each one's unit, shape ``(n,)``, it is the smallest score up to
    which the weights, ``1/size`` each, sum to ``(G+1)c``. Raise a `ValueError` unless ``0 < c ≤ G/(G+1)``.

    Examples
    --------
    >>> threshold(np.array([0.3, 0.1, 0.2, 0.7]), 0.8), threshold(np.array([0.3, 0.1, 0.2, 0.7]), 0.6)
    (0.7, 0.3)
    >>> threshold(np.array([0.1, 0.3, 0.2, 0.7]), 0.5, np.array([3, 3, 3, 1]))  # of two patients
    0.7
    """
    # In whole numbers: a unit counts as `one`, the least common multiple of all sizes.
    each = [1] * len(scores) if sizes is None else sizes.tolist()
    one = math.lcm(*set(each))
    order = np.argsort(scores, kind="stable")
    sums = list(itertools.accumulate(one // each[i] for i in order.tolist()))
    units = sums[-1] // one if sums else 0
    wanted = math.ceil((units + 1) * one * exact(coverage))
    if not 0 < wanted <= units * one:
        of = "" if sizes is None else f" of {units} units"
        raise ValueError(f"{len(scores)} scores{of} cannot promise a coverage of {coverage:g}")
    return float(scores[order[bisect.bisect_left(sums, wanted)]])


def labels_for(coverage: float) -> int:
    """Return the smallest number of labels, each of another unit, that can promise a coverage below 1.

    Examples
    --------
    >>> labels_for(0.9), labels_for(0.95), labels_for(0.875)
    (9, 19, 7)
    """
    return math.ceil(exact(coverage) / (1 - exact(coverage)))


@dataclass(frozen=True)
class Calibration:
    """The scores of labelled samples, from models without them, in no order that tells which is whose.

    Of the units, such as patients, it has the number of samples, and which scores are the smallest and the
    largest of one's samples of a class, not which scores are of one.

    Attributes
    ----------
    scores : array
        Shape ``(n, 1)`` for classes; for a regression, in the unit of outputs, ``(n, C)``.
    classes : array
        The class of each score, integers of shape ``(n,)``; empty for a regression.
    sizes : array
        The number of samples in each score's unit, integers of the shape of `scores`; empty if all are 1.
    of_class : array
        The number of these that have the score's class, integers of the shape of `classes`; empty likewise.
    ends : array
        Whether a score is the smallest, and the largest, of its unit's in its class, bool, ``(n, 2)``; of
        equal ones only one is. Empty likewise, for a regression, and in files of earlier versions.
    """

    scores: Array
    classes: NDArray[np.int64]
    sizes: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    of_class: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    ends: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 2), np.bool_))

    @classmethod
    def of(
        cls, held_out: NDArray[np.floating], labels: NDArray[Any], groups: NDArray[Any] | None = None
    ) -> "Calibration":
        """Return the scores of held-out predictions, shape ``(n, C)``: probabilities of classes, or numbers.

        `labels` are classes, integers of shape ``(n,)``, or numbers, ``(n,)`` or ``(n, C)``. `groups` are the
        unit of each sample, which no prediction for it has seen, shape ``(n,)``; default: each is its own.
        """
        units = Units.of(len(labels), groups)
        sizes, several = units.sizes[units.numbers], not units.single
        if labels.dtype.kind == "f":
            errors = np.abs(labels.reshape(held_out.shape).astype(np.float64) - held_out)
            if not several:
                return cls(np.sort(errors, axis=0), np.zeros(0, np.int64))
            orders = np.stack([np.lexsort((sizes, column)) for column in errors.T], axis=1)
            return cls(np.take_along_axis(errors, orders, axis=0), np.zeros(0, np.int64), sizes[orders])
        scores = 1 - np.asarray(held_out, np.float64)[np.arange(len(labels)), labels]
        _, pairs, counts = np.unique(
            np.stack([units.numbers, labels]), axis=1, return_inverse=True, return_counts=True
        )
        of_class = counts[pairs.ravel()]
        ends = _ends(scores, pairs.ravel())
        order = np.lexsort((*ends.T, of_class, sizes, scores, labels))
        known = cls(scores[order, None], labels[order].astype(np.int64))
        if not several:
            return known
        return replace(known, sizes=sizes[order, None], of_class=of_class[order], ends=ends[order])

    @property
    def labels(self) -> int:
        """``n``."""
        return len(self.scores)

    @property
    def units(self) -> int:
        """``G``, the number of units."""
        return _units(self.sizes[:, 0]) if len(self.sizes) else self.labels

    @property
    def most(self) -> Fraction:
        """The largest coverage that can be promised, ``G/(G+1)``."""
        return Fraction(self.units, self.units + 1)

    def units_of(self, label: int) -> int:
        """Return ``G_c``, the number of units with a class."""
        rows = self.classes == label
        return _units(self.of_class[rows]) if len(self.of_class) else int(rows.sum())

    @property
    def tells_units(self) -> bool:
        """Whether `of_units` is known: files of earlier versions do not have the `ends`."""
        return not len(self.sizes) or bool(len(self.ends))

    def of_units(self, label: int, end: Literal["smallest", "largest"]) -> Array:
        """Return the smallest or the largest score of each unit in a class, ascending, ``(G_c,)``.

        Raise a `ValueError` unless it `tells_units`.
        """
        if not self.tells_units:
            raise ValueError("it does not have the scores of patients")
        rows = self.classes == label
        if len(self.ends):
            rows = rows & self.ends[:, ("smallest", "largest").index(end)]
        return np.sort(self.scores[rows, 0])

    def thresholds(self, coverage: float, outputs: int) -> Array:
        """Return the largest score of each class in a set, or of each number in an interval, ``(outputs,)``.

        A class with `ENOUGH` times the units that the coverage needs has its own threshold, so that the
        promise holds for its samples alone, too. Unless all classes have, no threshold is below the one of
        all labels, so that it holds over all samples. Raise a `ValueError` if there are too few units.
        """
        sizes = self.sizes.T if len(self.sizes) else [None] * self.scores.shape[1]
        common = [threshold(column, coverage, of) for column, of in zip(self.scores.T, sizes, strict=True)]
        if not len(self.classes):
            return np.array(common)
        thresholds, own = np.full(outputs, common[0]), {}
        for label in range(outputs):
            rows = self.classes == label
            of = self.of_class[rows] if len(self.of_class) else None
            if self.units_of(label) >= ENOUGH * labels_for(coverage):
                own[label] = threshold(self.scores[rows, 0], coverage, of)
        least = 0.0 if len(own) == outputs else common[0]
        for label, value in own.items():
            thresholds[label] = max(least, value)
        return thresholds

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name; of units only if one has several samples."""
        arrays: dict[str, NDArray[Any]] = {"scores": self.scores, "classes": self.classes}
        arrays |= {"sizes": self.sizes, "of-class": self.of_class} if len(self.sizes) else {}
        return arrays | ({"ends": self.ends} if len(self.ends) else {})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Calibration":
        """Return the calibration with these arrays; raise a `ValueError` if no samples can have them."""
        scores, classes = arrays["scores"], arrays["classes"]
        if scores.ndim != 2 or not len(scores) or scores.dtype != np.float64 or not (scores >= 0).all():
            raise ValueError("its held-out scores are not numbers of at least 0")
        fits = classes.shape in ((0,), (len(scores),)) and classes.dtype == np.int64
        if not fits or classes.min(initial=0) < 0:
            raise ValueError("its held-out scores have other classes")
        if not {"sizes", "of-class", "ends"} & arrays.keys():
            return cls(scores, classes)
        known = cls(scores, classes, arrays["sizes"], arrays["of-class"])
        known._check_sizes()
        if "ends" in arrays:
            known = replace(known, ends=arrays["ends"])
            known._check_ends()
        return known

    def _check_sizes(self) -> None:
        """Raise a `ValueError` if no units have these sizes."""
        shapes = (self.sizes.shape, self.of_class.shape) == (self.scores.shape, self.classes.shape)
        if not shapes or {self.sizes.dtype, self.of_class.dtype} != {np.dtype(np.int64)}:
            raise ValueError("its held-out scores have other units")
        first, *others = (np.sort(column).tolist() for column in self.sizes.T)
        parts = [self.of_class[self.classes == label] for label in np.unique(self.classes)]
        whole = all(_whole(part) for part in (self.sizes[:, 0], *parts))
        if (
            not whole
            or any(other != first for other in others)
            or (self.of_class > self.sizes[: len(self.of_class), 0]).any()
        ):
            raise ValueError("its held-out scores are of no whole number of units")

    def _check_ends(self) -> None:
        """Raise a `ValueError` unless each unit has one smallest and one largest score in each class."""
        if self.ends.shape != (len(self.classes), 2) or self.ends.dtype != np.bool_:
            raise ValueError("its held-out scores have other ends")
        alike = np.stack([self.classes, self.sizes[:, 0], self.of_class])
        _, kinds, counts = np.unique(alike, axis=1, return_inverse=True, return_counts=True)
        for end in self.ends.T:
            if (
                np.bincount(kinds.ravel(), end)[kinds.ravel()] * self.of_class != counts[kinds.ravel()]
            ).any():
                raise ValueError("its held-out scores have other ends")


def _ends(scores: Array, kinds: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return whether each score is the first, and the last, of its kind in ascending order, ``(n, 2)``."""
    order = np.lexsort((scores, kinds))
    change = np.diff(kinds[order]) != 0
    ends = np.empty((len(scores), 2), np.bool_)
    ends[order] = np.stack([np.append(True, change), np.append(change, True)], axis=1)
    return ends


def _units(sizes: NDArray[np.int64]) -> int:
    """Return the number of units whose samples' units have these sizes."""
    values, counts = np.unique(sizes, return_counts=True)
    return int((counts // values).sum())


def _whole(sizes: NDArray[np.int64]) -> bool:
    values, counts = np.unique(sizes, return_counts=True)
    return bool(values.min(initial=1) >= 1 and not (counts % values).any())


def sets_of(probabilities: NDArray[np.floating], thresholds: Array) -> NDArray[np.bool_]:
    """Return which classes are in the set of each sample; both arrays have shape ``(n, C)``.

    Examples
    --------
    >>> sets_of(np.array([[0.7, 0.2, 0.1], [0.4, 0.3, 0.3]]), np.array([0.5, 0.5, 0.8]))
    array([[ True, False, False],
           [False, False,  True]])
    """
    return np.asarray(1 - np.asarray(probabilities, np.float64) <= thresholds)
