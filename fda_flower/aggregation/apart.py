"""How far apart two sites are, by what they say of their rows, against what chance gives.

Two samples of one population differ, too: a column's distance has the standard error ``sqrt(1/n_s + 1/n_t)``,
and the Fréchet distance a mean that `chance` bounds. Nothing below them is named. Units count as
``n``, such as patients: rows of one patient are alike.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.bins import BINS, MANY, Counts, binned, edges
from fda_flower.aggregation.columns import SAME, Columns
from fda_flower.aggregation.describing import Statistics

Array = NDArray[np.float64]

ERRORS = 3.5
"""Standard errors from which a difference is named."""

TIMES = 2.0
"""Multiple of what chance gives from which a Fréchet distance is named."""

FAR = 1000.0
"""Bound on a distance, of constants that differ."""

MOST_NAMED = 3
"""Columns that are named of two sites."""

UNIT = 5.0
"""Ratio of means or of deviations from which two sites may have another unit."""

SCALED = 2.0
"""Ratio of deviations that another unit has at least; means near 0 have a large ratio by chance."""

ELSEWHERE = 0.02
"""Share of units at the other site below which a site's frequent number may be a code."""

OTHER_BINS = 0.5
"""Share of units in other bins from which a ratio of deviations is no matter of a few rows."""


@dataclass(frozen=True)
class Apart:
    """How far two sites are apart.

    Attributes
    ----------
    distances : array
        ``|mean_s - mean_t|`` by column, in the root of the mean variance; NaN where one site says none.
    named : tuple of int
        The columns to name, at most `MOST_NAMED`: first those with a code or another unit, by distance.
    missing, other_units, codes : frozenset of int
        The columns with another share of missing values, with another unit, and with a number at the first
        or the second site that may be a code.
    label_shift : float or None
        ``1/2 sum_c |p_s(c) - p_t(c)|``, of several labels the mean difference; None without classes.
    label : int or None
        The class with the largest difference beyond chance.
    frechet, floor : float or None
        The Fréchet distance over the columns that both have, by column, and what chance gives at most.
    columns : int
        The number of these columns.
    """

    distances: Array
    named: tuple[int, ...]
    missing: frozenset[int]
    other_units: frozenset[int]
    codes: tuple[frozenset[int], frozenset[int]]
    label_shift: float | None
    label: int | None
    frechet: float | None
    floor: float | None
    columns: int

    @property
    def beyond_chance(self) -> bool:
        """Whether the Fréchet distance is beyond chance."""
        return self.frechet is not None and self.floor is not None and self.frechet > TIMES * self.floor


Said = tuple[Statistics, Counts | None]
"""What a site says of its rows; without columns of a table no counts."""


def apart(one: Said, two: Said, common: Columns, several: bool = False) -> Apart:
    """Return how far two sites are apart, given mean and deviation over all sites.

    With `several` labels each has a share of its own.
    """
    (s, _), (t, _) = one, two
    distances, errors = _distances(s, t)
    beyond = {*np.flatnonzero(np.nan_to_num(distances) > ERRORS * errors).tolist()}
    lacking = _missing(s, t)
    other_units = _other_units(one, two, beyond)
    codes = _codes(one, two, common), _codes(two, one, common)
    odd = other_units | codes[0] | codes[1]
    order = sorted(
        odd | beyond | lacking, key=lambda j: (j not in odd, -float(np.nan_to_num(distances[j])), j)
    )
    shift, label = _label_shift(s, t, several)
    distance, floor, columns = _frechet(s, t, common)
    named = tuple(order[:MOST_NAMED])
    return Apart(
        distances, named, frozenset(lacking), other_units, codes, shift, label, distance, floor, columns
    )


def _distances(s: Statistics, t: Statistics) -> tuple[Array, Array]:
    """Return the distance of each column and its standard error; NaN where a site says none."""
    both = (s.known & t.known) > 0
    scale = np.sqrt((s.deviations**2 + t.deviations**2) / 2)
    gap = np.abs(s.means - t.means)
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = np.where(gap > 0, np.minimum(gap / scale, FAR), 0.0)
        errors = np.sqrt(1 / s.observed + 1 / t.observed)
    return np.where(both, distances, np.nan), errors


def is_share(mean: float, deviation: float) -> bool:
    """Return whether a column is of zeros and ones, so that its mean is a share.

    Examples
    --------
    >>> is_share(0.5, 0.5), is_share(0.5, 0.1)
    (True, False)
    """
    return 0 <= mean <= 1 and abs(deviation**2 - mean * (1 - mean)) <= SAME


def are_shares(s: Statistics, t: Statistics, column: int) -> bool:
    """Return whether a column is of zeros and ones at both sites."""
    return all(is_share(float(site.means[column]), float(site.deviations[column])) for site in (s, t))


def are_shares_apart(one: tuple[float, int, int], two: tuple[float, int, int]) -> bool:
    """Return whether two shares differ beyond chance and rounding; each with its units and smallest cell."""
    (p, n, cell), (q, m, other) = one, two
    mean = (p * n + q * m) / (n + m)
    rounding = cell // 2 / n + other // 2 / m
    return abs(p - q) > ERRORS * float(np.sqrt(mean * (1 - mean) * (1 / n + 1 / m))) + rounding


