"""Rows of samples, their targets, and sums over them, from which a ridge regression follows."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.updates import Layers, received

Array = NDArray[np.float64]

USUAL_TEMPERATURE = 8.0
"""The value of ``σ`` that few labels stay close to."""

BLOCK = 48
"""Block size in factorising and solving."""


def to_rows(features: NDArray[np.floating], power: float = 1.0) -> Array:
    """Return the row of each sample: its features at unit length, and a 1; shape ``(n, features + 1)``.

    Parameters
    ----------
    features : array
        Shape ``(n, features)``. Features that are all 0 stay 0.
    power : float
        Use 0.5, the square root, for features that are never negative, as after ReLU; all sites must use the
        same.

    Examples
    --------
    >>> to_rows(np.array([[9.0, 16.0], [0.0, 0.0]]), power=0.5)
    array([[0.6, 0.8, 1. ],
           [0. , 0. , 1. ]])
    """
    x = np.asarray(features, np.float64)
    x = np.sign(x) * np.abs(x) ** power
    largest = np.abs(x).max(axis=1, keepdims=True, initial=0.0)
    x = x / np.where(largest > 0, largest, 1.0)  # avoids overflow and underflow of squares
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return np.hstack([x / np.where(norms > 0, norms, 1.0), np.ones((len(x), 1))])


def to_targets(labels: NDArray[np.integer], classes: int) -> Array:
    """Return ``Y``: 1 for a row's class and 0 for the others, minus ``1/classes``; shape ``(n, classes)``."""
    return np.asarray(np.eye(classes)[labels] - 1 / classes)


def counts_of_classes(rows: float, products: Array, squares: Array) -> Array | None:
    """Return the number of rows of each class, shape ``(C,)``, from sums with their `to_targets`.

    None if the targets are numbers: of classes, each row of ``Y`` sums to 0, and the squares follow from
    the counts. `products` and `squares` are as in `Sums`, up to rounding to float32.

    Examples
    --------
    >>> X, Y = to_rows(np.eye(3)), to_targets(np.array([0, 1, 1]), 2)
    >>> counts_of_classes(3, X.T @ Y, (Y**2).sum(axis=0))
    array([1., 2.])
    >>> counts_of_classes(3, X.T @ (Y + 1), ((Y + 1)**2).sum(axis=0)) is None
    True
    """
    classes, near = products.shape[1], 0.01 + 1e-5 * rows
    counts = products[-1] + rows / classes
    away = squares - counts * (1 - 2 / classes) - rows / classes**2
    if classes < 2 or max(abs(products[-1].sum()), np.abs(away).max()) > near:
        return None
    return np.asarray(counts)


