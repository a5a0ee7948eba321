"""FedOMG: from the sources' updates alone, a step on which they all agree.

With the sources' updates ``Δ_i`` and their mean ``Δ̄ = Σ_i α_i Δ_i``, the step is

``Δ̄ + κ ‖Δ̄‖ Γ / ‖Γ‖``, ``Γ = Σ_i γ_i Δ_i``, ``γ = argmin ⟨Γ, Δ̄⟩ + κ ‖Δ̄‖ ‖Γ‖`` over ``γ ≥ 0``, ``Σγ = 1``.

By duality it is the ``d`` with ``‖d − Δ̄‖ ≤ κ ‖Δ̄‖`` whose least inner product with an update,
``min_i ⟨Δ_i, d⟩``, is largest (Liu et al., "Conflict-Averse Gradient Descent", NeurIPS 2021). The update that
the mean serves worst thus gains weight.

References
----------
Nguyen et al., "Federated Domain Generalization with Data-Free On-Server Matching Gradient", ICLR 2025,
equations 15 to 17 (unverified: known from a summary and from the authors' code).
"""

import numpy as np

from fda_flower.aggregation.joint import nonnegative_least_squares
from fda_flower.aggregation.updates import Vector

SMOOTHING = 1e-4
"""Added to the squared norms of updates, relative to their mean: it makes the minimum unique, and bounds the
step if updates cancel. The authors' code has the same number under its square roots."""

MOST_STEPS, TOLERANCE = 1000, 1e-12
"""End of the search for ``‖Γ‖``: largest number of steps, and smallest relative change."""


def matching_weights(products: Vector, shares: Vector, kappa: float) -> Vector:
    """Return ``γ``, shape ``(N,)``.

    For a given ``s`` the minimum of ``⟨Γ, Δ̄⟩ + κ ‖Δ̄‖ (‖Γ‖²/s + s)/2`` is the point of smallest norm of a
    simplex, found by nonnegative least squares, and ``s = ‖Γ‖`` is best for this ``γ``. The sum is convex in
    ``γ`` and ``s`` jointly, so alternating converges to the minimum of both.

    Parameters
    ----------
    products : Vector
        ``⟨Δ_i, Δ_j⟩``, shape ``(N, N)``, finite; see `inner_products_of`.
    shares : Vector
        ``α``, shape ``(N,)``, with sum 1.
    kappa : float
        ``κ ≥ 0``. At 0 the step is the mean for any ``γ``, and ``α`` is returned.

    Examples
    --------
    >>> matching_weights(np.array([[1.0, 0.0], [0.0, 1.0]]), np.full(2, 0.5), 0.5).round(6)
    array([0.5, 0.5])
    >>> matching_weights(np.array([[4.0, 0.0], [0.0, 1.0]]), np.full(2, 0.5), 0.5).round(4)  # the shorter one
    array([0., 1.])
    """
    scale = np.trace(products) / len(products)
    if scale == 0:
        return np.asarray(shares, np.float64)
    values, vectors = np.linalg.eigh(products / scale + SMOOTHING * np.eye(len(products)))
    roots = np.sqrt(np.maximum(values, SMOOTHING))[:, None] * vectors.T  # their columns are the updates
    mean = roots @ shares
    radius, norm = kappa * float(np.linalg.norm(mean)), float(np.linalg.norm(mean))
    weights = np.asarray(shares, np.float64)
    for _ in range(MOST_STEPS if radius > 0 else 0):
        matrix = roots + norm / radius * mean[:, None]
        # The point of smallest norm of a simplex; see `joint_weights`.
        scaled = np.vstack([matrix / np.abs(matrix).max(), np.ones(len(shares))])
        y = nonnegative_least_squares(scaled, np.eye(len(scaled))[-1])
        weights = y / y.sum()
        before, norm = norm, float(np.linalg.norm(roots @ weights))
        if abs(norm - before) <= TOLERANCE * before:
            break
    return weights


def matched_step(products: Vector, shares: Vector, kappa: float) -> tuple[Vector, Vector]:
    """Return the coefficients ``c`` of the step ``Σ_i c_i Δ_i``, and ``γ``; see `matching_weights`.

    If all updates are equal, the step is ``(1 + κ) Δ̄``.

    Examples
    --------
    >>> matched_step(np.ones((2, 2)), np.full(2, 0.5), 0.5)[0].round(3)
    array([0.75, 0.75])
    """
    weights = matching_weights(products, shares, kappa)
    scale = SMOOTHING * np.trace(products) / len(products)
    smooth = products + scale * np.eye(len(products))
    length, mean = (float(np.sqrt(w @ smooth @ w)) for w in (weights, shares))
    return shares + (kappa * mean / length * weights if length > 0 else 0.0), weights
