"""Rows of Excel files, as text that a CSV file of them would have."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fda_flower.datasets.folders import unusable
from fda_flower.errors import near
from fda_flower.names.words import counted
from fda_flower.own_data.reading import Cells, Reading, Rows, check_installed, text_of, within

EXPORT, BY_NAME = "export the sheet as CSV", "--dataset-option sheet=NAME"

TAG = re.compile(rb"<(?:\w+:)?(row|col)\b([^>]*)>")
PLACE, HIDDEN = re.compile(rb'\b(r|min|max)="(\d+)"'), re.compile(rb'\bhidden="(?:1|true)"')
"""In a sheet's XML the tag of a row or of columns, which these are, and that they are not shown."""

MERGED = re.compile(rb'<(?:\w+:)?mergeCell\b[^>]*\bref="([A-Z]+\d+:[A-Z]+\d+)"')
"""Cells that are shown as one; only the first has a value."""


Values = Sequence[tuple[Any, ...]]


def read(path: Path, how: Reading) -> Cells:
    """Return the cells of a sheet: the one that an option names, else the only visible one with cells.

    No row is shorter than the first. A `ConfigError` names what cannot be read, what has cells but is hidden
    in the sheet, and cells that are merged below the header; so are other sheets, unless they are hidden and
    have other columns.
    """
    name, notes = (how.sheet, ()) if how.sheet else _only_sheet(path)
    values, formulas = (_cells(path, name, only_values) for only_values in (True, False))
    place = within(path, f"sheet {name}") if how.sheet else path
    if values:
        content = _content(path, name)
        _check_shown(place, content, values)
        _check_apart(place, content, values)
    return Cells(_rows(place, values, formulas, how.comma), notes=notes, place=place)


def _rows(path: Path, values: Values, formulas: Values, comma: bool) -> Rows:
    width = 0
    for line, (cells, sources) in enumerate(zip_longest(values, formulas, fillvalue=()), start=1):
        for column, (cell, source) in enumerate(zip_longest(cells, sources), start=1):
            if cell is None and source is not None:
                what = f"has a formula without its value in line {line}, column {column}"
                raise unusable("data file", path, what, f"open it in Excel and save it, or {EXPORT}")
        texts = [text_of(cell, comma) for cell in cells]
        while texts and not texts[-1]:
            texts.pop()
        width = width or len(texts)
        yield line, texts + [""] * (width - len(texts))


def sheets_in(path: Path) -> tuple[list[str], tuple[str, ...]]:
    """Return the visible sheets with cells, and notes on hidden ones, which are not read.

    Raise a `ConfigError` on a hidden sheet with the columns of a visible one.
    """
    with _opened(path) as book:
        columns = {sheet.title: _columns(sheet) for sheet in book.worksheets}
        titles = [sheet.title for sheet in book.worksheets if sheet.sheet_state == "visible"]
    visible = [name for name in titles if columns[name]]
    hidden = [name for name in columns if columns[name] and name not in titles]
    for name in hidden:
        if not visible or columns[name] in map(columns.__getitem__, visible):
            what = f"has cells in a hidden sheet, {name}"
            remedy = f"show that sheet, delete it, or {EXPORT}; for the data of a run, name the one to read"
            raise unusable("data file", path, what, f"{remedy} by {BY_NAME}")
    note = f"'{path}' has hidden sheets that are not read: {', '.join(hidden)}"
    return visible, ((note,) if hidden else ())


