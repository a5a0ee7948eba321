"""Where the tables of the domains are: a file for each, one table with a column of domains, or a workbook."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from fda_flower.datasets.folders import LISTED, check_part, unusable
from fda_flower.datasets.numbers import Array
from fda_flower.datasets.problems import Problems
from fda_flower.errors import ConfigError, near
from fda_flower.own_data import excel_rows
from fda_flower.own_data.column import Column, check_words
from fda_flower.own_data.reading import Reading, within
from fda_flower.own_data.table_files import (
    EXCEL,
    SUFFIXES,
    FileState,
    RawTable,
    check_texts,
    files_of,
    left_out,
    places,
    read_table,
    state_of,
    tables_in,
)

Tables = Mapping[str, Mapping[str, RawTable]]
"""By domain, its tables by part: ``train`` and ``test``, or one of the part ``""``."""

BY_COLUMN = "--dataset-option domain=COLUMN"


class Place(Protocol):
    """Where the tables of the domains are."""

    def __hash__(self) -> int: ...

    def domains(self) -> list[str]:
        """Return the domains that are there."""

    def read(self, domains: Iterable[str], problems: Problems, ahead: bool = False) -> Tables:
        """Return the tables of the domains that are there, and add to `problems` what cannot be read.

        With `ahead`, the files are not read again by the next call.
        """

    def states(self, domains: Iterable[str]) -> tuple[FileState, ...]:
        """Return stamps that change with the files of domains."""

    def lacks(self, domain: str) -> ConfigError | None:
        """Return the error that a domain is not there; None if it is."""

    def notes(self, domains: Iterable[str]) -> list[str]:
        """Return sentences on what is there, and not read."""


def place_of(folder: Path, how: Reading, domain: str = "") -> Place:
    """Return where the tables are: at `folder`, which may be a file, whose column `domain` may name domains.

    Raise a `ConfigError` if a file is one table, and no option says which column names the domains.
    """
    if domain:
        return OneTable(folder, how, domain)
    if not folder.is_file():
        return Folder(folder, how)
    if folder.suffix.lower() != EXCEL:
        remedy = f"name the column that says which row is whose by {BY_COLUMN}, or give a folder of tables"
        raise unusable("data file", folder, "is one table, not a folder with one for each domain", remedy)
    if how.sheet:
        what = f"has a sheet for each domain, but the option 'sheet' names one, '{how.sheet}'"
        raise unusable("data file", folder, what, f"leave it out, or say which row is whose by {BY_COLUMN}")
    return Workbook(folder, how)


@dataclass(frozen=True)
class Folder:
    """A file for each domain in a folder, or in its folders ``train`` and ``test``."""

    folder: Path
    how: Reading

    def domains(self) -> list[str]:
        """Return the names of the files."""
        for place in places(self.folder).values():
            check_texts(place, self.how)
        return [path.stem for place in places(self.folder).values() for path in tables_in(place)]

    def read(self, domains: Iterable[str], problems: Problems, ahead: bool = False) -> Tables:
        """Return the tables of domains."""
        tables: dict[str, dict[str, RawTable]] = {}
        for name in domains:
            with problems.caught():
                for part, path in files_of(self.folder, name).items():
                    with problems.caught():
                        tables.setdefault(name, {})[part] = read_table(path, self.how, problems, ahead)
        return tables

    def states(self, domains: Iterable[str]) -> tuple[FileState, ...]:
        """Return the stamps of the domains' files."""
        return tuple(state_of(path) for name in domains for path in files_of(self.folder, name).values())

    def lacks(self, domain: str) -> ConfigError | None:
        """Return the error that a domain has no file; None if it has one."""
        if files_of(self.folder, domain):
            return None
        path = self.folder / f"{domain}{SUFFIXES[0]}"
        others = near(domain, (each.stem for each in tables_in(self.folder)))
        return unusable("data file", path, f"is missing{others}", "put the domain's table there")

    def notes(self, domains: Iterable[str]) -> list[str]:
        """Return a sentence for each folder with files that are no tables."""
        folders = sorted({(self.folder / name).parent for name in domains})
        return [note for folder in folders for note in _left_out(folder)]


