"""A column of a table: its cells as text, and what these are, found once for each different text."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fda_flower.datasets.numbers import MARKED, PLAIN, POINTED, SMALL, Array, grouped, is_missing, to_numbers
from fda_flower.datasets.problems import Option, Problem, Problems
from fda_flower.datasets.units import in_two_spellings
from fda_flower.errors import ConfigError
from fda_flower.names.registry import alike
from fda_flower.own_data.reading import Fault

ENOUGH = 20
"""The fewest rows that are told apart on purpose, not by chance."""

FEWEST_POINTED = 3
"""Numbers with points between thousands that a column needs to be read so."""


@dataclass(frozen=True, eq=False)
class Column:
    """A column's cells as stripped text, with the file's line of each.

    In numbers, a `comma` is the decimal mark, else a point. A `fault` says why no such column can be used.

    Examples
    --------
    >>> def column(*texts): return Column("bp", texts, Path("west.csv"), np.arange(2, 2 + len(texts)))
    >>> column("145", "NA", "1,5", "much").numbers.tolist(), column("980", "1,5").marked.tolist()
    ([145.0, nan, inf, inf], [False, True])
    >>> column("980", "1.020", "12.500", "1.234.567").with_thousands.tolist()
    [False, True, True, True]
    >>> bool(column("0.980", "1.020", "12.500", "3").with_thousands.any())
    False
    >>> column("2024-05-01", "2024-06-13", "").form.what, column("145 mmHg", "150 mmHg").form.what
    ('a date', 'a number with a unit')
    """

    name: str
    texts: Sequence[str]
    path: Path
    lines: Array
    comma: bool = False
    fault: Fault | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {text: place for place, text in enumerate(dict.fromkeys(self.texts))}

    @cached_property
    def _cells(self) -> Array:
        """The place of each cell's text among the `different` ones."""
        return np.fromiter(map(self._places.__getitem__, self.texts), np.intp, len(self))

    @property
    def different(self) -> Sequence[str]:
        """The different texts, in the order of their first cells."""
        return [*self._places]

    def of_cells(self, values: Iterable[Any], dtype: Any = bool) -> Array:
        """Return values that belong to the `different` texts for each cell."""
        return np.fromiter(values, dtype, len(self._places))[self._cells]

    def where(self, holds: Callable[[str], Any]) -> Array:
        """Return for which cells a function of the text is true."""
        return self.of_cells(map(bool, map(holds, self._places)))

    @cached_property
    def numbers(self) -> Array:
        """The cells as numbers: NaN if missing, infinity if a cell is no number; see `to_numbers`."""
        return self.of_cells(to_numbers(self.different, self.comma), np.float64)

    @cached_property
    def words(self) -> frozenset[str]:
        """The different texts without marks of a missing value, if this is a column of words."""
        return frozenset(text for text in self._places if not is_missing(text, words=True))

    @cached_property
    def missing(self) -> Array:
        """Which cells lack a value, if this is a column of words."""
        return self.where(lambda text: text not in self.words)

    @cached_property
    def marked(self) -> Array:
        """Which cells are no numbers, but would be with other marks, such as commas or spaces."""
        wrong = np.isinf(self.numbers)
        return wrong & self.where(MARKED.fullmatch) if wrong.any() else wrong

    @cached_property
    def with_thousands(self) -> Array:
        """Which cells have points that are thousands marks, to judge by the whole column.

        They are if all numbers below 1,000 are whole, and three or more others have three digits after a
        point.
        """
        pointed = self.where(POINTED.fullmatch)
        small = self.where(SMALL.fullmatch) if pointed.sum() >= FEWEST_POINTED else np.zeros_like(pointed)
        mixed = small.any() and (pointed | small | np.isnan(self.numbers)).all()
        return pointed if mixed else np.zeros_like(pointed)

    @cached_property
    def is_grouped(self) -> bool:
        """Whether points can mark the thousands of all numbers."""
        return grouped(self._places)

    @cached_property
    def is_empty(self) -> bool:
        """Whether no cell has a value, if this is a column of numbers."""
        return bool(np.isnan(self.numbers).all())

    @cached_property
    def is_words(self) -> bool:
        """Whether most cells that are not missing are words."""
        words = np.isinf(self.numbers) & ~self.marked
        return 2 * int(words.sum()) > int(np.count_nonzero(~np.isnan(self.numbers)))

    @cached_property
    def is_categorical(self) -> bool:
        """Whether all cells that are not missing are words."""
        return self.is_words and not (np.isfinite(self.numbers) | self.marked).any()

    @cached_property
    def lacks(self) -> bool:
        """Whether a value is missing."""
        return bool((self.missing if self.is_words else np.isnan(self.numbers)).any())

    @cached_property
    def tells_apart(self) -> bool:
        """Whether words are many and all different, so that they must tell rows apart."""
        return ENOUGH <= len(self.words) == int(np.count_nonzero(~self.missing))

    @cached_property
    def form(self) -> "Form | None":
        """The form of most cells that are not missing, if it is known; the first of `FORMS` that fits."""
        filled = int(np.count_nonzero(~self.missing))
        return next((form for form in FORMS if 2 * int(form.matches(self).sum()) > filled), None)

    def tell_fault(self, problems: Problems) -> None:
        """Add the column's fault to problems, if it has one."""
        if self.fault is not None:
            problems.add(Problem(*self.fault, self.path, column=self.name))

    def tell(
        self, problems: Problems, wrong: Array, what: str, remedy: str, option: Option | None = None
    ) -> None:
        """Add cells to problems where the mask `wrong` is true."""
        if count := int(np.count_nonzero(wrong)):
            first = int(self.lines[np.argmax(wrong)])
            problems.add(Problem(what, remedy, self.path, first, self.name, count, option=option))