def _only_sheet(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the only visible sheet with cells, or "", and the notes on others."""
    visible, notes = sheets_in(path)
    if len(visible) > 1:
        what = f"has {len(visible)} sheets with cells, {', '.join(visible)}"
        remedy = (
            f"leave one in it, or {EXPORT}; for the data of a run, name the one to read by {BY_NAME} or, if "
            "each is a site, give the file in place of its folder (--data-dir FILE)"
        )
        raise unusable("data file", path, what, remedy)
    return (visible[0] if visible else ""), notes


@contextmanager
def _opened(path: Path, only_values: bool = True) -> Iterator[Any]:
    """Yield a workbook of formulas or their values; any error in the block is a `ConfigError`."""
    check_installed(path, "openpyxl", f"or {EXPORT}")
    import openpyxl

    try:
        with warnings.catch_warnings(), path.open("rb") as file:
            warnings.simplefilter("ignore")  # of formats, validations and styles
            book = openpyxl.load_workbook(file, read_only=True, data_only=only_values)
            yield book
            book.close()
    except Exception as error:  # a damaged file raises errors of many kinds
        remedy = f"save it as .xlsx, without a password, or {EXPORT}"
        raise unusable("data file", path, f"cannot be read ({error})", remedy) from error


def _columns(sheet: Any) -> frozenset[str]:
    """Return the cells of a sheet's first row that has any; empty without one."""
    sheet.reset_dimensions()  # some programs write a wrong one, which would cut rows off
    rows = ({*map(text_of, row)} - {""} for row in sheet.iter_rows(values_only=True))
    return frozenset(next(filter(None, rows), ()))


def _cells(path: Path, name: str, only_values: bool) -> list[tuple[Any, ...]]:
    """Return a sheet's rows up to the last that has a cell."""
    with _opened(path, only_values) as book:
        names = [sheet.title for sheet in book.worksheets]
        if name in names:
            book[name].reset_dimensions()
            rows = list(book[name].iter_rows(values_only=True))
    if name and name not in names:
        what = f"has no sheet '{name}'{near(name, names)}, only {', '.join(names)}"
        raise unusable("data file", path, what, "name one of them in the option 'sheet', or rename it")
    rows = rows if name else []
    while rows and all(cell is None for cell in rows[-1]):
        rows.pop()
    return rows


def _check_shown(path: Path, content: bytes, cells: Values) -> None:
    """Raise a `ConfigError` on hidden rows and columns with cells, such as what a filter hides."""
    from openpyxl.utils import get_column_letter

    rows, columns = _hidden(content)
    filled = [row for row in rows if row <= len(cells) and set(cells[row - 1]) - {None}]
    width = max(map(len, cells), default=0)
    letters = [
        get_column_letter(column)
        for column in columns
        if column <= width and any(row[column - 1 : column] not in ((), (None,)) for row in cells)
    ]
    hidden = [f"{counted(len(filled), 'hidden row')}, the first in line {filled[0]}"] if filled else []
    hidden += [f"{counted(len(letters), 'hidden column')}, the first {letters[0]}"] if letters else []
    if hidden:
        what = f"has {', and '.join(hidden)}"
        raise unusable("data file", path, what, "delete what is hidden, or show it")


def _check_apart(path: Path, content: bytes, cells: Values) -> None:
    """Raise a `ConfigError` on merged cells below the header: all but the first look like missing values."""
    from openpyxl.utils import range_boundaries

    header = next(row for row, texts in enumerate(cells, start=1) if set(texts) - {None})
    for place in (found.decode() for found in MERGED.findall(content)):
        left, top, _, bottom = range_boundaries(place)
        if header < bottom and top <= len(cells) and cells[top - 1][left - 1 : left] not in ((), (None,)):
            what = f"has merged cells, {place}, where a value stands for several"
            raise unusable("data file", path, what, "split them, and fill in each cell")


def _content(path: Path, name: str) -> bytes:
    """Return the XML of a sheet."""
    from openpyxl.reader.excel import ExcelReader

    reader = ExcelReader(path, read_only=True)
    with reader.archive as archive:
        reader.read_manifest()
        reader.read_workbook()
        part = next(part.target for sheet, part in reader.parser.find_sheets() if sheet.name == name)
        return bytes(archive.read(part))


def _hidden(content: bytes) -> tuple[list[int], list[int]]:
    """Return the numbers of a sheet's hidden rows and columns."""
    rows, columns, row = list[int](), list[int](), 0
    for tag, said in TAG.findall(content):
        place = {key: int(number) for key, number in PLACE.findall(said)}
        row = place.get(b"r", row + 1) if tag == b"row" else row
        if HIDDEN.search(said):
            rows += [row] if tag == b"row" else []
            columns += range(place.get(b"min", 1), place.get(b"max", 0) + 1)
    return rows, columns