@dataclass(frozen=True)
class Workbook:
    """An Excel file with a sheet for each domain."""

    path: Path
    how: Reading

    def domains(self) -> list[str]:
        """Return the visible sheets with cells."""
        names, _ = excel_rows.sheets_in(self.path)
        return [check_part("sheet", name) for name in names]

    def read(self, domains: Iterable[str], problems: Problems, ahead: bool = False) -> Tables:
        """Return the sheets of domains."""
        there, tables = self.domains(), dict[str, dict[str, RawTable]]()
        for name in domains:
            if name in there:
                with problems.caught():
                    how = replace(self.how, sheet=name)
                    tables[name] = {"": read_table(self.path, how, problems, ahead)}
        return tables

    def states(self, domains: Iterable[str]) -> tuple[FileState, ...]:
        """Return the stamp of the file."""
        return (state_of(self.path),)

    def lacks(self, domain: str) -> ConfigError | None:
        """Return the error that a domain has no sheet; None if it has one."""
        if domain in (names := self.domains()):
            return None
        what = f"has no visible sheet '{domain}' with cells{near(domain, names)}"
        return unusable("data file", self.path, what, "name the domains after the sheets")

    def notes(self, domains: Iterable[str]) -> list[str]:
        """Return a sentence on hidden sheets."""
        return [*excel_rows.sheets_in(self.path)[1]]


@dataclass(frozen=True)
class OneTable:
    """One table, in a file or alone in a folder, whose `column` names the domain of each row."""

    place: Path
    how: Reading
    column: str

    @property
    def files(self) -> dict[str, Path]:
        """The file, by part; raise a `ConfigError` if a folder has none or several."""
        if self.place.is_file():
            return {"": self.place}
        files = {}
        for part, folder in places(self.place).items():
            check_texts(folder, self.how)
            names = [path.name for path in tables_in(folder)]
            if len(names) != 1:
                there = _listed(names) or "no table"
                what = f"holds {there}, but the option 'domain' takes the domains from the rows of one table"
                remedy = "give that file in place of the folder (--data-dir FILE), or leave the option out"
                raise unusable("data folder", folder, what, remedy)
            files[part] = folder / names[0]
        return files

    def domains(self) -> list[str]:
        """Return the words in the column."""
        names = dict.fromkeys(
            word
            for path in self.files.values()
            for word in self._names(read_table(path, self.how, Problems(), ahead=True)).words
        )
        return [check_part(f"domain in column '{self.column}'", name) for name in sorted(names)]

    def read(self, domains: Iterable[str], problems: Problems, ahead: bool = False) -> Tables:
        """Return the rows of domains; those without one are a problem."""
        names, tables = {*domains}, dict[str, dict[str, RawTable]]()
        columns = []
        for part, path in self.files.items():
            with problems.caught():
                table = read_table(path, self.how, problems, ahead).filled
                columns.append(cells := self._names(table))
                cells.tell(problems, cells.missing, "no domain", "fill it in, or remove the line")
                for name, rows in _rows_by(cells).items():
                    if name in names:
                        tables.setdefault(name, {})[part] = table.take(rows, within(path, name), self.column)
        with problems.caught():
            check_words(columns, patients=True)
        return tables

    def _names(self, table: RawTable) -> Column:
        if self.column not in table.header:
            what = (
                f"has no column '{self.column}'{near(self.column, table.header)}, as the option 'domain' says"
            )
            raise unusable("data file", table.path, what, f"name one of {', '.join(table.header)}")
        problems, cells = Problems(), table.columns[self.column]
        cells.tell_fault(problems)
        problems.raise_first()
        if cells.tells_apart:
            what = f"has another word in each row of column '{self.column}'"
            raise unusable("data file", table.path, what, "name the column of sites in the option 'domain'")
        return cells

    def states(self, domains: Iterable[str]) -> tuple[FileState, ...]:
        """Return the stamps of the files."""
        return tuple(map(state_of, self.files.values()))

    def lacks(self, domain: str) -> ConfigError | None:
        """Return the error that a domain has no row; None if it has one."""
        if domain in self.domains():
            return None
        what = f"has no row of the domain '{domain}' in column '{self.column}'"
        return unusable("data file", self.place, what, "name domains that are there in the option 'domains'")

    def notes(self, domains: Iterable[str]) -> list[str]:
        """Return a sentence if a folder has files that are no tables."""
        return _left_out(self.place)


def _left_out(folder: Path) -> list[str]:
    others = _listed([path.name for path in left_out(folder)])
    return [f"'{folder}' also holds {others}: export tables of other formats as CSV"] if others else []


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:LISTED])}{', ...' if len(names) > LISTED else ''}"


def _rows_by(cells: Column) -> dict[str, Array]:
    """Return the rows of each word of a column."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(cells.texts):
        if name in cells.words:
            rows.setdefault(name, []).append(row)
    return {name: np.array(each) for name, each in rows.items()}
