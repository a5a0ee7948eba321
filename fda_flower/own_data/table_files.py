"""Files of tables: found in a folder, and read into cells of text."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unicodedata import normalize

import numpy as np

from fda_flower.datasets.folders import PARTS, unusable, visible
from fda_flower.datasets.numbers import Array
from fda_flower.datasets.problems import Problem, Problems
from fda_flower.errors import ConfigError
from fda_flower.names.words import counted
from fda_flower.own_data import csv_rows, excel_rows, parquet_rows, statistics_rows
from fda_flower.own_data.column import Column
from fda_flower.own_data.reading import Cells, Reading, Rows


def _text(path: Path, how: Reading) -> Cells:
    return Cells(csv_rows.rows_of(path, how.encoding))


EXCEL = ".xlsx"
READERS: Mapping[str, Callable[[Path, Reading], Cells]] = {
    ".csv": _text,
    ".tsv": _text,
    EXCEL: excel_rows.read,
    ".parquet": parquet_rows.read,
    **dict.fromkeys(statistics_rows.READERS, statistics_rows.read),
    ".txt": _text,
}
"""By suffix, in either case, the function that reads a table."""

SUFFIXES = (*READERS,)
FIRST = SUFFIXES[:-1]
"""The suffixes of tables. The last one counts only without others: a readme is no domain."""

PLAIN = Reading()

FileState = tuple[int, int]


@dataclass(frozen=True, eq=False)
class RawTable:
    """A table's columns by name, in the order of its `header`, with the file's line of each row.

    `notes` are sentences on what of the file is not read.
    """

    path: Path
    header: list[str]
    columns: Mapping[str, Column]
    lines: Array
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def texts(self) -> dict[str, Sequence[str]]:
        """The cells of each column."""
        return {name: column.texts for name, column in self.columns.items()}

    @property
    def filled(self) -> "RawTable":
        """The table without the rows whose cells are all empty, which a note counts."""
        full = np.array([any(row) for row in zip(*self.texts.values(), strict=True)], dtype=bool)
        if full.all():
            return self
        note = f"'{self.path}' has rows of empty cells, which are left out: {np.count_nonzero(~full)}"
        return replace(self.take(np.flatnonzero(full), self.path), notes=(*self.notes, note))

    def take(self, rows: Array, path: Path, without: str | None = None) -> "RawTable":
        """Return some of the rows, as the table `path`, and without a column."""
        positions, lines = rows.tolist(), self.lines[rows]
        columns = {
            name: replace(each, texts=[each.texts[at] for at in positions], lines=lines, path=path)
            for name, each in self.columns.items()
            if name != without
        }
        header = [name for name in self.header if name != without]
        return replace(self, path=path, header=header, columns=columns, lines=lines)

    def check(self, names: Iterable[str], problems: Problems) -> None:
        """Add to `problems` the faults of the columns that are used."""
        for name in names:
            self.columns[name].tell_fault(problems)


def places(folder: Path) -> dict[str, Path]:
    """Return the folders of tables by part: ``train`` and ``test``, or the folder itself as ``""``."""
    parts = {part: folder / part for part in PARTS}
    return parts if all(place.is_dir() for place in parts.values()) else {"": folder}


def files_of(folder: Path, domain: str) -> dict[str, Path]:
    """Return a domain's existing files by part; raise a `ConfigError` if there are several in one folder.

    The domain ``a/b`` has the file ``b.csv`` in the folder ``a``.
    """
    above, _, name = domain.rpartition("/")
    files = {}
    for part, place in places(folder).items():
        alike = _tables(path for path in _files(place / above) if _read_as(path.stem) == _read_as(name))
        if len(alike) > 1:
            what = f"has several files in '{place / above}', {', '.join(path.name for path in alike)}"
            raise unusable("domain", domain, what, "keep one of them, or rename the others")
        if alike and normalize("NFC", alike[0].stem) == normalize("NFC", name):
            files[part] = alike[0]
    return files


def tables_in(place: Path) -> list[Path]:
    """Return the tables in a folder."""
    return _tables(_files(place))


def check_texts(place: Path, how: Reading) -> None:
    """Raise a `ConfigError` if a text that is left out has the columns of a table in its folder."""
    tables, headers = tables_in(place), list[set[str]]()
    for path in _files(place):
        if path.suffix.lower() in SUFFIXES and path not in tables and (names := _names_in(path, how)):
            headers = headers or [_names_in(table, how) for table in tables]
            if names in headers:
                what = f"would be left out, but has the columns of '{tables[headers.index(names)].name}'"
                remedy = (
                    f"call it {path.stem}{FIRST[0]} or, if it is no domain, move it elsewhere, or name "
                    "the domains by --dataset-option domains=..."
                )
                raise unusable("data file", path, what, remedy)


def _names_in(path: Path, how: Reading) -> set[str]:
    """Return the columns of a file; empty if it has none, or cannot be read."""
    try:
        return next(({*cells} for _, cells in _reader(path)(path, how).rows if any(cells)), set())
    except ConfigError:
        return set()


def _reader(path: Path) -> Callable[[Path, Reading], Cells]:
    return READERS.get(path.suffix.lower(), _text)


def left_out(folder: Path) -> list[Path]:
    """Return what a folder holds besides tables and the folders of an existing split."""
    if not folder.is_dir():
        return []
    parts = places(folder).values()
    read = {*parts, *(path for place in parts for path in tables_in(place))}
    return [path for place in dict.fromkeys((folder, *parts)) for path in visible(place) if path not in read]


def _files(place: Path) -> list[Path]:
    return [path for path in visible(place) if path.is_file()] if place.is_dir() else []


def _tables(files: Iterable[Path]) -> list[Path]:
    tables = [path for path in files if path.suffix.lower() in SUFFIXES and not path.name.startswith("~$")]
    return [path for path in tables if path.suffix.lower() in FIRST] or tables


def _read_as(name: str) -> str:
    return normalize("NFC", name).casefold()


_AHEAD: dict[tuple[Path, Reading], tuple[FileState, tuple[RawTable, list[Problem]]]] = {}
"""Tables read for their labels or domains, until they are read for the rest."""


def read_table(
    path: Path, how: Reading = PLAIN, problems: Problems | None = None, ahead: bool = False
) -> RawTable:
    """Read a table with a header by the reader of its suffix.

    Rows whose number of cells differs from the header's and further headers are left out and added to
    `problems`; without `problems`, the first raises a `ConfigError`, and so does an unreadable file. Rows of
    empty cells remain; a column of empty cells without a name does not. A table read `ahead` is cached for
    the next call.
    """
    state = state_of(path)
    before, content = _AHEAD.pop((path, how), (None, None))
    if content is None or before != state:
        content = _read(path, how)
    if ahead:
        _AHEAD[path, how] = state, content
    table, wrong = content
    known = Problems() if problems is None else problems
    for problem in wrong:
        known.add(replace(problem))
    if problems is None:
        known.raise_first()
    return table


def state_of(path: Path) -> FileState:
    """Return a stamp that changes with the file."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0  # reading it says why
    return status.st_mtime_ns, status.st_size