@dataclass(frozen=True)
class Sums:
    """Sums over the rows of one or more sites. Sums add up, and a site's own can be subtracted again.

    Attributes
    ----------
    gram : array
        The upper triangle of ``G = XᵀX``, row by row, shape ``(d(d+1)/2,)``. Its last number is ``n``.
    products : array
        ``M = XᵀY``, shape ``(d, C)``.
    squares : array
        The sum of the squares of each column of ``Y``, shape ``(C,)``.

    Examples
    --------
    >>> X, Y = to_rows(np.eye(3)), to_targets(np.array([0, 1, 1]), 2)
    >>> sums = Sums.of(X[:1], Y[:1]) + Sums.of(X[1:], Y[1:])
    >>> sums.rows, np.allclose(sums.whole, X.T @ X), np.allclose(sums.products, X.T @ Y)
    (3.0, True, True)
    """

    gram: Array
    products: Array
    squares: Array

    @classmethod
    def of(cls, rows: NDArray[np.floating], targets: Array) -> Self:
        """Return the sums over rows, shape ``(n, d)``, and their ``Y``, shape ``(n, C)``."""
        x = np.asarray(rows, np.float64)
        return cls(pack(x.T @ x), x.T @ targets, (targets**2).sum(axis=0))

    @classmethod
    def shapes(cls, width: int, outputs: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array, for rows of `width` ``d`` and `outputs` ``C``."""
        return {"gram": (width * (width + 1) // 2,), "products": (width, outputs), "squares": (outputs,)}

    @classmethod
    def zero(cls, width: int, outputs: int) -> Self:
        """Return the sums over no rows."""
        return cls(*map(np.zeros, cls.shapes(width, outputs).values()))

    @classmethod
    def total(cls, sums: Iterable[Self], width: int, outputs: int) -> Self:
        """Return the sums over all rows, adding site after site; the order affects the last bits."""
        total = cls.zero(width, outputs)
        for each in sums:
            total += each
        return total

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All arrays, in the order of `shapes`."""
        return tuple(getattr(self, each.name) for each in fields(self))

    def __add__(self, other: Self) -> Self:
        return type(self)(*(a + b for a, b in zip(self.arrays, other.arrays, strict=True)))

    def __sub__(self, other: Self) -> Self:
        return type(self)(*(a - b for a, b in zip(self.arrays, other.arrays, strict=True)))

    @property
    def rows(self) -> float:
        """``n``, the number of rows."""
        return float(self.gram[-1])

    @cached_property
    def whole(self) -> Array:
        """``G``, shape ``(d, d)``."""
        return unpack(self.gram)

    @property
    def vector(self) -> Array:
        """All numbers as one vector."""
        return np.concatenate([array.ravel() for array in self.arrays])

    @classmethod
    def from_vector(cls, vector: Array, width: int, outputs: int) -> Self:
        """Return the sums from a `vector`."""
        shapes = list(cls.shapes(width, outputs).values())
        parts = np.split(vector, np.cumsum([prod(shape) for shape in shapes])[:-1])
        return cls(*(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)))

    def to_arrays(self, dtype: type[np.floating] = np.float32) -> dict[str, NDArray[Any]]:
        """Return the sums by name, in float32 as they travel."""
        names = (each.name for each in fields(self))
        return {name: array.astype(dtype) for name, array in zip(names, self.arrays, strict=True)}

    def rounded(self) -> Self:
        """Return the sums as received: rounded to float32."""
        return type(self)(*(array.astype(np.float32).astype(np.float64) for array in self.arrays))

    @classmethod
    def from_arrays(cls, arrays: Layers, width: int, outputs: int) -> Self:
        """Return the sums that someone sent, with `width` ``d`` and `outputs` ``C``.

        Raise a `ValueError` with the reason if no rows can have them.
        """
        what = f"its sums over rows of {width} numbers, for {outputs} outputs,"
        values = received(arrays, cls.shapes(width, outputs), what)
        sums = cls(*(np.asarray(array, np.float64) for array in values))
        sums._check(width)
        return sums

    def _check(self, width: int) -> None:
        """Raise a `ValueError` if an inner product exceeds the product of its factors' norms."""
        squares = self.gram[diagonal(width)]
        allowed = 1.001 * squares.max()
        if not (self.rows > 0 and self.rows == round(self.rows)):
            raise ValueError(f"its sums are of {self.rows:g} rows")
        if squares.min() < 0 or self.squares.min() < 0:
            raise ValueError("its sums of squares are negative")
        if np.abs(self.gram).max() > allowed:
            raise ValueError("its sums of products are larger than its squares allow")
        if np.abs(self.products).max() > np.sqrt(allowed * 1.001 * self.squares.max()):
            raise ValueError("its sums of products with labels are larger than its squares allow")

    @property
    def scale(self) -> tuple[Array, Array]:
        """Mean and deviation of each column of ``Y``, shape ``(C,)``; the deviation of a constant is 1."""
        mean = self.products[-1] / self.rows
        variance = self.squares / self.rows - mean**2
        rounding = 1e-6 * self.squares / self.rows
        return mean, np.sqrt(np.where(variance > rounding, variance, 1.0))

    def scaled(self, mean: Array, deviation: Array) -> Self:
        """Return the sums with ``(Y - mean) / deviation`` in place of ``Y``; `squares` are unchanged."""
        ones = self.gram[_last_column(len(self.products))]
        return replace(self, products=(self.products - np.outer(ones, mean)) / deviation)

    def start(self, gram: bool, scaled: bool) -> dict[str, Array]:
        """Return the arrays from which a target starts, by name, if these are its sources' sums.

        These are ``solution``; with `gram` the matrix for the path *pooled*; and with `scaled` the ``mean``
        and ``deviation`` that scale the labels.
        """
        mean, deviation = self.scale
        message = {"gram": self.gram} if gram else {}
        message |= {"mean": mean, "deviation": deviation} if scaled else {}
        return {**message, "solution": (self.scaled(mean, deviation) if scaled else self).solution()}

    def head(self, scaled: bool, usual: float = USUAL_TEMPERATURE) -> Array:
        """Return the solution as a model's head: in the labels' unit, or with the `usual` temperature."""
        if not scaled:
            return usual * self.solution()
        mean, deviation = self.scale
        head = deviation * self.scaled(mean, deviation).solution()
        head[-1] += mean
        return np.asarray(head)

    def check_definite(self, sites: int) -> None:
        """Raise a `ValueError` unless `sites` such sums together can be of any rows."""
        factorised(2 * sites * self.whole)

    @cached_property
    def _factor(self) -> Array:
        factor = factorised(self.whole)
        if np.diag(factor).min() ** 2 < 0.5:  # 1 is the least for the gram of any rows
            raise ValueError(INDEFINITE)
        return factor

    def solution(self) -> Array:
        """Return ``(G + I)⁻¹ M``, shape ``(d, C)``; raise a `ValueError` if no rows have this ``G``."""
        return solved(self._factor, self.products)


