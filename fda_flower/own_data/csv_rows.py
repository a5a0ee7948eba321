"""Rows of CSV files: their encodings, separators and quotation marks."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from fda_flower.datasets.folders import unusable

SEPARATORS = ",;\t|"
QUOTED = re.compile(r'"[^"]*"')
LINE = re.compile(rf'(?:[^"\r\n]+|{QUOTED.pattern})*')
BLANK = re.compile(r"[\s,;|]*[\r\n]")
SAID = re.compile(r'"?sep=([^"\r\n])"?[ \t]*(?=[\r\n])', re.IGNORECASE)
"""Excel's first line, which names the separator."""

BYTE_ORDER_MARK = "\ufeff"
ENCODINGS = {
    b"\xef\xbb\xbf": "utf-8",
    b"\xff\xfe\0\0": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
"""The encodings by a file's first bytes, which count more than the option."""

NO_TEXT: Mapping[bytes, tuple[str, str]] = {
    b"PK\x03\x04": ("an Excel file or an archive", ".xlsx"),
    b"\xd0\xcf\x11\xe0": ("an Excel file or an archive", ".xlsx"),
    b"PAR1": ("a Parquet file", ".parquet"),
    b"$FL2": ("a file of SPSS", ".sav"),
    b"$FL3": ("a file of SPSS", ".zsav"),
    b"<stata_dta>": ("a file of Stata", ".dta"),
    b"HEADER RECORD": ("a file of SAS", ".xpt"),
    b"\0\0\0\0\0\0\0\0\0\0\0\0\xc2\xea\x81\x60": ("a file of SAS", ".sas7bdat"),
}
"""By first bytes, files of other formats, and their suffixes."""


def rows_of(path: Path, encoding: str = "") -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a file with the line where each begins; a blank line has no cells.

    `encoding` is a Python name; the default is UTF-8. The separator is the one that a first line ``sep=;``
    names, else the most frequent one in the header. A `ConfigError` names what cannot be read, and the line.
    """
    text = _decoded(path, encoding)
    said = SAID.match(text)
    separator = said[1] if said else _separator(text)
    lines = io.StringIO(text[said.end() if said else 0 :], newline="")
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    line = 1
    try:
        for cells in reader:
            yield line, list(map(str.strip, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        what = f"has a quotation mark in line {line} that is not closed, or in the midst of a cell ({error})"
        remedy = "remove it; within a cell in quotation marks, write it twice"
        raise unusable("data file", path, what, remedy) from error


def _separator(text: str) -> str:
    """Return the most frequent separator of the header or, if it has none, of the line below."""
    at = 0
    for _ in range(2):
        at = blank.end() if (blank := BLANK.match(text, at)) else at
        line = LINE.match(text, at)[0]  # type: ignore[index]
        at += len(line)
        bare = QUOTED.sub("", line)
        separator = max(SEPARATORS, key=bare.count)
        if separator in bare:
            return separator
    return SEPARATORS[0]


def _decoded(path: Path, encoding: str) -> str:
    try:
        data = path.read_bytes()
        if other := next((other for mark, other in NO_TEXT.items() if data.startswith(mark)), None):
            remedy = f"give it the suffix {other[1]} if it is one, or " if other[1] else ""
            raise unusable(
                "data file", path, f"is no text, but {other[0]}", f"{remedy}export the table as CSV"
            )
        known = next((name for mark, name in ENCODINGS.items() if data.startswith(mark)), encoding or "utf-8")
        text = data.decode(known)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        remedy = (
            "save it as UTF-8, or name its encoding by the option 'encoding', such as cp1252 for what Excel "
            "writes in Western Europe"
        )
        what = f"cannot be read: line {line} is not in {known}"
        raise unusable("data file", path, what, remedy) from error
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise unusable("data file", path, what, "put a CSV file there") from error
    except (LookupError, UnicodeError) as error:
        remedy = "correct the option 'encoding'"
        raise unusable("data file", path, f"cannot be read ({error})", remedy) from error
    if len(text) == len(data) and _is_utf8(data):
        remedy = "leave out the option 'encoding', or save all files in it"
        raise unusable("data file", path, f"is in UTF-8, not in {known}", remedy)
    if "\0" in text:
        remedy = "save it as UTF-8 or, if it is in UTF-16 without a mark, give the option encoding=utf-16-le"
        raise unusable("data file", path, "has NUL characters", remedy)
    return text.replace(BYTE_ORDER_MARK, "")


def _is_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8 with other characters than ASCII's."""
    try:
        return not data.isascii() and bool(data.decode())
    except UnicodeDecodeError:
        return False
