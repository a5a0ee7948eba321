"""Tables as their files hold them: found in a folder, and read as text."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fda_flower.datasets.own_data import PARTS, found_names, is_here, visible
from fda_flower.errors import ConfigError

SUFFIXES = (".csv", ".tsv", ".txt")
"""The suffixes of tables. The first of them that a folder has counts, so that a readme.txt is no domain."""

SEPARATORS = ",;\t|"


@dataclass(frozen=True)
class RawTable:
    """A table as text.

    Attributes
    ----------
    path : Path
        Its file.
    header : list of str
        The names of its columns.
    rows : list of list of str
        The cells of each row, without spaces around them.
    lines : list of int
        The line of each row in the file.
    """

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    def column(self, name: str) -> list[str]:
        """Return the cells of a column."""
        at = self.header.index(name)
        return [row[at] for row in self.rows]


def has_parts(folder: Path) -> bool:
    """Whether a folder holds the folders ``train`` and ``test``."""
    return all((folder / part).is_dir() for part in PARTS)


def places(folder: Path) -> dict[str, Path]:
    """Return the folders of tables by part: ``train`` and ``test``, or the folder itself as ``""``."""
    return {part: folder / part for part in PARTS} if has_parts(folder) else {"": folder}


def find_domains(folder: Path) -> tuple[str, ...]:
    """Return the domains whose tables a folder holds, by name.

    Raises
    ------
    ConfigError
        If there is none, or a name cannot be a domain's.
    """
    names = {path.stem for place in places(folder).values() for path in tables_in(place)}
    return found_names("table", folder, names, f"a file for each domain, such as north{SUFFIXES[0]}")


def complete(folder: Path | None, options: Mapping[str, Any], target: str | None) -> dict[str, Any]:
    """Return the options that are not given, but follow from the tables in a folder.

    They are the domains and, in a regression, the mean and deviation of the sources' labels.

    Parameters
    ----------
    folder : Path, optional
        The folder with the tables.
    options : Mapping
        Those that are given.
    target : str, optional
        The target, whose labels have no say. Default: the last domain.
    """
    found: dict[str, Any] = {}
    if folder is None or not is_here(folder, options):
        return found
    if "domains" not in options:
        found["domains"] = ",".join(find_domains(folder))
    if options.get("task") == "regression" and not {"label_mean", "label_deviation"} & options.keys():
        from fda_flower.datasets.table_labels import label_scale

        found |= label_scale(folder, {**options, **found}, target)
    return found


def files_of(folder: Path, domain: str) -> dict[str, Path]:
    """Return the files of a domain that are there, by part."""
    found = {}
    for part, place in places(folder).items():
        paths = (place / f"{domain}{suffix}" for suffix in SUFFIXES)
        if path := next((path for path in paths if path.is_file()), None):
            found[part] = path
    return found


def tables_in(place: Path) -> list[Path]:
    """Return the tables in a folder: the files with the first of `SUFFIXES` that it has any of."""
    files = [path for path in visible(place) if path.is_file()]
    for suffix in SUFFIXES:
        if found := [path for path in files if path.suffix.lower() == suffix]:
            return found
    return []


def read_table(path: Path, encoding: str = "") -> RawTable:
    """Read a table, whose separator is the one that its header has most of.

    Parameters
    ----------
    path : Path
        A file with a header, and a row for each sample.
    encoding : str
        As Python names it. Default: UTF-8, or UTF-16 if the file begins with its mark.

    Raises
    ------
    ConfigError
        If the file cannot be read, or a row has other columns than the header.
    """
    try:
        text = _decoded(path.read_bytes(), encoding)
        separator = max(SEPARATORS, key=text.partition("\n")[0].count)
        reader = csv.reader(text.splitlines(keepends=True), delimiter=separator)
        header = [cell.strip() for cell in next(reader, [])]
        numbered = [([cell.strip() for cell in cells], reader.line_num) for cells in reader if any(cells)]
    except UnicodeError as error:
        raise ConfigError(
            f"the data file '{path}' cannot be read ({error}): save it as UTF-8, or name its encoding by the "
            "option 'encoding', such as cp1252 for what Excel writes in Western Europe"
        ) from error
    except (OSError, LookupError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"the data file '{path}' cannot be read ({reason}): put a CSV file there"
        ) from error
    if not header:
        raise ConfigError(f"the data file '{path}' is empty: give it a header and a row for each sample")
    for cells, line in numbered:
        if len(cells) != len(header):
            raise ConfigError(
                f"the data file '{path}' has {len(cells)} columns in line {line}, not {len(header)}: fix it"
            )
    return RawTable(path, header, [cells for cells, _ in numbered], [line for _, line in numbered])


def _decoded(data: bytes, encoding: str) -> str:
    marked = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    return data.decode(encoding or ("utf-16" if marked else "utf-8-sig"))
