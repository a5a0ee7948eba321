"""Labels: classes of tables, numbers to predict, and warnings of labels that are too few."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from fda_flower.datasets.numbers import OF_THOUSANDS, Array, is_missing, to_numbers
from fda_flower.datasets.problems import Option, Problems
from fda_flower.errors import ConfigError
from fda_flower.names.words import counted
from fda_flower.own_data.column import DATES, MOST_CODES, TIMES, Column, check_words, joined
from fda_flower.own_data.table_columns import check_kinds

MOST_CLASSES = 1000
"""The most unnamed classes: a column that is no label must not make a network with a million outputs."""


PADDED = re.compile("0[0-9]")
"""The beginning of a code, such as 01, which is a word."""


def class_names(
    labels: Iterable[Column], named: tuple[str, ...], alone: bool, whole: bool
) -> tuple[str, ...]:
    """Return the classes in the order of their numbers: `named` by an option or found in the labels.

    Whole numbers and words are sorted. If the labels are not the `whole` federation's, numbers give those
    from 0 to the largest, since another site may have others. Raise a `ConfigError` if words must be
    named: there are too many, or the labels are `alone` here.
    """
    columns = list(labels)
    words = {word for each in columns for word in each.words}
    if named or not words:
        return named
    check_single(columns)
    check_kinds([(each, each.is_words) for each in columns], ALIKE)
    are_dates = joined(columns).form in (DATES, TIMES)
    if are_dates or any(each.tells_apart for each in columns):
        why = "is a date" if are_dates else "is another one in each row"
        raise _no_label(columns, why, f"{ANOTHER}; {OR_NUMBERS}")
    digits = all(text.isascii() and text.isdecimal() for text in words)
    padded = digits and any(PADDED.match(text) for text in words)
    if np.isfinite(to_numbers(words)).any() and not padded:
        numbers = {number for text in words if (number := _whole(text)) is not None}
        return tuple(map(str, sorted(numbers) if whole and numbers else range(max(numbers, default=0) + 1)))
    check_words(columns)
    if padded and len({*map(int, words)}) < len(words):
        raise _no_label(columns, "is a number with and without a leading 0", ALIKE)
    if alone:
        why = "is a word, and other sites may have others"
        raise _no_label(columns, why, "list all in the option 'classes'")
    if len(words) > MOST_CLASSES:
        raise _no_label(columns, f"is one of {len(words)} different words", ANOTHER)
    return tuple(sorted(words))


ALIKE = "write the labels alike in all files"


ANOTHER = "name another column in the option 'label'"


OR_NUMBERS = "or list the classes in 'classes', or predict numbers by --dataset-option task=regression"


def _no_label(columns: Sequence[Column], why: str, remedy: str) -> ConfigError:
    first = columns[0]
    what = f"the label in the data file '{first.path}', column '{first.name}', {why}"
    return ConfigError(what, thing="label", value=first.name, remedy=remedy)


def check_single(columns: Sequence[Column]) -> None:
    """Raise a `ConfigError` if labels are several of others; it names no label."""
    several = {*several_in(word for each in columns for word in each.words)}
    for cells in (each for each in columns if each.words & several):
        wrong = cells.where(several.__contains__)
        first, others = int(cells.lines[np.argmax(wrong)]), int(np.count_nonzero(wrong)) - 1
        more = f" (and {counted(others, 'more line')})" if others else ""
        raise _no_label([cells], f"is several labels in line {first}{more}", MULTILABEL)


def several_in(words: Iterable[str]) -> list[str]:
    """Return the words that are several labels, with a mark between them, as in ``Effusion|Edema``.

    A comma, a semicolon, a slash, a plus or an ampersand is one if each part is a label, alone or elsewhere.

    Examples
    --------
    >>> several_in(["a|b", "a;c", "a", "c", "red/white"])
    ['a;c', 'a|b']
    """
    known = {*words}
    parts = {word: [part.strip() for part in SEVERAL.split(word)] for word in known if SEVERAL.search(word)}
    single = Counter(part for each in parts.values() for part in {*each}) + Counter(known - parts.keys())
    shared = {part for part, count in single.items() if count > 1 or part in known}
    return [
        word
        for word, each in sorted(parts.items())
        if all(each) and (("|" in word) or shared.issuperset(each))
    ]


SEVERAL = re.compile("[|;,/+&]")
MULTILABEL = (
    "several labels of a sample are another task: give each label a column of 0 and 1, and name them by "
    "--dataset-option task=multilabel and label=A,B; or give each sample one label or, if such words are "
    "classes, list all in the option 'classes'"
)
"""What to do with samples of several labels."""


def check_differ(labels: Sequence[Column], numbers: Array) -> None:
    """Raise a `ConfigError` if a label is the same in all domains.

    `numbers` are the classes or numbers of the label's only column, ``(n,)``, or of several, ``(n, L)``.
    """
    same = (numbers == numbers[:1]).all(axis=0) & (len(numbers) > 0)
    for place in np.flatnonzero(same).tolist():
        remedy = f"{ANOTHER}, or get data of other classes"
        if numbers.ndim > 1:
            remedy = "leave it out of the option 'label', or get data in which it differs"
        raise _no_label([labels[place]], "is the same in all files", remedy)


def class_numbers(labels: Column, classes: tuple[str, ...], named: bool, problems: Problems) -> Array:
    """Return each label's class number, and add unknown labels to `problems`."""
    known = {name: number for number, name in enumerate(classes)}
    words = named or not all(name.isdigit() for name in classes)
    names = (text if words else text.removesuffix(".0") for text in labels.different)
    indices = labels.of_cells((known.get(name, -1) for name in names), np.int64)
    empty = labels.where(lambda text: is_missing(text, words=True) and text not in known)
    labels.tell(problems, empty, "no label", "fill it in, or remove the line")
    wrong = (indices < 0) & ~empty
    option: Option | None = None
    if words:
        what = f"a label that is none of the classes {', '.join(classes)},"
        remedy = "fix it, or list all in the option 'classes'"
    else:
        what = f"a label that is not a whole number from 0 to {MOST_CLASSES - 1}"
        remedy = "list them in the option 'classes', or predict them by --dataset-option task=regression"
        many = len(np.unique(labels.numbers[wrong & np.isfinite(labels.numbers)])) > MOST_CODES
        option = ("task", "regression") if many else None
    labels.tell(problems, wrong, what, remedy, option)
    return indices.clip(min=0)


