"""A threshold that finds a share of one class: ill patients are flagged with a promised sensitivity.

Each of ``m`` patients of the positive class has a probability of it, from a model that was fitted without
the patient. In ascending order they are ``v₁ ≤ ... ≤ v_m``. If new patients come as these did, the share of
the positive ones that ``p ≥ v_k`` flags has the distribution Beta(m + 1 − k, k). It is at least ``s`` with a
confidence ``1 − δ`` if ``P(Binomial(m, s) ≥ m + 1 − k) ≤ δ``, which is Clopper and Pearson's limit, and on
average if ``k ≤ (1 − s)(m + 1)``. The largest such ``k`` flags the fewest. Equal probabilities are flagged
together, so that ties only raise the sensitivity.

A patient with several samples of a class counts once in it, and is flagged if any of them is.

References
----------
Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
Biometrika 26, 1934; Wilks, "Determination of sample sizes for setting tolerance limits", Annals of
Mathematical Statistics 12, 1941.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.conformal import Calibration, exact
from fda_flower.aggregation.units import Units

ROUNDING = 1e-6
"""How far a probability may be below a threshold, as a share of it: networks compute with float32."""


@dataclass(frozen=True)
class Promise:
    """A sensitivity to promise.

    Attributes
    ----------
    sensitivity : float
        ``s``, between 0 and 1.
    confidence : float, optional
        ``1 − δ``, between 0 and 1; None for a sensitivity that is promised on average.

    Examples
    --------
    >>> promise = Promise(0.9)
    >>> promise.rank(22), promise.rank(38), promise.rank(21), Promise(0.9, None).rank(22)
    (1, 2, 0, 2)
    >>> promise.needed, promise.most(12), Promise(0.9, None).needed
    (22, 82, 9)
    """

    sensitivity: float
    confidence: float | None = 0.9

    def rank(self, positives: int) -> int:
        """Return ``k``, or 0 if ``m`` positives are too few."""
        return _rank(positives, exact(self.sensitivity), self._risk)

    @property
    def needed(self) -> int:
        """The smallest number of positives that can promise it."""
        share = exact(self.sensitivity)
        if self._risk is None:
            return math.ceil(share / (1 - share))
        # Less a rounding error, where a power of s is δ.
        return math.ceil(math.log(self._risk) / math.log(share) * (1 - 1e-12))

    def most(self, positives: int) -> int:
        """Return the whole percent of the largest sensitivity that ``m`` positives can promise, or 0."""
        percents = range(99, 0, -1)
        return next((each for each in percents if _rank(positives, Fraction(each, 100), self._risk)), 0)

    @property
    def _risk(self) -> Fraction | None:
        """``δ``."""
        return None if self.confidence is None else 1 - exact(self.confidence)


def _rank(positives: int, sensitivity: Fraction, risk: Fraction | None) -> int:
    """Return the largest ``k`` that keeps a promise; 0 if none does."""
    if risk is None:
        return min(math.floor((1 - sensitivity) * (positives + 1)), positives)
    # The chances that j = 0, 1, ... of m positives are missed, in whole numbers, until their sum exceeds δ.
    hit, miss = sensitivity.numerator, sensitivity.denominator - sensitivity.numerator
    limit = math.floor(risk * sensitivity.denominator**positives)
    term = total = hit**positives
    rank = 0
    while rank < positives and total <= limit:
        rank += 1
        term = term * (positives + 1 - rank) * miss // (rank * hit)
        total += term
    return rank


def reaches(probabilities: NDArray[np.floating], threshold: float) -> NDArray[np.bool_]:
    """Return which probabilities are at least the threshold, up to `ROUNDING`."""
    return np.asarray(probabilities >= threshold * (1 - ROUNDING))


@dataclass(frozen=True)
class Flagging:
    """A threshold, and what left-out labels tell of it.

    Attributes
    ----------
    threshold : float
        The probability of the positive class from which a sample is flagged.
    positives, others : int
        The number of patients of the positive class, from which it follows, and of the other class.
    passed : int
        The number of the others that are not flagged.
    """

    threshold: float
    positives: int
    others: int
    passed: int

    def flags(self, probabilities: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Return which samples are flagged, by their probabilities of the positive class."""
        return reaches(probabilities, self.threshold)


def flagging(calibration: Calibration, positive: int, promise: Promise) -> Flagging:
    """Return the threshold of two classes' held-out scores that keeps a promise for the class `positive`.

    Raise a `ValueError` if there are too few positives, or the scores do not tell units apart.

    Examples
    --------
    >>> ill = np.arange(1, 30) / 30
    >>> scores = Calibration.of(np.stack([1 - ill, ill], axis=1), np.repeat([0, 1], [7, 22]))
    >>> rule = flagging(scores, 1, Promise(0.9))
    >>> round(rule.threshold, 6), rule.positives, rule.others, rule.passed
    (0.266667, 22, 7, 7)
    """
    ascending = np.sort(1 - calibration.of_units(positive, "smallest"))
    rank = promise.rank(len(ascending))
    if not rank:
        raise ValueError(
            f"{len(ascending)} positives cannot promise a sensitivity of {promise.sensitivity:g}"
        )
    # Of the other class, 1 less the probability of its own is the probability of this one.
    others = calibration.of_units(1 - positive, "largest")
    threshold = float(ascending[rank - 1])
    return Flagging(threshold, len(ascending), len(others), int((~reaches(others, threshold)).sum()))


def flagged_units(
    flags: NDArray[np.bool_], labels: NDArray[np.integer], groups: NDArray[Any] | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return for each unit in each class whether any of its samples of the class is flagged, and the class.

    `flags`, `labels` and `groups`, the samples' units, have shape ``(n,)``. Default: each is its own unit.

    Examples
    --------
    >>> flagged_units(np.array([True, False, False]), np.array([1, 1, 0]), np.array([7, 7, 7]))
    (array([False,  True]), array([0, 1]))
    """
    units = Units.of(len(labels), groups)
    pairs = np.stack([labels.astype(np.int64), units.numbers])
    kinds, members = np.unique(pairs, axis=1, return_inverse=True)
    return np.bincount(members.ravel(), flags, kinds.shape[1]) > 0, kinds[0]


def net_benefit(flagged: NDArray[np.bool_], positive: NDArray[np.bool_], at: float) -> tuple[float, float]:
    """Return the net benefit of the flags, and of flagging all; flagging none has 0.

    It is ``TP/n − FP/n · t/(1 − t)`` at the probability ``t``, `at`, from which one would treat: the number
    of false alarms that one is ready to take for a case is ``(1 − t)/t``. Both arrays have shape ``(n,)``
    (Vickers and Elkin, "Decision curve analysis", Medical Decision Making 26, 2006).

    Examples
    --------
    >>> net_benefit(np.array([True, True, False, False]), np.array([True, False, False, True]), 0.2)
    (0.1875, 0.375)
    """
    cost = at / (1 - at)
    model, every = (
        (int((chosen & positive).sum()) - int((chosen & ~positive).sum()) * cost) / len(positive)
        for chosen in (flagged, np.ones(len(positive), bool))
    )
    return model, every
