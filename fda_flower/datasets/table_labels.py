"""The labels of tables: classes by name or by number, or numbers to predict."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fda_flower.datasets.problems import Problem, Problems
from fda_flower.datasets.table_columns import Meaning, is_missing
from fda_flower.datasets.table_files import RawTable, files_of, read_table
from fda_flower.errors import ConfigError
from fda_flower.options import split_names

MOST_CLASSES = 1000
"""Limit of unnamed classes: a column that is not a label must not make a network of a million outputs."""


@dataclass(frozen=True)
class Label:
    """A row's label as text, with its file and line."""

    text: str
    path: Path
    line: int


def labels_of(table: RawTable, column: str) -> list[Label]:
    """Return the labels of a table's rows."""
    cells = zip(table.column(column), table.lines, strict=True)
    return [Label(text, table.path, line) for text, line in cells]


def class_names(labels: Iterable[Label], column: str, named: tuple[str, ...], alone: bool) -> tuple[str, ...]:
    """Return the classes in the order of their numbers.

    Parameters
    ----------
    labels : iterable of Label
        Those of all tables that are here.
    column : str
        Their column.
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
    found = {each.text: each for each in labels if not is_missing(each.text, True)}
    if named or not found:
        return named
    if any(math.isfinite(Meaning().number(text)) for text in found):
        numbers = [int(number) for text in found if (number := _whole(text)) is not None]
        return tuple(map(str, range(max(numbers, default=0) + 1)))
    example = next(iter(found.values()))
    where = f"the label in the data file '{example.path}', column '{column}',"
    if alone:
        raise ConfigError(
            f"{where} is a word, and other sites may have others: list all in the option 'classes'"
        )
    if len(found) > MOST_CLASSES:
        raise ConfigError(
            f"{where} is one of {len(found)} different words: name another column in the option 'label'"
        )
    return tuple(sorted(found))


def class_numbers(
    labels: Iterable[Label], column: str, classes: tuple[str, ...], named: bool, problems: Problems
) -> list[int]:
    """Return the number of each label's class, and add those that are none to `problems`."""
    known = {name: number for number, name in enumerate(classes)}
    words = named or not all(name.isdigit() for name in classes)
    numbers = []
    for each in labels:
        text = each.text if words else each.text.removesuffix(".0")
        numbers.append(known.get(text, 0))
        if text not in known:
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
            problems.add(Problem(what, remedy, each.path, each.line, column))
    return numbers


def numbers_to_predict(
    labels: Iterable[Label], column: str, meaning: Meaning, problems: Problems
) -> list[float]:
    """Return the labels as numbers, and add those that are none to `problems`."""
    found = []
    for each in labels:
        found.append(meaning.number(each.text))
        if not math.isfinite(found[-1]):
            what, remedy = "a label that is no number", "a regression needs one: fix it, or remove the line"
            problems.add(Problem(what, remedy, each.path, each.line, column))
    return found


def label_scale(folder: Path, options: Mapping[str, Any], target: str | None) -> dict[str, float]:
    """Return the mean and the deviation of the sources' labels, with three digits, as options."""
    column, encoding = str(options.get("label", Meaning.label)), str(options.get("encoding", ""))
    meaning = Meaning(decimal_comma=options.get("decimal") == "comma")
    domains = split_names("option 'domains'", str(options["domains"]))
    numbers = [
        number
        for domain in domains
        if domain != (target or domains[-1])
        for path in files_of(folder, domain).values()
        if column in (table := read_table(path, encoding)).header
        for number in map(meaning.number, table.column(column))
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