def numbers_to_predict(labels: Column, problems: Problems) -> Array:
    """Return the labels as numbers, and add other labels to `problems`."""
    remedy = "a regression needs one: fix it, or remove the line"
    labels.tell(problems, ~np.isfinite(labels.numbers), "a label that is no number", remedy)
    if not labels.comma:
        labels.tell(problems, labels.with_thousands, *OF_THOUSANDS)
    return labels.numbers


def labels_held(columns: Sequence[Column], problems: Problems) -> Array:
    """Return which of several labels each row has, 0 or 1, shape ``(n, L)``.

    Missing labels, and other values such as marks of uncertainty, are added to `problems`.
    """
    for cells in columns:
        missing = np.isnan(cells.numbers)
        cells.tell(problems, missing, "no label", f"{OR_LEFT_OUT}: what is not known is not guessed")
        other = ~missing & ~np.isin(cells.numbers, (0.0, 1.0))
        cells.tell(problems, other, "a label other than 0 and 1", f"write 1 or 0, {OR_LEFT_OUT}")
    return np.stack([cells.numbers for cells in columns], axis=1)


OR_LEFT_OUT = "leave these rows out, or the column out of the option 'label'"


def _whole(text: str) -> int | None:
    digits = text.removesuffix(".0")
    return int(digits) if digits.isdecimal() and int(digits) < MOST_CLASSES else None


def of_one(dataset: str, domain: str, classes: int) -> str:
    """Return a note that a site that sees only its own classes cannot know the classes of the others."""
    return (
        f"{dataset}: of all domains, only {domain} is here, so the {classes} classes are those found in it; "
        "if another site has other classes, the run ends with an error: then list all classes in the data "
        "set's option 'classes'"
    )
