"""Files of tables: found in a folder, read into columns, and checked cell by cell."""

import csv
import io
import math
import re
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.datasets.own_data import PARTS, found_names, is_here, unusable, visible
from fda_flower.errors import ConfigError, invalid
from fda_flower.names import split_names

SUFFIXES = (".csv", ".tsv", ".txt")
"""The suffixes of tables. Only the first one present in a folder counts: a readme.txt is no domain."""

SEPARATORS = ",;\t|"
QUOTED = re.compile(r'"[^"]*"')
HEADER = re.compile(rf'(?:[^"\r\n]+|{QUOTED.pattern})*')

MISSING = ("", "?", "na", "n/a", "nan", "none", "null")
FEWEST = 5

SPLIT = "split"
"""The column that splits rows into training and test, if it holds words."""

MOST_CATEGORIES = 100
"""The most unnamed categories: a column of names or dates must not become a feature for each."""

MOST_CLASSES = 1000
"""The most unnamed classes: a column that is no label must not make a network with a million outputs."""

Array = NDArray[Any]

State = tuple[str, int, int]

Columns = Mapping[str, Array]
"""Numbers, NaN where one is missing, or words or texts, empty where one is missing, by the column's name."""


# Problems


@dataclass
class Problem:
    """A problem of a file; it names no value, because the server may read it.

    `what` describes the first `line` and `column` or, without a file, is the whole message; `remedy` says how
    to fix it, and `count` is the number of lines with it.
    """

    what: str
    remedy: str = ""
    path: Path | None = None
    line: int = 0
    column: str = ""
    count: int = 1
    error: ConfigError | None = None

    def __str__(self) -> str:
        if self.path is None:
            return self.what
        column = f", column '{self.column}'" if self.column else ""
        place = f" in line {self.line}{column}{self._others(' (and ', ')')}" if self.line else ""
        return f"the data file '{self.path}' has {self.what}{place}: {self.remedy}"

    @property
    def place(self) -> str:
        """The place in the file, as text."""
        line = f"line {self.line}{self._others(' and ', '')}" if self.line else ""
        return ", ".join(filter(None, (self.column, line)))

    def _others(self, before: str, after: str) -> str:
        others = self.count - 1
        return f"{before}{others} more {'line' if others == 1 else 'lines'}{after}" if others else ""


@dataclass
class Problems:
    """Problems; problems of one kind in one column of a file are counted as one."""

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
        """Catch a `ConfigError` that is raised in this context, and add it."""
        try:
            yield
        except ConfigError as error:
            self.add(Problem(str(error), error=error))

    def __bool__(self) -> bool:
        return bool(self.found)

    def raise_first(self) -> None:
        """Raise a `ConfigError` with the first problem, if there is one."""
        for problem in self.found.values():
            what = str(problem).removesuffix(f": {problem.remedy}")
            raise problem.error or ConfigError(
                what, thing="data file", value=problem.path, remedy=problem.remedy
            )

    def by_kind(self) -> dict[str, list[str]]:
        """Return the places of problems, by kind and remedy."""
        kinds: dict[str, dict[Path, list[str]]] = {}
        for each in self.found.values():
            kind = f"{each.what}: {each.remedy}" if each.path else each.what
            files = kinds.setdefault(kind, {})
            if each.path:
                files.setdefault(each.path, []).extend(filter(None, (each.place,)))
        return {
            kind: [": ".join(filter(None, (str(path), "; ".join(places)))) for path, places in files.items()]
            for kind, files in kinds.items()
        }


# Files


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


def complete(folder: Path | None, options: Mapping[str, Any], target: str | None) -> dict[str, Any]:
    """Return the missing options that follow from the tables in a folder.

    These are the domains and, in a regression, the mean and deviation of the sources' labels.
    """
    found: dict[str, Any] = {}
    if folder is None or not is_here(folder, options):
        return found
    if "domains" not in options:
        names = {path.stem for place in places(folder).values() for path in tables_in(place)}
        wanted = f"a file for each domain, such as north{SUFFIXES[0]}"
        found["domains"] = ",".join(found_names("table", folder, names, wanted))
    if options.get("task") == "regression" and not {"label_mean", "label_deviation"} & options.keys():
        found |= label_scale(folder, {**options, **found}, target)
    return found


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
    state = _state(path, encoding)
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


