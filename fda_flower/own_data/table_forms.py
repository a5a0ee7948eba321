"""Columns of tables that are neither numbers nor categories, recognised by the form of their cells."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fda_flower.datasets.folders import LISTED
from fda_flower.datasets.numbers import PLAIN, Array, are_words, is_missing, to_numbers
from fda_flower.datasets.problems import Problems
from fda_flower.errors import ConfigError
from fda_flower.own_data.table_files import Cells, RawTable
from fda_flower.own_data.table_options import Meaning, as_option

TIME = (
    r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?: ?[AaPp]\.?[Mm]\.?)?(?:Z| ?[+-][0-9]{2}:?[0-9]{2})?"
)
DAY = (
    r"[0-9]{4}([-/.])[0-9]{1,2}(?:\1[0-9]{1,2})?|[0-9]{1,2}([-/.])[0-9]{1,2}\2(?:[0-9]{4}|[0-9]{2})|"
    r"[0-9]{1,2}[-/][0-9]{4}|[0-9]{1,2}[. -]*[^\W\d_]{3,9}[. ,-]+[0-9]{4}|"
    r"[^\W\d_]{3,9}\.? [0-9]{1,2},? [0-9]{4}"
)
DATE = re.compile(f"(?:{DAY})(?:[T ]{TIME})?|{TIME}")
DIGITS = re.compile("(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])")
"""A date of eight digits."""

NUMBER = PLAIN.pattern.replace("[.]", "[.,]")
PAIR = re.compile(f"{NUMBER} ?[/_;x] ?{NUMBER}")
UNIT = re.compile(rf"({NUMBER}) ?(?!(?:st|nd|rd|th)$)(%|°[CF]?|[^\W\d_][^\d]+|[ACFJKNVWdghlmsy])")
SIGN = re.compile(f"([$€£¥<>≤≥~]) ?({NUMBER})")
IDENTIFIER = re.compile(r"(?:^|[\W_])(?i:id|mrn|patient|subject)(?:$|[\W_])|[a-z]I[dD]$")
"""The name of a column that tells patients or rows apart."""

PATIENT = re.compile(
    r"(?:^|[\W_])(?i:patient|subject|person|mrn)(?:[\W_]*(?i:id|no|nr|num|number|code|name))?$|^(?i:p?id)$|"
    r"(?:patient|subject|person)I[dD]$"
)
"""The name of a column that tells patients, also if it has a patient in several rows."""

MOST_CODES = 20
"""The most unnamed categories with digits: more are numbers of patients."""

LONG = 5
"""The fewest digits of numbers of one length that may tell patients apart."""

ENOUGH = 20
"""The fewest rows that are told apart on purpose, not by chance."""


@dataclass(frozen=True)
class Form:
    """A form of cells: what one is, the remedy, and a function that says which cells of a column have it."""

    what: str
    remedy: str
    matches: Callable[[Sequence[str]], Array]


def form_of(texts: Sequence[str]) -> Form | None:
    """Return the form of most cells in a column of words, if it is known.

    Examples
    --------
    >>> form_of(["2024-05-01", "2024-06-13", ""]).what
    'a date'
    >>> form_of(["145 mmHg", "150 mmHg"]).what
    'a number with a unit'
    >>> form_of(["none", "some", "much"]) is None
    True
    """
    filled = sum(not is_missing(text, True) for text in texts)
    return next((form for form in FORMS if 2 * int(form.matches(texts).sum()) > filled), None)


def check_forms(
    tables: Sequence[RawTable], names: Iterable[str], meaning: Meaning, problems: Problems
) -> set[str]:
    """Return the columns that are neither numbers nor categories, and add them to `problems`.

    They have no value in a table, words in some tables only, or a known form.
    """
    rejected = set()
    for name in names:
        columns = [table.column(name) for table in tables if name in table.header and len(table)]
        words = [are_words(cells.texts, meaning.decimal_comma) for cells in columns]
        filled: list[tuple[Cells, bool]] = []
        for cells, are_text in zip(columns, words, strict=True):
            if all(is_missing(text, any(words)) for text in cells.texts):
                cells.tell(problems, np.ones(len(cells.texts), dtype=bool), *EMPTY)
                rejected.add(name)
            else:
                filled.append((cells, are_text or all(map(is_missing, cells.texts))))
        with problems.caught():
            remedy = (
                f"write numbers, in one unit, in all files; or leave the column out by "
                f"{as_option('ignore', [name])}; {LISTED_IN}"
            )
            check_kinds(filled, remedy)
        if _differ(filled) or _tell_forms(filled, problems):
            rejected.add(name)
    return rejected


def _differ(columns: Sequence[tuple[Cells, bool]]) -> bool:
    return len({words for _, words in columns}) > 1


def check_kinds(columns: Sequence[tuple[Cells, bool]], remedy: str) -> None:
    """Raise a `ConfigError` if a column holds words in some tables only, as the second of each pair says."""
    if not _differ(columns):
        return
    numbers, words = (
        sorted({cells.path.stem for cells, are_text in columns if are_text is kind}) for kind in (False, True)
    )
    forms = {form.what for cells, are_text in columns if are_text and (form := form_of(cells.texts))}
    name, kind = columns[0][0].column, ", ".join(sorted(forms)) or "a unit"
    what = f"column '{name}' holds numbers in {_listed(numbers)}, but text in {_listed(words)} ({kind}?)"
    raise ConfigError(what, thing="column", value=name, remedy=remedy)


def _tell_forms(columns: Sequence[tuple[Cells, bool]], problems: Problems) -> bool:
    """Add the cells of a known form to problems; return whether there are any."""
    any_form = False
    for cells, words in columns:
        form = form_of(cells.texts) if words else DATES if _are_digit_dates(cells.texts) else None
        if form is not None:
            cells.tell(problems, form.matches(cells.texts), form.what, form.remedy)
            any_form = True
    return any_form


def identifiers(tables: Sequence[RawTable], names: Iterable[str]) -> list[str]:
    """Return the columns of whole numbers that seem to tell patients or rows apart.

    In all tables, they count up or, if they are long or the column's name says so, are all different.
    """
    return [
        name
        for name in names
        if tables and all(name in table.header and _tell_apart(table.texts[name], name) for table in tables)
    ]


def _tell_apart(texts: Sequence[str], name: str) -> bool:
    if len(texts) < ENOUGH or not all(text.isascii() and text.isdecimal() for text in texts):
        return False
    numbers = to_numbers(texts)
    long = len(texts[0]) >= LONG and len({*map(len, texts)}) == 1
    different = len({*texts}) == len(texts)
    return bool((np.diff(numbers) > 0).all()) or (different and (long or bool(IDENTIFIER.search(name))))


def several_rows(columns: Iterable[tuple[str, Sequence[str]]], groups: Sequence[str] = ()) -> list[str]:
    """Return a sentence on columns, by name and text, that tell patients of whom some have several rows.

    With `groups`, each row's group by the option, some have several groups.
    """
    found = dict.fromkeys(
        name
        for name, texts in columns
        if PATIENT.search(name) and _repeats(texts) and (not groups or _are_divided(texts, groups))
    )
    if not found:
        return []
    return [
        f"columns that seem to name patients, of whom some have several samples: {', '.join(found)}; keep a "
        f"patient's samples together by {as_option('group', [*found][:1])}"
    ]


def _repeats(texts: Sequence[str]) -> bool:
    filled = [text for text in texts if not is_missing(text, True)]
    return 1 < len({*filled}) < len(filled)


def _are_divided(texts: Sequence[str], groups: Sequence[str]) -> bool:
    """Return whether groups are parts of patients."""
    number = len({*groups})
    return len({*texts}) < number == len({*zip(texts, groups, strict=True)})


def are_different(texts: Sequence[str]) -> bool:
    """Return whether so many words are all different that they must tell rows apart."""
    filled = [text for text in texts if not is_missing(text, True)]
    return len(filled) >= ENOUGH and len({*filled}) == len(filled)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return f"{', '.join(names[:LISTED])}{f' and {more} more' if more > 0 else ''}"


def _like(*patterns: re.Pattern[str]) -> Callable[[Sequence[str]], Array]:
    def matches(texts: Sequence[str]) -> Array:
        return np.array([any(each.fullmatch(text) for each in patterns) for text in texts], dtype=bool)

    return matches


def _are_digit_dates(texts: Sequence[str]) -> bool:
    filled = [text for text in texts if not is_missing(text)]
    return len({*filled}) > 5 and all(DIGITS.fullmatch(text) for text in filled)


def _with_units(texts: Sequence[str]) -> Array:
    """Return which cells are a number with a unit: the same marks at different numbers."""
    matches = [UNIT.fullmatch(text) or SIGN.fullmatch(text) for text in texts]
    pairs = [each.groups() if each else () for each in matches]
    units = Counter(part for pair in {*pairs} for part in pair if not re.fullmatch(NUMBER, part))
    return np.array([any(units[part] > 1 for part in pair) for pair in pairs], dtype=bool)


def _codes(texts: Sequence[str]) -> Array:
    """Return which cells are words if these tell rows or patients apart."""
    words = [text for text in texts if not is_missing(text, True)]
    coded = {text for text in words if any(each.isdigit() for each in text)}
    many = len(coded) > MOST_CODES and 2 * sum(text in coded for text in words) > len(words)
    apart = many or are_different(texts)
    return np.array([apart and not is_missing(text, True) for text in texts], dtype=bool)


EMPTY = (
    "no value in the whole column",
    "fill it in, or leave the column out at all sites by --dataset-option ignore=COLUMN",
)
LISTED_IN = "or, if they are categories, list them in the option 'categories'"
DATES = Form(
    "a date",
    "write the number of days or years from a fixed date, or leave the column out by --dataset-option "
    f"ignore=COLUMN, {LISTED_IN}",
    _like(DATE, DIGITS),
)
FORMS = (
    DATES,
    Form("two numbers", f"give each number a column of its own, {LISTED_IN}", _like(PAIR)),
    Form("a number with a unit", f"write the number alone, in one unit, {LISTED_IN}", _with_units),
    Form(
        "a word that tells rows apart",
        "keep each patient's rows together by --dataset-option group=COLUMN; or leave the column out by "
        f"ignore=COLUMN; or, if it is a text, have an encoder make numbers of it by text=COLUMN; {LISTED_IN}",
        _codes,
    ),
)
"""The known forms of words; the first that fits counts."""
