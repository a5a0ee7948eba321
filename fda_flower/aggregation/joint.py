"""Joint weights: weigh all sources together, by where their gradients lie around the target's.

Equation 3 of FedDA weighs each source as if it were the only one, so that a perfect source of ``N`` never
weighs more than its ``α_i``. Write instead the new direction as ``(1−Σw) ḡ + Σ_i w_i g_i`` with one weight
for each source, where ``ḡ`` is the target's mean gradient, of mean ``g`` and variance ``σ²``. Its error is

``E‖(1−Σw) ḡ + Σ_i w_i g_i − g‖² = (1−Σw)² σ² + ‖Σ_i w_i (g_i − g)‖² = σ² (1−Σw)² + wᵀDw``

with ``D_ij = ⟨g_i−g, g_j−g⟩``, since ``Σw + (1−Σw) = 1``. `joint_weights` minimises it. Sources that err in
opposite directions correct each other, and alike ones share a weight. For one source ``D = d²``, and the
minimum is equation 3: ``w = σ²/(σ² + d²)``.

Since ``ḡ`` is known and ``g`` is not, ``D_ij`` is estimated by ``⟨g_i−ḡ, g_j−ḡ⟩ − σ̂²``: the expected value of
the product is ``D_ij + σ²``, as the error of ``ḡ`` stands on both sides.

References
----------
Lawson, Hanson, "Solving Least Squares Problems", 1974, chapter 23, for `nonnegative_least_squares`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.geometry import Geometry
from fda_flower.aggregation.layers import BLOCK, Vector, blocks
from fda_flower.aggregation.update import Update

Matrix = NDArray[np.float64]

FLOOR = 1e-10
"""The least eigenvalue of ``D/σ²``, to which the rounding error of the eigenvalues is added: it makes the
minimum unique, with the smallest weights among equally good ones."""

TOLERANCE = 1e-15
"""A gradient of up to this size counts as zero; the objective is at most 1."""


def joint_weights(D: Matrix, sigma2: float) -> Vector:
    """Return ``argmin_w σ² (1−Σw)² + wᵀDw`` with ``w ≥ 0`` and ``Σw ≤ 1``, shape ``(N,)``.

    With ``w_0 = 1−Σw`` this is the point of smallest norm ``‖A (w_0, w)‖`` on the simplex, where
    ``AᵀA = diag(σ², D)``. It is proportional to the nonnegative ``y`` that minimises
    ``‖Ay‖² + (1 − Σy)²``: for ``y = t (w_0, w)`` the best ``t`` leaves ``f/(1+f)``, which rises with
    ``f = ‖A (w_0, w)‖²``.

    Parameters
    ----------
    D : Matrix
        Inner products of the sources' errors, symmetric, shape ``(N, N)``. As an estimate it may have
        negative eigenvalues, which count as zero.
    sigma2 : float
        ``σ²``, the variance of the target's mean gradient. At 0 all weights are 0.

    Raises
    ------
    ValueError
        If a value is not finite or `sigma2` is negative.

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
    if not np.isfinite(scaled).all():  # σ² is 0, or vanishes beside D
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
    weights: Vector = y[1:] / y.sum()
    return weights


def nonnegative_least_squares(matrix: Matrix, values: Vector) -> Vector:
    """Return ``argmin_{y ≥ 0} ‖matrix y − values‖``, exact up to rounding; the columns are independent."""
    size = matrix.shape[1]
    y, free, refused = np.zeros(size), np.zeros(size, bool), np.zeros(size, bool)
    for _ in range(100 * size):  # rounding may make it repeat itself; y is feasible throughout
        gradient = matrix.T @ (values - matrix @ y)
        gradient[free | refused] = -np.inf
        new = int(gradient.argmax())
        if gradient[new] <= TOLERANCE:
            break
        free[new] = True
        solution = _solve(matrix, values, free)
        if solution[new] <= 0:
            free[new], refused[new] = False, True
            continue
        while (falling := free & (solution <= 0)).any():
            shares = y[falling] / (y[falling] - solution[falling])
            y += shares.min() * (solution - y)
            y[np.flatnonzero(falling)[shares == shares.min()]] = 0.0
            free &= y > 0
            solution = _solve(matrix, values, free)
        y, refused = solution, np.zeros(size, bool)
    return y


def _solve(matrix: Matrix, values: Vector, free: NDArray[np.bool_]) -> Vector:
    """Return the unconstrained solution in the free unknowns, the others being zero."""
    solution = np.zeros(len(free))
    solution[free] = np.linalg.lstsq(matrix[:, free], values)[0]
    return solution


def inner_products_of(sources: Sequence[Update]) -> Matrix:
    """Return ``⟨Δ_i, Δ_j⟩`` of whole updates, shape ``(N, N)``, accumulated in float64."""
    number = len(sources)
    products = np.zeros((number, number))
    for name, first in sources[0].parameters.items() if sources else ():
        flat = [source.parameters[name].reshape(-1) for source in sources]
        rows = np.empty((number, min(first.size, BLOCK)))
        for s in blocks(first.size):
            block = rows[:, : s.stop - s.start]
            for i, update in enumerate(flat):
                block[i] = update[s]
            for i in range(number):
                for j in range(i, number):
                    products[i, j] += np.dot(block[i], block[j])
    upper = np.triu(products, 1)
    matrix: Matrix = products + upper.T
    return matrix


def update_differences(
    target: Update, sources: Sequence[Update], geometry: Geometry, sigma2: float
) -> Matrix:
    """Return ``D_ij = ⟨g_i−ḡ, g_j−ḡ⟩ − σ̂²`` of updates, shape ``(N, N)``.

    Gradients are ``g_i = Δ_i/(K_i η_i)`` and ``ḡ = Δ_T/(K_T η_T)``. Rows and columns of sources that did not
    report their steps or their learning rate are NaN.

    Parameters
    ----------
    target, sources : Update
        The clients' updates.
    geometry : Geometry
        The geometry of these updates.
    sigma2 : float
        ``σ̂²``.
    """
    scales = np.array([source.scale if source.scale > 0 else np.nan for source in sources])
    with np.errstate(all="ignore"):
        own = geometry.target_squared.sum() / target.scale**2
        along = geometry.products.sum(axis=1) / scales / target.scale
        among = inner_products_of(sources) / np.outer(scales, scales)
        differences: Matrix = among - along[:, None] - along[None, :] + own - sigma2
    return differences
