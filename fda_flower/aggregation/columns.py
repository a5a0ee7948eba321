"""A table's columns: the mean and deviation of each site's values, and the common ones that standardise all.

A site that standardises its columns by its own patients loses what sets them apart: a hospital with older
patients then has the same rows as one with younger patients, and a model of one is wrong at the other. So all
sites standardise by the mean ``μ`` and deviation ``σ`` over the rows of all sources:

``z = min(max((v − μ)/σ, −3), 3)``,

where the bound keeps one strange row from deciding a fit. `Moments` are what a source tells of its rows. They
are whole numbers, so that their sum is exact, whatever the order of the sources, and can be masked.

The common deviation is in every row of every site: one source that claims a large one takes the column from
all. `columns_out_of_line` names such sources.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.updates import Layers, received

Array = NDArray[np.float64]

FARTHEST = 3.0
"""Bound on a standardised value, in deviations."""

LARGEST = float(np.finfo(np.float32).max)
"""Bound on a mean or deviation: features are float32."""

MOST = 10
"""Multiple of the sources' lower median deviation that bounds deviations; means lie within it of the lower
median mean. The hospitals of Fed-Heart reach 2.3 and 4.8."""

LEAST = 1e-6
"""The same for the smallest deviation of a column that is not constant."""

ENOUGH = 3
"""Number of sites at which a column varies from which one that lies cannot choose the lower median."""

SAME = 1e-6
"""Share of a mean up to which the variance of zeros and ones is rounding."""

FRACTION = 160
"""Bits of a value after the point."""

LIMBS = 10
"""Words of 64 bits of a sum of values or squares: 2⁴⁰ rows of 256 sources cannot overflow."""


@dataclass(frozen=True)
class Columns:
    """The mean and deviation of columns.

    Attributes
    ----------
    means, deviations : array
        Shape ``(features,)``, in the columns' units. A deviation of 0 is of a constant column.

    Examples
    --------
    >>> Columns(np.array([60.0]), np.array([10.0])).of(np.array([[70.0], [99.0]]))
    array([[1.],
           [3.]])
    """

    means: Array
    deviations: Array

    @classmethod
    def of_rows(cls, rows: Array) -> "Columns":
        """Return the mean and deviation over rows, float64, shape ``(n, features)``.

        Of equal values these are the value and 0, exactly. Welford, "Note on a method for calculating
        corrected sums of squares and products", 1962.
        """
        means, squares = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
        for number, row in enumerate(rows, 1):
            away = row - means
            means = means + away / number
            squares += away * (row - means)
        return cls(means, np.sqrt(squares / len(rows)))

    def of(self, values: Array) -> Array:
        """Return standardised values, shape ``(n, features)``; a constant column is only centred."""
        scale = np.where(self.deviations > 0, self.deviations, 1.0)
        return np.clip((values - self.means) / scale, -FARTHEST, FARTHEST)

    def to_arrays(self) -> dict[str, Array]:
        """Return both by name, as they travel."""
        return {"means": self.means, "deviations": self.deviations}

    @classmethod
    def from_arrays(cls, arrays: Layers, features: int) -> "Columns":
        """Return the columns in a message; raise a `ValueError` if no column has such a mean or deviation."""
        shapes = dict.fromkeys(("means", "deviations"), (features,))
        means, deviations = received(arrays, shapes, "its columns")
        if deviations.min(initial=0.0) < 0:
            raise ValueError("'deviations' of its columns has a number below 0")
        if max(np.abs(means).max(initial=0.0), deviations.max(initial=0.0)) > LARGEST:
            raise ValueError("its columns have a number beyond those of float32")
        return cls(np.asarray(means, np.float64), np.asarray(deviations, np.float64))


@dataclass(frozen=True)
class Moments:
    """The number of rows, and the sums of each column's values and of their squares, exactly.

    Attributes
    ----------
    rows : int
        The number of rows ``n``.
    sums, squares : tuple of int
        ``Σ v`` in units of 2⁻¹⁶⁰, and ``Σ v²`` in units of 2⁻³²⁰.

    Examples
    --------
    >>> sites = Columns(np.array([2.0]), np.array([1.0])), Columns(np.array([6.0]), np.array([1.0]))
    >>> Moments.total(Moments.of(site, 10) for site in sites).columns
    Columns(means=array([4.]), deviations=array([2.23606798]))
    """

    rows: int
    sums: tuple[int, ...]
    squares: tuple[int, ...]

    @classmethod
    def of(cls, columns: Columns, rows: int) -> "Moments":
        """Return the moments of a site's rows, from the mean and deviation of its values."""
        means, deviations = (
            [int(value) for value in np.ldexp(each, FRACTION).tolist()]
            for each in (columns.means, columns.deviations)
        )
        squares = (m * m + s * s for m, s in zip(means, deviations, strict=True))
        return cls(rows, tuple(rows * m for m in means), tuple(rows * square for square in squares))

    @classmethod
    def total(cls, sites: Iterable["Moments"]) -> "Moments":
        """Return the moments of the rows of all sites, at least one."""
        first, *others = sites
        for each in others:
            sums, squares = (
                tuple(a + b for a, b in zip(one, two, strict=True))
                for one, two in ((first.sums, each.sums), (first.squares, each.squares))
            )
            first = cls(first.rows + each.rows, sums, squares)
        return first

    @property
    def columns(self) -> Columns:
        """The mean and deviation over all rows."""
        n, unit = self.rows, 1 << FRACTION
        means = [first / (n * unit) for first in self.sums]
        pairs = zip(self.sums, self.squares, strict=True)
        variances = [max(n * second - first**2, 0) / (n * n * unit * unit) for first, second in pairs]
        return Columns(np.array(means, np.float64), np.array([*map(sqrt, variances)], np.float64))

    def to_words(self) -> NDArray[np.uint64]:
        """Return all numbers as words of 64 bits, `LIMBS` for each, modulo 2⁶⁴⁰."""
        return to_words((self.rows, *self.sums, *self.squares))

    @classmethod
    def from_words(cls, words: NDArray[np.uint64]) -> "Moments":
        """Return the moments in words, or in a sum of words; raise a `ValueError` if they are of no rows."""
        rows, *numbers = from_words(words)
        half = len(numbers) // 2
        moments = cls(rows, tuple(numbers[:half]), tuple(numbers[half:]))
        if rows < 1 or min(moments.squares, default=0) < 0:
            raise ValueError("the sums over columns are of no rows")
        return moments


