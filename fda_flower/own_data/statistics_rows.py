"""Rows of files of SPSS, Stata and SAS, as text that a CSV file of them would have."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

from fda_flower.datasets.folders import LISTED, unusable
from fda_flower.names.words import counted
from fda_flower.own_data.reading import EXACT, Cells, Fault, Reading, check_installed, shortest, text_of

READERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    ".sav": ("read_sav", {"user_missing": True}),
    ".zsav": ("read_sav", {"user_missing": True}),
    ".dta": ("read_dta", {"user_missing": True}),
    ".sas7bdat": ("read_sas7bdat", {"user_missing": True}),
    ".xpt": ("read_xport", {}),
}
"""By suffix, the function of pyreadstat that reads the file, and its options."""

LEAST_SECONDS, BYTES_A_SECOND = 60, 100_000
"""How long a file may take: a damaged one could take for ever."""

SPSS, SAS = datetime(1582, 10, 14), datetime(1960, 1, 1)
DAY = 86_400.0

Epoch = tuple[datetime, float]
"""The time that a number counts from, and its unit in seconds."""

OF_SPSS: Mapping[str, Epoch | None] = {
    r"[AEJS]?DATE|DATETIME|YMDHMS": (SPSS, 1.0),
    r"D?TIME|MTIME|MOYR|QYR|WKYR|WKDAY|MONTH": None,
}
OF_STATA: Mapping[str, Epoch | None] = {
    r"%-?\d*t?d.*": (SAS, DAY),
    r"%-?\d*tc.*": (SAS, 0.001),
    r"%-?\d*t.*": None,
}
OF_SAS: Mapping[str, Epoch | None] = {
    r"(DATETIME|DATEAMPM|MDYAMPM|DTDATE|E8601D[TNXZ]|B8601D[TNXZ]|IS8601DT|NLDATM).*": (SAS, 1.0),
    r"(DATE|DDMMYY|MMDDYY|YYMMDD|JULIAN|[EB]8601DA|IS8601DA|WEEKDAT[EX]|WORDDAT[EX]|NLDATE).*": (SAS, DAY),
    r"(TIME|HHMM|HOUR|MMSS|TOD|[EB]8601[TL]|IS8601TM|NLTIM|MONYY|MMYY|YYMM|YYMON|YYQ|QTR|YEAR|MONTH).*": None,
    r"(MONNAME|DAY|DOWNAME|WEEKDAY|WEEK[UVW]|JULDAY|DTMONYY|DTYEAR|DTWKDATX|DTYYQC|NENGO).*": None,
}
FORMATS: Mapping[str, Mapping[str, Epoch | None]] = {
    **{".sav": OF_SPSS, ".zsav": OF_SPSS, ".dta": OF_STATA, ".sas7bdat": OF_SAS, ".xpt": OF_SAS}
}
"""By suffix, what numbers of a format count from; None for months, quarters, times of day and durations."""

LEAVE_OUT = "or leave the column out by --dataset-option ignore=COLUMN"


@dataclass(frozen=True)
class Variable:
    """A column of such a file.

    Attributes
    ----------
    name, format, kind : str
        Its name, how it is shown, and how it is stored.
    cells : sequence
        Numbers, texts, and None where a value is missing; a letter of Stata or SAS, such as ``a`` of ``.a``,
        is missing, too.
    labels : mapping
        The words of its codes.
    declared : sequence of tuple
        The smallest and the largest value of each range that the file declares as missing.
    """

    name: str
    format: str
    kind: str
    cells: Sequence[Any]
    labels: Mapping[Any, str]
    declared: Sequence[tuple[Any, Any]]

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Variable":
        """Return a variable as the reading process prints it."""
        cells, is_text = content["cells"], content["kind"] == "string"
        meant = [
            None if cell != cell or cell == "" or (isinstance(cell, str) and not is_text) else cell
            for cell in cells
        ]
        labels = {code: str(words).strip() for code, words in content["labels"]}
        return cls(**{**content, "cells": meant, "labels": labels})

    def is_declared(self, cell: Any) -> bool:
        """Whether the file declares a value as missing."""
        same = [(low, high) for low, high in self.declared if isinstance(low, str) == isinstance(cell, str)]
        return cell is not None and any(low <= cell <= high for low, high in same)


def read(path: Path, how: Reading) -> Cells:
    """Return the cells of a file, whose rows are numbered from 1.

    A code with a label is the label, and an empty text is missing. A column is a fault if it has values that
    the file declares as missing, and no option says what these are; if some values have labels and others
    have none, or two have one label; if it holds months, times of day or durations; or whole numbers too
    large to be exact. A file that cannot be read raises a `ConfigError`.
    """
    variables = _variables(path)
    columns, faults = [], dict[str, Fault]()
    for each in variables:
        cells, fault = _declared(each, how.declared)
        texts, wrong = _texts(each, cells, FORMATS[path.suffix.lower()], how.comma)
        columns.append(texts)
        if reason := fault or wrong:
            faults[each.name] = reason
    header = [each.name for each in variables]
    return Cells(enumerate(chain([header], map(list, zip(*columns, strict=True)))), faults)


def _variables(path: Path) -> list[Variable]:
    check_installed(path, "pyreadstat")
    remedy = "save it again, or export it as CSV"
    try:
        size = path.stat().st_size
        function, options = READERS[path.suffix.lower()]
        script = Path(__file__).with_name("statistics_process.py")
        command = [sys.executable, "-P", str(script), function, str(path), json.dumps(options)]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LEAST_SECONDS + size / BYTES_A_SECOND,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            check=False,
        )
        content = json.loads(done.stdout) if done.returncode == 0 else "it ends its reader"
        if isinstance(content, list) and len({len(each["cells"]) for each in content}) < 2:
            return list(map(Variable.of, content))
        why = content if isinstance(content, str) else "its columns differ in length"
    except subprocess.TimeoutExpired:
        why = "reading it takes too long"
    except (OSError, ValueError) as error:
        why = f"{error}"
    raise unusable("data file", path, f"cannot be read ({why[:200]})", remedy)


def _declared(variable: Variable, what: str) -> tuple[Sequence[Any], Fault | None]:
    """Return the cells with what is declared as missing as an option says, and a fault if none does."""
    cells = variable.cells
    codes = Counter(cell for cell in cells if variable.declared and variable.is_declared(cell))
    if not codes or what == "value":
        return cells, None
    if what == "missing":
        return [None if cell in codes else cell for cell in cells], None
    remedy = (
        "say what they are by --dataset-option declared=missing or, if they are values like others, "
        "declared=value"
    )
    counts = ", ".join(
        f"{text_of(code)} in {counted(codes[code], 'row')}" for code in _sorted(codes)[:LISTED]
    )
    return cells, (f"values that the file declares as missing ({counts})", remedy)


def _texts(
    variable: Variable, cells: Sequence[Any], formats: Mapping[str, Epoch | None], comma: bool
) -> tuple[list[str], Fault | None]:
    """Return cells as text, and a fault of theirs."""
    if variable.labels and (codes := {cell for cell in cells if cell is not None} & variable.labels.keys()):
        return _words(variable, cells, codes)
    texts = [text_of(shortest(cell) if variable.kind == "float" else cell, comma) for cell in cells]
    if variable.kind == "string":
        return texts, None
    name = re.sub(r"[\d.]+$", "", variable.format.upper()) if "%" not in variable.format else variable.format
    for pattern, epoch in formats.items():
        if re.fullmatch(pattern, name):
            return _dates(cells, *epoch) if epoch else (texts, _of_times(variable))
    if large := sum(isinstance(cell, int | float) and abs(cell) >= EXACT for cell in cells):
        what = f"{counted(large, 'number')} of 2^53 or more, where whole numbers are not exact"
        return texts, (what, f"store them as text, {LEAVE_OUT}")
    return texts, None


def _of_times(variable: Variable) -> Fault:
    what = f"durations, times of day or parts of dates (format {variable.format})"
    return what, f"write them as numbers, such as of minutes or months, {LEAVE_OUT}"


def _words(variable: Variable, cells: Sequence[Any], codes: set[Any]) -> tuple[list[str], Fault | None]:
    """Return the labels of codes."""
    labels = variable.labels
    texts = ["" if cell is None else labels.get(cell, text_of(cell)) for cell in cells]
    if without := {cell for cell in cells if cell is not None} - labels.keys():
        what = f"values without a label ({_listed(without)}) among values with one"
        return texts, (what, f"give each value a label, or remove the labels, {LEAVE_OUT}")
    if empty := {code for code in codes if not labels[code]}:
        return texts, (f"values with an empty label ({_listed(empty)})", f"give each a label, {LEAVE_OUT}")
    shared = Counter(
        label for code, label in labels.items() if not variable.is_declared(code) or code in codes
    )
    words = {labels[code] for code in codes if shared[labels[code]] > 1}
    if twice := {code for code, label in labels.items() if label in words}:
        return texts, (f"values with one label ({_listed(twice)})", f"give each its own label, {LEAVE_OUT}")
    return texts, None


def _dates(cells: Sequence[Any], start: datetime, unit: float) -> tuple[list[str], Fault | None]:
    try:
        dates = [cell if cell is None else start + timedelta(seconds=round(cell * unit, 3)) for cell in cells]
    except (OverflowError, TypeError, ValueError):
        fault = "a date before the year 1 or after the year 9999", f"correct it, {LEAVE_OUT}"
        return [text_of(cell) for cell in cells], fault
    return list(map(text_of, dates)), None


def _sorted(values: Mapping[Any, Any] | set[Any]) -> list[Any]:
    return sorted(values, key=lambda value: (isinstance(value, str), value))


def _listed(values: set[Any]) -> str:
    more = len(values) - LISTED
    return ", ".join(map(text_of, _sorted(values)[:LISTED])) + (f" and {more} more" if more > 0 else "")