def _read(path: Path, how: Reading) -> tuple[RawTable, list[Problem]]:
    content = _reader(path)(path, how)
    rows, path = iter(content.rows), content.place or path
    top, header = next(((line, cells) for line, cells in rows if any(cells)), (0, []))
    if not header:
        raise unusable("data file", path, "is empty", "give it a header and a row for each sample")
    if all(len(name) > 1 and name[0] == name[-1] == "'" for name in header):
        remedy = 'put quotation marks (") in their place'
        raise unusable("data file", path, f"has apostrophes around its cells in line {top}", remedy)
    width = len(header)
    flat: list[str] = []  # of all cells: a list of lists would keep the garbage collector busy
    lines: list[int] = []
    wrong: list[Problem] = []
    widths: Counter[int] = Counter()
    for line, row in _without_blank_lines(rows, width):
        if row == header:
            wrong.append(Problem("its header again", "remove the line", path, line))
        elif len(row) == width:
            flat += row
            lines.append(line)
        else:
            wrong.append(Problem(counted(len(row), "column"), f"fix it, the header has {width}", path, line))
            widths[len(row)] += 1
    _check_header(path, top, width, len(lines), widths)
    cells = [(name, flat[at::width]) for at, name in enumerate(header)]
    cells = [(name, texts) for name, texts in cells if name or any(texts)]
    numbers = np.array(lines, dtype=np.int64)
    columns = {
        name: Column(name, texts, path, numbers, how.comma, content.faults.get(name)) for name, texts in cells
    }
    return RawTable(path, [name for name, _ in cells], columns, numbers, content.notes), wrong


def _without_blank_lines(rows: Rows, width: int) -> Rows:
    """Yield rows; blank lines between those of a single column are rows, too."""
    blank: list[int] = []
    for line, cells in rows:
        if not cells or (cells == [""] and width > 1):
            blank.append(line)
            continue
        yield from ((each, [""]) for each in blank if width == 1)
        blank.clear()
        yield line, cells if any(cells) else [""] * width


def _check_header(path: Path, line: int, width: int, fitting: int, widths: Counter[int]) -> None:
    """Raise a `ConfigError` if the rows have in common what the header does not."""
    for other, count in widths.most_common(1):
        if count > max(fitting, 1):
            what = f"has {width} columns in line {line}, its header, but {other} in {count} lines below"
            remedy = (
                "remove the lines above the header, or give each column a name; put cells that hold a "
                "separator in quotation marks"
            )
            raise unusable("data file", path, what, remedy)
