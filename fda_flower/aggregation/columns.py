"""A table's columns: the mean and deviation with which each site standardises them, and the common ones.

A site standardises a table's columns by its own patients: ``x = (value − m_i)/s_i``. A hospital with older
patients then has the same rows as one with younger patients, and a head learned at one is wrong at the other.
So `Columns` and `move` bring sums to the sources' common mean and deviation, without a look at the rows: over
rows ``(x, 1) T`` they are ``Tᵀ G T`` and ``Tᵀ M``.

The common deviation is in every row of every site: one source that claims a large one takes the column from
all. `columns_out_of_line` names such sources.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.sums import Sums, pack
from fda_flower.aggregation.updates import Layers, received

Array = NDArray[np.float64]

LARGEST = float(np.finfo(np.float32).max)
"""Bound on a mean or deviation: features are float32, and its square is a float64."""

MOST, LEAST = 10, 1e-6
"""Multiples of the sources' lower median deviation, which bound deviations; means lie within the first of the
lower median mean. The hospitals of Fed-Heart reach 2.3 and 4.8."""

ENOUGH = 3
"""Number of sites at which a column varies from which one that lies cannot choose the lower median."""

SAME = 1e-6
"""Share of a column's mean square up to which its variance is rounding of float32."""


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
        return {"means": self.means, "deviations": self.deviations}

    @classmethod
    def plain(cls, features: int) -> "Columns":
        """Return the columns of a table as it is, in the columns' units."""
        return cls(np.zeros(features), np.ones(features))

    @classmethod
    def from_arrays(cls, arrays: Layers) -> "Columns":
        """Return the columns in a message; raise a `ValueError` if no column has such a mean or deviation."""
        width = {name: (arrays["means"].size,) for name in ("means", "deviations")}
        means, deviations = received(arrays, width, "its columns")
        if deviations.min(initial=1.0) <= 0:
            raise ValueError("'deviations' of its columns has a number that is not above 0")
        if max(np.abs(means).max(initial=0.0), deviations.max(initial=0.0)) > LARGEST:
            raise ValueError("its columns have a number beyond those of float32")
        return cls(np.asarray(means, np.float64), np.asarray(deviations, np.float64))

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


def columns_out_of_line(sites: Mapping[str, tuple[Columns, Sums]]) -> dict[str, str]:
    """Return the sites one of whose columns is out of line with the lower medians over sites, and why.

    Compared are the mean and deviation of a site's values, which follow from its columns and sums together.
    A column that varies at two sites, and has a single value at others, is not: no rule could tell which of
    the two lies. Of a column with a few 1 among zeros, the usual deviation is 1/2.

    Parameters
    ----------
    sites : mapping
        By name, a site's columns, and the sums over its rows, which they standardise.

    Examples
    --------
    >>> rows = Sums.of(np.array([[-1.0, 1.0], [1.0, 1.0]]), np.zeros((2, 1)))
    >>> said = {"a": 12.0, "b": 10.0, "c": 1e9}
    >>> columns_out_of_line({site: (Columns(np.zeros(1), np.array([s])), rows) for site, s in said.items()})
    {'c': "the deviation of its column 1 is 1e+09, but by the sources' lower medians it is 1.2e-05 to 120"}
    """
    pairs = list(sites.values())
    means, deviations = (np.array(each) for each in zip(*(_of_values(*pair) for pair in pairs), strict=True))
    usual, centre = _usual(means, deviations), _lower_median(means)
    most = MOST * usual
    least = LEAST * _lower_median(np.array([columns.deviations for columns, _ in pairs]))
    varied = np.where(deviations > 0, deviations, least)
    reasons = dict[str, str]()
    for what, values, low, high in (
        ("mean", means, centre - most, centre + most),
        ("deviation", varied, least, most),
    ):
        for site, own, out in zip(sites, values, (values < low) | (values > high), strict=True):
            if out.any():
                j = int(out.argmax())
                usually = f"by the sources' lower medians it is {low[j]:g} to {high[j]:g}"
                reasons[site] = f"the {what} of its column {j + 1} is {own[j]:g}, but {usually}"
    return reasons


def _of_values(columns: Columns, sums: Sums) -> tuple[Array, Array]:
    """Return mean and deviation of a site's values, which are those of its rows times its deviation."""
    mean, square = sums.whole[-1, :-1] / sums.rows, np.diag(sums.whole)[:-1] / sums.rows
    variance = square - mean**2
    deviation = np.sqrt(np.where(variance > SAME * square, variance, 0.0))
    return columns.means + columns.deviations * mean, columns.deviations * deviation


def _usual(means: Array, deviations: Array) -> Array:
    """Return the usual deviation of each column, the lower median where it varies; infinity if unknown."""
    vary = (deviations > 0).sum(axis=0)
    ranked = np.sort(np.where(deviations > 0, deviations, np.inf), axis=0)
    usual = np.take_along_axis(ranked, np.maximum(vary - 1, 0)[None] // 2, axis=0)[0]
    with np.errstate(over="ignore"):
        are_0_or_1 = np.abs(deviations**2 - means * (1 - means)) <= SAME * np.abs(means)
    usual = np.where(_lower_median(are_0_or_1), np.maximum(usual, 0.5), usual)
    return np.where((vary >= ENOUGH) | (vary == len(deviations)), usual, np.inf)


def _lower_median(values: NDArray[Any]) -> NDArray[Any]:
    """Return the lower median over sites, of arrays of shape ``(sites, features)``."""
    return np.asarray(np.sort(values, axis=0)[(len(values) - 1) // 2])
