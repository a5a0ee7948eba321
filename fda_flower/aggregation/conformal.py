"""Conformal prediction: sets of classes, or intervals, that hold the label of a new sample as often as asked.

Each of ``n`` labelled samples has a score, the error of a model that was fitted without it: ``1 − p(y)``, or
``|y − f(x)|`` in a regression. If a new sample comes as these ones did, its score is equally likely to have
each of the ``n + 1`` ranks, and is at most the ``⌈(n+1)c⌉``-th smallest of theirs in a share ``c`` of cases.
So the set holds all classes whose score would be that small, and ``c`` can be at most ``n/(n+1)``.

A new sample's score is of the model of all labels. As with the jackknife, the share is exact only as far as
leaving one label out changes predictions little.

References
----------
Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", Springer, 2005; Barber, Candès, Ramdas
and Tibshirani, "Predictive inference with the jackknife+", Annals of Statistics 49, 2021.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ENOUGH = 2
"""A class has its own threshold with this many times the labels that a coverage needs: with fewer, it is the
class's largest score or the next, and sets are large."""


def exact(coverage: float) -> Fraction:
    """Return the fraction that a decimal number stands for, such as 9/10 for 0.9."""
    return Fraction(str(float(coverage)))


def threshold(scores: NDArray[np.floating], coverage: float) -> float:
    """Return the ``⌈(n+1)c⌉``-th smallest of ``n`` scores, shape ``(n,)``; ``c`` is the `coverage`.

    Raise a `ValueError` unless ``0 < c ≤ n/(n+1)``.

    Examples
    --------
    >>> threshold(np.array([0.3, 0.1, 0.2, 0.7]), 0.8), threshold(np.array([0.3, 0.1, 0.2, 0.7]), 0.6)
    (0.7, 0.3)
    """
    rank = math.ceil((len(scores) + 1) * exact(coverage))
    if not 0 < rank <= len(scores):
        raise ValueError(f"{len(scores)} scores cannot promise a coverage of {coverage:g}")
    return float(np.sort(scores)[rank - 1])


def labels_for(coverage: float) -> int:
    """Return the smallest number of labels that can promise a coverage below 1.

    Examples
    --------
    >>> labels_for(0.9), labels_for(0.95), labels_for(0.875)
    (9, 19, 7)
    """
    return math.ceil(exact(coverage) / (1 - exact(coverage)))


@dataclass(frozen=True)
class Calibration:
    """The scores of labelled samples, from models without them, in no order that tells which is whose.

    Attributes
    ----------
    scores : array
        Shape ``(n, 1)`` for classes; for a regression, in the unit of outputs, ``(n, C)``.
    classes : array
        The class of each score, integers of shape ``(n,)``; empty for a regression.
    """

    scores: Array
    classes: NDArray[np.int64]

    @classmethod
    def of(cls, held_out: NDArray[np.floating], labels: NDArray[Any]) -> "Calibration":
        """Return the scores of held-out predictions, shape ``(n, C)``: probabilities of classes, or numbers.

        `labels` are classes, integers of shape ``(n,)``, or numbers, ``(n,)`` or ``(n, C)``.
        """
        if labels.dtype.kind == "f":
            errors = np.abs(labels.reshape(held_out.shape).astype(np.float64) - held_out)
            return cls(np.sort(errors, axis=0), np.zeros(0, np.int64))
        scores = 1 - np.asarray(held_out, np.float64)[np.arange(len(labels)), labels]
        order = np.lexsort((scores, labels))
        return cls(scores[order, None], labels[order].astype(np.int64))

    @property
    def labels(self) -> int:
        """``n``."""
        return len(self.scores)

    @property
    def most(self) -> Fraction:
        """The largest coverage that can be promised, ``n/(n+1)``."""
        return Fraction(self.labels, self.labels + 1)

    def thresholds(self, coverage: float, outputs: int) -> Array:
        """Return the largest score of each class in a set, or of each number in an interval, ``(outputs,)``.

        A class with `ENOUGH` times the labels that the coverage needs has its own threshold, so that the
        promise holds for its samples alone, too. Unless all classes have, no threshold is below the one of
        all labels, so that it holds over all samples. Raise a `ValueError` if there are too few labels.
        """
        common = [threshold(column, coverage) for column in self.scores.T]
        if not len(self.classes):
            return np.array(common)
        enough = np.bincount(self.classes, minlength=outputs) >= ENOUGH * labels_for(coverage)
        least = 0.0 if enough.all() else common[0]
        thresholds = np.full(outputs, common[0])
        for label in np.flatnonzero(enough):
            own = self.scores[self.classes == label, 0]
            thresholds[label] = max(least, threshold(own, coverage))
        return thresholds

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return {"scores": self.scores, "classes": self.classes}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Calibration":
        """Return the calibration with these arrays; raise a `ValueError` if no samples can have them."""
        scores, classes = arrays["scores"], arrays["classes"]
        if scores.ndim != 2 or not len(scores) or scores.dtype != np.float64 or not (scores >= 0).all():
            raise ValueError("its held-out scores are not numbers of at least 0")
        fits = classes.shape in ((0,), (len(scores),)) and classes.dtype == np.int64
        if not fits or classes.min(initial=0) < 0:
            raise ValueError("its held-out scores have other classes")
        return cls(scores, classes)


def sets_of(probabilities: NDArray[np.floating], thresholds: Array) -> NDArray[np.bool_]:
    """Return which classes are in the set of each sample; both arrays have shape ``(n, C)``.

    Examples
    --------
    >>> sets_of(np.array([[0.7, 0.2, 0.1], [0.4, 0.3, 0.3]]), np.array([0.5, 0.5, 0.8]))
    array([[ True, False, False],
           [False, False,  True]])
    """
    return np.asarray(1 - np.asarray(probabilities, np.float64) <= thresholds)
