"""Which rows of a table are for training, and which for testing."""

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fda_flower.datasets.domains import Split, Splits
from fda_flower.datasets.own_data import PARTS, own_folder, warn_of_one
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.datasets.samples import Samples, balanced
from fda_flower.datasets.table_reading import (
    SPLIT,
    SUFFIXES,
    Array,
    Cells,
    Columns,
    Meaning,
    Problems,
    RawTable,
    categorical_columns,
    class_names,
    class_numbers,
    clean,
    features_of,
    files_of,
    has_split,
    numbers_to_predict,
    read_categories,
    read_names,
    read_table,
)
from fda_flower.errors import ConfigError, invalid
from fda_flower.files import derive_seed
from fda_flower.names import split_names

TEST_SHARE = 0.2
FOLDS = round(1 / TEST_SHARE)


def divide(
    y: Tensor, seed: int, where: str, parts: Sequence[str] = (), groups: Sequence[str] = ()
) -> tuple[Tensor, Tensor]:
    """Return the positions of training samples and of test samples, a fifth unless `parts` say otherwise.

    Parameters
    ----------
    y : Tensor
        The labels, shape ``(n,)``; both parts get their share of each class or, in a regression, of small and
        large ones.
    seed : int
        Determines the rows.
    where : str
        What the rows are of, for messages.
    parts : sequence of str
        Of each row ``train`` or ``test``, where somebody has divided them.
    groups : sequence of str
        Of each row its group, such as a patient, which is either for training or for testing.

    Raises
    ------
    ConfigError
        If a part is empty, or there is a single group.
    """
    if parts:
        train, test = (
            torch.tensor([i for i, part in enumerate(parts) if part == word], dtype=torch.int64)
            for word in PARTS
        )
    elif groups:
        train, test = _by_group(y, seed, where, groups)
    else:
        tested = max(1, round(TEST_SHARE * len(y)))
        train, test = balanced(y, len(y) - tested, torch.Generator().manual_seed(seed))
    for word, part in zip(PARTS, (train, test), strict=True):
        if not len(part):
            raise ConfigError(f"{where} has no row for the part '{word}': mark some, or move some there")
    return train, test


