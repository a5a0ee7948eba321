"""The columns of tables, checked in all tables: which are features, as numbers, categories or texts."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from fda_flower.datasets.folders import LISTED, PARTS
from fda_flower.datasets.numbers import (
    FORMULA_ERROR,
    OF_THOUSANDS,
    Array,
    grouped,
    is_missing,
    to_numbers,
    whole,
)
from fda_flower.datasets.problems import Option, Problem, Problems
from fda_flower.errors import ConfigError, near, some
from fda_flower.names.options import join_names
from fda_flower.names.words import counted
from fda_flower.own_data.between_domains import check_disjoint
from fda_flower.own_data.column import DATES, DIGITS, ENOUGH, LISTED_IN, Column, check_words
from fda_flower.own_data.table_files import RawTable
from fda_flower.own_data.table_options import Meaning, as_option

FEWEST = 5

SPLIT = "split"
"""The column that splits rows into training and test, if it holds words."""

MOST_CATEGORIES = 100
"""The most unnamed categories: a column of names or dates must not become a feature for each."""

IDENTIFIER = re.compile(r"(?:^|[\W_])(?i:id|mrn|patient|subject)(?:$|[\W_])|[a-z]I[dD]$")
"""The name of a column that tells patients or rows apart."""

PATIENT = re.compile(
    r"(?:^|[\W_])(?i:patient|subject|person|mrn)(?:[\W_]*(?i:id|no|nr|num|number|code|name))?$|^(?i:p?id)$|"
    r"(?:patient|subject|person)I[dD]$"
)
"""The name of a column that tells patients, also if it has a patient in several rows."""

LONG = 5
"""The fewest digits of numbers of one length that may tell patients apart."""

Columns = Mapping[str, Array]
"""Numbers, NaN where one is missing, or words or texts, empty where one is missing, by the column's name."""