def to_words(numbers: Iterable[int]) -> NDArray[np.uint64]:
    """Return whole numbers as words of 64 bits, `LIMBS` for each, modulo 2⁶⁴⁰."""
    data = b"".join(number.to_bytes(8 * LIMBS, "little", signed=True) for number in numbers)
    return np.frombuffer(data, "<u8").astype(np.uint64, copy=False)


def from_words(words: NDArray[np.uint64]) -> list[int]:
    """Return the numbers in words, or in a sum of words."""
    data, size = words.astype("<u8", copy=False).tobytes(), 8 * LIMBS
    parts = (data[begin : begin + size] for begin in range(0, len(data), size))
    return [int.from_bytes(part, "little", signed=True) for part in parts]


def count_words(features: int) -> int:
    """Return the number of words of a table's moments."""
    return LIMBS * (1 + 2 * features)


def columns_far(own: Columns, common: Columns) -> list[int]:
    """Return the columns of a site that are far from the common ones, as if in another unit.

    Their mean or deviation is more than `MOST` common deviations away; of zeros and ones these count at least
    1/2. Where the others have a single value it is so far away that values reach the bound.

    Examples
    --------
    >>> sources = Columns(np.array([60.0, 5.2]), np.array([9.0, 1.1]))
    >>> columns_far(Columns(np.array([70.0, 201.0]), np.array([12.0, 42.0])), sources)
    [1]
    """
    are_0_or_1 = np.abs(common.deviations**2 - common.means * (1 - common.means)) <= SAME
    scale = np.where(are_0_or_1, np.maximum(common.deviations, 0.5), common.deviations)
    most = np.where(scale > 0, MOST * scale, FARTHEST)
    away = np.maximum(np.abs(own.means - common.means), own.deviations)
    return np.flatnonzero(away > most).tolist()


def columns_out_of_line(sites: Mapping[str, Columns]) -> dict[str, str]:
    """Return the sites one of whose columns is out of line with the lower medians over sites, and why.

    A column that varies at two sites, and has a single value at others, is not: no rule could tell which of
    the two lies. For the same reason, two sources that disagree are both out of line. Of a column with a few
    1 among zeros, the usual deviation is 1/2.

    Parameters
    ----------
    sites : mapping
        By name, the mean and deviation of a site's values.

    Examples
    --------
    >>> said = {"a": 12.0, "b": 10.0, "c": 1e9}
    >>> columns_out_of_line({site: Columns(np.zeros(1), np.array([s])) for site, s in said.items()})
    {'c': "the deviation of its column 1 is 1e+09, but by the sources' lower medians it is 1.2e-05 to 120"}
    """
    means = np.array([site.means for site in sites.values()])
    deviations = np.array([site.deviations for site in sites.values()])
    usual, centre = _usual(means, deviations), _lower_median(means)
    most = MOST * usual
    least = np.where(np.isfinite(usual), LEAST * usual, 0.0)
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
    if reasons and len(sites) < ENOUGH:
        return dict.fromkeys(sites, "two sources disagree, and none may decide: " + min(reasons.values()))
    return reasons


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
