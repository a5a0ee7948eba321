"""The data set `table`: its files, read together, and the split of rows into training and test."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fda_flower.aggregation.survival import SCALE
from fda_flower.datasets.domains import Split
from fda_flower.datasets.folders import LISTED, PARTS, own_folder, read_domains
from fda_flower.datasets.numbers import Array, count_missing
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.datasets.problems import Problems
from fda_flower.datasets.samples import Samples
from fda_flower.datasets.splitting import divide, numbered
from fda_flower.datasets.units import as_name, in_several_classes, in_several_domains
from fda_flower.errors import ConfigError, some, unknown
from fda_flower.files import derive_seed
from fda_flower.models.tokens import describe_cut, longer
from fda_flower.names.notes import Note
from fda_flower.names.options import join_names, with_options
from fda_flower.names.registry import alike, check_alike
from fda_flower.names.tasks import NUMBERS as OF_NUMBERS
from fda_flower.names.tasks import Task
from fda_flower.names.words import counted
from fda_flower.own_data.between_domains import another_unit, categories_apart, check_classes, coded_apart
from fda_flower.own_data.column import Column, check_words
from fda_flower.own_data.followed import check_followed, followed, outcomes, tell_without_event
from fda_flower.own_data.labels import (
    check_differ,
    class_names,
    class_numbers,
    labels_held,
    numbers_to_predict,
    of_one,
)
from fda_flower.own_data.reading import Declared, Reading
from fda_flower.own_data.survey import Survey, Surveyed
from fda_flower.own_data.table_columns import (
    MOST_CATEGORIES,
    SPLIT,
    Columns,
    categorical_columns,
    check_cells,
    check_forms,
    check_patients,
    check_points,
    check_strays,
    clean,
    features_of,
    has_split,
    identifiers,
)
from fda_flower.own_data.table_files import RawTable
from fda_flower.own_data.table_notes import constant, contrary, of_numbers, of_patients, repeated
from fda_flower.own_data.table_options import Meaning, TableOptions, as_option
from fda_flower.own_data.table_places import Place, Tables, place_of
from fda_flower.own_data.telling import telling


@dataclass
class Rows:
    """The rows of a domain: features by column, labels and groups by table, and each row's part, if any."""

    columns: dict[str, Array] = field(default_factory=dict)
    labels: list[tuple[Column, ...]] = field(default_factory=list)
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
        """Each row's label as text; of several labels, one after the other."""
        rows = (zip(*(each.texts for each in columns), strict=True) for columns in self.labels)
        return [" ".join(texts) for each in rows for texts in each]


@with_options(TableOptions)
class OwnTables(Surveyed[Rows]):
    """The rows of each domain's file, a fifth of them for testing, balanced by class.

    `x` has shape ``(n, features)``, with columns in alphabetical order and a text's tokens last. Each domain
    standardises its features, except tokens, with its own training samples, which it need not share; a
    constant feature is only centred. Folders ``train`` and ``test``, or a column ``split`` with these words,
    define an existing split.

    A `ConfigError` names the file, line and column of a problem, but no value, because the server reads it.
    A domain's file is needed only on access; `seed` and the domain's name draw the test rows.
    `docs/own-data.md` describes the options.
    """

    name = "table"

    def __init__(
        self,
        data_dir: Path | None,
        seed: int,
        domains: str,
        encoding: str = "",
        sheet: str = "",
        declared: Declared = "refuse",
        **options: Any,
    ) -> None:
        self._meaning = TableOptions(**options).meaning
        super().__init__(read_domains(domains, below=True), self._split)
        self._folder, self._seed = own_folder("table", data_dir), seed
        self._how = Reading(encoding, sheet, self._meaning.decimal_comma, declared)

    @property
    def _place(self) -> Place:
        return place_of(self._folder, self._how, self._meaning.domain)

    def _survey(self) -> Survey[Rows]:
        problems, place = Problems(), self._place
        tables = {
            name: {part: table.filled for part, table in parts.items()}
            for name, parts in place.read(self.here, problems).items()
        }
        notes = [note for parts in tables.values() for table in parts.values() for note in table.notes]
        result = survey(tables, len(self), self._meaning, problems)
        result.notes += dict.fromkeys([*notes, *place.notes(self.here)])
        return result

    def inputs(self, options: Mapping[str, Any]) -> str:
        """Return the columns in words."""
        return describe_columns(self.survey, self._meaning.text)

    def _split(self, domain: str) -> Split:
        if domain not in self.survey.domains and (error := self._place.lacks(domain)) is not None:
            raise error
        survey, meaning = self.sound, self._meaning
        if survey.classes != meaning.classes and len(survey.domains) == 1 < len(self):
            self.note(of_one("table", domain, len(survey.classes)))
        return split_of(domain, survey, meaning, derive_seed(self._seed, domain), self.note)


