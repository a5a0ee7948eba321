"""``ε`` of what a site has released, by Opacus' accountant."""

import warnings
from collections import Counter
from collections.abc import Iterable

import numpy as np

ORDERS = (1 + np.logspace(-3, 4, 300)).tolist()
"""Orders of Rényi's divergence, of which the best one is taken; from ε of 10,000 down to 0.01."""


def epsilon(releases: Iterable[tuple[float, int]], delta: float) -> float:
    """Return ``ε`` of releases by the Gaussian mechanism: an upper bound, by Rényi's divergence.

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
    counts = Counter[float]()
    for noise, count in releases:
        counts[noise] += count
    history = [(noise, 1.0, count) for noise, count in sorted(counts.items()) if count]
    if not history:
        return 0.0
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = history
    with warnings.catch_warnings():
        # At the ends of the orders the bound is looser, and still one.
        warnings.filterwarnings("ignore", "Optimal order is", UserWarning)
        return float(accountant.get_epsilon(delta, alphas=ORDERS))
