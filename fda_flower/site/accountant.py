"""``ε`` of Gaussian releases and of steps on samples drawn at random, and the noise that keeps within it."""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

ORDERS = (*(1 + tenth / 10 for tenth in range(1, 100)), *range(11, 64), 80, 96, 128, 192, 256, 512, 1024)
"""Orders of Rényi divergence: ``ε`` is the least over them, so that more of them make it no larger."""

HALVINGS = 60
"""Bound beyond which a float64 hardly changes."""

TINY, PRECISION = 1e-9, 1e-4
"""The share added to a noise multiplier, so that rounding keeps its ε within the budget; the precision of the
search for one."""

Steps = tuple[float, float, int]
"""A noise multiplier, the share of patients that a step draws, and a number of steps."""


def epsilon(releases: Iterable[tuple[float, int]], delta: float) -> float:
    """Return the exact ``ε`` of Gaussian releases (Balle and Wang, ICML 2018, theorem 8).

    Together the releases equal one with noise multiplier ``z``, where ``1/z²`` is the sum over them (Dong et
    al., "Gaussian differential privacy", 2022, corollary 3.3).

    Parameters
    ----------
    releases : iterable of (float, int)
        Noise multipliers ``z``, each with its number of releases. Every release uses all of the site's data:
        there is no sampling to amplify privacy.
    delta : float
        ``δ``.

    Examples
    --------
    >>> round(epsilon([(4.0, 20)], 1e-5), 2), epsilon([], 1e-5)
    (4.98, 0.0)
    """
    mu = math.sqrt(sum(count / noise**2 for noise, count in sorted(releases)))
    if not mu or _log_delta(0.0, mu) <= math.log(delta):
        return 0.0
    return _smallest(lambda epsilon: _log_delta(epsilon, mu) <= math.log(delta))


def noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the smallest noise multiplier ``z`` with which one release costs at most ``ε``.

    Parameters
    ----------
    epsilon, delta : float
        Both above 0, ``δ`` below 1.

    Examples
    --------
    >>> round(noise_multiplier(1.0, 1e-5), 2)
    3.73
    """
    return _smallest(lambda noise: _log_delta(epsilon, 1 / noise) <= math.log(delta))


def _smallest(enough: Callable[[float], bool], precision: float = 0.0) -> float:
    """Return the smallest number that is enough, from above, by halving an interval."""
    least, most = 0.0, 1.0
    while not enough(most):
        least, most = most, 2 * most
    for _ in range(HALVINGS):
        if most - least < precision * most:
            break
        middle = (least + most) / 2
        least, most = (least, middle) if enough(middle) else (middle, most)
    return most


def _log_delta(epsilon: float, mu: float) -> float:
    """Return ``log(Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ))``, the log of the smallest ``δ``."""
    first, second = _log_tail(epsilon / mu - mu / 2), epsilon + _log_tail(epsilon / mu + mu / 2)
    return first + math.log1p(-math.exp(second - first)) if second < first else -math.inf


FAR = 30.0


def _log_tail(x: float) -> float:
    """Return ``log(1 − Φ(x))``; far out by its asymptotic series, with an error below 1e-8."""
    if x < FAR:
        return math.log(math.erfc(x / math.sqrt(2)) / 2)
    return -(x**2) / 2 - math.log(x * math.sqrt(2 * math.pi)) + math.log1p(-1 / x**2 + 3 / x**4 - 15 / x**6)


def epsilon_of_steps(steps: Iterable[Steps], delta: float) -> float:
    """Return ``ε`` of steps of DP-SGD, for one patient more or less.

    Each draws every patient by itself, with the same probability ``q`` (Poisson sampling), and adds noise of
    the multiplier ``z`` to a sum of vectors of limited norm. It is exact where all steps have ``q = 1``, and
    otherwise an upper bound, by Rényi divergences (Mironov, Talwar and Zhang, 2019) as Opacus computes them.

    Parameters
    ----------
    steps : iterable of (float, float, int)
        ``z`` and ``q`` with the number of steps that had them. All steps compose.
    delta : float
        ``δ``.

    Raises
    ------
    ModuleNotFoundError
        If some ``q`` is below 1 and Opacus is not installed (extra ``patients``).

    Examples
    --------
    >>> round(epsilon_of_steps([(2.0, 1.0, 10)], delta=1e-5), 2)
    7.51
    """
    counts = Counter[tuple[float, float]]()
    for noise, rate, count in steps:
        counts[noise, rate] += count
    found = sorted((noise, rate, count) for (noise, rate), count in counts.items() if count)
    if all(rate == 1 for _, rate, _ in found):
        return epsilon([(noise, count) for noise, _, count in found], delta)
    from opacus.accountants.analysis.rdp import get_privacy_spent

    total = sum(count * _divergences(noise, rate) for noise, rate, count in found)
    with warnings.catch_warnings(action="ignore"):  # an order at the end of the list is a bound as well
        spent, _ = get_privacy_spent(orders=list(ORDERS), rdp=total, delta=delta)
    return max(float(spent), 0.0)


@lru_cache(maxsize=64)
def noise_of_steps(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Return a noise multiplier at which `steps` cost at most ``ε``, and hardly less.

    Parameters
    ----------
    epsilon, delta : float
        Both above 0, ``δ`` below 1.
    rate : float
        ``q``; see `epsilon_of_steps`.
    steps : int
        At least 1.

    Raises
    ------
    ModuleNotFoundError
        As of `epsilon_of_steps`.

    Examples
    --------
    >>> round(noise_of_steps(1.0, 1e-5, rate=1.0, steps=4), 2)
    7.46
    """
    if rate == 1:
        return noise_multiplier(epsilon, delta) * math.sqrt(steps) * (1 + TINY)
    return _smallest(lambda noise: epsilon_of_steps([(noise, rate, steps)], delta) <= epsilon, PRECISION)


@lru_cache(maxsize=256)
def _divergences(noise: float, rate: float) -> Any:
    """Return the Rényi divergences of one step, shape ``(orders,)``."""
    from opacus.accountants.analysis.rdp import compute_rdp

    with warnings.catch_warnings(action="ignore"):
        return compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=list(ORDERS))