def numbered(groups: Sequence[str]) -> Tensor:
    """Return the number of each row's group, int64."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    return torch.tensor([numbers[name] for name in groups])


def _by_group(y: Tensor, seed: int, where: str, groups: Sequence[str]) -> tuple[Tensor, Tensor]:
    from sklearn.model_selection import GroupShuffleSplit, StratifiedGroupKFold

    number = len(set(groups))
    if number < 2:
        raise ConfigError(
            f"{where} has {number} group in the column of the option 'group': it needs 2 or more"
        )
    state = seed % 2**32
    if y.is_floating_point() or number < FOLDS or int(torch.bincount(y).max()) < FOLDS:
        splitter = GroupShuffleSplit(1, test_size=TEST_SHARE, random_state=state)
    else:
        splitter = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a class with fewer samples than folds
        train, test = next(splitter.split(y.numpy(), y.numpy(), groups))
    return torch.from_numpy(train), torch.from_numpy(test)


Tables = Mapping[str, Mapping[str, RawTable]]
"""By domain, its tables by part: ``train`` and ``test``, or one of the part ``""``."""


@dataclass(frozen=True)
class Target:
    """What is to be predicted.

    Attributes
    ----------
    named : tuple of str
        The classes, if an option names them.
    regression : bool
        Whether it is a number.
    mean, deviation : float
        In a regression, what is subtracted from the labels, and what divides them then.
    """

    named: tuple[str, ...] = ()
    regression: bool = False
    mean: float = 0.0
    deviation: float = 1.0


@dataclass
class Rows:
    """The rows of a domain.

    Attributes
    ----------
    columns : dict
        The features by name.
    labels : list of Cells
        The labels, of each part.
    parts, groups : list of str
        The part and the group of each row; empty without.
    missing : Counter
        The number of missing values by column.
    samples : int
        How many there are.
    """

    columns: dict[str, Array] = field(default_factory=dict)
    labels: list[Cells] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    samples: int = 0


@dataclass
class Survey:
    """The tables that are here, read together.

    Attributes
    ----------
    rows : dict
        The rows of each domain that can be read.
    categories : dict
        The categories by column.
    classes : tuple of str
        The classes in the order of their numbers; empty in a regression.
    numbers : dict
        By domain, the number of each row's class, or the number to predict.
    problems : Problems
        What is wrong.
    """

    rows: dict[str, Rows] = field(default_factory=dict)
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    numbers: dict[str, Array] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)


def load(
    data_dir: Path | None,
    seed: int,
    domains: str,
    label: str = "label",
    classes: str = "",
    task: Literal["classes", "regression"] = "classes",
    missing: Literal["refuse", "mean"] = "refuse",
    categorical: Literal["refuse", "onehot"] = "refuse",
    categories: str = "",
    ignore: str = "",
    group: str = "",
    decimal: Literal["point", "comma"] = "point",
    encoding: str = "",
    label_mean: float = 0.0,
    label_deviation: float = 1.0,
) -> "OwnTables":
    """Return the rows of each domain's file, a fifth of them for testing, balanced by class.

    Each domain's features are standardised by the mean and deviation of its own training samples, so that
    no site has to share them; a feature that is constant in them is only centred. Folders ``train`` and
    ``test``, or a column ``split`` with these words, say which rows are for testing, if there are any.

    Parameters
    ----------
    data_dir : Path
        The folder with the files ``DOMAIN.csv`` (or ``.tsv``, ``.txt``): a header, then a row for each
        sample; they are only read. The separator is found: a comma, semicolon, tab or bar.
    seed : int
        Determines, for each domain independently, which rows are for testing.
    domains : str
        The domains, separated by commas. A file is needed only when its domain is accessed.
    label : str
        The column of the label. All other columns are features.
    classes : str
        The classes as written in the label column, separated by commas, in the order of their numbers.
        Default: the whole numbers from 0 to the largest label in the files present or, if labels are words,
        the words in them by name.
    task : {"classes", "regression"}
        Whether labels are classes, or numbers to predict.
    missing : {"refuse", "mean"}
        Whether a missing value is an error, or replaced by the column's mean in the domain's own training
        samples (scikit-learn's `SimpleImputer`). A missing category is none of the categories.
    categorical : {"refuse", "onehot"}
        Whether a column of words is an error, or becomes a feature for each word (scikit-learn's
        `OneHotEncoder`).
    categories : str
        The categories of columns, such as ``sex:f|m,pain:none|some``. Default: the words in the files
        present; a site that has only its own file has to be told.
    ignore : str
        Columns to leave out, separated by commas.
    group : str
        A column, such as the patient's number, whose rows stay together: all for training or all for testing.
    decimal : {"point", "comma"}
        How numbers are written.
    encoding : str
        The files' encoding, as Python names it. Default: UTF-8, or UTF-16 with its mark.
    label_mean, label_deviation : float
        In a regression, the network predicts ``(label - label_mean) / label_deviation``.

    Returns
    -------
    OwnTables
        The domains, with `x` of shape ``(n, features)``, in the alphabetical order of the columns' names.

    Raises
    ------
    ConfigError
        If a file or a value is missing, a value is not a number, or a label is not a class. The message names
        the file, the line and the column, but no value, since the server reads it.
    """
    if not label_deviation > 0:
        raise invalid("option 'label_deviation'", label_deviation, "it must be above 0")
    meaning = Meaning(
        label,
        group,
        read_names("ignore", ignore),
        missing == "mean",
        categorical == "onehot",
        read_categories(categories),
        decimal == "comma",
    )
    target = Target(read_names("classes", classes), task == "regression", label_mean, label_deviation)
    names = split_names("option 'domains'", domains)
    return OwnTables(own_folder("table", data_dir), names, encoding, meaning, target, seed)


class OwnTables(Splits):
    """The domains of tables in a folder; the arguments are those of `load`, read."""

    def __init__(
        self, folder: Path, names: tuple[str, ...], encoding: str, meaning: Meaning, target: Target, seed: int
    ) -> None:
        super().__init__(names, self._split)
        self._folder = folder
        self._encoding = encoding
        self._meaning = meaning
        self._target = target
        self._seed = seed

    def survey(self) -> Survey:
        """Read all tables that are here, and collect what is wrong with them."""
        problems = Problems()
        tables = read_files(self._folder, self, self._encoding, problems)
        return survey(tables, len(self), self._meaning, self._target, problems)

    @cached_property
    def _sound(self) -> Survey:
        found = self.survey()
        found.problems.raise_first()
        return found

    def _split(self, domain: str) -> Split:
        if not files_of(self._folder, domain):
            raise ConfigError(
                f"the data file '{self._folder / domain}{SUFFIXES[0]}' is missing: put the domain's table "
                "there"
            )
        found, target = self._sound, self._target
        if not (target.named or target.regression) and len(found.rows) == 1 < len(self):
            warn_of_one("table", domain, len(found.classes))
        return split_of(domain, found, self._meaning, target, derive_seed(self._seed, domain))


def read_files(folder: Path, names: Iterable[str], encoding: str, problems: Problems) -> Tables:
    """Return the tables of the domains that are there; a file that cannot be read is a problem."""
    tables: dict[str, dict[str, RawTable]] = {}
    for name in names:
        for part, path in files_of(folder, name).items():
            with problems.caught():
                tables.setdefault(name, {})[part] = read_table(path, encoding, problems)
    return tables


def survey(tables: Tables, domains: int, meaning: Meaning, target: Target, problems: Problems) -> Survey:
    """Read the tables that are here together, and collect what is wrong with them.

    Parameters
    ----------
    tables : Mapping
        The tables by domain and part.
    domains : int
        How many domains there are, here and elsewhere.
    meaning, target
        What the columns mean, and what is to be predicted.
    problems : Problems
        Where problems are added.
    """
    features: dict[Path, list[str]] = {}
    for table in (table for parts in tables.values() for table in parts.values()):
        with problems.caught():
            if names := features_of(table, meaning, problems):
                features[table.path] = names
                _check_features(table.path, features)
    there = [table for parts in tables.values() for table in parts.values() if table.path in features]
    alone = len(tables) == 1 < domains
    found = Survey(problems=problems)
    every = sorted({name for names in features.values() for name in names})
    found.categories = categorical_columns(there, every, meaning, not alone, problems)
    for domain, parts in tables.items():
        rows = found.rows[domain] = Rows()
        for part, table in parts.items():
            rows.samples += len(table)
            if table.path in features:
                columns = clean(table, features[table.path], found.categories, meaning, problems)
                _append(rows, part, table, columns, meaning, problems)
    with problems.caught():
        labels = [each for rows in found.rows.values() for each in rows.labels]
        if not target.regression:
            found.classes = class_names(labels, target.named, alone)
        for domain, rows in found.rows.items():
            numbers = [
                numbers_to_predict(each, meaning.decimal_comma, problems)
                if target.regression
                else class_numbers(each, found.classes, bool(target.named), problems)
                for each in rows.labels
            ]
            found.numbers[domain] = np.concatenate(numbers) if numbers else np.empty(0)
    return found


def _append(
    rows: Rows, part: str, table: RawTable, columns: Columns, meaning: Meaning, problems: Problems
) -> None:
    for name, cells in columns.items():
        before = [rows.columns[name]] if name in rows.columns else []
        rows.columns[name] = np.concatenate([*before, cells])
        rows.missing[name] += int(np.sum((cells == "") if cells.dtype == object else np.isnan(cells)))
    if meaning.label in table.header:
        rows.labels.append(table.column(meaning.label))
    if part:
        rows.parts += [part] * len(table)
    elif has_split(table):
        split = table.column(SPLIT)
        parts = [text.lower() for text in split.texts]
        split.tell(
            problems,
            np.array([word not in PARTS for word in parts]),
            "neither 'train' nor 'test'",
            "fix it, or remove the column",
        )
        rows.parts += parts
    if meaning.group in table.header:
        rows.groups += table.texts[meaning.group]


def _check_features(path: Path, features: Mapping[Path, list[str]]) -> None:
    for other, names in features.items():
        if differing := sorted({*features[path]} ^ {*names}):
            raise ConfigError(
                f"only one of the data files '{other}' and '{path}' has {', '.join(differing)}: "
                "give all domains the same columns, or leave them out by --dataset-option "
                f"ignore={','.join(differing)}"
            )


def split_of(domain: str, found: Survey, meaning: Meaning, target: Target, seed: int) -> Split:
    """Return the training and test samples of a domain."""
    rows = found.rows[domain]
    kind = torch.float64 if target.regression else torch.int64
    y = torch.as_tensor(found.numbers[domain], dtype=kind)
    train, test = divide(y, seed, f"the table of domain '{domain}'", rows.parts, rows.groups)
    fitted = TablePreparation.fit(rows.columns, train, found.categories, meaning.missing)
    preparation = replace(fitted, label_mean=target.mean, label_deviation=target.deviation)
    labels = preparation.outputs(y) if target.regression else y
    groups = numbered(rows.groups) if rows.groups else None
    samples = Samples(preparation.apply(rows.columns), labels, groups=groups)
    outputs = 1 if target.regression else len(found.classes)
    return Split(
        samples.take(train), samples.take(test), outputs, found.classes, preparation.features, preparation
    )
