"""What readers of tables share: how files are read, the cells that they return, and cells as text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fda_flower.datasets.folders import unusable
from fda_flower.names.packages import missing_extra, require

Declared = Literal["refuse", "missing", "value"]
"""What values are that a file of SPSS declares as missing: unknown, missing, or like others."""

Rows = Iterator[tuple[int, list[str]]]
"""The header and the rows, each with its line, or its number in a file without lines."""

Fault = tuple[str, str]
"""Why a column cannot be read, and the remedy."""

EXACT = 2**53
"""From here on a 64-bit decimal does not tell whole numbers apart, such as patient numbers."""

MIDNIGHT = time()


@dataclass(frozen=True)
class Reading:
    """How files are read, as a run's options say it.

    Attributes
    ----------
    encoding : str
        Python's name of the encoding of texts.
    sheet : str
        The sheet of a workbook. Default: the only one with cells.
    comma : bool
        Whether a comma is the decimal mark.
    declared : {"refuse", "missing", "value"}
        What values are that a file of SPSS declares as missing.
    """

    encoding: str = ""
    sheet: str = ""
    comma: bool = False
    declared: str = "refuse"

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Reading":
        """Return how the options of a data set say that files are read."""
        texts = {name: str(options[name]) for name in ("encoding", "sheet", "declared") if name in options}
        return cls(comma=options.get("decimal") == "comma", **texts)


@dataclass(frozen=True)
class Cells:
    """The content of a file as text.

    Attributes
    ----------
    rows : iterator
        The first row with a cell is the header.
    faults : Mapping
        By name, the columns that cannot be read, which matters where they are used; complete once the rows
        are read.
    notes : tuple of str
        Sentences on what is not read.
    place : Path, optional
        What messages call the part of the file that was read. Default: the file.
    """

    rows: Rows
    faults: Mapping[str, Fault] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    place: Path | None = None


def within(path: Path, part: str) -> Path:
    """Return what messages call a part of a file."""
    return path.with_name(f"{path.name} ({part})")


def check_installed(path: Path, package: str, remedy: str = "or export it as CSV") -> None:
    """Raise a `ConfigError` that says what to install if the reader of a file is not there."""
    try:
        require(package)
    except ModuleNotFoundError as error:
        what, _, command = (missing_extra(error) or "").partition(": ")
        raise unusable("data file", path, f"needs {what}", f"{command}, {remedy}") from error


def text_of(cell: Any, comma: bool = False) -> str:
    """Return a typed cell as the text that a CSV file would have.

    Numbers have a decimal point or `comma`, dates are as in 2024-12-31, and durations have hours, minutes and
    seconds. None and NaN are empty, truths are TRUE and FALSE, and texts have no spaces around them.

    Examples
    --------
    >>> text_of(3.0), text_of(2.5, comma=True), text_of(datetime(2024, 12, 31)), text_of(None)
    ('3', '2,5', '2024-12-31', '')
    >>> text_of(timedelta(days=1, hours=2)), text_of(timedelta(minutes=-90))
    ('26:00:00', '-1:30:00')
    """
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, float):
        text = str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else repr(cell)
        return text.replace(".", ",") if comma else text
    if isinstance(cell, datetime) and cell.time() == MIDNIGHT and cell.tzinfo is None:
        return str(cell.date())
    if isinstance(cell, timedelta):
        minutes, seconds = divmod(round(abs(cell).total_seconds()), 60)
        sign = "-" if cell < timedelta() else ""
        return f"{sign}{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    return str(cell).strip()


def shortest(cell: float | None) -> float | None:
    """Return a decimal of 32 bits as people wrote it: 0.1, not 0.10000000149."""
    return None if cell is None else float(str(np.float32(cell)))
