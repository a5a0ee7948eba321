"""The data set `table`: its files, read together, and the split of rows into training and test."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from fda_flower.datasets.domains import Split, Splits
from fda_flower.datasets.folders import LISTED, PARTS, own_folder, read_domains, unusable
from fda_flower.datasets.numbers import Array, count_missing
from fda_flower.datasets.preparation import TablePreparation, read_categories
from fda_flower.datasets.problems import Findings, Problems
from fda_flower.datasets.samples import Samples
from fda_flower.datasets.splitting import divide, numbered
from fda_flower.datasets.units import as_name, in_several_classes, in_several_domains
from fda_flower.errors import ConfigError, near, unknown
from fda_flower.files import derive_seed
from fda_flower.models.tokens import longer
from fda_flower.names.options import join_names
from fda_flower.names.registry import alike, check_alike
from fda_flower.own_data.column import Column, check_words
from fda_flower.own_data.labels import (
    check_differ,
    class_names,
    class_numbers,
    numbers_to_predict,
    warn_of_one,
)
from fda_flower.own_data.table_columns import (
    SPLIT,
    Columns,
    categorical_columns,
    check_cells,
    check_forms,
    check_patients,
    check_points,
    clean,
    features_of,
    has_split,
    identifiers,
    several_rows,
)
from fda_flower.own_data.table_files import (
    SUFFIXES,
    RawTable,
    files_of,
    left_out,
    read_table,
    tables_in,
)
from fda_flower.own_data.table_options import Meaning, as_option, read_names

Tables = Mapping[str, Mapping[str, RawTable]]
"""By domain, its tables by part: ``train`` and ``test``, or one of the part ``""``."""

FEW = 10
"""Up to this many rows, or different numbers elsewhere, a column of one number is nothing strange."""


@dataclass
class Rows:
    """The rows of a domain: features by column, labels and groups by table, and each row's part, if any."""

    columns: dict[str, Array] = field(default_factory=dict)
    labels: list[Column] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    owners: list[Column] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    samples: int = 0

    @property
    def groups(self) -> list[str]:
        """Each row's group; empty if there are none."""
        return [as_name(text) for cells in self.owners for text in cells.texts]

    @property
    def words(self) -> list[str]:
        """Each row's label as text."""
        return [text for cells in self.labels for text in cells.texts]


@dataclass
class Survey(Findings):
    """The tables on this machine, read together.

    `rows` holds the readable domains, `categories` the categories by column, and `numbers`, by domain, each
    row's class, as a position in `classes`, or the number to predict.
    """

    rows: dict[str, Rows] = field(default_factory=dict)
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    numbers: dict[str, Array] = field(default_factory=dict)


class OwnTables(Splits):
    """The rows of each domain's file, a fifth of them for testing, balanced by class.

    `x` has shape ``(n, features)``, with columns in alphabetical order and a text's tokens last. Each domain
    standardises its features, except tokens, with its own training samples, which it need not share; a
    constant feature is only centred. Folders ``train`` and ``test``, or a column ``split`` with these words,
    define an existing split.

    A `ConfigError` names the file, line and column of a problem, but no value, because the server reads it.
    A domain's file is needed only on access; `seed` and the domain's name draw the test rows.
    `docs/own-data.md` describes the options.
    """

    def __init__(
        self,
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
        text: str = "",
    ) -> None:
        self._meaning = Meaning(
            label,
            group,
            read_names("ignore", ignore),
            missing == "mean",
            categorical == "onehot",
            read_categories(categories),
            decimal == "comma",
            read_names("classes", classes),
            task == "regression",
            label_mean,
            label_deviation,
            text,
        )
        super().__init__(read_domains(domains, below=True), self._split)
        self._folder, self._seed, self._encoding = own_folder("table", data_dir), seed, encoding

    def survey(self) -> Survey:
        """Read all tables on this machine, and collect their problems."""
        problems = Problems()
        tables: dict[str, dict[str, RawTable]] = {}
        notes = []
        for name in self.here:
            with problems.caught():
                for part, path in files_of(self._folder, name).items():
                    with problems.caught():
                        table = read_table(path, self._encoding, self._meaning.decimal_comma, problems)
                        filled = tables.setdefault(name, {})[part] = table.filled
                        if empty := len(table) - len(filled):
                            notes.append(f"'{path}' has rows of empty cells, which are left out: {empty}")
        for folder in sorted({(self._folder / name).parent for name in self.here}):
            if others := [path.name for path in left_out(folder)]:
                listed = f"{', '.join(others[:LISTED])}{', ...' if len(others) > LISTED else ''}"
                notes.append(f"'{folder}' also holds {listed}: export tables of other formats as CSV")
        result = survey(tables, len(self), self._meaning, problems)
        result.notes += notes
        return result

    @cached_property
    def _sound(self) -> Survey:
        survey = self.survey()
        survey.problems.raise_first()
        survey.tell("table")
        return survey

    def _split(self, domain: str) -> Split:
        if not files_of(self._folder, domain):
            path = self._folder / f"{domain}{SUFFIXES[0]}"
            others = near(domain, (each.stem for each in tables_in(self._folder)))
            raise unusable("data file", path, f"is missing{others}", "put the domain's table there")
        survey, meaning = self._sound, self._meaning
        if not (meaning.classes or meaning.regression) and len(survey.rows) == 1 < len(self):
            warn_of_one("table", domain, len(survey.classes))
        return split_of(domain, survey, meaning, derive_seed(self._seed, domain))


