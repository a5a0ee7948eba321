"""Files of tables: found in a folder, and read into cells of text."""

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fda_flower.datasets.numbers import Array
from fda_flower.datasets.own_data import PARTS, unusable, visible
from fda_flower.datasets.problems import Problem, Problems

SUFFIXES = (".csv", ".tsv", ".txt")
"""The suffixes of tables. Only the first one present in a folder counts: a readme.txt is no domain."""

SEPARATORS = ",;\t|"
QUOTED = re.compile(r'"[^"]*"')
HEADER = re.compile(rf'(?:[^"\r\n]+|{QUOTED.pattern})*')

State = tuple[str, int, int]


@dataclass(frozen=True)
class Cells:
    """The cells of a column as stripped text, with the file's line of each."""

    texts: list[str]
    column: str
    path: Path
    lines: Array

    def tell(self, problems: Problems, wrong: Array, what: str, remedy: str) -> None:
        """Add cells to problems where the mask `wrong` is true."""
        if count := int(np.count_nonzero(wrong)):
            first = int(self.lines[np.argmax(wrong)])
            problems.add(Problem(what, remedy, self.path, first, self.column, count))


@dataclass(frozen=True)
class RawTable:
    """A table of cells as stripped text, with the file's line of each row."""

    path: Path
    header: list[str]
    texts: Mapping[str, list[str]]
    lines: Array

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> Cells:
        """Return the cells of a column."""
        return Cells(self.texts[name], name, self.path, self.lines)


def places(folder: Path) -> dict[str, Path]:
    """Return the folders of tables by part: ``train`` and ``test``, or the folder itself as ``""``."""
    parts = {part: folder / part for part in PARTS}
    return parts if all(place.is_dir() for place in parts.values()) else {"": folder}


def files_of(folder: Path, domain: str) -> dict[str, Path]:
    """Return a domain's existing files by part."""
    found = {}
    for part, place in places(folder).items():
        paths = (place / f"{domain}{suffix}" for suffix in SUFFIXES)
        if path := next((path for path in paths if path.is_file()), None):
            found[part] = path
    return found


def tables_in(place: Path) -> list[Path]:
    """Return the tables in a folder: the files with the first of `SUFFIXES` that is present."""
    files = [path for path in visible(place) if path.is_file()]
    for suffix in SUFFIXES:
        if found := [path for path in files if path.suffix.lower() == suffix]:
            return found
    return []


_AHEAD: dict[Path, tuple[State, tuple[RawTable, list[Problem]]]] = {}
"""Tables read for their labels, until they are read for the rest."""


def read_table(
    path: Path, encoding: str = "", problems: Problems | None = None, ahead: bool = False
) -> RawTable:
    """Read a table with a header, whose separator is the most frequent one in the header.

    Rows whose number of cells differs from the header's are left out and added to `problems`; without
    `problems`, the first raises a `ConfigError`, and so does an unreadable file. `encoding` is a Python name;
    the default is UTF-8, or UTF-16 after its mark. A table read `ahead` is cached for the next call.
    """
    state = state_of(path, encoding)
    before, found = _AHEAD.pop(path, (None, None))
    if found is None or before != state:
        found = _read(path, encoding)
    if ahead:
        _AHEAD[path] = state, found
    table, wrong = found
    known = Problems() if problems is None else problems
    for problem in wrong:
        known.add(replace(problem))
    if problems is None:
        known.raise_first()
    return table


def state_of(path: Path, encoding: str) -> State:
    """Return a stamp that changes with the file."""
    try:
        found = path.stat()
    except OSError:
        return encoding, 0, 0  # reading it says why
    return encoding, found.st_mtime_ns, found.st_size


def _read(path: Path, encoding: str) -> tuple[RawTable, list[Problem]]:
    flat: list[str] = []  # of all cells: a list of lists would keep the garbage collector busy
    lines: list[int] = []
    wrong: list[Problem] = []
    try:
        data = path.read_bytes()
        marked = data[:2] in (b"\xff\xfe", b"\xfe\xff")
        text = data.decode(encoding or ("utf-16" if marked else "utf-8")).removeprefix("\ufeff")
        names = QUOTED.sub("", HEADER.match(text)[0])  # type: ignore[index]
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(SEPARATORS, key=names.count))
        rows = filter(any, reader)
        header = [cell.strip() for cell in next(rows, [])]
        for cells in rows:
            if len(cells) == len(header):
                flat += cells
                lines.append(reader.line_num)
            else:
                remedy = f"fix it, the header has {len(header)}"
                wrong.append(Problem(f"{len(cells)} columns", remedy, path, reader.line_num))
    except UnicodeError as error:
        remedy = (
            "save it as UTF-8, or name its encoding by the option 'encoding', such as cp1252 for what Excel "
            "writes in Western Europe"
        )
        raise unusable("data file", path, f"cannot be read ({error})", remedy) from error
    except (OSError, LookupError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise unusable("data file", path, f"cannot be read ({reason})", "put a CSV file there") from error
    if not header:
        raise unusable("data file", path, "is empty", "give it a header and a row for each sample")
    texts = {name: [cell.strip() for cell in flat[at :: len(header)]] for at, name in enumerate(header)}
    return RawTable(path, header, texts, np.array(lines, dtype=np.int64)), wrong