def joined(columns: Sequence[Column]) -> Column:
    """Return the cells of columns, such as one column in several tables, as the first's."""
    texts = [*chain.from_iterable(each.texts for each in columns)]
    lines = np.concatenate([each.lines for each in columns])
    return Column(columns[0].name, texts, columns[0].path, lines, columns[0].comma)


def check_words(columns: Iterable[Column], patients: bool = False) -> None:
    """Raise a `ConfigError` if words of a column, in one or several tables, look alike; it names no word.

    Names of `patients` may not be one number in two ways, either, such as 7, 07 and 7.0.
    """
    cells = list(columns)
    words = {text for each in cells for text in each.words}
    for group in in_two_spellings(words) if patients else alike(words):
        places = []
        for word in group:
            each = next(each for each in cells if word in each.words)
            places.append(f"line {each.lines[each.texts.index(word)]} of '{each.path}'")
        of = "case, spacing, marks or zeros" if patients else "case, spacing or marks"
        what = f"column '{cells[0].name}' holds words that differ only in {of}, in "
        remedy = "write them in one way"
        raise ConfigError(what + " and ".join(places), thing="column", value=cells[0].name, remedy=remedy)


@dataclass(frozen=True)
class Form:
    """A form of cells: what one is, the remedy, and a function that says which cells of a column have it."""

    what: str
    remedy: str
    matches: Callable[[Column], Array]


TIME = (
    r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?: ?[AaPp]\.?[Mm]\.?)?(?:Z| ?[+-][0-9]{2}:?[0-9]{2})?"
)
DAY = (
    r"[0-9]{4}([-/.])[0-9]{1,2}(?:\1[0-9]{1,2})?|[0-9]{1,2}([-/.])[0-9]{1,2}\2(?:[0-9]{4}|[0-9]{2})|"
    r"[0-9]{1,2}[-/][0-9]{4}|[0-9]{1,2}[. -]*[^\W\d_]{3,9}[. ,-]+[0-9]{4}|"
    r"[^\W\d_]{3,9}\.? [0-9]{1,2},? [0-9]{4}"
)
DATE = re.compile(f"(?:{DAY})(?:[T ]{TIME})?")
DURATION = re.compile(
    rf"[+-]?[0-9]+:[0-9]{{2}}(?::[0-9]{{2}}(?:[.,][0-9]+)?)?|{TIME}|P(?=.)(?:[0-9.]+[YMWD])*(?:T(?:[0-9.]+[HMS])+)?"
)
"""A time of the day, or how long something took."""

DIGITS = re.compile("(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])")
"""A date of eight digits."""

NUMBER = PLAIN.pattern.replace("[.]", "[.,]")
PAIR = re.compile(f"{NUMBER} ?[/_;x] ?{NUMBER}")
UNIT = re.compile(rf"({NUMBER}) ?(?!(?:st|nd|rd|th)$)(%|°[CF]?|[^\W\d_][^\d]+|[ACFJKNVWdghlmsy])")
SIGN = re.compile(f"([$€£¥<>≤≥~]) ?({NUMBER})")

MOST_CODES = 20
"""The most unnamed categories with digits: more are numbers of patients."""


def _like(*patterns: re.Pattern[str]) -> Callable[[Column], Array]:
    return lambda column: column.where(lambda text: any(each.fullmatch(text) for each in patterns))


def _with_units(column: Column) -> Array:
    """Return which cells are a number with a unit: the same marks at different numbers."""
    matches = [UNIT.fullmatch(text) or SIGN.fullmatch(text) for text in column.different]
    pairs = [each.groups() if each else () for each in matches]
    units = Counter(part for pair in {*pairs} for part in pair if not re.fullmatch(NUMBER, part))
    return column.of_cells(any(units[part] > 1 for part in pair) for pair in pairs)


def _codes(column: Column) -> Array:
    """Return which cells are words if these tell rows or patients apart."""
    coded = {text for text in column.words if any(each.isdigit() for each in text)}
    words = ~column.missing
    many = len(coded) > MOST_CODES and 2 * int(column.where(coded.__contains__).sum()) > int(words.sum())
    return words & (many or column.tells_apart)


LISTED_IN = "or, if they are categories, list them in the option 'categories'"
DATES = Form(
    "a date",
    "write the number of days or years from a fixed date, or leave the column out by --dataset-option "
    f"ignore=COLUMN, {LISTED_IN}",
    _like(DATE, DIGITS),
)
TIMES = Form(
    "a time or a duration",
    f"write a number in one unit, such as minutes, or leave the column out by ignore=COLUMN, {LISTED_IN}",
    _like(DURATION),
)
FORMS = (
    DATES,
    TIMES,
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
