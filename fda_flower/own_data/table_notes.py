"""Notes on what looks strange in tables: rows that are alike, patients of several rows, constant columns."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fda_flower.datasets.numbers import Array
from fda_flower.errors import some
from fda_flower.own_data.table_columns import SPLIT, several_rows
from fda_flower.own_data.table_files import RawTable
from fda_flower.own_data.table_options import Meaning, as_option

FEW = 10
"""Up to this many rows, or different numbers elsewhere, a column of one number is nothing strange."""

Row = tuple[RawTable, int]
"""A row by its table and position."""


MIX = np.int64(-0x61C8864680B583EB)
"""An odd factor without pattern, 2**64 divided by the golden ratio."""


def _row_hashes(tables: Sequence[RawTable], names: Iterable[str]) -> Array:
    """Return a key of each row, shape ``(rows,)``: the sum of the hashes of its cells in some columns."""
    total = np.zeros(sum(map(len, tables)), dtype=np.int64)  # a million rows of text take much memory
    for name in names:
        total += _hashes(tables, name)
    return total


def _hashes(tables: Sequence[RawTable], name: str) -> Array:
    columns = ((table, table.columns.get(name)) for table in tables)
    keys = np.concatenate(
        [
            np.zeros(len(table), dtype=np.int64)
            if cells is None
            else cells.of_cells(map(hash, cells.different), np.int64)
            for table, cells in columns
        ]
    )
    keys = (keys ^ hash(name)) * MIX  # else sums of several columns would often be alike
    return np.asarray((keys ^ (keys >> 32)) * MIX)


def _pairs(keys: Array) -> float:
    """Return how many pairs of rows have the same key."""
    counts = np.unique(keys, return_counts=True)[1].astype(np.float64)
    return float((counts * (counts - 1) / 2).sum())


def by_chance(rows: Array, columns: Iterable[Array]) -> bool:
    """Return whether different patients would give about as many pairs of rows that are alike.

    Parameters
    ----------
    rows : array
        A key of each row, shape ``(rows,)``, the sum of those in its columns.
    columns : iterable of array
        By column, a key of each cell, shape ``(rows,)``.

    Notes
    -----
    Of two patients who agree in all other columns, as many agree in a column as of any two, a share ``q``,
    which pairs of rows that are not alike give. So if ``d`` pairs differ in that column alone, another
    ``d q / (1 - q)`` agree in it by chance; at most ``d`` are counted, as nearly all rows agree in a rare
    sign. Rows that were entered twice agree in all columns and add nothing. The largest number of a column
    counts, as one that follows from others gives none. Half as many again, and a standard deviation, are
    chance.

    On tables of few values, such as five or six categories, the pairs are 1.0 to 1.3 times as many, also at a
    single domain; pairs of rows of two domains, who are different patients, miss that domains differ: there
    are 0.7 to 3.8 times as many within them.

    Examples
    --------
    >>> age, sex = np.random.default_rng(0).integers([40, 0], [60, 2], (100, 2)).T * [[1], [100]]
    >>> weight, twice = 1000 * np.arange(100), np.array([*range(100), 0, 1, 2])
    >>> by_chance(age + sex, [age, sex]), by_chance((age + sex + weight)[twice], [age[twice], weight[twice]])
    (True, False)
    """
    pairs = _pairs(rows)
    others = len(rows) * (len(rows) - 1) / 2 - pairs
    for column in columns:
        share = min((_pairs(column) - pairs) / max(others, 1), 0.5)
        expected = (_pairs(rows - column) - pairs) * share / (1 - share)
        if pairs <= 1.5 * expected + expected**0.5:
            return True
    return False


def _alike(tables: Sequence[RawTable], others: set[str], labels: Sequence[str]) -> list[tuple[Row, Row]]:
    """Return each row that is like another above it in all but some columns, and the first of these.

    There are none if most rows are alike, or as many as `by_chance`, which columns but the labels tell.
    """
    names = sorted({name for table in tables for name in table.header} - others)
    keys = _row_hashes(tables, names)
    different, firsts, places = np.unique(keys, return_index=True, return_inverse=True)
    if len(keys) in (0, len(different)) or len(keys) > 2 * len(different):
        return []
    if by_chance(keys, (_hashes(tables, name) for name in names if name not in labels)):
        return []
    rows = [(table, position) for table in tables for position in range(len(table))]
    first = firsts[places]
    return [(rows[at], rows[first[at]]) for at in np.flatnonzero(first != np.arange(len(keys))).tolist()]


def _place(row: Row) -> str:
    table, position = row
    return f"line {table.lines[position]} of '{table.path}'"


def repeated(tables: Sequence[RawTable], meaning: Meaning) -> list[str]:
    """Return a note on rows that are there more than once and not of one group, which stays together."""
    again = [
        (row, first)
        for row, first in _alike(tables, {SPLIT, *meaning.ignore}, meaning.labels)
        if row[0] is not first[0] or meaning.group not in row[0].header
    ]
    if not again:
        return []
    keep = "" if meaning.group else ", or keep those of a patient together by the option 'group'"
    return [
        f"rows that are there more than once, so that one may train and the other test: {len(again)}, the "
        f"first in {_place(again[0][0])}, as {_place(again[0][1])}; remove what was entered twice{keep}"
    ]


def contrary(tables: Sequence[RawTable], meaning: Meaning) -> list[str]:
    """Return a note on rows that are alike but of different classes."""

    def word(row: Row) -> list[str]:
        return [row[0].columns[name].texts[row[1]].removesuffix(".0") for name in meaning.labels]

    if meaning.task not in ("classes", "multilabel"):
        return []
    labelled = [table for table in tables if {*table.header}.issuperset(meaning.labels)]
    pairs = _alike(labelled, {SPLIT, *meaning.labels, meaning.group, *meaning.ignore}, meaning.labels)
    differing = [(row, first) for row, first in pairs if word(row) != word(first)]
    if not differing:
        return []
    return [
        f"identical samples with different labels: {len(differing)}, the first in {_place(differing[0][0])}, "
        f"as {_place(differing[0][1])}; correct the label, or leave both out"
    ]


def of_patients(tables: Sequence[RawTable], meaning: Meaning) -> list[str]:
    """Return a note on columns of patients with several rows, if no option keeps these together."""
    notes = dict[str, None]()
    for table in tables:
        columns = (cells for name, cells in table.columns.items() if name not in meaning.labels)
        notes |= dict.fromkeys(several_rows(columns, table.columns.get(meaning.group)))
    return [*notes]


def of_numbers(names: Sequence[str]) -> list[str]:
    """Return a note on columns that number patients or rows, if there are any."""
    if not names:
        return []
    return [
        f"columns that seem to number patients or rows are features: {some(names)}; if they do, name them in "
        "the option 'group' or 'ignore'"
    ]


def constant(columns: Mapping[str, Mapping[str, Array]]) -> list[str]:
    """Return a note on columns of one number at a domain and of many at another, if there are any."""
    said = dict[str, str]()
    for name, cells in columns.items():
        alone = {domain: values for domain, values in cells.items() if _is_one(values)}
        if alone and any(len(np.unique(values[np.isfinite(values)])) > FEW for values in cells.values()):
            each = (f"{np.nanmax(values):g} at '{domain}'" for domain, values in alone.items())
            said[name] = f"{name} ({some([*each])})"
    if not said:
        return []
    return [
        f"columns with one number at a domain, and many at others: {some([*said.values()])}; if it means "
        f"that there is no value, leave them out by {as_option('ignore', said)}"
    ]


def _is_one(values: Array) -> bool:
    known = values[np.isfinite(values)]
    return len(values) > FEW and len(known) > 0 and bool((known == known[0]).all())