def survey(tables: Tables, domains: int, meaning: Meaning, problems: Problems) -> Survey:
    """Read the tables of `domains` on this machine together; add problems to `problems`."""
    features: dict[Path, list[str]] = {}
    headers = {name for parts in tables.values() for table in parts.values() for name in table.header}
    alone = len(tables) == 1 < domains
    named = headers - {*meaning.ignore}
    similar = {name for group in alike(named) for name in group}
    with problems.caught():
        check_alike("columns", named)
    absent = [name for name in meaning.ignore if name and headers and name not in headers]
    for name in absent if not alone else ():
        valid = [join_names([each]) for each in sorted(headers)]
        with problems.caught():
            raise unknown("column of the option 'ignore'", name, valid)
    for table in (table for parts in tables.values() for table in parts.values()):
        with problems.caught():
            if names := features_of(table, meaning, problems):
                features[table.path] = names
                check_cells(table, meaning, problems)
                _check_features(table.path, features, similar)
    there = [table for parts in tables.values() for table in parts.values() if table.path in features]
    result = Survey(problems=problems)
    if alone and absent:
        result.notes.append(f"the option 'ignore' names columns that are not here: {', '.join(absent)}")
    result.notes += [*_repeated(there, meaning), *_contrary(there, meaning), *_of_patients(there, meaning)]
    every = sorted({name for names in features.values() for name in names})
    unsure = [name for name in every if name not in {meaning.text, *meaning.categories}]
    strange = check_forms(there, unsure, meaning, problems)
    sound = [name for name in every if name not in strange]
    result.categories = categorical_columns(there, sound, meaning, alone, problems)
    numeric = [name for name in (*sound, meaning.label) if name not in result.categories]
    check_points(there, numeric, meaning, problems)
    if counted := identifiers(there, (name for name in numeric if name != meaning.label)):
        result.notes.append(
            f"columns that seem to number patients or rows are features: {', '.join(counted)}; if they do, "
            "name them in the option 'group' or 'ignore'"
        )
    for domain, parts in tables.items():
        rows = result.rows[domain] = Rows()
        for part, table in parts.items():
            if table.path in features:
                names = [name for name in features[table.path] if name not in strange]
                columns = dict(clean(table, names, result.categories, meaning, problems))
                columns |= {name: np.zeros(len(table)) for name in strange}
                append(rows, part, table, columns, meaning, problems)
            else:
                rows.samples += len(table)
    result.notes += _constant(
        result.rows, [name for name in numeric if name not in {meaning.label, meaning.text}]
    )
    number_labels(result, domains, meaning)
    check_owners(result)
    return result


