"""The kernel of rows by its eigenvectors, from which the ridge regressions of all strengths follow.

A ridge regression of ``Y`` on ``n`` rows ``X`` with the metric ``Λ`` and the strength ``λ`` leaves
``λ (K + λ)⁻¹ Y``, where ``K = X Λ⁻¹ Xᵀ = U diag(s) Uᵀ``, shape ``(n, n)``. Of more rows than a row has
numbers, ``d``, ``U`` are the left singular vectors of ``X L⁻ᵀ``, where ``L Lᵀ = Λ``, shape ``(n, d)``: all
other eigenvalues are 0. That takes ``n d²`` operations and not ``n³``.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.sums import Array, solved
from fda_flower.aggregation.units import Units

FEW = 256
"""Rows up to which the whole kernel takes milliseconds; its residuals are no differences of near numbers."""


@dataclass(frozen=True)
class Kernel:
    """``K = U diag(s) Uᵀ``.

    Attributes
    ----------
    vectors : array
        ``U``, shape ``(n, k)``; a kernel that is `thin` has ``k = d`` instead of ``n``.
    values : array
        ``s``, shape ``(k,)``.
    """

    vectors: Array
    values: Array
    thin: bool

    @classmethod
    def of(cls, rows: Array, back: Array, factor: Array | None = None) -> "Kernel":
        """Return the kernel of rows, shape ``(n, d)``, with ``Λ⁻¹ Xᵀ`` and ``L``; by default ``Λ = I``."""
        if len(rows) <= max(FEW, 2 * rows.shape[1]):
            kernel = rows @ back
            values, vectors = np.linalg.eigh((kernel + kernel.T) / 2)
            return cls(vectors, np.maximum(values, 0.0), thin=False)
        root = rows if factor is None else solved(factor, rows.T, half=True).T
        vectors, singular, _ = np.linalg.svd(root, full_matrices=False)
        return cls(vectors, singular**2, thin=True)

    @classmethod
    def none(cls, rows: Array) -> "Kernel":
        """Return a kernel without eigenvectors, which leaves all of any values."""
        return cls(np.zeros((len(rows), 0)), np.zeros(0), thin=True)

    def project(self, values: Array) -> Array:
        """Return ``Uᵀ Z`` of values, shape ``(n, C)``, which all strengths need."""
        return np.asarray(self.vectors.T @ values)

    def left_out(self, strength: float, values: Array, projected: Array, units: Units) -> Array:
        """Return the residuals of `values`, shape ``(n, C)``, without each unit.

        They are ``(R_gg)⁻¹ (R Z)_g``, where ``R = λ (K + λ)⁻¹``; `projected` are the values as `project` has
        them.
        """
        rest, factors = 0.0, strength / (self.values + strength)
        if self.thin:
            rest, factors = 1.0, -self.values / (self.values + strength)
        residuals = self.vectors @ (factors[:, None] * projected)
        residuals = values + residuals if self.thin else residuals
        return units.left_out(self.vectors, factors, residuals, rest)

    def coefficients(self, strength: float, projected: Array) -> Array:
        """Return ``c`` with ``U c = (K + λ)⁻¹ Z``, up to what ``Λ⁻¹ Xᵀ`` takes to 0, from ``Uᵀ Z``."""
        return np.asarray(projected / (self.values + strength)[:, None])

    def inverse(self, strength: float) -> "Inverse":
        """Return ``(K + λ)⁻¹``."""
        return Inverse(self, strength)


@dataclass(frozen=True)
class Inverse:
    """``Q = (K + λ)⁻¹``; of a thin kernel it is never formed: it is ``(I − U diag(s/(s + λ)) Uᵀ)/λ``."""

    kernel: Kernel
    strength: float

    @cached_property
    def left(self) -> Array:
        """``Q`` or, of a thin kernel, ``U (diag(s) + λ)⁻¹``, shape ``(n, k)``: ``Q X = left Uᵀ X``."""
        scaled = self.kernel.vectors / (self.kernel.values + self.strength)
        return scaled if self.kernel.thin else np.asarray(scaled @ self.kernel.vectors.T)

    @cached_property
    def _taken(self) -> Array:
        return self.left * self.kernel.values

    def __matmul__(self, values: Array) -> Array:
        if not self.kernel.thin:
            return np.asarray(self.left @ values)
        return np.asarray((values - self._taken @ (self.kernel.vectors.T @ values)) / self.strength)

    def block(self, rows: NDArray[np.intp]) -> Array:
        """Return ``Q_gg``, shape ``(|g|, |g|)``."""
        if not self.kernel.thin:
            return self.left[np.ix_(rows, rows)]
        return np.asarray(
            (np.eye(len(rows)) - self._taken[rows] @ self.kernel.vectors[rows].T) / self.strength
        )
