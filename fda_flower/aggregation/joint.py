"""Joint weights: weigh all sources together, by the position of their gradients around the target's.

Equation 3 of FedDA weighs each source in isolation, so that a perfect source of ``N`` never weighs more than
its ``α_i``. Write instead the new direction as ``(1−Σw) ḡ + Σ_i w_i g_i`` with one weight per source, where
``ḡ`` is the target's mean gradient, with mean ``g`` and variance ``σ²``. Its error is

``E‖(1−Σw) ḡ + Σ_i w_i g_i − g‖² = (1−Σw)² σ² + ‖Σ_i w_i (g_i − g)‖² = σ² (1−Σw)² + wᵀDw``

with ``D_ij = ⟨g_i−g, g_j−g⟩``, since ``Σw + (1−Σw) = 1``. `joint_weights` minimises it. Sources that err in
opposite directions correct each other, and similar ones share a weight. For one source ``D = d²``, and the
minimum is equation 3: ``w = σ²/(σ² + d²)``.

Since ``g`` is unknown, ``D_ij`` is estimated by ``⟨g_i−ḡ, g_j−ḡ⟩ − σ̂²``: the product has the expected value
``D_ij + σ²``, as the error of ``ḡ`` enters both factors.

References
----------
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
