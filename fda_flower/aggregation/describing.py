"""What sites say of their rows before any training.

A site says the mean and deviation of each column, in a second message how many patients lie in each of a few
bins, and how many have each class and lack each value. A count is of *units*, such as patients, and rounded
to a multiple of the site's smallest cell, so that no count of 1 to 4 can be read off. A column of few
different values has the mean and deviation of its rounded counts, and no covariance: otherwise the counts
would follow from them, or from a further column's.

Nothing here says whom to train with.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import floor, fsum, log10, sqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.columns import LARGEST, LIMBS, Columns, Moments, from_words, to_words
from fda_flower.aggregation.updates import Layers, received

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

FEWEST = 10
"""Units with a value from which a column's mean leaves a site."""

FEW = 16
"""Different values up to which a column's mean and deviation are of rounded counts, with a cell above 1."""

DIGITS = 3
"""Digits of the deviation to which both are rounded if values are missing: the exact mean of numbers with few
decimals tells how many there are."""


@dataclass(frozen=True)
class SiteRows:
    """The rows of a site.

    Attributes
    ----------
    values : array
        Shape ``(n, features)``, NaN for a missing value.
    labels : array
        The class of each row, -1 for none, shape ``(n,)``; or of several labels 1, 0 or -1 for each, shape
        ``(n, labels)``.
    units : array
        The unit of each row, such as a patient, from 0, shape ``(n,)``.
    classes : int
        The number of classes, labels or horizons; 0 for another task.
    events : array, optional
        In place of labels, the share of patients who have had the event by each horizon, by Kaplan-Meier.
    """

    values: Array
    labels: Ints
    units: Ints
    classes: int
    events: Array | None = None

    @cached_property
    def number_of_units(self) -> int:
        """The number of units."""
        return len(np.unique(self.units))

    @property
    def of_classes(self) -> list[NDArray[np.bool_]]:
        """The rows of each class; none where events are known."""
        if not self.classes or self.events is not None:
            return []
        several = self.labels.ndim > 1
        return [*(self.labels == 1 if several else self.labels[:, None] == np.arange(self.classes)).T]

    @property
    def units_by_class(self) -> Ints:
        """The number of units of each class, or about how many have had the event by each horizon."""
        if self.events is not None:
            return np.rint(self.number_of_units * self.events).astype(np.int64)
        return np.array([self.count_units(among) for among in self.of_classes], np.int64)

    def count_units(self, among: NDArray[np.bool_]) -> int:
        """Return how many units have some of the rows."""
        return int(self.count(np.zeros(len(self.units), np.int64), 1, among)[0])

    def count(self, codes: Ints, size: int, among: NDArray[np.bool_] | None = None) -> Ints:
        """Return how many units have each code from 0 to ``size - 1``; negative codes do not count."""
        counted = codes >= 0 if among is None else (codes >= 0) & among
        if self.number_of_units == len(self.units):
            return np.bincount(codes[counted], minlength=size)
        most = self.units.max(initial=0) + 1
        return np.bincount(np.unique(codes[counted] * most + self.units[counted]) // most, minlength=size)


def rounded(counts: Ints, cell: int) -> Ints:
    """Return counts as the nearest multiples of a smallest cell.

    Examples
    --------
    >>> rounded(np.array([2, 3, 7, 8]), 5)
    array([ 0,  5,  5, 10])
    """
    return cell * ((2 * np.asarray(counts, np.int64) + cell) // (2 * cell))


@dataclass(frozen=True)
class Statistics:
    """What a site says of its rows first.

    Attributes
    ----------
    rows, units : int
        Exact numbers.
    cell : int
        The smallest cell: all counts are multiples.
    classes, missing : array
        Units by class, and without a value in each column.
    known : array
        1 for the columns with enough values, shape ``(features,)``; all else of the others is 0.
    means, deviations : array
        Of the observed values of each column, over rows.
    joint, covariance : array
        1 for the columns of many values, and their covariances.
    """

    rows: int
    units: int
    cell: int
    classes: Ints
    missing: Ints
    known: Ints
    means: Array
    deviations: Array
    joint: Ints
    covariance: Array

    @classmethod
    def of(cls, rows: SiteRows, cell: int, least: int = FEWEST) -> Self:
        """Return the statistics of rows, without columns in which fewer than `least` units have a value."""
        features, units, least = rows.values.shape[1], rows.number_of_units, max(least, FEWEST)
        lacking = np.isnan(rows.values)
        missing = np.array([rows.count_units(each) for each in lacking.T], np.int64)
        said = [_moments(rows, each, cell, least) for each in rows.values.T]
        known = np.array([each is not None for each in said], np.int64)
        columns = np.array([each or (0.0, 0.0) for each in said], np.float64).reshape(features, 2)
        means, deviations = columns.T
        is_number = [len(np.unique(each[~np.isnan(each)])) > FEW or cell == 1 for each in rows.values.T]
        joint = known * (2 * missing <= units) * np.array(is_number, np.int64)
        return cls(
            len(rows.values),
            units,
            cell,
            rounded(rows.units_by_class, cell),
            rounded(missing, cell) * known,
            known,
            means,
            deviations,
            joint,
            _covariance(rows, means, deviations, joint),
        )

    @cached_property
    def observed(self) -> Ints:
        """About how many units have a value, by column; 0 of a column that is left out."""
        return np.maximum(self.units - self.missing, 1) * self.known

    @cached_property
    def weights(self) -> Ints:
        """About how many rows have a value, by column."""
        return np.maximum(self.rows * self.observed // self.units, self.known)

    def moments(self) -> list[Moments]:
        """Return the moments of each column, in whole numbers."""
        columns = zip(self.means, self.deviations, self.weights.tolist(), strict=True)
        return [Moments.of(Columns(np.array([m]), np.array([s])), weight) for m, s, weight in columns]

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the counts and the moments, as they travel."""
        counts = {"classes": self.classes, "missing": self.missing}
        moments = {"means": self.means, "deviations": self.deviations, "known": self.known}
        upper = self.covariance[np.triu_indices(len(self.covariance))]
        moments |= {"joint": self.joint, "covariance": upper}
        return as_floats(counts), as_floats(moments)

    def to_words(self) -> NDArray[np.uint64]:
        """Return all numbers but covariances as words, for `Totals`."""
        columns = (number for each in self.moments() for number in (each.rows, *each.sums, *each.squares))
        return to_words([self.rows, self.units, *self.classes.tolist(), *self.missing.tolist(), *columns])

    @classmethod
    def from_arrays(
        cls, rows: int, units: int, cell: int, counts: Layers, moments: Layers, form: tuple[int, int]
    ) -> Self:
        """Return the statistics in a message, of a number of columns and of classes.

        Raise a `ValueError` if they are none.
        """
        features, classes = form
        names = ("means", "deviations", "known", "joint")
        what = "its statistics"
        means, deviations, *marks = received(moments, dict.fromkeys(names, (features,)), what)
        known, joint = (np.equal(each, 1).astype(np.int64) for each in marks)
        size = int(joint.sum())
        (upper,) = received(moments, {"covariance": (size * (size + 1) // 2,)}, what)
        shapes = {"classes": (classes,), "missing": (features,)}
        numbers = as_counts(received(counts, shapes, "its counts"))
        if not 0 < units <= rows or cell < 1 or deviations.min(initial=0.0) < 0:
            raise ValueError(f"{what} are of no rows")
        largest = [np.abs(each).max(initial=0.0) for each in (means, deviations)]
        if max(*largest, np.sqrt(np.abs(upper).max(initial=0.0))) > LARGEST:
            raise ValueError(f"{what} have a number beyond those of float32")
        by_class, missing = numbers
        covariance = np.zeros((size, size))
        covariance[np.triu_indices(size)] = upper
        covariance = np.triu(covariance) + np.triu(covariance, 1).T
        columns = np.asarray(means, np.float64), np.asarray(deviations, np.float64)
        return cls(rows, units, cell, by_class, missing, known, *columns, joint, covariance)


def _moments(rows: SiteRows, values: Array, cell: int, least: int) -> tuple[float, float] | None:
    """Return mean and deviation of a column's observed values; None for too few units."""
    there = ~np.isnan(values)
    if rows.count_units(there) < least:
        return None
    different, codes = codes_of(values)
    if cell > 1 and len(different) <= FEW:
        weights = rounded(rows.count(codes, len(different)), cell)
        if not weights.any():
            return None
        mean = float(weights @ different / weights.sum())
        return mean, sqrt(weights @ (different - mean) ** 2 / weights.sum())
    mean = fsum(values[there]) / int(there.sum())
    deviation = sqrt(fsum((values[there] - mean) ** 2) / int(there.sum())) if len(different) > 1 else 0.0
    if cell > 1 and not there.all() and deviation > 0:
        digits = DIGITS - 1 - floor(log10(deviation))
        return round(mean, digits), round(deviation, digits)
    return mean, deviation


def codes_of(values: Array) -> tuple[Array, Ints]:
    """Return the different numbers of a column, and each row's place among them; -1 if it is missing."""
    there = ~np.isnan(values)
    codes = np.full(len(values), -1, np.int64)
    different, codes[there] = np.unique(values[there], return_inverse=True)
    return different, codes


def _covariance(rows: SiteRows, means: Array, deviations: Array, columns: Ints) -> Array:
    """Return the covariance of each two columns over the rows that have both; the deviations are known."""
    chosen = np.flatnonzero(columns)
    values = rows.values[:, chosen] - means[chosen]
    there = (~np.isnan(values)).astype(np.float64)
    known = np.nan_to_num(values)
    covariance = known.T @ known / np.maximum(there.T @ there, 1)
    np.fill_diagonal(covariance, deviations[chosen] ** 2)
    return np.asarray(covariance, np.float64)


MOST = 1 << 40
"""Bound on a count."""


def as_counts(arrays: Iterable[NDArray[Any]]) -> list[Ints]:
    """Return counts that somebody has sent as whole numbers; raise a `ValueError` if one is impossible."""
    counts = [*arrays]
    if any(each.min(initial=0) < 0 or each.max(initial=0) > MOST for each in counts):
        raise ValueError("its counts have an impossible number")
    return [each.astype(np.int64) for each in counts]


def as_floats(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
    """Return arrays as float64, as they travel."""
    return {name: np.asarray(array, np.float64) for name, array in arrays.items()}


def pooled(sites: Mapping[str, Statistics]) -> Columns:
    """Return the mean and deviation of each column over the rows of all sites; NaN where none says any."""
    moments = [[*each] for each in zip(*(site.moments() for site in sites.values()), strict=True)]
    return pooled_columns([Moments.total(each) for each in moments])


def pooled_columns(totals: list[Moments]) -> Columns:
    """Return the mean and deviation of each column, from its moments."""
    known = [
        each.columns if each.rows else Columns(np.full(1, np.nan), np.full(1, np.nan)) for each in totals
    ]
    return Columns(
        np.array([each.means[0] for each in known]), np.array([each.deviations[0] for each in known])
    )


@dataclass(frozen=True)
class Totals:
    """The sums over sites of what their statistics say, for masks; they have no covariances.

    Attributes
    ----------
    rows, units, classes, missing
        As in `Statistics`.
    moments : list of Moments
        Of each column.
    """

    rows: int
    units: int
    classes: Ints
    missing: Ints
    moments: list[Moments]

    @classmethod
    def of(cls, words: NDArray[np.uint64], form: tuple[int, int]) -> Self:
        """Return the totals in words, of a number of columns and classes; raise a `ValueError` if wrong."""
        features, classes = form
        if len(words) != size_in_words(form):
            raise ValueError("the totals are of other columns or classes")
        rows, units, *rest = from_words(words)
        counts, numbers = rest[: classes + features], rest[classes + features :]
        moments = [
            Moments(numbers[i], (numbers[i + 1],), (numbers[i + 2],)) for i in range(0, 3 * features, 3)
        ]
        counts_of = np.array(counts, np.int64)
        return cls(rows, units, counts_of[:classes], counts_of[classes:], moments)

    def without(self, own: Statistics) -> Self:
        """Return the totals of all other sites."""
        pairs = zip(self.moments, own.moments(), strict=True)
        rest = [
            Moments(a.rows - b.rows, (a.sums[0] - b.sums[0],), (a.squares[0] - b.squares[0],))
            for a, b in pairs
        ]
        missing, classes = self.missing - own.missing, self.classes - own.classes
        return type(self)(self.rows - own.rows, self.units - own.units, classes, missing, rest)

    def statistics(self, cell: int) -> Statistics:
        """Return them as of one site with a smallest cell; raise a `ValueError` if they are of no rows."""
        if not 0 < self.units <= self.rows or min(each.rows for each in self.moments) < 0:
            raise ValueError("the totals are of no rows")
        known, features = np.array([each.rows > 0 for each in self.moments], np.int64), len(self.moments)
        columns = pooled_columns(self.moments)
        return Statistics(
            self.rows,
            self.units,
            cell,
            self.classes,
            self.missing,
            known,
            np.nan_to_num(columns.means),
            np.nan_to_num(columns.deviations),
            np.zeros(features, np.int64),
            np.zeros((0, 0)),
        )


def size_in_words(form: tuple[int, int]) -> int:
    """Return the number of words of the totals, given the numbers of columns and classes."""
    features, classes = form
    return LIMBS * (2 + classes + 4 * features)
