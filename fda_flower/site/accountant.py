"""``ε`` of steps on samples drawn at random, by Opacus' accountant, and the noise that keeps within one."""

import math
import warnings
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from fda_flower.site.noise import HALVINGS, epsilon, noise_multiplier

ORDERS = (*(1 + tenth / 10 for tenth in range(1, 100)), *range(11, 64), 80, 96, 128, 192, 256, 512, 1024)
"""Orders of Rényi divergence: ``ε`` is the least over them, so that more of them make it no larger."""

Steps = tuple[float, float, int]
"""A noise multiplier, the share of patients that a step draws, and a number of steps."""


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
    return _noise_of_steps(epsilon, delta, rate, steps)


@lru_cache(maxsize=64)
def _noise_of_steps(epsilon: float, delta: float, rate: float, steps: int) -> float:
    if rate == 1:
        return noise_multiplier(epsilon, delta) * math.sqrt(steps) * (1 + TINY)
    least, most = 0.0, 1.0
    while epsilon_of_steps([(most, rate, steps)], delta) > epsilon:
        least, most = most, 2 * most
    for _ in range(HALVINGS):
        if most - least < PRECISION * most:
            break
        middle = (least + most) / 2
        enough = epsilon_of_steps([(middle, rate, steps)], delta) <= epsilon
        least, most = (least, middle) if enough else (middle, most)
    return most


TINY, PRECISION = 1e-9, 1e-4
"""The share added to a noise multiplier, so that rounding keeps its ε within the budget; the precision of the
search for one."""


@lru_cache(maxsize=256)
def _divergences(noise: float, rate: float) -> Any:
    """Return the Rényi divergences of one step, shape ``(orders,)``."""
    from opacus.accountants.analysis.rdp import compute_rdp

    with warnings.catch_warnings(action="ignore"):
        return compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=list(ORDERS))
