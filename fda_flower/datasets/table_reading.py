"""Tables as files hold them: found in a folder, read into columns, and what is wrong with their cells."""

import csv
import io
import math
import re
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.datasets.own_data import PARTS, found_names, is_here, visible
from fda_flower.errors import ConfigError, invalid
from fda_flower.names import split_names

SUFFIXES = (".csv", ".tsv", ".txt")
"""The suffixes of tables. The first of them that a folder has counts, so that a readme.txt is no domain."""

SEPARATORS = ",;\t|"
QUOTED = re.compile(r'"[^"]*"')
HEADER = re.compile(rf'(?:[^"\r\n]+|{QUOTED.pattern})*')

MISSING = ("", "?", "na", "n/a", "nan", "none", "null")
FEWEST = 5

SPLIT = "split"
"""The column that says which rows are for training and which for testing, if it holds words."""

MOST_CATEGORIES = 100
"""Limit of unnamed categories: a column of names or dates must not make a feature of each."""

MOST_CLASSES = 1000
"""Limit of unnamed classes: a column that is not a label must not make a network of a million outputs."""

Array = NDArray[Any]

Columns = Mapping[str, Array]
"""Numbers, NaN where one is missing, or words, empty where one is missing, by the name of the column."""


# Problems


@dataclass
class Problem:
    """A problem of a file; it names no value, since the server may read it.

    Attributes
    ----------
    what : str
        What the file has or, without a file, the whole message.
    remedy : str
        What to do about it.
    path : Path, optional
        The file.
    line, column
        The first place, if it is in one.
    count : int
        How many lines have it.
    """

    what: str
    remedy: str = ""
    path: Path | None = None
    line: int = 0
    column: str = ""
    count: int = 1

    def __str__(self) -> str:
        """Return the message of an error."""
        if self.path is None:
            return self.what
        column = f", column '{self.column}'" if self.column else ""
        place = f" in line {self.line}{column}" if self.line else ""
        return (
            f"the data file '{self.path}' has {self.what}{place}{self._others(' (and ', ')')}: {self.remedy}"
        )

    @property
    def place(self) -> str:
        """The place in the file in a few words."""
        line = f"line {self.line}{self._others(' and ', '')}" if self.line else ""
        return ", ".join(filter(None, (self.column, line)))

    def _others(self, before: str, after: str) -> str:
        others = self.count - 1
        return f"{before}{others} more {'line' if others == 1 else 'lines'}{after}" if others else ""


