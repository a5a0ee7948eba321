"""Weights of all sources together, by the inner products of their updates: joint weights, and FedOMG's step.

Equation 3 of FedDA weighs each source in isolation, so that a perfect source of ``N`` never weighs more than
its ``α_i``. Write instead the new direction as ``(1−Σw) ḡ + Σ_i w_i g_i`` with one weight per source, where
``ḡ`` is the target's mean gradient, with mean ``g`` and variance ``σ²``. Its error is

``E‖(1−Σw) ḡ + Σ_i w_i g_i − g‖² = (1−Σw)² σ² + ‖Σ_i w_i (g_i − g)‖² = σ² (1−Σw)² + wᵀDw``

with ``D_ij = ⟨g_i−g, g_j−g⟩``, since ``Σw + (1−Σw) = 1``. `joint_weights` minimises it. Sources that err in
opposite directions correct each other, and similar ones share a weight. For one source ``D = d²``, and the
minimum is equation 3: ``w = σ²/(σ² + d²)``.

Since ``g`` is unknown, ``D_ij`` is estimated by ``⟨g_i−ḡ, g_j−ḡ⟩ − σ̂²``: the product has the expected value
``D_ij + σ²``, as the error of ``ḡ`` enters both factors.

FedOMG needs no target. With the sources' updates ``Δ_i`` and their mean ``Δ̄ = Σ_i α_i Δ_i``, its step is

``Δ̄ + κ ‖Δ̄‖ Γ / ‖Γ‖``, ``Γ = Σ_i γ_i Δ_i``, ``γ = argmin ⟨Γ, Δ̄⟩ + κ ‖Δ̄‖ ‖Γ‖`` over ``γ ≥ 0``, ``Σγ = 1``.

By duality it is the ``d`` with ``‖d − Δ̄‖ ≤ κ ‖Δ̄‖`` whose least inner product with an update,
``min_i ⟨Δ_i, d⟩``, is largest (Liu et al., "Conflict-Averse Gradient Descent", NeurIPS 2021). The update that
the mean serves worst thus gains weight.

References
----------
Nguyen et al., "Federated Domain Generalization with Data-Free On-Server Matching Gradient", ICLR 2025,
equations 15 to 17, for FedOMG (unverified: known from a summary and from the authors' code).
Portugal, Júdice, Vicente, "A comparison of block pivoting and interior-point algorithms for linear least
squares problems with nonnegative variables", Mathematics of Computation, 1994, for
`nonnegative_least_squares`.
"""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.updates import Geometry, Update, Vector

FLOOR = 1e-10
"""Least eigenvalue of ``D/σ²``, in addition to the rounding error of the eigenvalues. It makes the minimum
unique: the smallest weights among equally good ones."""

SOURCES, COLUMNS = 16, 1024
"""Sources and elements per matrix product: few enough that BLAS does not split it over threads, so that sums
are equal bit for bit with any number of threads."""

ROUNDING = 4 * float(np.finfo(np.float64).eps)
"""Share of the sizes of its terms up to which a sum counts as zero."""


def joint_weights(D: Vector, sigma2: float) -> Vector:
    """Return ``argmin_w σ² (1−Σw)² + wᵀDw`` with ``w ≥ 0`` and ``Σw ≤ 1``, shape ``(N,)``.

    With ``w_0 = 1−Σw`` this is the point of smallest norm ``‖A (w_0, w)‖`` on the simplex, where
    ``AᵀA = diag(σ², D)``. It is proportional to the nonnegative ``y`` that minimises
    ``‖Ay‖² + (1 − Σy)²``: for ``y = t (w_0, w)`` the best ``t`` leaves ``f/(1+f)``, which rises with
    ``f = ‖A (w_0, w)‖²``.

    ``D`` has the inner products of the sources' errors, shape ``(N, N)``; negative eigenvalues, which an
    estimate may have, count as zero. ``σ²`` is the variance of the target's mean gradient; at 0 all weights
    are 0. Raise a `ValueError` if a value is not finite or ``σ²`` is negative.

    Examples
    --------
    >>> joint_weights(np.array([[3.0]]), 1.0).round(12)  # equation 3: 1/(1+3)
    array([0.25])
    >>> joint_weights(np.array([[1.0, -1.0], [-1.0, 1.0]]), 1.0).round(6)  # opposite errors
    array([0.5, 0.5])
    """
    if not (np.isfinite(D).all() and np.isfinite(sigma2) and sigma2 >= 0):
        raise ValueError(f"joint weights need finite distances and a finite σ² ≥ 0, but σ² is {sigma2:g}")
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        scaled = (D + D.T) / (2 * np.float64(sigma2))
    if not np.isfinite(scaled).all():  # σ² is 0, or negligible against D
        return np.zeros(len(D))
    values, vectors = np.linalg.eigh(scaled)
    n = len(D)
    rounding = 10 * n * np.finfo(np.float64).eps * values.max(initial=0.0)
    roots = np.sqrt(np.maximum(values, FLOOR + rounding))
    matrix = np.zeros((n + 2, n + 1))
    matrix[0, 0] = 1.0
    matrix[1:-1, 1:] = roots[:, None] * vectors.T
    matrix[-1] = 1.0
    y = nonnegative_least_squares(matrix, np.eye(n + 2)[-1])
    return np.asarray(y[1:] / y.sum())


