"""Times until an event that not everyone reaches: survival curves, and pseudo-values as labels.

Of ``n`` patients with times ``t_i``, ``e_i`` says whether the event came at ``t_i``, or the patient was last
seen then without it. With the distinct event times ``u_j``, at which ``Y_j`` patients are at risk, ``t ≥
u_j``, and ``d_j`` have the event, the share without the event until ``h`` is estimated as

``S(h) = Π_{u_j ≤ h} (1 − d_j/Y_j)`` (Kaplan and Meier).

A patient's label at a horizon ``h`` is the jackknife pseudo-value ``n S(h) − (n − 1) S_{−i}(h)``, where
``S_{−i}`` leaves the patient out. Its mean over patients is ``S(h)``, and as a function of the columns it has
the expectation of the true indicator, if the censoring does not depend on the columns. It can leave
``[0, 1]``, and each label depends on all patients. Events come before censorings at equal times, and times
are equal only if their numbers are.

References
----------
Kaplan and Meier, "Nonparametric estimation from incomplete observations", Journal of the American Statistical
Association 53, 1958; Andersen, Klein and Rosthøj, "Generalised linear models for correlated
pseudo-observations, with applications to multi-state models", Biometrika 90, 2003; Andersen and Perme,
"Pseudo-observations in survival analysis", Statistical Methods in Medical Research 19, 2010.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MOST_HORIZONS = 10
"""Largest number of horizons."""

LATEST = 0.8
"""Quantile of the event times after which there is no horizon by default."""

QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Quantiles of the event times up to the latest that are horizons by default."""

DIGITS = 4
"""Significant digits of the horizons by default."""

SCALE = 0.5
"""Mean and deviation with which a network's outputs become pseudo-values, the same at all sites."""


class RiskSets(NamedTuple):
    """The distinct event times ``u``, those at risk ``Y`` and the events ``d``, shape ``(J,)`` each."""

    times: Array
    at_risk: Array
    events: Array

    @classmethod
    def of(cls, times: Array, events: NDArray[np.bool_]) -> "RiskSets":
        """Return the risk sets of patients, shape ``(n,)``."""
        distinct, counts = np.unique(times[events], return_counts=True)
        at_risk = len(times) - np.searchsorted(np.sort(times), distinct)
        return cls(distinct, at_risk.astype(np.float64), counts.astype(np.float64))

    @property
    def curve(self) -> Array:
        """``S`` before the first event time and after each one, shape ``(J + 1,)``."""
        return np.concatenate([[1.0], np.cumprod(1 - self.events / self.at_risk)])

    def until(self, times: NDArray[Any], just_before: bool = False) -> NDArray[np.intp]:
        """Return how many event times are up to each of some times, or before it."""
        return np.searchsorted(self.times, times, "left" if just_before else "right")


def survival_curve(times: Array, events: NDArray[np.bool_], at: NDArray[Any]) -> Array:
    """Return the Kaplan-Meier curve of patients, shape ``(n,)``, at some times; same shape as `at`.

    After the last time the curve stays where it is.

    Examples
    --------
    >>> times, events = np.array([1.0, 2.0, 2.0, 4.0]), np.array([True, True, False, True])
    >>> survival_curve(times, events, np.array([0, 2, 3]))
    array([1. , 0.5, 0.5])
    """
    sets = RiskSets.of(times, events)
    return np.asarray(sets.curve[sets.until(at)])


def censoring_curve(
    times: Array, events: NDArray[np.bool_], at: NDArray[Any], just_before: bool = False
) -> Array:
    """Return ``G``, the share not yet lost from sight, at some times or `just_before` them.

    It is the curve in which to be lost is the event. A patient with the event at the same time is no longer
    at risk.

    Examples
    --------
    >>> times, events = np.array([1.0, 2.0, 2.0, 4.0]), np.array([True, True, False, True])
    >>> censoring_curve(times, events, times), censoring_curve(times, events, times, just_before=True)
    (array([1. , 0.5, 0.5, 0.5]), array([1. , 1. , 1. , 0.5]))
    """
    sets = RiskSets.of(times, ~events)
    ordered = np.sort(times[events])
    same = np.searchsorted(ordered, sets.times, "right") - np.searchsorted(ordered, sets.times)
    sets = RiskSets(sets.times, sets.at_risk - same, sets.events)
    return np.asarray(sets.curve[sets.until(at, just_before)])