def survey(tables: Tables, domains: int, meaning: Meaning, problems: Problems) -> Survey[Rows]:
    """Read the tables of `domains` on this machine together; add problems to `problems`."""
    features: dict[Path, list[str]] = {}
    alone = len(tables) == 1 < domains
    strays = check_strays(tables, meaning, problems)
    tables = {name: parts for name, parts in tables.items() if name not in strays}
    headers = {name for parts in tables.values() for table in parts.values() for name in table.header}
    absent = _check_names(headers, meaning, alone, problems)
    similar = {name for group in alike(headers - {*meaning.ignore}) for name in group}
    for table in (table for parts in tables.values() for table in parts.values()):
        with problems.caught():
            if names := features_of(table, meaning, problems):
                features[table.path] = names
                table.check(sorted({*table.header} - {*meaning.ignore}), problems)
                check_cells(table, meaning, problems)
                _check_features(table.path, features, similar, problems)
    there = [table for parts in tables.values() for table in parts.values() if table.path in features]
    result = Survey[Rows](problems=problems)
    if alone and absent:
        result.notes.append(f"the option 'ignore' names columns that are not here: {some(absent)}")
    result.notes += [*repeated(there, meaning), *contrary(there, meaning), *of_patients(there, meaning)]
    every = sorted({name for names in features.values() for name in names})
    unsure = [name for name in every if name not in {meaning.text, *meaning.categories}]
    strange = check_forms(there, unsure, meaning, problems)
    sound = [name for name in every if name not in strange]
    result.categories = categorical_columns(there, sound, meaning, alone, problems)
    numeric = [name for name in (*sound, *meaning.labels) if name not in result.categories]
    check_points(there, numeric, meaning, problems)
    numbering = identifiers(there, (name for name in numeric if name not in meaning.labels))
    result.notes += of_numbers(numbering)
    for domain, parts in tables.items():
        rows = result.domains[domain] = Rows()
        for part, table in parts.items():
            if table.path in features:
                names = [name for name in features[table.path] if name not in strange]
                columns = dict(clean(table, names, result.categories, meaning, problems))
                columns |= {name: np.zeros(len(table)) for name in strange}
                append(rows, part, table, columns, meaning, problems)
            else:
                rows.samples += len(table)
    number_labels(result, domains, meaning)
    check_owners(result)
    result.notes += _compared(result, meaning, {*numbering, *strange})
    return result


def _check_names(headers: Collection[str], meaning: Meaning, alone: bool, problems: Problems) -> list[str]:
    """Return the ignored columns that no table has; add them, and names that look alike, to problems."""
    with problems.caught():
        check_alike("columns", {*headers} - {*meaning.ignore})
    absent = [name for name in meaning.ignore if headers and name not in {"", meaning.domain, *headers}]
    for name in absent if not alone else ():
        valid = [join_names([each]) for each in sorted(headers)]
        with problems.caught():
            raise unknown("column of the option 'ignore'", name, valid)
    return absent