def _state(path: Path, encoding: str) -> State:
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


# Columns


@dataclass(frozen=True)
class Meaning:
    """The meaning of a table's columns; the fields are parsed options of the data set `table`.

    `missing` allows missing features, `categorical` makes categories of columns of words, and `text` is the
    column for the sentence encoder. In a regression, the network predicts ``(label - label_mean) /
    label_deviation``.
    """

    label: str = "label"
    group: str = ""
    ignore: tuple[str, ...] = ()
    missing: bool = False
    categorical: bool = False
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    decimal_comma: bool = False
    classes: tuple[str, ...] = ()
    regression: bool = False
    label_mean: float = 0.0
    label_deviation: float = 1.0
    text: str = ""

    def __post_init__(self) -> None:
        others = {"label": (self.label,), "group": (self.group,), "ignore": self.ignore}
        for option, names in {**others, "categories": tuple(self.categories)}.items():
            if self.text and self.text in names:
                why = f"but the option '{option}' names that column too"
                raise invalid("option 'text'", self.text, "name a column that is neither", why)


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


def _are_words(numbers: Array) -> bool:
    return int(np.isinf(numbers).sum()) > int(np.isfinite(numbers).sum())


def read_categories(text: str) -> dict[str, tuple[str, ...]]:
    """Parse an option's categories by column.

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
            remedy = "give columns with their categories, each of them once, such as sex:f|m"
            raise invalid("option 'categories'", text, f"{remedy},pain:none|some|much")
        found[name.strip()] = names
    return found


def read_names(option: str, text: str) -> tuple[str, ...]:
    """Parse a list of names, which may be empty."""
    return split_names(f"option '{option}'", text) if text else ()


def features_of(table: RawTable, meaning: Meaning, problems: Problems) -> list[str]:
    """Return a table's feature columns in alphabetical order; without a label, all columns.

    Missing or repeated columns and too few rows are problems.
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
    named = [("group", meaning.group), ("text", meaning.text)]
    for option, name in (*named, *(("categories", name) for name in meaning.categories)):
        if name and name not in header:
            remedy = f"the option '{option}' names '{name}': name one of them"
            problems.add(Problem(columns, remedy, table.path))
    if len(table) < FEWEST:
        problems.add(Problem(f"{len(table)} rows, at least {FEWEST} are needed", "get more", table.path))
    return features


def has_split(table: RawTable) -> bool:
    """Return whether a table has a column that splits rows into training and test."""
    return SPLIT in table.header and any(cell.lower() in PARTS for cell in table.texts[SPLIT])


def categorical_columns(
    tables: Sequence[RawTable], features: Iterable[str], meaning: Meaning, alone: bool, problems: Problems
) -> dict[str, tuple[str, ...]]:
    """Return the categorical columns, with their given categories, or those found in the tables here.

    A column is categorical if its categories are given or, where words are allowed, if most of its cells in
    some table are words. Categories must be given, else it is a problem, if there are too many, or the tables
    are `alone` here and another site may have others.
    """
    found = dict(meaning.categories)
    for name in features if meaning.categorical else ():
        cells = [table.texts[name] for table in tables if name in table.header]
        if (
            name in found
            or name == meaning.text
            or not any(_are_words(to_numbers(each, meaning.decimal_comma)) for each in cells)
        ):
            continue
        words = {text for each in cells for text in each}
        found[name] = tuple(sorted(text for text in words if not is_missing(text, True)))
        number = len(found[name])
        if alone or number > MOST_CATEGORIES:
            remedy = f"categories={name}:A|B|..., or leave it out by ignore={name}"
            remedy = f"list its categories by --dataset-option {remedy}"
            where = f"column '{name}' of the data file '{tables[0].path}'"
            many = f"and the others has {number} different words, more than {MOST_CATEGORIES}"
            what = f"{where} {'holds words, and other sites may have others' if alone else many}"
            with problems.caught():
                raise ConfigError(what, thing="column", value=name, remedy=remedy)
    return found