def pseudo_values(times: Array, events: NDArray[np.bool_], horizons: Sequence[float]) -> Array:
    """Return ``n S(h_k) − (n − 1) S_{−i}(h_k)``, shape ``(n, K)``, of patients, shape ``(n,)``.

    A factor of ``S_{−i}`` is 1 where no one else is at risk. Before ``t_i`` leaving ``i`` out takes one of
    those at risk, at ``t_i`` also its event, and later nothing: so three products over event times suffice.

    Examples
    --------
    >>> pseudo_values(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]), [1.0, 2.5]).round(3).tolist()
    [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    """
    sets, n = RiskSets.of(times, events), len(times)
    before, others = sets.until(times, just_before=True), sets.at_risk - 1
    alone = np.maximum(others, 1)  # whoever is alone at risk has no one's factor
    earlier = np.concatenate([[1.0], np.cumprod(1 - np.minimum(sets.events, others) / alone)])
    factors, curve = 1 - sets.events / sets.at_risk, sets.curve
    at_event = sets.until(times) > before
    places = np.minimum(before, max(len(sets.times) - 1, 0))
    own = np.ones(n)
    if len(sets.times):
        own = np.where(at_event, 1 - (sets.events[places] - events) / alone[places], 1.0)
    labels = np.empty((n, len(horizons)))
    for k, until in enumerate(sets.until(np.asarray(horizons, np.float64)).tolist()):
        later = np.concatenate([np.cumprod(factors[:until][::-1])[::-1], [1.0]])
        left_out = earlier[np.minimum(before, until)] * np.where(before < until, own, 1.0)
        left_out = left_out * later[np.minimum(before + at_event, until)]
        labels[:, k] = n * curve[until] - (n - 1) * left_out
    return labels


def default_horizons(sources: Sequence[Array], longest: Sequence[float]) -> tuple[float, ...]:
    """Return the horizons of a run that names none: quantiles of the sources' event times.

    Parameters
    ----------
    sources : sequence of array
        The times of each source's events.
    longest : sequence of float
        The largest time of each domain, with an event or without: none is asked for what comes after it.

    Returns
    -------
    tuple of float
        Rising, in few digits; empty without an event.

    Examples
    --------
    >>> default_horizons([np.arange(1.0, 101.0)], [500.0, 90.0])
    (8.9, 24.7, 40.5, 56.3, 72.1)
    """
    events = np.concatenate([*sources, np.zeros(0)])
    if not len(events):
        return ()
    latest = min(float(np.quantile(events, LATEST)), *longest)
    early = events[events <= latest]
    quantiles = np.quantile(early, QUANTILES) if len(early) else np.zeros(0)
    short = (float(f"{each:.{DIGITS}g}") for each in quantiles.tolist())
    return tuple(sorted({each for each in short if each > 0}))


def mended(curves: NDArray[Any]) -> Array:
    """Return predicted curves, shape ``(n, K)``, within ``[0, 1]``, none of which rises.

    Numbers are clipped, and each is at most the ones before it.

    Examples
    --------
    >>> mended(np.array([[1.1, 0.6, 0.7], [0.4, 0.2, -0.1]]))
    array([[1. , 0.6, 0.6],
           [0.4, 0.2, 0. ]])
    """
    return np.minimum.accumulate(np.clip(np.asarray(curves, np.float64), 0.0, 1.0), axis=1)


def curves_of(outputs: NDArray[Any]) -> Array:
    """Return the curves of a network's outputs, shape ``(n, K)``, `mended`."""
    return mended(SCALE + SCALE * np.asarray(outputs, np.float64))


def risk_of(curves: Array) -> Array:
    """Return ``1 − mean_k S_k`` of curves that are `mended`, shape ``(n,)``."""
    return np.asarray(1 - curves.mean(axis=1))


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What happened to patients: times, whether the event came, and the horizons of a run.

    Attributes
    ----------
    times : array
        In the unit of the table, above 0, shape ``(n,)``.
    events : array
        Whether the event came at this time, shape ``(n,)``; else the patient was last seen without it.
    horizons : tuple of float
        Rising times at which survival is predicted.

    Examples
    --------
    >>> outcomes = Outcomes(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]), (2.5,))
    >>> outcomes.curve, outcomes.at_risk, outcomes.take(np.array([0, 1])).labels
    (array([0.66666667]), 1, array([[-1.],
           [ 1.]]))
    """

    times: Array
    events: NDArray[np.bool_]
    horizons: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.times)

    def take(self, positions: NDArray[Any]) -> "Outcomes":
        """Return the patients at positions."""
        return replace(self, times=self.times[positions], events=self.events[positions])

    def joined(self, others: "Outcomes") -> "Outcomes":
        """Return these patients followed by others."""
        both = zip((self.times, self.events), (others.times, others.events), strict=True)
        times, events = (np.concatenate(pair) for pair in both)
        return replace(self, times=times, events=events)

    @cached_property
    def curve(self) -> Array:
        """``S`` at the horizons, shape ``(K,)``."""
        return survival_curve(self.times, self.events, np.array(self.horizons))

    @property
    def labels(self) -> Array:
        """Pseudo-values as a network predicts them: ``(y − 0.5)/0.5``, shape ``(n, K)``."""
        return (pseudo_values(self.times, self.events, self.horizons) - SCALE) / SCALE

    @property
    def at_risk(self) -> int:
        """How many are followed to the last horizon or longer."""
        return int(np.count_nonzero(self.times >= self.horizons[-1]))

    @property
    def count(self) -> int:
        """How many have the event."""
        return int(np.count_nonzero(self.events))