def _compared(survey: Survey[Rows], meaning: Meaning, others: Collection[str]) -> list[str]:
    """Return notes on columns, without `others`, that differ between domains or alone tell the label."""
    rows, left_out = survey.domains, {meaning.text, *others}
    every = sorted({name for each in rows.values() for name in each.columns} - left_out)
    columns = {
        name: {domain: each.columns[name] for domain, each in rows.items() if name in each.columns}
        for name in every
    }
    words = {name: cells for name, cells in columns.items() if name in survey.categories}
    numbers = {name: cells for name, cells in columns.items() if name not in words}
    labels = {name: each[:, 0] if each.ndim > 1 else each for name, each in survey.numbers.items()}
    predicted = {meaning.label: labels} if meaning.task in OF_NUMBERS else {}
    return [
        *constant(numbers),
        *another_unit({**numbers, **predicted}),
        *coded_apart(numbers),
        *categories_apart(words),
        *(_telling(columns, survey, meaning) if not survey.problems else []),
    ]


def _telling(columns: Mapping[str, Mapping[str, Array]], survey: Survey[Rows], meaning: Meaning) -> list[str]:
    """Return notes on columns that alone tell the label, or one of several."""
    once, numbers = _once(survey.domains), survey.numbers
    if len(meaning.labels) == 1:
        return telling(columns, numbers, once, meaning.task == "regression")
    return [
        note
        for place, label in enumerate(meaning.labels)
        for note in telling(
            columns,
            {name: each[:, place] for name, each in numbers.items()},
            once,
            meaning.task == "survival" and place == 0,
            f"'{label}'",
        )
    ]


def _once(rows: Mapping[str, Rows]) -> dict[str, Array]:
    """Return by domain the positions of a patient's first row of each label; without groups of all rows."""
    return {
        domain: np.unique([*map(hash, zip(each.groups, each.words, strict=True))], return_index=True)[1]
        if each.groups
        else np.arange(each.samples)
        for domain, each in rows.items()
    }


def check_owners(survey: Survey[Rows]) -> None:
    """Add to problems groups of a domain in two spellings, and to notes those in several places."""
    for rows in survey.domains.values():
        with survey.problems.caught():
            check_words(rows.owners, patients=True)
    survey.notes += in_several_domains({name: rows.groups for name, rows in survey.domains.items()})
    for name, rows in survey.domains.items():
        if survey.classes and len(rows.groups) == len(rows.words):
            survey.notes += in_several_classes(name, rows.groups, rows.words)


def number_labels(survey: Survey[Rows], domains: int, meaning: Meaning) -> None:
    """Add the classes of the labels in the rows of `found`, of so many `domains`, and the numbers of all."""
    problems, here = survey.problems, len(survey.domains)
    with problems.caught():
        labels = [each for rows in survey.domains.values() for each in rows.labels]
        survey.labels = meaning.labels if meaning.task == "multilabel" else ()
        if meaning.task == "classes":
            first = [each[0] for each in labels]
            survey.classes = class_names(first, meaning.classes, here == 1 < domains, here == domains)
            survey.notes += check_classes(survey.classes_by_domain, bool(meaning.classes))
        for domain, rows in survey.domains.items():
            numbers = [NUMBERS[meaning.task](each, survey.classes, meaning, problems) for each in rows.labels]
            survey.numbers[domain] = np.concatenate(numbers) if numbers else np.empty(0)
        if meaning.task == "survival" and not problems:
            patients = {domain: rows.groups for domain, rows in survey.domains.items()}
            check_followed([*survey.numbers.values()], patients, meaning.horizons)
        elif labels and here == domains and not problems and len(survey.classes) < 2:
            check_differ(labels[0], np.concatenate([*survey.numbers.values()]))
        if survey.classes != meaning.classes and _with_gaps(survey.classes):
            listed = ", ".join(survey.classes[:LISTED])
            survey.notes.append(
                f"the labels' numbers have gaps, and each is a class: {listed}; if there are others, list "
                "all in the option 'classes'"
            )


