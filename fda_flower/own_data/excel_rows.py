"""Rows of Excel files, as text that a CSV file of them would have."""

import warnings
from collections.abc import Iterator
from datetime import datetime, time
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fda_flower.datasets.folders import unusable

EXPORT = "export the sheet as CSV"
MIDNIGHT = time()


def rows_of(path: Path, decimal_comma: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of the only sheet with cells, with their numbers; none is shorter than the first.

    Numbers have a decimal point or comma, dates are as in 2024-12-31. A `ConfigError` names what cannot be
    read.
    """
    width = 0
    values, formulas = (_sheet(path, only_values) for only_values in (True, False))
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


def _sheet(path: Path, only_values: bool) -> list[tuple[Any, ...]]:
    """Return the cells of the only sheet that has any: formulas or their values."""
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
            book.close()
    except Exception as error:  # a damaged file raises errors of many kinds
        remedy = f"save it as .xlsx, without a password, or {EXPORT}"
        raise unusable("data file", path, f"cannot be read ({error})", remedy) from error
    filled = {name: cells for name, cells in sheets.items() if cells}
    if len(filled) > 1:
        what = f"has {len(filled)} sheets with cells, {', '.join(filled)}"
        raise unusable("data file", path, what, f"leave one in it, or {EXPORT}")
    return next(iter(filled.values()), [])


def _cells(sheet: Any) -> list[tuple[Any, ...]]:
    """Return a sheet's rows up to the last that has a cell."""
    sheet.reset_dimensions()  # some programs write a wrong one, which would cut rows off
    rows = list(sheet.iter_rows(values_only=True))
    while rows and all(cell is None for cell in rows[-1]):
        rows.pop()
    return rows


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