INDEFINITE = "the sums of squares are not positive definite, so that no rows have them"


def pack(whole: Array) -> Array:
    """Return the upper triangle, row by row."""
    return np.concatenate([row[i:] for i, row in enumerate(whole)])


def diagonal(width: int) -> NDArray[np.intp]:
    """Return the indices of the diagonal in the upper triangle."""
    i = np.arange(width)
    return i * width - i * (i - 1) // 2


def _last_column(width: int) -> NDArray[np.intp]:
    return np.cumsum(np.arange(width, 0, -1)) - 1


def unpack(gram: NDArray[np.floating]) -> Array:
    """Return the symmetric matrix with this upper triangle, row by row, float64."""
    width = round(((8 * len(gram) + 1) ** 0.5 - 1) / 2)
    matrix, start = np.empty((width, width)), 0
    for i in range(width):
        end = start + width - i
        matrix[i, i:] = matrix[i:, i] = gram[start:end]
        start = end
    return matrix


def factorised(gram: Array) -> Array:
    """Return the lower triangular ``L`` with ``L Lᵀ = G + I``; raise a `ValueError` if there is none.

    Computed by blocks of columns, which is faster than NumPy's `cholesky`, and the bits of small ones do not
    depend on the number of threads. Inverting the diagonal blocks loses no precision, because no singular
    value of `L` is below 1.
    """
    factor = np.zeros(gram.shape)
    for start in range(0, len(gram), BLOCK):
        end = start + BLOCK
        columns = gram[start:, start:end] - factor[start:, :start] @ factor[start:end, :start].T
        np.einsum("ii->i", columns[:BLOCK])[:] += 1
        try:
            block = np.linalg.cholesky(columns[:BLOCK])
        except np.linalg.LinAlgError:
            raise ValueError(INDEFINITE) from None
        factor[start:end, start:end] = block
        factor[end:, start:end] = columns[BLOCK:] @ np.linalg.inv(block).T
    return factor


def solved(factor: Array, values: Array, half: bool = False) -> Array:
    """Return ``(L Lᵀ)⁻¹ values``, by substitution in blocks, with the factor of `factorised`.

    With `half` it is ``L⁻¹ values``.
    """
    solution, starts = np.array(values, order="C"), range(0, len(factor), BLOCK)
    ends = [start + BLOCK for start in starts]
    inverses = [np.linalg.inv(factor[i:j, i:j]) for i, j in zip(starts, ends, strict=True)]
    steps = list(zip(starts, ends, inverses, strict=True))
    for start, end, inverse in steps:
        solution[start:end] = inverse @ (solution[start:end] - factor[start:end, :start] @ solution[:start])
    for start, end, inverse in () if half else reversed(steps):
        solution[start:end] = inverse.T @ (solution[start:end] - factor[end:, start:end].T @ solution[end:])
    return solution
