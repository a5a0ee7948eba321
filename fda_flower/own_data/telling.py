"""Columns that alone tell the label, as what is known only afterwards does."""

from collections.abc import Mapping
from math import inf, lgamma, log

import numpy as np

from fda_flower.datasets.numbers import Array
from fda_flower.errors import some
from fda_flower.own_data.column import ENOUGH, MOST_CODES
from fda_flower.own_data.table_options import as_option

CHANCE = 1e-6
"""The chance that one of the columns tells labels by chance, below which it is named."""

SAME = 0.999
"""The correlation above which a column is a number to predict in another form."""

MOST_ROWS = 500
"""The rows of each class, or two thousand in all, that are looked at before all are."""

MOST_PAIRS = 2000


def telling(
    columns: Mapping[str, Mapping[str, Array]],
    labels: Mapping[str, Array],
    rows: Mapping[str, Array],
    regression: bool,
    label: str = "the label",
) -> list[str]:
    """Return a note on columns that each tell every label, if there are any.

    Parameters
    ----------
    columns : mapping
        By column, its numbers or words by domain, shape ``(n,)`` each.
    labels : mapping
        By domain, the class or the number to predict of each row.
    rows : mapping
        By domain, the positions of the rows that count: of a patient's rows of one label, the first.
    regression : bool
        Whether labels are numbers.
    label : str
        What a note calls the label.

    Notes
    -----
    A column tells classes if none of its values, or of its at most `MOST_CODES` words and codes, has rows of
    two classes, at every domain with two; of many numbers, those of a class must have no other's between
    them. Labels in another order would fit as well by a chance of at most ``k! Π n_c! / n!``, for ``n_c`` of
    ``n`` rows in each of ``k`` classes, or ``k^m`` in place of ``k!`` for ``m`` codes: a column is named if
    that is below `CHANCE`, over all domains and times the number of columns. It tells numbers if their
    correlation with it, or of the ranks, is above `SAME` at every domain with enough rows.
    """
    counted = {domain: each[rows[domain]] for domain, each in labels.items()}
    fewest = ENOUGH if regression else 2
    said = {each: known for each, known in counted.items() if len(known) >= fewest and np.ptp(known) > 0}
    views = {domain: _spread(each, regression) for domain, each in said.items()}
    limit = log(CHANCE / max(len(columns), 1))

    def tells(cells: Mapping[str, Array]) -> bool:
        if not said or not all(domain in cells for domain in said):
            return False
        values = {domain: cells[domain][rows[domain]] for domain in said}
        if regression:
            return all(_is_same(values[each][views[each]], said[each][views[each]]) for each in said)
        return _chance_of(values, said, views) < limit

    names = [name for name, cells in columns.items() if tells(cells)]
    if not names:
        return []
    what = "each" if len(names) > 1 else "it"
    return [
        f"columns that alone tell {label} of every row: {some(names)}; if {what} is known only with the "
        f"label, leave it out by {as_option('ignore', names)}"
    ]


def _spread(labels: Array, regression: bool) -> Array:
    """Return positions of some rows, of each class alike."""
    if regression:
        return np.arange(len(labels))[:: len(labels) // MOST_PAIRS + 1]
    rows = (np.flatnonzero(labels == label) for label in np.unique(labels))
    return np.sort(np.concatenate([each[:: len(each) // MOST_ROWS + 1] for each in rows]))


def _chance_of(values: Mapping[str, Array], labels: Mapping[str, Array], views: Mapping[str, Array]) -> float:
    """Return the logarithm of the chance that a column tells the classes; 0 if it does not."""
    total = 0.0
    for domain, view in views.items():
        cells, classes = values[domain], labels[domain]
        if _chance(cells[view], classes[view]) == inf or (chance := _chance(cells, classes)) == inf:
            return 0.0
        total += min(chance, 0.0)
    return total


def _chance(values: Array, labels: Array) -> float:
    """Return the logarithm of a bound on the chance at one domain; infinity if a label is not told."""
    different, codes = np.unique(values, return_inverse=True)
    _, classes = np.unique(labels, return_inverse=True)
    number = int(classes.max()) + 1
    members = np.bincount(codes * number + classes, minlength=len(different) * number).reshape(-1, number)
    if (np.count_nonzero(members, axis=1) > 1).any():
        return inf
    ways = len(different) * log(number) if len(different) <= MOST_CODES else inf
    if values.dtype != object and np.count_nonzero(np.diff(members.argmax(axis=1))) == number - 1:
        ways = min(ways, lgamma(number + 1))
    return ways + sum(lgamma(count + 1) for count in members.sum(axis=0)) - lgamma(len(labels) + 1)


def _is_same(values: Array, labels: Array) -> bool:
    """Return whether numbers, or their ranks, are those to predict, but for a scale."""
    if values.dtype == object:
        return False
    both = np.isfinite(values) & np.isfinite(labels)
    if both.sum() < ENOUGH or not both.mean() > 0.5:
        return False
    straight = abs(_correlation(values[both], labels[both]))
    if straight < 0.2:
        return False
    ranks = abs(_correlation(_ranks(values[both]), _ranks(labels[both])))
    return ranks > SAME or (straight > SAME and ranks > 0.95)


def _correlation(one: Array, other: Array) -> float:
    centred = [each - each.mean() for each in (one, other)]
    squares = [float(each @ each) for each in centred]
    return float(centred[0] @ centred[1]) / (squares[0] * squares[1]) ** 0.5 if all(squares) else 0.0


def _ranks(values: Array) -> Array:
    """Return the ranks of values, in the middle of equal ones."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])
