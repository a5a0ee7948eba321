"""Notes on what looks strange in tables: rows that are alike, patients of several rows, constant columns."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

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


def _alike(tables: Sequence[RawTable], others: set[str]) -> list[tuple[Row, Row]]:
    """Return each row that is like another above it in all but some columns, and the first of these.

    There are none if most rows are alike, as in tables of few words.
    """
    keys: list[int] = []  # a row's hash, as a million rows take much memory
    for table in tables:
        texts = [table.columns[name].texts for name in sorted({*table.header} - others)]
        keys += map(hash, zip(*texts, strict=True))
    number = len(set(keys))
    if number == len(keys) or len(keys) > 2 * number:
        return []
    first: dict[int, Row] = {}
    rows = ((table, position) for table in tables for position in range(len(table)))
    return [
        (row, first[key]) for key, row in zip(keys, rows, strict=True) if first.setdefault(key, row) != row
    ]


def _place(row: Row) -> str:
    table, position = row
    return f"line {table.lines[position]} of '{table.path}'"


def repeated(tables: Sequence[RawTable], meaning: Meaning) -> list[str]:
    """Return a note on rows that are there more than once and not of one group, which stays together."""
    again = [
        (row, first)
        for row, first in _alike(tables, {SPLIT, *meaning.ignore})
        if row[0] is not first[0] or meaning.group not in row[0].header
    ]
    if not again:
        return []
    keep = "" if meaning.group else ", or keep those of a patient together by the option 'group'"
    return [
        f"rows that are there more than once, so that one may train and the other test: {len(again)}, the "
        f"first in {_place(again[0][0])}, as {_place(again[0][1])}; remove them{keep}"
    ]


def contrary(tables: Sequence[RawTable], meaning: Meaning) -> list[str]:
    """Return a note on rows that are alike but of different classes."""

    def word(row: Row) -> str:
        return row[0].columns[meaning.label].texts[row[1]].removesuffix(".0")

    labelled = [table for table in tables if meaning.label in table.header and not meaning.regression]
    others = {SPLIT, meaning.label, meaning.group, *meaning.ignore}
    pairs = _alike(labelled, others)
    differing = [(row, first) for row, first in pairs if word(row) != word(first)]
    if len(differing) <= 2 * _by_chance(labelled, others):
        return []
    return [
        f"identical samples with different labels: {len(differing)}, the first in {_place(differing[0][0])}, "
        f"as {_place(differing[0][1])}; correct the label, or leave both out"
    ]


def _by_chance(tables: Sequence[RawTable], others: set[str]) -> float:
    """Return how many pairs of rows would be alike if the columns had nothing to do with each other."""
    rows = sum(map(len, tables))
    pairs = every = rows * (rows - 1) / 2
    for name in {name for table in tables for name in table.header} - others:
        counts = Counter(chain.from_iterable(table.texts.get(name, ()) for table in tables))
        pairs *= sum(count * (count - 1) / 2 for count in counts.values()) / every
    return pairs


def of_patients(tables: Sequence[RawTable], meaning: Meaning) -> list[str]:
    """Return a note on columns of patients with several rows, if no option keeps these together."""
    notes = dict[str, None]()
    for table in tables:
        columns = (cells for name, cells in table.columns.items() if name != meaning.label)
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