def check_owners(survey: Survey) -> None:
    """Add to problems groups of a domain in two spellings, and to notes those in several places."""
    for rows in survey.rows.values():
        with survey.problems.caught():
            check_words(rows.owners, patients=True)
    survey.notes += in_several_domains({name: rows.groups for name, rows in survey.rows.items()})
    for name, rows in survey.rows.items():
        if survey.classes and len(rows.groups) == len(rows.words):
            survey.notes += in_several_classes(name, rows.groups, rows.words)


def _repeated(tables: Sequence[RawTable], meaning: Meaning) -> list[str]:
    """Return a note on rows that are there more than once, unless most are, as in tables of few words."""
    seen: dict[int, tuple[Path, int]] = {}  # by a row's hash, as a million rows take much memory
    again: list[tuple[Path, int, Path, int]] = []
    for table in tables:
        names = sorted({*table.header} - {SPLIT, *meaning.ignore})
        for line, row in zip(
            table.lines, zip(*(table.columns[name].texts for name in names), strict=True), strict=True
        ):
            path, first = seen.setdefault(hash(row), (table.path, int(line)))
            together = meaning.group in names and path == table.path
            if (path, first) != (table.path, line) and not together:
                again.append((table.path, int(line), path, first))
    if not again or sum(map(len, tables)) > 2 * len(seen):
        return []
    path, line, other, first = again[0]
    keep = "" if meaning.group else ", or keep those of a patient together by the option 'group'"
    return [
        f"rows that are there more than once, so that one may train and the other test: {len(again)}, the "
        f"first in line {line} of '{path}', as line {first} of '{other}'; remove them{keep}"
    ]


def _contrary(tables: Sequence[RawTable], meaning: Meaning) -> list[str]:
    """Return a note on rows that are alike but of different classes, unless most are alike."""
    seen: dict[int, tuple[str, Path, int]] = {}
    contrary: list[tuple[Path, int, Path, int]] = []
    for table in tables if not meaning.regression else ():
        names = sorted({*table.header} - {SPLIT, meaning.label, meaning.group, *meaning.ignore})
        rows = zip(*(table.columns[name].texts for name in names), strict=True)
        labels = table.columns[meaning.label].texts if meaning.label in table.header else ()
        for line, label, row in zip(table.lines, labels, rows, strict=False):
            word = label.removesuffix(".0")
            other, path, first = seen.setdefault(hash(row), (word, table.path, int(line)))
            if other != word:
                contrary.append((table.path, int(line), path, first))
    if not contrary or sum(map(len, tables)) > 2 * len(seen):
        return []
    path, line, other_path, first = contrary[0]
    return [
        f"rows that are alike but in two classes: {len(contrary)}, the first in line {line} of '{path}', as "
        f"line {first} of '{other_path}'; correct the label, or leave both out"
    ]


def _of_patients(tables: Sequence[RawTable], meaning: Meaning) -> list[str]:
    """Return a note on columns of patients with several rows, if no option keeps these together."""
    notes = dict[str, None]()
    for table in tables:
        columns = (cells for name, cells in table.columns.items() if name != meaning.label)
        notes |= dict.fromkeys(several_rows(columns, table.columns.get(meaning.group)))
    return [*notes]


def _constant(rows: Mapping[str, Rows], names: Sequence[str]) -> list[str]:
    """Return a note on columns of one number at a domain and of many at another, if there are any."""
    constant: dict[str, str] = {}
    for name in names:
        cells = {domain: here.columns[name] for domain, here in rows.items() if name in here.columns}
        values = {domain: np.unique(column[~np.isnan(column)]) for domain, column in cells.items()}
        many = any(len(numbers) > FEW for numbers in values.values())
        alone = [
            f"{numbers[0]:g} at '{domain}'"
            for domain, numbers in values.items()
            if many and len(numbers) == 1 and len(cells[domain]) > FEW
        ]
        if alone:
            constant[name] = f"{name} ({', '.join(alone)})"
    if not constant:
        return []
    listed = f"{', '.join([*constant.values()][:LISTED])}{', ...' if len(constant) > LISTED else ''}"
    return [
        f"columns with one number at a domain, and many at others: {listed}; if it means that there is no "
        f"value, leave them out by {as_option('ignore', constant)}"
    ]