@dataclass
class Problems:
    """Problems, of which those of one kind in one column of a file are one."""

    found: dict[tuple[object, ...], Problem] = field(default_factory=dict)

    def add(self, problem: Problem) -> None:
        """Add a problem."""
        key = (problem.what, problem.path, problem.column)
        if key in self.found:
            self.found[key].count += problem.count
        else:
            self.found[key] = problem

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Add a `ConfigError` that is raised in this context, and go on after it."""
        try:
            yield
        except ConfigError as error:
            self.add(Problem(str(error)))

    def __bool__(self) -> bool:
        return bool(self.found)

    def raise_first(self) -> None:
        """Raise a `ConfigError` with the first problem, if there is one."""
        for problem in self.found.values():
            raise ConfigError(str(problem))

    def by_kind(self) -> dict[str, list[str]]:
        """Return the places of each kind of problem, by the kind with its remedy."""
        kinds: dict[str, dict[str, list[str]]] = {}
        for each in self.found.values():
            kind = f"{each.what}: {each.remedy}" if each.path else each.what
            files = kinds.setdefault(kind, {})
            if each.path:
                files.setdefault(str(each.path), []).append(each.place)
        return {
            kind: [
                f"{path}: {'; '.join(filter(None, places))}".removesuffix(": ")
                for path, places in files.items()
            ]
            for kind, files in kinds.items()
        }


# Files


@dataclass(frozen=True)
class Cells:
    """The cells of a column as text, with their places.

    Attributes
    ----------
    texts : list of str
        The cells, without spaces around them.
    column : str
        The column's name.
    path : Path
        The file.
    lines : NDArray
        The line of each cell in the file.
    """

    texts: list[str]
    column: str
    path: Path
    lines: Array

    def tell(self, problems: Problems, wrong: Array, what: str, remedy: str) -> None:
        """Add the cells that are `wrong`, a truth value for each, to problems."""
        if count := int(np.count_nonzero(wrong)):
            first = int(self.lines[np.argmax(wrong)])
            problems.add(Problem(what, remedy, self.path, first, self.column, count))


@dataclass(frozen=True)
class RawTable:
    """A table as text.

    Attributes
    ----------
    path : Path
        Its file.
    header : list of str
        The names of its columns.
    texts : dict
        The cells of each column, without spaces around them.
    lines : NDArray
        The line of each row in the file.
    """

    path: Path
    header: list[str]
    texts: Mapping[str, list[str]]
    lines: Array

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> Cells:
        """Return the cells of a column."""
        return Cells(self.texts[name], name, self.path, self.lines)


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


def read_table(path: Path, encoding: str = "", problems: Problems | None = None) -> RawTable:
    """Read a table, whose separator is the one that its header has most of.

    Parameters
    ----------
    path : Path
        A file with a header, and a row for each sample.
    encoding : str
        As Python names it. Default: UTF-8, or UTF-16 if the file begins with its mark.
    problems : Problems, optional
        Where rows are added that have other columns than the header, which are left out. Default: they are an
        error.

    Raises
    ------
    ConfigError
        If the file cannot be read.
    """
    found = Problems() if problems is None else problems
    flat: list[str] = []  # of all cells: a list of lists would keep the garbage collector busy
    lines: list[int] = []
    try:
        text = _decoded(path.read_bytes(), encoding)
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
                found.add(Problem(f"{len(cells)} columns", remedy, path, reader.line_num))
    except UnicodeError as error:
        raise ConfigError(
            f"the data file '{path}' cannot be read ({error}): save it as UTF-8, or name its encoding by the "
            "option 'encoding', such as cp1252 for what Excel writes in Western Europe",
            thing="data file",
            value=path,
        ) from error
    except (OSError, LookupError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"the data file '{path}' cannot be read ({reason}): put a CSV file there",
            thing="data file",
            value=path,
        ) from error
    if not header:
        raise ConfigError(
            f"the data file '{path}' is empty: give it a header and a row for each sample",
            thing="data file",
            value=path,
        )
    if problems is None:
        found.raise_first()
    texts = {name: [cell.strip() for cell in flat[at :: len(header)]] for at, name in enumerate(header)}
    return RawTable(path, header, texts, np.array(lines, dtype=np.int64))


def _decoded(data: bytes, encoding: str) -> str:
    marked = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    return data.decode(encoding or ("utf-16" if marked else "utf-8")).removeprefix("\ufeff")


# Columns


@dataclass(frozen=True)
class Meaning:
    """What the columns of a table mean; the fields are options of the data set `table`.

    Attributes
    ----------
    label, group : str
        The column of the label, and of what keeps rows together; `group` may be empty.
    ignore : tuple of str
        Columns that are left out.
    missing : bool
        Whether features may be missing.
    categorical : bool
        Whether columns of words are categories.
    categories : dict of tuple of str
        Categories by column, where they are given.
    decimal_comma : bool
        Whether numbers are written with a comma.
    """

    label: str = "label"
    group: str = ""
    ignore: tuple[str, ...] = ()
    missing: bool = False
    categorical: bool = False
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    decimal_comma: bool = False


def is_missing(cell: str, words: bool = False) -> bool:
    """Whether a cell holds a word for a missing value; among other words, "none" is none."""
    return cell.lower() in MISSING and not (words and cell.lower() == "none")


def to_numbers(texts: Collection[str], decimal_comma: bool = False) -> Array:
    """Return the numbers in cells: NaN where one is missing, infinity where there is none."""
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


def _are_words(numbers: Array) -> bool:
    return int(np.isinf(numbers).sum()) > int(np.isfinite(numbers).sum())


def read_categories(text: str) -> dict[str, tuple[str, ...]]:
    """Return the categories that an option names for each column.

    Raises
    ------
    ConfigError
        If it is not of this form.

    Examples
    --------
    >>> read_categories("sex:f|m,pain:none|some|much")
    {'sex': ('f', 'm'), 'pain': ('none', 'some', 'much')}
    """
    found = {}
    for part in text.split(",") if text else ():
        name, colon, values = part.partition(":")
        names = tuple(value.strip() for value in values.split("|"))
        if not (name.strip() and colon and all(names) and len(set(names)) == len(names)):
            raise invalid(
                "option 'categories'",
                text,
                (
                    "give columns with their categories, each of them once, such as "
                    "sex:f|m,pain:none|some|much"
                ),
            )
        found[name.strip()] = names
    return found


def read_names(option: str, text: str) -> tuple[str, ...]:
    """Return the names that an option lists, which may be empty."""
    return split_names(f"option '{option}'", text) if text else ()


def features_of(table: RawTable, meaning: Meaning, problems: Problems) -> list[str]:
    """Return the columns of a table that are features, in alphabetical order.

    A column that is missing or there twice, and too few rows, are problems. Without a label all are features.
    """
    header = table.header
    others = {meaning.label, meaning.group, *meaning.ignore, *([SPLIT] if has_split(table) else [])}
    features = sorted({*header} - others)
    columns = f"the columns {', '.join(header) or 'none'}"
    if meaning.label not in header or len({*header}) < len(header) or not features:
        remedy = (
            f"it needs '{meaning.label}' (the option 'label') and at least one other, each of them once: "
            "name the column to predict by --dataset-option label=COLUMN"
        )
        problems.add(Problem(columns, remedy, table.path))
        return features
    for option, name in (("group", meaning.group), *(("categories", name) for name in meaning.categories)):
        if name and name not in header:
            problems.add(
                Problem(columns, f"the option '{option}' names '{name}': name one of them", table.path)
            )
    if len(table) < FEWEST:
        what = f"{len(table)} rows, at least {FEWEST} are needed"
        problems.add(Problem(what, "get more", table.path))
    return features


def has_split(table: RawTable) -> bool:
    """Whether a table has a column that says which rows are for training and which for testing."""
    return SPLIT in table.header and any(cell.lower() in PARTS for cell in table.texts[SPLIT])


def categorical_columns(
    tables: Iterable[RawTable],
    features: Iterable[str],
    meaning: Meaning,
    complete: bool,
    problems: Problems,
) -> dict[str, tuple[str, ...]]:
    """Return the columns that are categories, with the categories found in all tables or given.

    Parameters
    ----------
    tables : iterable of RawTable
        All tables that are here.
    features : iterable of str
        The columns that may be categories.
    meaning : Meaning
        A column that is given is of its categories. Any other one is if words are allowed, and most of its
        cells in some table are words.
    complete : bool
        Whether the tables of all domains are here.
    problems : Problems
        Where columns are added whose categories must be given: there are too many, or another site may
        have others.
    """
    there = list(tables)
    found = dict(meaning.categories)
    for name in features if meaning.categorical else ():
        cells = [table.texts[name] for table in there if name in table.header]
        if name in found or not any(_are_words(to_numbers(each, meaning.decimal_comma)) for each in cells):
            continue
        words = {text for each in cells for text in each}
        found[name] = tuple(sorted(text for text in words if not is_missing(text, True)))
        remedy = f"list its categories by --dataset-option categories={name}:A|B|..., or leave it out by"
        where = f"column '{name}' of the data file '{there[0].path}'"
        if not complete:
            what = f"{where} holds words, and other sites may have others: {remedy} ignore={name}"
            problems.add(Problem(what))
        elif len(found[name]) > MOST_CATEGORIES:
            what = f"{where} and the others has {len(found[name])} different words, more than"
            problems.add(Problem(f"{what} {MOST_CATEGORIES}: {remedy} ignore={name}"))
    return found


def clean(
    table: RawTable,
    features: Iterable[str],
    categories: Mapping[str, Collection[str]],
    meaning: Meaning,
    problems: Problems,
) -> Columns:
    """Return the features of a table, and add what is wrong with its cells to `problems`."""
    return {
        name: _words(table.column(name), categories[name], meaning, problems)
        if name in categories
        else _numbers(table.column(name), meaning, problems)
        for name in features
    }


def _words(cells: Cells, known: Collection[str], meaning: Meaning, problems: Problems) -> Array:
    meant = {text: text if text in known else text.removesuffix(".0") for text in set(cells.texts)}
    meant = {text: "" if is_missing(word, True) else word for text, word in meant.items()}
    found = np.array([meant[text] for text in cells.texts], dtype=object)
    if not meaning.missing:
        cells.tell(problems, found == "", *NO_VALUE)
    strange = [word for word in set(meant.values()) if word and word not in known]
    fix = "list all of them in the option 'categories', or leave the column out by ignore=COLUMN"
    cells.tell(problems, np.isin(found, strange), UNKNOWN, fix)
    return found


def _numbers(cells: Cells, meaning: Meaning, problems: Problems) -> Array:
    found = to_numbers(cells.texts, meaning.decimal_comma)
    wrong = np.isinf(found)
    comma = wrong.copy()
    comma[wrong] = np.isfinite(to_numbers([cells.texts[at] for at in np.flatnonzero(wrong)], True))
    cells.tell(problems, comma, COMMA, "write a point, or give --dataset-option decimal=comma")
    words = not meaning.categorical and _are_words(found)
    cells.tell(problems, wrong & ~comma, *(A_WORD if words else ("no number", "fix it")))
    if not meaning.missing:
        cells.tell(problems, np.isnan(found), *NO_VALUE)
    return found


NO_VALUE = (
    "no value",
    "fill it in, or remove the line, or the column at all sites, or fill in the mean by --dataset-option "
    "missing=mean",
)
A_WORD = (
    "a word",
    "make categories of words by --dataset-option categorical=onehot; of a column that tells patients or "
    "rows apart, keep each one's rows together by group=COLUMN, or leave it out by ignore=COLUMN",
)
UNKNOWN, COMMA = "none of the known categories", "a decimal comma"


# Labels


def class_names(labels: Iterable[Cells], named: tuple[str, ...], alone: bool) -> tuple[str, ...]:
    """Return the classes in the order of their numbers.

    Parameters
    ----------
    labels : iterable of Cells
        Those of all tables that are here.
    named : tuple of str
        The classes, if an option names them. Otherwise they are the whole numbers from 0 to the largest label
        or, if no label is a number, the words found, in alphabetical order.
    alone : bool
        Whether other domains are elsewhere, and may have other words.

    Raises
    ------
    ConfigError
        If classes have to be named: there are too many, or another site may have others.
    """
    found = {
        text: each for each in labels for text in dict.fromkeys(each.texts) if not is_missing(text, True)
    }
    if named or not found:
        return named
    if np.isfinite(to_numbers(found)).any():
        numbers = [int(number) for text in found if (number := _whole(text)) is not None]
        return tuple(map(str, range(max(numbers, default=0) + 1)))
    example = next(iter(found.values()))
    where = f"the label in the data file '{example.path}', column '{example.column}',"
    if alone:
        raise ConfigError(
            f"{where} is a word, and other sites may have others: list all in the option 'classes'"
        )
    if len(found) > MOST_CLASSES:
        raise ConfigError(
            f"{where} is one of {len(found)} different words: name another column in the option 'label'"
        )
    return tuple(sorted(found))


def class_numbers(labels: Cells, classes: tuple[str, ...], named: bool, problems: Problems) -> Array:
    """Return the number of each label's class, and add those that are none to `problems`."""
    known = {name: number for number, name in enumerate(classes)}
    words = named or not all(name.isdigit() for name in classes)
    numbers = {text: known.get(text if words else text.removesuffix(".0"), -1) for text in set(labels.texts)}
    found = np.array([numbers[text] for text in labels.texts], dtype=np.int64)
    what, remedy = (
        (
            f"a label that is none of the classes {', '.join(classes)},",
            "fix it, or list all in the option 'classes'",
        )
        if words
        else (
            f"a label that is not a whole number from 0 to {MOST_CLASSES - 1}",
            "list them in the option 'classes', or predict them by --dataset-option task=regression",
        )
    )
    labels.tell(problems, found < 0, what, remedy)
    return found.clip(min=0)


