"""Numbers as people write them, and the marks of a missing value."""

import math
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING = ("", "?", "na", "n/a", "nan", "none", "null")

Array = NDArray[Any]


def is_missing(cell: str, words: bool = False) -> bool:
    """Return whether a cell marks a missing value; in a column of words, "none" does not."""
    return cell.lower() in MISSING and not (words and cell.lower() == "none")


def to_numbers(texts: Collection[str], decimal_comma: bool = False) -> Array:
    """Return the numbers in cells: NaN if missing, infinity if a cell is no number."""
    if decimal_comma:
        texts = [text.replace(",", ".") for text in texts]
    try:
        found = np.array(list(map(float, texts)), dtype=np.float64)
    except ValueError:
        found = np.array(list(map(_number, texts)), dtype=np.float64)
    return np.where(np.isinf(found), math.inf, found)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan if is_missing(text) else math.inf
