"""The columns of a table, standardised by each site, brought to the mean and deviation of all sites.

A site standardises its columns by its own patients, so that ``x = (value − m_i)/s_i``. A hospital with older
patients then has the same rows as one with younger patients, and a head learned at one is wrong at the other.
Sums over rows ``(x, 1)`` move to the sources' common mean and deviation without a look at the rows, since the
change is linear: over rows ``(x, 1) T`` they are ``Tᵀ G T`` and ``Tᵀ M``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.ridge import Sums, pack
from fda_flower.aggregation.updates import received

Array = NDArray[np.float64]

MEANS, DEVIATIONS = "column-means", "column-deviations"
"""Names on the wire."""


@dataclass(frozen=True)
class Columns:
    """The mean and deviation that standardise columns.

    Attributes
    ----------
    means, deviations : array
        Shape ``(features,)``, in the columns' units.

    Examples
    --------
    >>> own = Columns(np.array([60.0]), np.array([10.0]))
    >>> all_sites = Columns(np.array([50.0]), np.array([20.0]))
    >>> np.array([[1.0, 1.0]]) @ own.into(all_sites)  # a patient of 70 years
    array([[1., 1.]])
    """

    means: Array
    deviations: Array

    def into(self, other: "Columns") -> Array:
        """Return ``T``, shape ``(d, d)``, which turns rows ``(x, 1)`` into rows ``(x, 1) T`` of `other`."""
        matrix = np.diag(np.append(self.deviations / other.deviations, 1.0))
        matrix[-1, :-1] = (self.means - other.means) / other.deviations
        return matrix

    def to_arrays(self) -> dict[str, Array]:
        """Return both by name, as they travel."""
        return {MEANS: self.means, DEVIATIONS: self.deviations}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], features: int) -> "Columns | None":
        """Return the columns in a reply, None without any; raise a `ValueError` if they are invalid."""
        if MEANS not in arrays and DEVIATIONS not in arrays:
            return None
        shapes = dict.fromkeys((MEANS, DEVIATIONS), (features,))
        found = [np.asarray(array, np.float64) for array in received(arrays, shapes, "its sums")]
        if found[1].min() <= 0:
            raise ValueError(f"'{DEVIATIONS}' of its sums has a number that is not above 0")
        return cls(*found)

    @classmethod
    def pooled(cls, sites: Iterable[tuple["Columns", Sums]]) -> "Columns":
        """Return mean and deviation over the rows of all sites, from their columns and sums.

        The deviation is multiplied by ``√features``, so that the mean square of a row's length is 1. A column
        that is constant at all sites is only centred.
        """
        pairs = list(sites)
        near = np.mean([columns.means for columns, _ in pairs], axis=0)  # so that squares keep their digits
        rows, first, second = 0.0, np.zeros(len(near)), np.zeros(len(near))
        for columns, sums in pairs:
            size, away = columns.deviations, columns.means - near
            of_x, of_squares = sums.whole[-1, :-1], np.diag(sums.whole)[:-1]
            rows += sums.rows
            first += size * of_x + sums.rows * away
            second += size**2 * of_squares + 2 * size * away * of_x + sums.rows * away**2
        mean = first / rows
        variance = second / rows - mean**2
        constant = variance <= 1e-12 * (second / rows)
        return cls(near + mean, np.sqrt(np.where(constant, 1.0, variance) * len(near)))


def move(sums: Sums, matrix: Array) -> Sums:
    """Return the sums over rows ``x T`` instead of ``x``, with ``T`` from `Columns.into`."""
    return replace(sums, gram=pack(matrix.T @ sums.whole @ matrix), products=matrix.T @ sums.products)