def features_of(table: RawTable, meaning: Meaning, problems: Problems) -> list[str]:
    """Return a table's feature columns in alphabetical order; without a label, all columns.

    Missing or repeated columns and too few rows are problems.
    """
    header = table.header
    others = {*meaning.labels, meaning.group, *meaning.ignore, *([SPLIT] if has_split(table) else [])}
    features = sorted({*header} - others)
    columns = f"the columns {some(header) or 'none'}"
    if "" in header:
        where = f"column {header.index('') + 1}, a column without a name"
        problems.add(Problem(where, "name it in the first line, or remove it", table.path))
        return []
    if twice := [name for name, times in Counter(header).items() if times > 1]:
        remedy = f"rename or remove the further {some(twice)}: each name may be there once"
        problems.add(Problem(columns, remedy, table.path))
        return []
    absent = [name for name in meaning.labels if name not in header]
    if absent or not features:
        label, survival = [*absent, meaning.label][0], of_survival(header) if absent else ""
        remedy = (
            f"it needs '{label}'{near(label, header)} (the option 'label') and at least one "
            f"other: name the column to predict by --dataset-option label=COLUMN{survival}"
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


TIMES = re.compile(r"(?:time|times|duration|futime|followup|survtime|tte|days|months|years)")
EVENTS = re.compile(r"(?:event|status|death|dead|died|censor(?:ed|ing)?|cens|fustat|deceased|relapse)")
"""Words in names of the two columns of a survival."""


def of_survival(header: Sequence[str]) -> str:
    """Return words on two columns of a table that say when and whether something came; empty without them.

    Examples
    --------
    >>> of_survival(["age", "OS_time", "OS_event"])[:47]
    "; 'OS_time' and 'OS_event' look like a survival"
    """
    words = {name: re.split(r"[\W_]+", re.sub("([a-z])([A-Z])", r"\1 \2", name).lower()) for name in header}
    pairs = [
        next((name for name in header if any(map(known.fullmatch, words[name]))), "")
        for known in (EVENTS, TIMES)
    ]
    if not all(pairs) or len({*pairs}) < 2:
        return ""
    event, time = pairs
    return (
        f"; '{time}' and '{event}' look like a survival (time to an event): for that give task=survival, "
        f"label={time} and event={event}"
    )


def check_strays(
    tables: Mapping[str, Mapping[str, RawTable]], meaning: Meaning, problems: Problems
) -> set[str]:
    """Return the domains whose tables have no column in common with others', and add them to problems."""
    roles = {*meaning.labels, meaning.group, SPLIT}
    headers = {
        name: {each for table in parts.values() for each in table.header} for name, parts in tables.items()
    }
    strays = {
        name
        for name, own in headers.items()
        if not any(own & more - roles for other, more in headers.items() if other != name)
    }
    if len(strays) == len(headers):  # of two, and one has a label
        strays = {name for name in strays if not headers[name].issuperset(meaning.labels)}
    if not strays or len(strays) == len(headers):
        return set()
    rest = [name for name in headers if name not in strays]
    remedy = f"if it is no domain, move it elsewhere, or name the domains by {as_option('domains', rest)}"
    for name in sorted(strays):
        for table in tables[name].values():
            problems.add(Problem("no column in common with the others", remedy, table.path))
    return strays


def check_cells(table: RawTable, meaning: Meaning, problems: Problems) -> None:
    """Add to `problems` errors of formulas, and a column of the words train and test by another name."""
    for name in sorted({*table.header} - {*meaning.ignore}):
        cells = table.columns[name]
        words = cells.different
        if errors := {text for text in words if FORMULA_ERROR.fullmatch(text)}:
            failed = cells.where(errors.__contains__)
            cells.tell(problems, failed, "an error of a formula", "correct it, or empty the cell")
        is_named = name in {SPLIT, *meaning.labels, meaning.group}
        if not is_named and words and all(text.lower() in PARTS for text in words):
            remedy = (
                f"call it '{SPLIT}' if it splits the rows, else leave it out by {as_option('ignore', [name])}"
            )
            problems.add(Problem(f"a column '{name}' of the words train and test", remedy, table.path))


def check_patients(cells: Column, problems: Problems) -> None:
    """Add rows without a patient to problems."""
    cells.tell(problems, cells.missing, "no patient", "fill it in, or remove the line")


def has_split(table: RawTable) -> bool:
    """Return whether a table has a column that splits rows into training and test."""
    return SPLIT in table.header and any(text.lower() in PARTS for text in table.columns[SPLIT].different)


def check_forms(
    tables: Sequence[RawTable], names: Iterable[str], meaning: Meaning, problems: Problems
) -> set[str]:
    """Return the columns that are neither numbers nor categories, and add them to `problems`.

    They have a fault, no value in a table, words in some tables only, or a known form.
    """
    rejected = set()
    for name in names:
        columns = [table.columns[name] for table in tables if name in table.header and len(table)]
        if any(cells.fault for cells in columns):
            rejected.add(name)
            continue
        some_words = any(cells.is_words for cells in columns)
        filled: list[tuple[Column, bool]] = []
        for cells in columns:
            if cells.missing.all() if some_words else cells.is_empty:
                option = "ignore", join_names([name])
                cells.tell(problems, np.ones(len(cells), dtype=bool), *EMPTY, option)
                rejected.add(name)
            else:
                filled.append((cells, cells.is_words or cells.is_empty))
        with problems.caught():
            remedy = (
                f"write numbers, in one unit, in all files; or leave the column out by "
                f"{as_option('ignore', [name])}; {LISTED_IN}"
            )
            check_kinds(filled, remedy)
        if _differ(filled) or _tell_forms(filled, problems):
            rejected.add(name)
    return rejected


def _differ(columns: Sequence[tuple[Column, bool]]) -> bool:
    return len({words for _, words in columns}) > 1


def check_kinds(columns: Sequence[tuple[Column, bool]], remedy: str) -> None:
    """Raise a `ConfigError` if a column holds words in some tables only, as the second of each pair says."""
    if not _differ(columns):
        return
    numbers, words = (
        sorted({cells.path.name for cells, are_text in columns if are_text is kind}) for kind in (False, True)
    )
    forms = {form.what for cells, are_text in columns if are_text and (form := cells.form)}
    name, kind = columns[0][0].name, f" ({', '.join(sorted(forms))}?)" if forms else ""
    what = f"column '{name}' holds numbers in {_listed(numbers)}, but text in {_listed(words)}{kind}"
    raise ConfigError(what, thing="column", value=name, remedy=remedy)


def _tell_forms(columns: Sequence[tuple[Column, bool]], problems: Problems) -> bool:
    """Add the cells of a known form to problems; return whether there are any."""
    any_form = False
    for cells, words in columns:
        form = cells.form if words else DATES if _are_digit_dates(cells) else None
        if form is not None:
            cells.tell(problems, form.matches(cells), form.what, form.remedy)
            any_form = True
    return any_form


def _are_digit_dates(cells: Column) -> bool:
    filled = [text for text in cells.different if not is_missing(text)]
    return len(filled) > 5 and all(DIGITS.fullmatch(text) for text in filled)


def identifiers(tables: Sequence[RawTable], names: Iterable[str]) -> list[str]:
    """Return the columns of whole numbers that seem to tell patients or rows apart.

    In all tables, they count up or, if they are long or the column's name says so, are all different.
    """
    return [
        name
        for name in names
        if tables and all(name in table.header and _tell_apart(table.columns[name]) for table in tables)
    ]


def _tell_apart(cells: Column) -> bool:
    texts = cells.different
    if len(cells) < ENOUGH or not all(text.isascii() and text.isdecimal() for text in texts):
        return False
    long = len(texts[0]) >= LONG and len({*map(len, texts)}) == 1
    different = len(texts) == len(cells)
    return bool((np.diff(cells.numbers) > 0).all()) or (
        different and (long or bool(IDENTIFIER.search(cells.name)))
    )


def several_rows(columns: Iterable[Column], groups: Column | None = None) -> list[str]:
    """Return a sentence on columns that tell patients of whom some have several rows.

    With `groups`, each row's group by the option, some have several groups.
    """
    patients = dict.fromkeys(
        cells.name
        for cells in columns
        if PATIENT.search(cells.name)
        and 1 < len(cells.words) < np.count_nonzero(~cells.missing)
        and (groups is None or _are_divided(cells, groups))
    )
    if not patients:
        return []
    return [
        f"columns that seem to name patients, of whom some have several samples: {', '.join(patients)}; keep "
        f"a patient's samples together by {as_option('group', [*patients][:1])}"
    ]


def _are_divided(patients: Column, groups: Column) -> bool:
    """Return whether groups are parts of patients."""
    number = len(groups.different)
    return len(patients.different) < number == len({*zip(patients.texts, groups.texts, strict=True)})


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return f"{', '.join(names[:LISTED])}{f' and {more} more' if more > 0 else ''}"


def categorical_columns(
    tables: Sequence[RawTable], features: Collection[str], meaning: Meaning, alone: bool, problems: Problems
) -> dict[str, tuple[str, ...]]:
    """Return the categorical columns, with their given categories, or those found in the tables here.

    A column is categorical if its categories are given or, where words are allowed, if most of its cells in
    some table are words; where they are not, columns of words alone are one problem. Categories must be
    given, else it is a problem, if there are too many, or the tables are `alone` here and another site may
    have others.
    """
    categories, sound = dict(meaning.categories), dict[str, int]()
    for name in features:
        columns = [table.columns[name] for table in tables if name in table.header]
        if name in categories or name == meaning.text or not any(each.is_words for each in columns):
            continue
        if not meaning.categorical and not all(each.is_categorical for each in columns):
            continue
        categories[name] = tuple(sorted({word for each in columns for word in each.words}))
        if _check_categories(columns, categories[name], meaning, alone, problems):
            sound[name] = len(categories[name])
    if sound and not meaning.categorical:
        used = {*features} - {meaning.text}
        gaps = any(each.lacks for table in tables for each in table.columns.values() if each.name in used)
        with problems.caught(ONE_HOT):
            labelled = all({*table.header}.issuperset(meaning.labels) for table in tables)
            raise _of_words(sound, gaps and not meaning.missing, labelled)
    return categories


def _check_categories(
    columns: Sequence[Column], words: Sequence[str], meaning: Meaning, alone: bool, problems: Problems
) -> bool:
    """Add to problems what stops the words of a column from being categories.

    Return whether they are categories once they are written in one way.
    """
    name = columns[0].name
    with problems.caught():
        check_words(columns)
    with problems.caught():
        check_disjoint(columns)
    fault = ""
    if np.isfinite(to_numbers(words, meaning.decimal_comma)).any():
        fault = "holds words and numbers: are they categories?"
    elif alone:
        fault = "holds words, and other sites may have others"
    elif len(words) > MOST_CATEGORIES:
        fault = f"and the others has {len(words)} different words, more than {MOST_CATEGORIES}"
    if fault:
        remedy = (
            f"list its categories by --dataset-option 'categories={name}:A|B|...', or leave it out by "
            f"{as_option('ignore', [name])}{'' if meaning.categorical else OTHER_WORDS}"
        )
        what = f"column '{name}' of the data file '{columns[0].path}' {fault}"
        with problems.caught():
            raise ConfigError(what, thing="column", value=name, remedy=remedy)
    return not fault


def _of_words(columns: Mapping[str, int], gaps: bool, labelled: bool) -> ConfigError:
    """Return the error that columns hold words, given by the number of different ones in each.

    Where tables are not `labelled`, one of them may be the label, and none is named to be left out.
    """
    first, *others = columns.items()
    numbers = [f"{first[0]} ({first[1]} different)", *(f"{name} ({number})" for name, number in others)]
    what = f"words in every row{' with a value' if gaps else ''} at all sites: {some(numbers)}"
    fill = f" --dataset-option {'='.join(MEAN)}, as cells are empty" if gaps else ""
    remedy = (
        f"give --dataset-option {'='.join(ONE_HOT)}{fill}, or leave {'them' if others else 'it'} out by "
        f"{as_option('ignore', columns if labelled else ['COLUMN'])}{OTHER_WORDS}"
    )
    return ConfigError(what, thing="columns", value=some(columns), remedy=remedy)


def check_points(
    tables: Sequence[RawTable], names: Iterable[str], meaning: Meaning, problems: Problems
) -> None:
    """Add to problems the points of numbers that are thousands marks in one table, but not in all tables.

    These are of columns with decimal commas; `clean` judges each table alone.
    """
    for name in names if meaning.decimal_comma else ():
        columns = [table.columns[name] for table in tables if name in table.header]
        if not grouped(text for cells in columns for text in cells.different):
            for cells in (each for each in columns if each.is_grouped):
                cells.tell(problems, cells.where(lambda text: "." in text), MARKS, WITH_COMMA)


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
        cells = table.columns[name]
        if name == meaning.text:
            columns[name] = _texts(cells, problems)
        elif name in categories:
            columns[name] = _words(cells, categories[name], meaning, problems)
        else:
            columns[name] = _numbers(cells, meaning, problems)
    return columns


def _texts(cells: Column, problems: Problems) -> Array:
    cells.tell(problems, cells.missing, *NO_TEXT)
    return cells.of_cells((text if text in cells.words else "" for text in cells.different), object)


def _words(cells: Column, known: Collection[str], meaning: Meaning, problems: Problems) -> Array:
    meant = [text if text in known else whole(text) for text in cells.different]
    meant = ["" if word not in known and is_missing(word, True) else word for word in meant]
    words = cells.of_cells(meant, object)
    if not meaning.missing:
        cells.tell(problems, words == "", *NO_VALUE)
    strange = cells.of_cells(word and word not in known for word in meant)
    fix = "list all of them in the option 'categories', or leave the column out by ignore=COLUMN"
    cells.tell(problems, strange, UNKNOWN, fix)
    return words


def _numbers(cells: Column, meaning: Meaning, problems: Problems) -> Array:
    cells.tell(problems, cells.marked, MARKS, WITH_COMMA if cells.comma else WITH_POINT)
    if not cells.comma:
        cells.tell(problems, cells.with_thousands, *OF_THOUSANDS)
    words = not meaning.categorical and cells.is_words
    cells.tell(problems, np.isinf(cells.numbers) & ~cells.marked, *(A_WORD if words else NO_NUMBER))
    if not meaning.missing:
        cells.tell(problems, np.isnan(cells.numbers), *NO_VALUE)
    return cells.numbers


ONE_HOT: Option = ("categorical", "onehot")
MEAN: Option = ("missing", "mean")
OTHER_WORDS = " (a free text: text=COLUMN; patients: group=COLUMN)"

EMPTY = (
    "no value in the whole column",
    "fill it in, or leave the column out at all sites by --dataset-option ignore=COLUMN",
)
NO_VALUE = (
    "no value",
    "fill it in, or remove the line, or the column at all sites, or fill in the mean by --dataset-option "
    "missing=mean",
    MEAN,
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