def nonnegative_least_squares(matrix: Vector, values: Vector) -> Vector:
    """Return ``argmin_{y ≥ 0} ‖matrix y − values‖``, exact up to rounding; the columns are independent.

    Block principal pivoting: each step solves for the free unknowns, the others being zero, and exchanges all
    that have the wrong sign. If their number does not fall in ten steps, only the last one is exchanged per
    step, which cycles only by rounding; the number of steps is limited.
    """
    size = matrix.shape[1]
    gram, sizes = matrix.T @ matrix, np.abs(matrix)
    y, free = np.zeros(size), np.zeros(size, bool)
    fewest, tries = size + 1, 0
    for _ in range(100 * size):
        rounding = ROUNDING * (sizes.T @ (sizes @ np.abs(y) + np.abs(values)))
        gradient = matrix.T @ (values - matrix @ y)
        wrong = np.flatnonzero(np.where(free, y < 0, gradient > rounding))
        if not wrong.size:
            break
        if wrong.size < fewest:
            fewest, tries = wrong.size, 10
        elif tries:
            tries -= 1
        else:
            wrong = wrong[-1:]
        free[wrong] ^= True
        y = _solve(matrix, values, free, gram)
    return np.maximum(_solve(matrix, values, free), 0.0)


def _solve(matrix: Vector, values: Vector, free: NDArray[np.bool_], gram: Vector | None = None) -> Vector:
    """Return the unconstrained solution in the free unknowns, the others being zero; faster with `gram`."""
    solution = np.zeros(len(free))
    if gram is not None:
        with suppress(np.linalg.LinAlgError):  # singular up to rounding
            for _ in range(2):  # the second pass corrects the Gram matrix's rounding
                error = matrix.T @ (values - matrix @ solution)
                solution[free] += np.linalg.solve(gram[np.ix_(free, free)], error[free])
            return solution
    solution[free] = np.linalg.lstsq(matrix[:, free], values)[0]
    return solution


def inner_products_of(sources: Sequence[Update]) -> Vector:
    """Return ``⟨Δ_i, Δ_j⟩`` of whole updates, shape ``(N, N)``, accumulated in float64."""
    number = len(sources)
    products = np.zeros((number, number))
    for name, first in sources[0].parameters.items() if sources else ():
        flat = [source.parameters[name].reshape(-1) for source in sources]
        rows = np.empty((number, min(first.size, COLUMNS)))
        for start in range(0, first.size, COLUMNS):
            block = rows[:, : first.size - start]
            for row, update in zip(block, flat, strict=True):
                row[:] = update[start : start + COLUMNS]
            for i in range(0, number, SOURCES):
                for j in range(i, number, SOURCES):
                    products[i : i + SOURCES, j : j + SOURCES] += (
                        block[i : i + SOURCES] @ block[j : j + SOURCES].T
                    )
    return np.asarray(np.triu(products) + np.triu(products, 1).T)


def update_differences(
    target: Update, sources: Sequence[Update], geometry: Geometry, sigma2: float
) -> Vector:
    """Return ``D_ij = ⟨g_i−ḡ, g_j−ḡ⟩ − σ̂²`` of updates, shape ``(N, N)``.

    Gradients are ``g_i = Δ_i/(K_i η_i)`` and ``ḡ = Δ_T/(K_T η_T)``. Rows and columns of sources that did not
    report their steps or their learning rate are NaN.
    """
    scales = np.array([source.scale if source.scale > 0 else np.nan for source in sources])
    with np.errstate(all="ignore"):
        own = geometry.target_squared.sum() / target.scale**2
        along = geometry.products.sum(axis=1) / scales / target.scale
        among = inner_products_of(sources) / np.outer(scales, scales)
        return np.asarray(among - along[:, None] - along[None, :] + own - sigma2)


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
