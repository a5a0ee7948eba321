"""Units: rows that belong together, such as a patient's; what is left out, and what an estimate counts."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BATCH = 256
"""Largest number of rows that are left out in one batch."""


@dataclass(frozen=True)
class Units:
    """Which of ``n`` rows are of one unit: ``G`` units of one or more rows.

    An estimate over units is the mean over them of each one's mean, so that a unit counts as one, however
    many rows it has.

    Attributes
    ----------
    numbers : array
        The unit of each row, ``0`` to ``G − 1``, shape ``(n,)``.

    Examples
    --------
    >>> units = Units.of(3, np.array([7, 2, 7]))
    >>> units.count, units.mean(np.array([1.0, 0.0, 3.0]))
    (2, 1.0)
    """

    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, rows: int, groups: NDArray[Any] | None = None) -> "Units":
        """Return the units of rows; without `groups`, of shape ``(n,)``, each row is its own.

        Units are in the order of their groups' names as text, the shorter ones first, which is also that of
        numbers; it depends neither on the names' type nor on the rows' order.
        Raise a `ValueError` if there is not one group for each row; `without_name` is none.
        """
        if groups is None:
            return cls(np.arange(rows))
        if np.shape(groups) != (rows,):
            raise ValueError(
                f"the groups have shape {np.shape(groups)}, expected one for each of {rows} rows"
            )
        if lacking := without_name(groups):
            raise ValueError(f"{lacking} of {rows} rows have a group without a name")
        names, numbers = np.unique(_texts(groups), return_inverse=True)
        places = np.argsort(np.lexsort((names, np.char.str_len(names))))
        return cls(places[numbers].astype(np.int64))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows of each unit, shape ``(G,)``."""
        return np.bincount(self.numbers)

    @property
    def count(self) -> int:
        """``G``."""
        return len(self.sizes)

    @property
    def single(self) -> bool:
        """Whether each row is its own unit."""
        return self.count == len(self.numbers)

    @cached_property
    def shares(self) -> Array:
        """The share of each row in its unit, shape ``(n,)``."""
        return np.asarray(1 / self.sizes[self.numbers])

    @cached_property
    def members(self) -> list[NDArray[np.intp]]:
        """The positions of each unit's rows; for single rows in the rows' order."""
        if self.single:
            return list(np.arange(len(self.numbers))[:, None])
        return np.split(np.argsort(self.numbers, kind="stable"), np.cumsum(self.sizes)[:-1])

    def sum(self, values: NDArray[Any]) -> float:
        """Return the sum over units of each one's mean of values of rows, shape ``(n,)``."""
        return float(values.sum() if self.single else self.shares @ values)

    def mean(self, values: NDArray[Any]) -> float:
        """Return the mean over units of each one's mean, over all numbers of a row, shape ``(n, ...)``."""
        if self.single:
            return float(values.mean())
        return self.sum(values.reshape(len(values), -1).mean(axis=1)) / self.count

    def means(self, values: NDArray[Any]) -> Array:
        """Return each unit's mean, over all numbers of a row, shape ``(G,)``; values have ``(n, ...)``."""
        of_rows = values.reshape(len(values), -1).mean(axis=1)
        return np.asarray(np.bincount(self.numbers, of_rows * self.shares, self.count), np.float64)

    def weighed(self, values: Array) -> Array:
        """Return values of rows, ``(n, C)``, so that their sum of squares is one of units' mean squares."""
        return values if self.single else np.sqrt(self.shares)[:, None] * values

    def of_class(self, labels: NDArray[np.integer], classes: int = 0) -> NDArray[np.int64]:
        """Return the number of units with each class, shape ``(C,)``.

        Examples
        --------
        >>> Units.of(4, np.array(["a", "a", "b", "b"])).of_class(np.array([0, 1, 1, 1]))
        array([1, 2])
        """
        pairs = np.unique(np.stack([self.numbers, labels]), axis=1)
        return np.bincount(pairs[1], minlength=classes)

    def left_out(self, vectors: Array, factors: Array, residuals: Array, rest: float = 0.0) -> Array:
        """Return ``(R_gg)⁻¹ r_g`` for the rows ``g`` of each unit, shape ``(n, C)``, ``R = δ I + U D Uᵀ``.

        If ``R`` is ``I − H`` of a linear smoother and ``r`` are its residuals, shape ``(n, C)``, these are
        the residuals of each unit under the smoother fitted without it. ``U`` are `vectors`, shape
        ``(n, k)``, ``D`` has `factors` on its diagonal, shape ``(k,)``, and ``δ`` is the `rest`; with 0
        and positive factors no difference of nearly equal numbers is taken.
        """
        if self.single:
            return np.asarray(residuals / (rest + vectors**2 @ factors)[:, None])
        found = np.empty_like(residuals)
        for rows in self._batches():
            own = vectors[rows]
            matrices = rest * np.eye(rows.shape[1]) + (own * factors) @ own.transpose(0, 2, 1)
            found[rows] = np.linalg.solve(matrices, residuals[rows])
        return found

    def _batches(self) -> Iterator[NDArray[np.intp]]:
        """Yield the positions of rows of units with equal sizes, shape ``(units, size)``."""
        for size in np.unique(self.sizes).tolist():
            rows = np.stack([rows for rows in self.members if len(rows) == size])
            yield from np.array_split(rows, -(-rows.size // BATCH))


def shared(groups: NDArray[Any] | None, others: NDArray[Any] | None, units: Units) -> list[NDArray[np.intp]]:
    """Return for each of the `units`, which are of `groups`, the positions of the other rows that it has.

    Examples
    --------
    >>> groups = np.array(["a", "b"])
    >>> shared(groups, np.array(["b", "c", "b"]), Units.of(2, groups))
    [array([], dtype=int64), array([0, 2])]
    """
    if groups is None or others is None:
        return [np.zeros(0, np.intp)] * units.count
    names, own = _texts(others), _texts(groups)
    return [np.flatnonzero(names == own[rows[0]]) for rows in units.members]


def without_name(groups: NDArray[Any]) -> int:
    """Return how many groups have no name: None, NaN or blank text.

    Examples
    --------
    >>> without_name(np.array(["a", " ", None], dtype=object)), without_name(np.array([1.0, np.nan]))
    (2, 1)
    """
    return sum(name is None or name != name or not str(name).strip() for name in np.asarray(groups).tolist())


def _texts(names: NDArray[Any]) -> NDArray[np.str_]:
    """Return names as stripped text, of a number the same whatever its type."""
    return np.array([_text(name) for name in np.asarray(names).tolist()], dtype=str)


def _text(name: object) -> str:
    return str(int(name) if isinstance(name, float) and name.is_integer() else name).strip()