def number_labels(survey: Survey, domains: int, meaning: Meaning) -> None:
    """Add the classes of the labels in the rows of `found`, of so many `domains`, and the numbers of all."""
    problems, here = survey.problems, len(survey.rows)
    with problems.caught():
        labels = [each for rows in survey.rows.values() for each in rows.labels]
        if not meaning.regression:
            survey.classes = class_names(labels, meaning.classes, here == 1 < domains, here == domains)
        for domain, rows in survey.rows.items():
            numbers = [
                numbers_to_predict(each, problems)
                if meaning.regression
                else class_numbers(each, survey.classes, bool(meaning.classes), problems)
                for each in rows.labels
            ]
            survey.numbers[domain] = np.concatenate(numbers) if numbers else np.empty(0)
        if here == domains and not problems and (meaning.regression or len(survey.classes) == 1):
            check_differ(labels, np.concatenate([*survey.numbers.values()]))
        if survey.classes != meaning.classes and _with_gaps(survey.classes):
            listed = ", ".join(survey.classes[:LISTED])
            survey.notes.append(
                f"the labels' numbers have gaps, and each is a class: {listed}; if there are others, list "
                "all in the option 'classes'"
            )


def _with_gaps(classes: Sequence[str]) -> bool:
    """Return whether numbers of classes do not count up from 0 or 1."""
    numbers = [int(name) for name in classes if name.isdecimal()]
    return len(numbers) == len(classes) and [*range(len(numbers))] not in (numbers, [n - 1 for n in numbers])


def append(
    rows: Rows, part: str, table: RawTable, columns: Columns, meaning: Meaning, problems: Problems
) -> None:
    """Append a table's rows to others, with their features in `columns`; add problems to `problems`."""
    rows.samples += len(table)
    for name, cells in columns.items():
        before = [rows.columns[name]] if name in rows.columns else []
        rows.columns[name] = np.concatenate([*before, cells])
        rows.missing[name] += count_missing(cells)
    if meaning.label in table.header:
        rows.labels.append(table.columns[meaning.label])
    if part:
        rows.parts += [part] * len(table)
    elif has_split(table):
        split = table.columns[SPLIT]
        parts = [text.lower() for text in split.texts]
        wrong = split.where(lambda text: text.lower() not in PARTS)
        split.tell(problems, wrong, "neither 'train' nor 'test'", "fix it, or remove the column")
        rows.parts += parts
    if meaning.group in table.header:
        rows.owners.append(table.columns[meaning.group])
        check_patients(rows.owners[-1], problems)


def _check_features(path: Path, features: Mapping[Path, list[str]], similar: Collection[str]) -> None:
    """Raise a `ConfigError` if a file has other columns than the first one, apart from `similar` names."""
    first = next(iter(features))
    if differing := sorted(({*features[path]} ^ {*features[first]}) - {*similar}):
        columns, option = ", ".join(differing), as_option("ignore", differing)
        what = f"only one of the data files '{first}' and '{path}' has {columns}"
        remedy = f"give all domains the same columns, or leave them out by {option}"
        raise ConfigError(what, thing="columns", value=columns, remedy=remedy)


def split_of(domain: str, survey: Survey, meaning: Meaning, seed: int) -> Split:
    """Return the training and test samples of a domain."""
    rows = survey.rows[domain]
    y = torch.as_tensor(survey.numbers[domain], dtype=torch.float64 if meaning.regression else torch.int64)
    train, test = divide(y, seed, f"the table of domain '{domain}'", rows.parts, rows.groups, survey.classes)
    fitted = TablePreparation.fit(rows.columns, train, survey.categories, meaning.missing, text=meaning.text)
    preparation = replace(fitted, label_mean=meaning.label_mean, label_deviation=meaning.label_deviation)
    labels = preparation.outputs(y) if meaning.regression else y
    groups = numbered(rows.groups) if rows.groups else None
    samples = Samples(preparation.apply(rows.columns), labels, groups=groups)
    outputs = 1 if meaning.regression else len(survey.classes)
    return Split(
        samples.take(train),
        samples.take(test),
        outputs,
        survey.classes,
        preparation.features,
        preparation,
        longer(rows.columns[meaning.text]) if meaning.text else 0,
    )