def clean(
    table: RawTable,
    features: Iterable[str],
    categories: Mapping[str, Collection[str]],
    meaning: Meaning,
    problems: Problems,
) -> Columns:
    """Return a table's features, and add the problems of its cells to `problems`."""
    found = {}
    for name in features:
        cells = table.column(name)
        if name == meaning.text:
            found[name] = _texts(cells, problems)
        elif name in categories:
            found[name] = _words(cells, categories[name], meaning, problems)
        else:
            found[name] = _numbers(cells, meaning, problems)
    return found


def _texts(cells: Cells, problems: Problems) -> Array:
    found = np.array(["" if is_missing(text, True) else text for text in cells.texts], dtype=object)
    cells.tell(problems, found == "", *NO_TEXT)
    return found


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
NO_TEXT = "no text", "write one, or remove the line"
A_WORD = (
    "a word",
    "make categories of words by --dataset-option categorical=onehot; of texts, have an encoder make numbers "
    "by text=COLUMN; of a column that tells patients or "
    "rows apart, keep each one's rows together by group=COLUMN, or leave it out by ignore=COLUMN",
)
UNKNOWN, COMMA = "none of the known categories", "a decimal comma"


# Labels


def class_names(labels: Iterable[Cells], named: tuple[str, ...], alone: bool) -> tuple[str, ...]:
    """Return the classes in the order of their numbers: `named` by an option or found in the labels.

    Numeric labels give the whole numbers from 0 to the largest; words are sorted. Raise a `ConfigError` if
    words must be named: there are too many, or the labels are `alone` here and another site may have others.
    """
    found = {text: each for each in labels for text in each.texts if not is_missing(text, True)}
    if named or not found:
        return named
    if np.isfinite(to_numbers(found)).any():
        numbers = [int(number) for text in found if (number := _whole(text)) is not None]
        return tuple(map(str, range(max(numbers, default=0) + 1)))
    example = next(iter(found.values()))
    where = f"the label in the data file '{example.path}', column '{example.column}',"
    if alone or len(found) > MOST_CLASSES:
        many = f"is one of {len(found)} different words"
        why = "is a word, and other sites may have others" if alone else many
        remedy = "list all in the option 'classes'" if alone else "name another column in the option 'label'"
        raise ConfigError(f"{where} {why}", thing="label", value=example.column, remedy=remedy)
    return tuple(sorted(found))


def class_numbers(labels: Cells, classes: tuple[str, ...], named: bool, problems: Problems) -> Array:
    """Return each label's class number, and add unknown labels to `problems`."""
    known = {name: number for number, name in enumerate(classes)}
    words = named or not all(name.isdigit() for name in classes)
    numbers = {text: known.get(text if words else text.removesuffix(".0"), -1) for text in set(labels.texts)}
    found = np.array([numbers[text] for text in labels.texts], dtype=np.int64)
    if words:
        what = f"a label that is none of the classes {', '.join(classes)},"
        remedy = "fix it, or list all in the option 'classes'"
    else:
        what = f"a label that is not a whole number from 0 to {MOST_CLASSES - 1}"
        remedy = "list them in the option 'classes', or predict them by --dataset-option task=regression"
    labels.tell(problems, found < 0, what, remedy)
    return found.clip(min=0)


def numbers_to_predict(labels: Cells, decimal_comma: bool, problems: Problems) -> Array:
    """Return the labels as numbers, and add other labels to `problems`."""
    found = to_numbers(labels.texts, decimal_comma)
    remedy = "a regression needs one: fix it, or remove the line"
    labels.tell(problems, ~np.isfinite(found), "a label that is no number", remedy)
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
        for number in _labels_in(path, column, comma, _state(path, encoding))
    ]
    if len(numbers) < 2 or not (deviation := statistics.pstdev(numbers)):
        return {}
    scale = {"label_mean": statistics.mean(numbers), "label_deviation": deviation}
    return {name: float(f"{value:.3g}") for name, value in scale.items()}


@lru_cache(maxsize=256)
def _labels_in(path: Path, column: str, comma: bool, state: State) -> list[float]:
    """Return a file's labels that are numbers; cached for the runs of a comparison."""
    table = read_table(path, state[0], ahead=True)
    found = to_numbers(table.texts.get(column, []), comma)
    return [float(number) for number in found if math.isfinite(number)]


def _whole(text: str) -> int | None:
    digits = text.removesuffix(".0")
    return int(digits) if digits.isdecimal() and int(digits) < MOST_CLASSES else None
