"""``ε`` of what a site has released, by Rényi's divergence."""

from collections.abc import Iterable

import numpy as np

ORDERS = 1 + np.logspace(-3, 4, 300)
"""Orders of the divergence, of which the best one is taken; from ε of 10,000 down to 0.01."""


def epsilon(releases: Iterable[tuple[float, int]], delta: float) -> float:
    """Return ``ε`` of releases by the Gaussian mechanism: an upper bound.

    Of the order ``α``, a release costs ``α / (2 z²)`` (Mironov, 2017), the costs of releases add up, and
    theorem 21 of Balle et al. (2020) makes ``ε`` and ``δ`` of their sum.

    Parameters
    ----------
    releases : iterable of (float, int)
        Noise multipliers ``z``, each with the number of releases that had it. Every release is of all of the
        site's data: there is no sampling that would amplify the privacy.
    delta : float
        ``δ``.

    Examples
    --------
    >>> round(epsilon([(4.0, 20)], 1e-5), 2), epsilon([], 1e-5)
    (5.38, 0.0)
    """
    cost = sum(count / (2 * noise**2) for noise, count in sorted(releases))
    if not cost:
        return 0.0
    bounds = ORDERS * cost + np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1)
    return max(float(bounds.min()), 0.0)
