"""Numbers as people write them, and the marks of a missing value."""

import math
import re
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING = ("", "?", "na", "n/a", "nan", "none", "null")

LARGEST = float(np.finfo(np.float32).max)
"""The largest number that a network can take."""

SIGN = "[+\\-\N{MINUS SIGN}]?"
EXPONENT = f"(?:[eE]{SIGN}[0-9]+)?"
PLAIN = re.compile(f"{SIGN}(?:[0-9]+[.]?[0-9]*|[.][0-9]+){EXPONENT}")
GROUPED = re.compile(f"{SIGN}(?:[1-9][0-9]{{0,2}}(?:[.][0-9]{{3}})+|[0-9]{{1,3}})(?:,([0-9]+))?")
"""A number with points between thousands and a decimal comma."""

POINTED, SMALL = re.compile(f"{SIGN}[1-9][0-9]{{0,2}}(?:[.][0-9]{{3}})+"), re.compile(f"{SIGN}[0-9]{{1,3}}")
"""A number with points between thousands, and one of at most three digits."""

OF_THOUSANDS = (
    "a point before three digits, as between thousands, since all smaller numbers are whole",
    "write 1234 for 1.234, or give --dataset-option decimal=comma; for a decimal point, write 5.000 for 5",
)
"""The problem of such a point where points are decimal, and its remedy."""

SPACES = " \N{NO-BREAK SPACE}\N{THIN SPACE}\N{NARROW NO-BREAK SPACE}"
THOUSANDS = f"[0-9]{{1,3}}(?:[.,_'\N{RIGHT SINGLE QUOTATION MARK}{SPACES}][0-9]{{3}})+(?:[.,][0-9]+)?"
MARKED = re.compile(f"{SIGN}(?:{THOUSANDS}|[0-9]*[.,][0-9]+{EXPONENT})|'(?:{PLAIN.pattern})'?")

Array = NDArray[Any]


FORMULA_ERROR = re.compile(r"#(?:N/A|NV|[^\W\d_]+[!?]|DIV/0!)")
"""What spreadsheets show where a formula has no value, in any language."""


def is_missing(cell: str, words: bool = False) -> bool:
    """Return whether a cell marks a missing value; in a column of words, "none" does not."""
    return cell.lower() in MISSING and not (words and cell.lower() == "none")


def to_numbers(texts: Collection[str], decimal_comma: bool = False) -> Array:
    """Return the numbers in a column's cells: NaN if missing, infinity if a cell is no number.

    A number has a sign, ASCII digits, a decimal mark and an exponent, of which only digits are needed. With
    `decimal_comma`, the points of a column are thousands marks if it is `grouped`; else a cell with a point
    is no number.

    Examples
    --------
    >>> to_numbers(["1.5", "?", "1,234", "1_000"]).tolist()
    [1.5, nan, inf, inf]
    >>> to_numbers(["980", "1.020"], decimal_comma=True).tolist()
    [980.0, 1020.0]
    >>> to_numbers(["980", "1.02"], decimal_comma=True).tolist()
    [980.0, inf]
    """
    if decimal_comma:
        meant = str.maketrans(",", ".", ".") if grouped(texts) else str.maketrans(",.", ".,")
        texts = [text.translate(meant) for text in texts]
    values = np.array([_number(text) for text in texts], dtype=np.float64)
    return np.where(np.abs(values) > LARGEST, math.inf, values)


def grouped(texts: Iterable[str]) -> bool:
    """Return whether points can mark the thousands of all numbers, which have the same number of decimals."""
    matches = [GROUPED.fullmatch(text) for text in texts if not is_missing(text)]
    return all(matches) and len({len(number[1] or "") for number in matches if number}) < 2


def whole(text: str) -> str:
    """Return a whole number that is written as a float, such as 1.0, without the decimals; else the text."""
    digits = text.removesuffix(".0")
    return digits if digits.isascii() and digits.isdecimal() else text


def count_missing(cells: Array) -> int:
    """Return how many of a column's numbers are NaN, or of its words empty."""
    return int(np.sum((cells == "") if cells.dtype == object else np.isnan(cells)))


def _number(text: str) -> float:
    if PLAIN.fullmatch(text):
        return float(text.replace("\N{MINUS SIGN}", "-"))
    return math.nan if is_missing(text) else math.inf
