"""The columns of tables: which are features, numbers or categories, and what is wrong with their cells."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fda_flower.datasets.own_data import PARTS
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.datasets.problems import Problem, Problems
from fda_flower.datasets.table_files import RawTable
from fda_flower.errors import ConfigError
from fda_flower.options import split_names

MISSING = ("", "?", "na", "n/a", "nan", "none", "null")
FEWEST = 5

SPLIT = "split"
"""The column that says which rows are for training and which for testing, if it holds words."""

MOST_CATEGORIES = 100
"""Limit of unnamed categories: a column of names or dates must not make a feature of each."""

Columns = Mapping[str, Sequence[float] | Sequence[str]]
"""Numbers, NaN where one is missing, or words, by the name of the column."""


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

    def number(self, cell: str) -> float:
        """Return the number in a cell: NaN if it is missing, infinity if it is none."""
        if is_missing(cell):
            return math.nan
        try:
            number = float(cell.replace(",", ".") if self.decimal_comma else cell)
        except ValueError:
            return math.inf
        return number if math.isfinite(number) else math.inf


def is_missing(cell: str, words: bool = False) -> bool:
    """Whether a cell holds a word for a missing value; among other words, "none" is none."""
    return cell.lower() in MISSING and not (words and cell.lower() == "none")


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
            raise ConfigError(
                f"option 'categories' is '{text}': give columns with their categories, each of them once, "
                "such as sex:f|m,pain:none|some|much"
            )
        found[name.strip()] = names
    return found


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
    if len(table.rows) < FEWEST:
        what = f"{len(table.rows)} rows, at least {FEWEST} are needed"
        problems.add(Problem(what, "get more", table.path))
    return features


def has_split(table: RawTable) -> bool:
    """Whether a table has a column that says which rows are for training and which for testing."""
    return SPLIT in table.header and any(cell.lower() in PARTS for cell in table.column(SPLIT))


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
        Where columns are added whose categories have to be given: there are too many, or another site may
        have others.
    """
    there = list(tables)
    found = dict(meaning.categories)
    for name in features if meaning.categorical else ():
        if name in found or not any(
            _is_of_words(table.column(name), meaning) for table in there if name in table.header
        ):
            continue
        remedy = f"list its categories by --dataset-option categories={name}:A|B|..., or leave it out by"
        found[name] = tuple(
            sorted(
                {
                    cell
                    for table in there
                    if name in table.header
                    for cell in table.column(name)
                    if not is_missing(cell, True)
                }
            )
        )
        where = f"column '{name}' of the data file '{there[0].path}'"
        if not complete:
            what = f"{where} holds words, and other sites may have others: {remedy} ignore={name}"
            problems.add(Problem(what))
        elif len(found[name]) > MOST_CATEGORIES:
            what = f"{where} and the others has {len(found[name])} different words, more than"
            problems.add(Problem(f"{what} {MOST_CATEGORIES}: {remedy} ignore={name}"))
    return found


def _is_of_words(cells: Iterable[str], meaning: Meaning) -> bool:
    numbers = [meaning.number(cell) for cell in cells]
    return sum(map(math.isinf, numbers)) > sum(map(math.isfinite, numbers))


def clean(
    table: RawTable,
    features: Iterable[str],
    categories: Mapping[str, Collection[str]],
    meaning: Meaning,
    problems: Problems,
) -> Columns:
    """Return the features of a table, and add what is wrong with its cells to `problems`."""
    columns: dict[str, Sequence[float] | Sequence[str]] = {}
    for name in features:
        cells = table.column(name)
        if name in categories:
            cells = [cell if cell in categories[name] else cell.removesuffix(".0") for cell in cells]
        found = _complaints(cells, categories.get(name), meaning)
        for line, cell in zip(table.lines, cells, strict=True):
            if complaint := found(cell):
                problems.add(Problem(*complaint, table.path, line, name))
        if name in categories:
            columns[name] = ["" if is_missing(cell, True) else cell for cell in cells]
        else:
            columns[name] = [meaning.number(cell) for cell in cells]
    return columns


def _complaints(
    cells: Sequence[str], known: Collection[str] | None, meaning: Meaning
) -> Callable[[str], tuple[str, str] | None]:
    """Return the function that tells what is wrong with a cell of a column, and the remedy."""
    words = known is None and not meaning.categorical and _is_of_words(cells, meaning)

    def complaint(cell: str) -> tuple[str, str] | None:
        if is_missing(cell, known is not None):
            fix = "fill it in, or remove the line, or the column at all sites, or fill in the mean by"
            return None if meaning.missing else ("no value", f"{fix} --dataset-option missing=mean")
        if known is not None:
            fix = "list all of them in the option 'categories', or leave the column out by ignore=COLUMN"
            return None if cell in known else ("none of the known categories", fix)
        if math.isfinite(meaning.number(cell)):
            return None
        if math.isfinite(Meaning(decimal_comma=True).number(cell)):
            return "a decimal comma", "write a point, or give --dataset-option decimal=comma"
        if words:
            fix = "categorical=onehot; of a column that tells patients or rows apart, keep each one's rows "
            fix += "together by group=COLUMN, or leave it out by ignore=COLUMN"
            return "a word", f"make categories of words by --dataset-option {fix}"
        return "no number", "fix it"

    return complaint


def columns_for(table: RawTable, preparation: TablePreparation, decimal_comma: bool = False) -> Columns:
    """Return the columns of new rows as a preparation takes them, for a model that was trained with it.

    Raises
    ------
    ConfigError
        If a column is missing, or a cell cannot be used; the message names file, line and column.
    """
    problems = Problems()
    if missing := [name for name in preparation.columns if name not in table.header]:
        remedy = f"the model needs also {', '.join(missing)}: add them"
        problems.add(Problem(f"the columns {', '.join(table.header)}", remedy, table.path))
    problems.raise_first()
    meaning = Meaning(missing=bool(preparation.fill), categorical=True, decimal_comma=decimal_comma)
    known = preparation.known
    columns = clean(table, preparation.columns, known, meaning, problems)
    for problem in problems.found.values():
        problem.remedy = _remedy_for_new(problem, known.get(problem.column, ()), meaning.missing)
    problems.raise_first()
    return columns


def _remedy_for_new(problem: Problem, known: Sequence[str], may_lack: bool) -> str:
    """Return what to do about a cell of new rows, for which a run's options come too late."""
    return {
        "no value": "the model has learnt no value for it: fill it in, or train with missing=mean",
        "none of the known categories": f"the model knows {', '.join(known)}: fix it"
        + (", or leave it empty" if may_lack else ""),
        "a decimal comma": "write a point, as in the tables that the model was trained on",
    }.get(problem.what, problem.remedy)


def read_names(option: str, text: str) -> tuple[str, ...]:
    """Return the names that an option lists, which may be empty."""
    return split_names(f"option '{option}'", text) if text else ()
