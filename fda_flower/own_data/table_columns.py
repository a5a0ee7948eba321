"""The columns of tables, checked cell by cell: features as numbers, categories or texts."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from fda_flower.datasets.folders import PARTS
from fda_flower.datasets.numbers import (
    FORMULA_ERROR,
    OF_THOUSANDS,
    Array,
    are_words,
    grouped,
    is_missing,
    to_numbers,
    whole,
    with_marks,
    with_thousands,
)
from fda_flower.datasets.problems import Problem, Problems
from fda_flower.errors import ConfigError, near
from fda_flower.names.words import counted
from fda_flower.own_data.table_files import Cells, RawTable, check_words
from fda_flower.own_data.table_options import Meaning, as_option

FEWEST = 5

SPLIT = "split"
"""The column that splits rows into training and test, if it holds words."""

MOST_CATEGORIES = 100
"""The most unnamed categories: a column of names or dates must not become a feature for each."""

Columns = Mapping[str, Array]
"""Numbers, NaN where one is missing, or words or texts, empty where one is missing, by the column's name."""


def features_of(table: RawTable, meaning: Meaning, problems: Problems) -> list[str]:
    """Return a table's feature columns in alphabetical order; without a label, all columns.

    Missing or repeated columns and too few rows are problems.
    """
    header = table.header
    others = {meaning.label, meaning.group, *meaning.ignore, *([SPLIT] if has_split(table) else [])}
    features = sorted({*header} - others)
    columns = f"the columns {', '.join(header) or 'none'}"
    if "" in header:
        where = f"column {header.index('') + 1}, a column without a name"
        problems.add(Problem(where, "name it in the first line, or remove it", table.path))
        return []
    if twice := [name for name, times in Counter(header).items() if times > 1]:
        remedy = f"rename or remove the further {', '.join(twice)}: each name may be there once"
        problems.add(Problem(columns, remedy, table.path))
        return []
    if meaning.label not in header or not features:
        remedy = (
            f"it needs '{meaning.label}'{near(meaning.label, header)} (the option 'label') and at least one "
            "other: name the column to predict by --dataset-option label=COLUMN"
        )
        problems.add(Problem(columns, remedy, table.path))
        return features
    named = [("group", meaning.group), ("text", meaning.text)]
    for option, name in (*named, *(("categories", name) for name in meaning.categories)):
        if name and name not in header:
            remedy = f"the option '{option}' names '{name}'{near(name, header)}: name one of them"
            problems.add(Problem(columns, remedy, table.path))
    if len(table) < FEWEST:
        problems.add(
            Problem(f"{counted(len(table), 'row')}, at least {FEWEST} are needed", "get more", table.path)
        )
    return features


def check_cells(table: RawTable, meaning: Meaning, problems: Problems) -> None:
    """Add to `problems` errors of formulas, and a column of the words train and test by another name."""
    for name in sorted({*table.header} - {*meaning.ignore}):
        cells = table.column(name)
        words = {*cells.texts}
        if errors := {text for text in words if FORMULA_ERROR.fullmatch(text)}:
            failed = np.array([text in errors for text in cells.texts], dtype=bool)
            cells.tell(problems, failed, "an error of a formula", "correct it, or empty the cell")
        is_named = name in {SPLIT, meaning.label, meaning.group}
        if not is_named and words and all(text.lower() in PARTS for text in words):
            remedy = (
                f"call it '{SPLIT}' if it splits the rows, else leave it out by {as_option('ignore', [name])}"
            )
            problems.add(Problem(f"a column '{name}' of the words train and test", remedy, table.path))


def check_patients(cells: Cells, problems: Problems) -> None:
    """Add rows without a patient to problems."""
    lacks = np.array([is_missing(text, True) for text in cells.texts], dtype=bool)
    cells.tell(problems, lacks, "no patient", "fill it in, or remove the line")


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
    categories = dict(meaning.categories)
    for name in features if meaning.categorical else ():
        cells = [table.texts[name] for table in tables if name in table.header]
        if (
            name in categories
            or name == meaning.text
            or not any(are_words(each, meaning.decimal_comma) for each in cells)
        ):
            continue
        words = {text for each in cells for text in each}
        categories[name] = tuple(sorted(text for text in words if not is_missing(text, True)))
        number = len(categories[name])
        with problems.caught():
            check_words(table.column(name) for table in tables if name in table.header)
        fault = ""
        if np.isfinite(to_numbers(categories[name], meaning.decimal_comma)).any():
            fault = "holds words and numbers: are they categories?"
        elif alone:
            fault = "holds words, and other sites may have others"
        elif number > MOST_CATEGORIES:
            fault = f"and the others has {number} different words, more than {MOST_CATEGORIES}"
        if fault:
            remedy = (
                f"list its categories by --dataset-option 'categories={name}:A|B|...', or leave it out by "
                + as_option("ignore", [name])
            )
            what = f"column '{name}' of the data file '{tables[0].path}' {fault}"
            with problems.caught():
                raise ConfigError(what, thing="column", value=name, remedy=remedy)
    return categories


