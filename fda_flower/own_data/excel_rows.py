"""Rows of Excel files, as text that a CSV file of them would have."""

import re
import warnings
from collections.abc import Iterator
from datetime import datetime, time
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fda_flower.datasets.folders import unusable
from fda_flower.names.words import counted

EXPORT = "export the sheet as CSV"
MIDNIGHT = time()

TAG = re.compile(rb"<(?:\w+:)?(row|col)\b([^>]*)>")
PLACE, HIDDEN = re.compile(rb'\b(r|min|max)="(\d+)"'), re.compile(rb'\bhidden="(?:1|true)"')
"""In a sheet's XML the tag of a row or of columns, which these are, and that they are not shown."""


def rows_of(path: Path, decimal_comma: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of the only sheet with cells, with their numbers; none is shorter than the first.

    Numbers have a decimal point or comma, dates are as in 2024-12-31. A `ConfigError` names what cannot be
    read, and what has cells but is hidden.
    """
    width = 0
    (name, values), (_, formulas) = (_sheet(path, only_values) for only_values in (True, False))
    _check_shown(path, name, values)
    for line, (cells, sources) in enumerate(zip_longest(values, formulas, fillvalue=()), start=1):
        for column, (cell, source) in enumerate(zip(cells, sources, strict=False), start=1):
            if cell is None and source is not None:
                what = f"has a formula without its value in line {line}, column {column}"
                raise unusable("data file", path, what, f"open it in Excel and save it, or {EXPORT}")
        texts = [_text(cell, decimal_comma) for cell in cells]
        while texts and not texts[-1]:
            texts.pop()
        width = width or len(texts)
        yield line, texts + [""] * (width - len(texts))


def _sheet(path: Path, only_values: bool) -> tuple[str, list[tuple[Any, ...]]]:
    """Return the name and the cells of the only sheet that has any: formulas or their values."""
    try:
        import openpyxl
    except ModuleNotFoundError as error:
        remedy = f"pip install 'fda-flower[excel]', or {EXPORT}"
        raise unusable("data file", path, "needs openpyxl, which is not installed", remedy) from error
    try:
        with warnings.catch_warnings(), path.open("rb") as file:
            warnings.simplefilter("ignore")  # of formats, validations and styles
            book = openpyxl.load_workbook(file, read_only=True, data_only=only_values)
            sheets = {sheet.title: _cells(sheet) for sheet in book.worksheets}
            visible = {sheet.title: sheet.sheet_state == "visible" for sheet in book.worksheets}
            book.close()
    except Exception as error:  # a damaged file raises errors of many kinds
        remedy = f"save it as .xlsx, without a password, or {EXPORT}"
        raise unusable("data file", path, f"cannot be read ({error})", remedy) from error
    filled = {name: cells for name, cells in sheets.items() if cells}
    if hidden := [name for name in filled if not visible[name]]:
        what = f"has cells in a hidden sheet, {', '.join(hidden)}"
        raise unusable("data file", path, what, f"show that sheet and leave one with cells, or {EXPORT}")
    if len(filled) > 1:
        what = f"has {len(filled)} sheets with cells, {', '.join(filled)}"
        raise unusable("data file", path, what, f"leave one in it, or {EXPORT}")
    return next(iter(filled.items()), ("", []))


def _cells(sheet: Any) -> list[tuple[Any, ...]]:
    """Return a sheet's rows up to the last that has a cell."""
    sheet.reset_dimensions()  # some programs write a wrong one, which would cut rows off
    rows = list(sheet.iter_rows(values_only=True))
    while rows and all(cell is None for cell in rows[-1]):
        rows.pop()
    return rows


def _check_shown(path: Path, name: str, cells: list[tuple[Any, ...]]) -> None:
    """Raise a `ConfigError` on hidden rows and columns with cells, such as what a filter hides."""
    from openpyxl.utils import get_column_letter

    rows, columns = _hidden(path, name) if cells else ([], [])
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


def _hidden(path: Path, name: str) -> tuple[list[int], list[int]]:
    """Return the numbers of a sheet's hidden rows and columns."""
    from openpyxl.reader.excel import ExcelReader

    reader = ExcelReader(path, read_only=True)
    with reader.archive as archive:
        reader.read_manifest()
        reader.read_workbook()
        part = next(part.target for sheet, part in reader.parser.find_sheets() if sheet.name == name)
        content = archive.read(part)
    rows, columns, row = list[int](), list[int](), 0
    for tag, said in TAG.findall(content):
        place = {key: int(number) for key, number in PLACE.findall(said)}
        row = place.get(b"r", row + 1) if tag == b"row" else row
        if HIDDEN.search(said):
            rows += [row] if tag == b"row" else []
            columns += range(place.get(b"min", 1), place.get(b"max", 0) + 1)
    return rows, columns


def _text(cell: Any, decimal_comma: bool) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, float):
        text = str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else repr(cell)
        return text.replace(".", ",") if decimal_comma else text
    if isinstance(cell, datetime) and cell.time() == MIDNIGHT:
        return str(cell.date())
    return str(cell).strip()
