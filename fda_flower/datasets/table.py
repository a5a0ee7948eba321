"""A consortium's own tables: a CSV file of numbers for each domain."""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from fda_flower.datasets.domains import Split, Splits
from fda_flower.datasets.features import balanced
from fda_flower.datasets.own_data import own_folder, warn_of_one
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.datasets.samples import Samples
from fda_flower.errors import ConfigError
from fda_flower.options import split_names
from fda_flower.seeds import derive_seed

TEST_SHARE = 0.2
FEWEST = 5
MISSING = ("", "?", "na", "n/a", "nan", "none", "null")
MOST_CLASSES = 1000
"""Limit of unnamed classes: a column that is not a label must not make a network of a million outputs."""


@dataclass(frozen=True)
class Table:
    """A file's feature columns in alphabetical order, its rows, and each row's label and line."""

    path: Path
    features: list[str]
    rows: list[list[float]]
    labels: list[tuple[str, int]]


def load(data_dir: Path | None, seed: int, domains: str, label: str = "label", classes: str = "") -> Splits:
    """Return the rows of each ``DOMAIN.csv``, a fifth of them for testing, balanced by class.

    Each domain's features are standardised by the mean and deviation of its own training samples, so that no
    site has to share them; a feature that is constant in them is only centred.

    Parameters
    ----------
    data_dir : Path
        The folder with the files: a header, then a row for each sample, of numbers; they are only read.
    seed : int
        Determines, for each domain independently, which rows are for testing.
    domains : str
        The domains, separated by commas. A file is needed only when its domain is accessed.
    label : str
        The column of the class. All other columns are features.
    classes : str
        The classes as written in the label column, separated by commas, in the order of their numbers.
        Default: labels are whole numbers from 0, and the largest in the files present is the last class.

    Returns
    -------
    Splits
        The domains, with `x` of shape ``(n, features)``, in the alphabetical order of the columns' names.

    Raises
    ------
    ConfigError
        If a file or a value is missing, a value is not a number, or a label is not a class. The message names
        the file, the line and the column, but no value, since the server reads it.
    """
    folder = own_folder("table", data_dir)
    names = split_names("option 'domains'", domains)
    named = split_names("option 'classes'", classes) if classes else ()

    @cache
    def tables() -> dict[str, Table]:
        paths = {name: folder / f"{name}.csv" for name in names}
        return {name: _read(path, label) for name, path in paths.items() if path.exists()}

    def read(domain: str) -> Split:
        path = folder / f"{domain}.csv"
        there = tables()
        if domain not in there:
            raise ConfigError(f"the data file '{path}' is missing: put the domain's table there")
        numbers = {name: _numbers(table, label, named) for name, table in there.items()}
        last = max(max(found) for found in numbers.values())
        labels = named or tuple(map(str, range(last + 1)))
        if not named and len(there) == 1 < len(names):
            warn_of_one("table", domain, len(labels))
        _check_features(there[domain], there.values())
        return _split(there[domain], numbers[domain], labels, derive_seed(seed, domain))

    return Splits(names, read)


def _read(path: Path, label: str) -> Table:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file)
            header = [cell.strip() for cell in next(lines, [])]
            rows = [(cells, lines.line_num) for cells in lines if cells]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"the data file '{path}' cannot be read ({reason}): put a CSV file there"
        ) from error
    features = sorted({*header} - {label})
    if label not in header or len(features) + 1 < len(header) or not features:
        raise ConfigError(
            f"the data file '{path}' has the columns {', '.join(header) or 'none'}: it needs '{label}' "
            "(the option 'label') and at least one other, each of them once"
        )
    if len(rows) < FEWEST:
        raise ConfigError(f"the data file '{path}' has {len(rows)} rows, at least {FEWEST} are needed")
    for cells, line in rows:
        if len(cells) != len(header):
            raise ConfigError(
                f"the data file '{path}' has {len(cells)} columns in line {line}, not {len(header)}: fix it"
            )
    columns = [(header.index(name), name) for name in features]
    numbers = [[_number(path, line, name, cells[i]) for i, name in columns] for cells, line in rows]
    labels = [(cells[header.index(label)].strip(), line) for cells, line in rows]
    return Table(path, features, numbers, labels)


def _number(path: Path, line: int, column: str, cell: str) -> float:
    if cell.strip().lower() in MISSING:
        raise ConfigError(
            f"the data file '{path}' has no value in line {line}, column '{column}': fill it in, or remove "
            "the line, or the column at all sites"
        )
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"the data file '{path}' has no number in line {line}, column '{column}': fix it")
    return number


def _numbers(table: Table, label: str, classes: tuple[str, ...]) -> list[int]:
    """Return the number of each row's class."""
    known = {name: number for number, name in enumerate(classes or map(str, range(MOST_CLASSES)))}
    found = [(text if classes else text.removesuffix(".0"), line) for text, line in table.labels]
    for text, line in found:
        if text not in known:
            what = (
                f"none of the classes {', '.join(classes)}: fix it, or list all in the option 'classes'"
                if classes
                else f"not a whole number from 0 to {MOST_CLASSES - 1}: list them in the option 'classes'"
            )
            raise ConfigError(
                f"the label in the data file '{table.path}', line {line}, column '{label}', is {what}"
            )
    return [known[text] for text, _ in found]


def _check_features(table: Table, others: Iterable[Table]) -> None:
    for other in others:
        if differing := sorted({*table.features} ^ {*other.features}):
            raise ConfigError(
                f"only one of the data files '{table.path}' and '{other.path}' has {', '.join(differing)}: "
                "give all domains the same columns"
            )


def _split(table: Table, numbers: list[int], classes: tuple[str, ...], seed: int) -> Split:
    y = torch.tensor(numbers, dtype=torch.int64)
    tested = max(1, round(TEST_SHARE * len(y)))
    train, test = balanced(y, len(y) - tested, torch.Generator().manual_seed(seed))
    rows = torch.tensor(table.rows, dtype=torch.float64)
    columns = dict(zip(table.features, rows.unbind(dim=1), strict=True))
    preparation = TablePreparation.fit(columns, train)
    samples = Samples(preparation.apply(columns), y)
    features = tuple(table.features)
    return Split(samples.take(train), samples.take(test), len(classes), classes, features, preparation)