def numbers_to_predict(labels: Cells, decimal_comma: bool, problems: Problems) -> Array:
    """Return the labels as numbers, and add those that are none to `problems`."""
    found = to_numbers(labels.texts, decimal_comma)
    what, remedy = "a label that is no number", "a regression needs one: fix it, or remove the line"
    labels.tell(problems, ~np.isfinite(found), what, remedy)
    return found


def label_scale(folder: Path, options: Mapping[str, Any], target: str | None) -> dict[str, float]:
    """Return the mean and the deviation of the sources' labels, with three digits, as options."""
    column, encoding = str(options.get("label", Meaning.label)), str(options.get("encoding", ""))
    comma = options.get("decimal") == "comma"
    domains = split_names("option 'domains'", str(options["domains"]))
    numbers = [
        number
        for domain in domains
        if domain != (target or domains[-1])
        for path in files_of(folder, domain).values()
        if column in (table := read_table(path, encoding)).header
        for number in to_numbers(table.texts[column], comma).tolist()
        if math.isfinite(number)
    ]
    if len(numbers) < 2 or not (deviation := statistics.pstdev(numbers)):
        return {}
    return {
        "label_mean": _three_digits(statistics.mean(numbers)),
        "label_deviation": _three_digits(deviation),
    }


def _three_digits(number: float) -> float:
    return float(f"{number:.3g}")


def _whole(text: str) -> int | None:
    digits = text.removesuffix(".0")
    return int(digits) if digits.isdecimal() and int(digits) < MOST_CLASSES else None