def check_points(
    tables: Sequence[RawTable], names: Iterable[str], meaning: Meaning, problems: Problems
) -> None:
    """Add to problems the points of numbers that are thousands marks in one table, but not in all tables.

    These are of columns with decimal commas; `clean` judges each table alone.
    """
    for name in names if meaning.decimal_comma else ():
        columns = [table.column(name) for table in tables if name in table.header]
        thousands = [cells for cells in columns if grouped(cells.texts)]
        if not grouped(text for cells in columns for text in cells.texts):
            for cells in thousands:
                cells.tell(problems, np.array(["." in text for text in cells.texts]), MARKS, WITH_COMMA)


def clean(
    table: RawTable,
    features: Iterable[str],
    categories: Mapping[str, Collection[str]],
    meaning: Meaning,
    problems: Problems,
) -> Columns:
    """Return a table's features, and add the problems of its cells to `problems`."""
    columns = {}
    for name in features:
        cells = table.column(name)
        if name == meaning.text:
            columns[name] = _texts(cells, problems)
        elif name in categories:
            columns[name] = _words(cells, categories[name], meaning, problems)
        else:
            columns[name] = _numbers(cells, meaning, problems)
    return columns


def _texts(cells: Cells, problems: Problems) -> Array:
    texts = np.array(["" if is_missing(text, True) else text for text in cells.texts], dtype=object)
    cells.tell(problems, texts == "", *NO_TEXT)
    return texts


def _words(cells: Cells, known: Collection[str], meaning: Meaning, problems: Problems) -> Array:
    meant = {text: text if text in known else whole(text) for text in set(cells.texts)}
    meant = {
        text: "" if word not in known and is_missing(word, True) else word for text, word in meant.items()
    }
    words = np.array([meant[text] for text in cells.texts], dtype=object)
    if not meaning.missing:
        cells.tell(problems, words == "", *NO_VALUE)
    strange = [word for word in set(meant.values()) if word and word not in known]
    fix = "list all of them in the option 'categories', or leave the column out by ignore=COLUMN"
    cells.tell(problems, np.isin(words, strange), UNKNOWN, fix)
    return words


def _numbers(cells: Cells, meaning: Meaning, problems: Problems) -> Array:
    numbers = to_numbers(cells.texts, meaning.decimal_comma)
    wrong = np.isinf(numbers)
    marked = wrong & with_marks(cells.texts)
    cells.tell(problems, marked, MARKS, WITH_COMMA if meaning.decimal_comma else WITH_POINT)
    if not meaning.decimal_comma:
        cells.tell(problems, with_thousands(cells.texts), *OF_THOUSANDS)
    words = not meaning.categorical and are_words(cells.texts, meaning.decimal_comma)
    cells.tell(problems, wrong & ~marked, *(A_WORD if words else NO_NUMBER))
    if not meaning.missing:
        cells.tell(problems, np.isnan(numbers), *NO_VALUE)
    return numbers


NO_VALUE = (
    "no value",
    "fill it in, or remove the line, or the column at all sites, or fill in the mean by --dataset-option "
    "missing=mean",
)
NO_TEXT = "no text", "write one, or remove the line"
NO_NUMBER = (
    "no number, or one too large",
    "write the number alone, without a word or a unit, and nothing where it is missing",
)
A_WORD = (
    "a word",
    "for categories give --dataset-option categorical=onehot, for free text text=COLUMN, for patient numbers "
    "group=COLUMN or ignore=COLUMN",
)
UNKNOWN, MARKS = "none of the known categories", "a number with other marks"
WITH_POINT = (
    "write a point for decimals, as in other files, and no mark for thousands; or, where the comma is the "
    "decimal mark of all files, give --dataset-option decimal=comma"
)
WITH_COMMA = "write a comma for decimals in all files and no mark for thousands, or leave out decimal=comma"