NUMBERS: Mapping[Task, Callable[[Sequence[Column], tuple[str, ...], Meaning, Problems], Array]] = {
    "classes": lambda columns, classes, meaning, problems: class_numbers(
        columns[0], classes, bool(meaning.classes), problems
    ),
    "regression": lambda columns, classes, meaning, problems: numbers_to_predict(columns[0], problems),
    "multilabel": lambda columns, classes, meaning, problems: labels_held(columns, problems),
    "survival": lambda columns, classes, meaning, problems: followed(columns, problems),
}
"""By task, the labels of a table's rows as numbers, from their columns and the classes; adds to problems."""


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
    if {*table.header}.issuperset(meaning.labels):
        rows.labels.append(tuple(table.columns[name] for name in meaning.labels))
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


def _check_features(
    path: Path, features: Mapping[Path, list[str]], similar: Collection[str], problems: Problems
) -> None:
    """Add to problems that a file has other columns than the first one, apart from `similar` names."""
    first = next(iter(features))
    if differing := sorted(({*features[path]} ^ {*features[first]}) - {*similar}):
        columns, option = some(differing), as_option("ignore", differing)
        what = f"only one of the data files '{first}' and '{path}' has {columns}"
        remedy = f"give all domains the same columns, or leave them out by {option}"
        with problems.caught(("ignore", join_names(differing))):
            raise ConfigError(what, thing="columns", value=columns, remedy=remedy)


def split_of(domain: str, survey: Survey[Rows], meaning: Meaning, seed: int, note: Note) -> Split:
    """Return the training and test samples of a domain."""
    rows = survey.domains[domain]
    survival, numbers = meaning.task == "survival", survey.numbers[domain]
    y = (numbers[:, 1] if survival else numbers).astype(TYPES[meaning.task])
    where = f"the table of domain '{domain}'"
    names = survey.classes or survey.labels
    train, test = divide(y, seed, where, rows.parts, rows.groups, names, note)
    if survival:
        tell_without_event(where, y, {"training": train, "test": test}, note)
    fitted = TablePreparation.fit(rows.columns, train, survey.categories, meaning.missing, text=meaning.text)
    scale = (SCALE, SCALE) if survival else (meaning.label_mean, meaning.label_deviation)
    preparation = replace(fitted, label_mean=scale[0], label_deviation=scale[1])
    x, values = preparation.apply(rows.columns), preparation.values(rows.columns)
    groups = numbered(rows.groups) if rows.groups else None
    if survival:
        samples = Samples.of_outcomes(x, outcomes(numbers, meaning.horizons), groups=groups, values=values)
    else:
        labels = preparation.outputs(y) if meaning.task == "regression" else y
        samples = Samples(x, labels, groups=groups, what=meaning.task, values=values)
    return Split(
        samples.take(train),
        samples.take(test),
        len(names) or len(meaning.horizons) or 1,
        names,
        preparation.features,
        preparation,
        longer(rows.columns[meaning.text]) if meaning.text else 0,
    )


TYPES: Mapping[Task, type[np.generic]] = {
    "classes": np.int64,
    "regression": np.float64,
    "multilabel": np.float32,
    "survival": np.int64,
}
"""By task, the type of the labels as read, of a survival of its events."""


def describe_columns(survey: Survey[Rows], text: str) -> str:
    """Return the columns of features in words: with their categories, and what is cut of a text's."""
    columns = sorted({column for rows in survey.domains.values() for column in rows.columns})
    more = {name: f" ({_listed(words)})" for name, words in survey.categories.items()}
    if text:
        cut = {name: longer(rows.columns.get(text, ())) for name, rows in survey.domains.items()}
        more[text] = f" (a text: {describe_cut(cut)})"
    listed = some([f"{name}{more.get(name, '')}" for name in columns])
    return f"{counted(len(columns), 'column')}{listed and f': {listed}'}"


def _listed(words: Sequence[str]) -> str:
    if len(words) > MOST_CATEGORIES:
        return f"{len(words)} different words"
    more = len(words) - LISTED
    return "|".join(words) if more <= 0 else f"{'|'.join(words[:LISTED])}|... and {more} more"
