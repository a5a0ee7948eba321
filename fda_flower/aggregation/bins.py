"""A table's values in a few bins: how many units of a site lie in each, and quantiles of them."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.columns import LIMBS, Columns, from_words, to_words
from fda_flower.aggregation.describing import (
    Array,
    Ints,
    SiteRows,
    Statistics,
    as_counts,
    as_floats,
    codes_of,
    rounded,
)
from fda_flower.aggregation.updates import Layers, received

BINS, CLASS_BINS, REACH = 16, 8, 3.0
"""Bins of a column, and for each class; the inner ones reach this many deviations from the mean."""

MANY = 4
"""Bins with units from which a column has more than codes or ranks."""

OFTEN = 0.2
"""Share of units from which the most frequent number of a column is named."""


@dataclass(frozen=True)
class Counts:
    """What a site says of its rows second, given the mean and deviation over all sites.

    Attributes
    ----------
    bins, by_class : array
        Units by column and bin, ``(features, BINS)``, and by class, ``(classes, features, CLASS_BINS)``.
    most : array
        Units that have the most frequent number of each column.
    numbers : array
        That number, where enough units have it; else NaN.
    """

    bins: Ints
    by_class: Ints
    most: Ints
    numbers: Array

    @classmethod
    def of(cls, rows: SiteRows, own: Statistics, common: Columns) -> Self:
        """Return the counts of rows, in the columns that the site's statistics know."""
        features = rows.values.shape[1]
        bins, by_class = (
            np.zeros((features, BINS), np.int64),
            np.zeros((rows.classes, features, CLASS_BINS), np.int64),
        )
        most, numbers = np.zeros(features, np.int64), np.full(features, np.nan)
        for j in np.flatnonzero(own.known).tolist():
            bins[j] = rows.count(binned(rows.values[:, j], edges(common, j, BINS)), BINS)
            places = binned(rows.values[:, j], edges(common, j, CLASS_BINS))
            for c, among in enumerate(rows.of_classes):
                by_class[c, j] = rows.count(places, CLASS_BINS, among)
            different, codes = codes_of(rows.values[:, j])
            counts = rows.count(codes, len(different))
            most[j] = counts.max()
            if most[j] >= max(OFTEN * own.units, 2 * own.cell):
                numbers[j] = different[counts.argmax()]
        cells = [rounded(each, own.cell) for each in (bins, by_class, most)]
        return cls(cells[0], cells[1], cells[2], numbers)

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the counts, and the numbers with marks of the ones that are named, as they travel."""
        named = ~np.isnan(self.numbers)
        counts = {"bins": self.bins, "by-class": self.by_class, "most": self.most}
        return as_floats(counts), as_floats({"numbers": np.where(named, self.numbers, 0.0), "named": named})

    def to_words(self) -> NDArray[np.uint64]:
        """Return the numbers in bins as words; the most frequent numbers have no sum."""
        return to_words([*self.bins.ravel().tolist(), *self.by_class.ravel().tolist()])

    @classmethod
    def from_words(cls, words: NDArray[np.uint64], form: tuple[int, int]) -> Self:
        """Return the counts in words, or in a sum of words; raise a `ValueError` if they are none."""
        features, classes = form
        if len(words) != size_in_words(form):
            raise ValueError("the totals are of other columns or classes")
        numbers = np.array(from_words(words), np.int64)
        bins, by_class = np.split(numbers, [features * BINS])
        shapes = bins.reshape(features, BINS), by_class.reshape(classes, features, CLASS_BINS)
        return cls(*shapes, np.zeros(features, np.int64), np.full(features, np.nan))

    def without(self, own: "Counts") -> Self:
        """Return the counts of all other sites, given the ones of all."""
        return type(self)(self.bins - own.bins, self.by_class - own.by_class, self.most, self.numbers)

    @classmethod
    def from_arrays(cls, counts: Layers, numbers: Layers, form: tuple[int, int]) -> Self:
        """Return the counts in a message, of this `form`; raise a `ValueError` if they have another."""
        features, classes = form
        shapes = {"bins": (features, BINS), "by-class": (classes, features, CLASS_BINS), "most": (features,)}
        own = as_counts(received(counts, shapes, "its counts"))
        value, named = received(numbers, dict.fromkeys(("numbers", "named"), (features,)), "its numbers")
        return cls(own[0], own[1], own[2], np.where(named > 0, value, np.nan))


def size_in_words(form: tuple[int, int]) -> int:
    """Return the number of words of the counts, given the numbers of columns and classes."""
    features, classes = form
    return LIMBS * features * (BINS + classes * CLASS_BINS)


def edges(common: Columns, column: int, bins: int) -> Array:
    """Return the inner edges of a column's bins; the first and the last bin are open.

    Examples
    --------
    >>> edges(Columns(np.array([50.0]), np.array([10.0])), 0, 8)
    array([20., 30., 40., 50., 60., 70., 80.])
    """
    steps = np.linspace(-REACH, REACH, bins - 1)
    return np.asarray(common.means[column] + common.deviations[column] * steps)


def binned(values: Array, inner: Array) -> Ints:
    """Return the bin of each value, by the inner edges; -1 for a missing one."""
    return np.where(np.isnan(values), -1, np.searchsorted(inner, values, side="right")).astype(np.int64)


def quantile(bins: Ints, inner: Array, share: float) -> float:
    """Return about the quantile of counts in bins, by linear interpolation; in an open bin its edge.

    Examples
    --------
    >>> float(quantile(np.array([0, 10, 10, 0]), np.array([0.0, 1.0, 2.0]), 0.25))
    0.5
    """
    before = np.concatenate([[0], np.cumsum(bins)])
    wanted = share * before[-1]
    place = min(int(np.searchsorted(before[1:], wanted)), len(bins) - 1)
    if place in (0, len(bins) - 1):
        return float(inner[0 if place == 0 else -1])
    within = (wanted - before[place]) / max(bins[place], 1)
    return float(inner[place - 1] + within * (inner[place] - inner[place - 1]))