def _missing(s: Statistics, t: Statistics) -> set[int]:
    def share(site: Statistics, j: int) -> tuple[float, int, int]:
        return min(site.missing[j] / site.units, 1.0), site.units, site.cell

    both = np.flatnonzero(s.known & t.known).tolist()
    return {j for j in both if are_shares_apart(share(s, j), share(t, j))}


def _other_units(one: Said, two: Said, beyond: set[int]) -> frozenset[int]:
    """Return the columns that may be in another unit."""
    (s, own), (t, other) = one, two
    columns = set[int]()
    for j in np.flatnonzero(s.known & t.known).tolist():
        if own is None or other is None or (are_shares(s, t, j)):
            continue
        means = _ratio(float(s.means[j]), float(t.means[j])) if s.means[j] * t.means[j] > 0 else 1.0
        deviations = _ratio(float(s.deviations[j]), float(t.deviations[j]))
        scaled = means > UNIT and deviations > SCALED
        if (j in beyond and scaled) or (deviations > UNIT and _in_other_bins(own, other, j)):
            columns.add(j)
    return frozenset(columns)


def _ratio(one: float, two: float) -> float:
    """Return the ratio of the larger to the smaller size; 1 if one of them is 0."""
    low, high = sorted((abs(one), abs(two)))
    return high / low if low > 0 else 1.0


def _in_other_bins(one: Counts, two: Counts, column: int) -> bool:
    shares = (each.bins[column] / max(each.bins[column].sum(), 1) for each in (one, two))
    return float(np.abs(np.subtract(*shares)).sum() / 2) > OTHER_BINS


def _codes(one: Said, two: Said, common: Columns) -> frozenset[int]:
    """Return the columns in which a frequent number at the first site is rare at the second."""
    (s, own), (t, other) = one, two
    if own is None or other is None:
        return frozenset()
    columns = set[int]()
    for j in np.flatnonzero(s.known & t.known).tolist():
        number = own.numbers[j]
        if np.isnan(number) or np.count_nonzero(other.bins[j]) < MANY:
            continue
        if other.numbers[j] == number:
            continue
        there = other.bins[j, binned(np.array([number]), edges(common, j, BINS))[0]]
        if there < ELSEWHERE * t.observed[j]:
            columns.add(j)
    return frozenset(columns)


def shares_of(site: Statistics, several: bool) -> Array:
    """Return the share of each class, or of each of several labels among the units."""
    total = site.units if several else site.classes.sum()
    return site.classes / max(int(total), 1)


def _label_shift(s: Statistics, t: Statistics, several: bool) -> tuple[float | None, int | None]:
    if not (s.classes.any() and t.classes.any()):
        return None, None
    p, q = shares_of(s, several), shares_of(t, several)
    gaps = np.abs(p - q)
    own = [(site.units if several else int(site.classes.sum()), site.cell) for site in (s, t)]
    place = len(gaps) - 1 - int(gaps[::-1].round(9).argmax())
    is_named = are_shares_apart((float(p[place]), *own[0]), (float(q[place]), *own[1]))
    return float(gaps.mean() if several else gaps.sum() / 2), place if is_named else None


def _frechet(s: Statistics, t: Statistics, common: Columns) -> tuple[float | None, float | None, int]:
    """Return the distance by column on columns standardised over all sites, its floor, and their number."""
    varied = np.nan_to_num(common.deviations) > 0
    both = np.flatnonzero((s.joint & t.joint & varied) > 0)
    if not len(both):
        return None, None, 0
    scale, parts = common.deviations[both], []
    for site in (s, t):
        places = np.searchsorted(np.flatnonzero(site.joint), both)
        covariance = site.covariance[np.ix_(places, places)]
        parts.append((site.means[both] / scale, covariance / np.outer(scale, scale)))
    if not all(np.isfinite(array).all() for part in parts for array in part):
        return None, None, 0
    units = (int(site.observed[both].min()) for site in (s, t))
    return frechet(*parts) / len(both), chance(len(both), *units), len(both)


def chance(columns: int, one: int, two: int) -> float:
    """Return about the Fréchet distance by column of two samples of one population, of independent columns.

    With correlated columns it is less.
    """
    return (1 + (columns + 1) / 4) * (1 / one + 1 / two)


def frechet(one: tuple[Array, Array], two: tuple[Array, Array]) -> float:
    """Return the squared Fréchet distance of two normal distributions, each a mean and a covariance.

    ``|m_1 − m_2|² + tr V_1 + tr V_2 − 2 tr (V_1^½ V_2 V_1^½)^½`` (Dowson and Landau, "The Fréchet distance
    between multivariate normal distributions", Journal of Multivariate Analysis, 1982).

    Examples
    --------
    >>> frechet((np.zeros(2), np.eye(2)), (np.array([3.0, 0.0]), 4 * np.eye(2)))
    11.0
    """
    (mean, covariance), (other, another) = one, two
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    mixed = np.linalg.eigvalsh(root @ another @ root)
    traces = np.trace(covariance) + np.trace(another) - 2 * np.sqrt(np.maximum(mixed, 0)).sum()
    return float((mean - other) @ (mean - other) + max(traces, 0.0))
