"""New samples to predict: rows of a table, or images."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import Outcomes, sets_of
from fda_flower.aggregation.survival import risk_of
from fda_flower.datasets import Samples
from fda_flower.datasets.folders import unusable
from fda_flower.datasets.numbers import count_missing
from fda_flower.datasets.pixels import bits_in, describe_fewer_bits
from fda_flower.datasets.preparation import ImageFiles, ImagePreparation, TablePreparation
from fda_flower.datasets.problems import Problems
from fda_flower.datasets.splitting import numbered
from fda_flower.datasets.units import TAG, Grouping, as_name
from fda_flower.errors import ConfigError, as_cell, near
from fda_flower.files import write_atomically, writing
from fda_flower.own_data.column import check_words
from fda_flower.own_data.followed import followed, outcomes
from fda_flower.own_data.image_folder import ImageFolder, left_out
from fda_flower.own_data.image_list import ListOptions, from_one, has_column, list_in, read_list
from fda_flower.own_data.labels import labels_held, numbers_to_predict
from fda_flower.own_data.reading import Reading
from fda_flower.own_data.table_columns import SPLIT, check_patients
from fda_flower.own_data.table_files import RawTable, read_table
from fda_flower.own_data.table_options import TableOptions, labels_in, read_names
from fda_flower.prediction.columns import check_columns, columns_for, far_from_training
from fda_flower.prediction.flags import Flags
from fda_flower.prediction.model import LoadedModel, probabilities
from fda_flower.prediction.passes import Drawing, seeded


@dataclass(frozen=True)
class NewSamples:
    """Samples to predict.

    `samples` holds their inputs and, if `labelled`, their labels. `names` identifies them, by column, for
    example by line. `notes` say what is left out or filled in. `drawing` gives the random numbers of samples
    with noise.
    """

    samples: Samples
    names: dict[str, list[str]] = field(default_factory=dict)
    labelled: bool = False
    notes: tuple[str, ...] = ()
    drawing: Drawing = seeded


def from_csv(model: LoadedModel, path: Path, keep: Sequence[str] = (), labelled: bool = False) -> NewSamples:
    """Return the rows of a table, read like the run's own; columns are matched by name.

    The file has a header and one row per sample, and may contain the run's ignored, group, split and domain
    columns. `keep` are columns other than features to keep with the predictions; the label's column is
    ignored unless `labelled`. A `ConfigError` names what cannot be read, and missing or unknown columns.
    """
    preparation = model.preparation
    if not isinstance(preparation, TablePreparation):
        raise ConfigError(f"the model cannot predict the rows of '{path}': {_why_not(model, 'columns')}")
    options = model.about.dataset_options
    how = Reading.of(options)
    table = read_table(path, how)
    header, who, labels = table.header, f"the file '{path}' has", _label_columns(model)
    if not len(table):
        raise ConfigError(f"{who} no rows: give a header and a row for each sample")
    if len({*header}) < len(header):
        raise ConfigError(f"{who} a column twice ({', '.join(header)}): leave one of them out")
    known = (*keep, *labels, *_other_columns(options))
    check_columns(who, header, preparation, known, "leave them out, or name them with --keep")
    if missing := [name for name in (*keep, *(labels if labelled else ())) if name not in header]:
        hint = near(missing[0], header)
        message = f"{who} no column {', '.join(missing)}{hint}: it has {', '.join(header)}"
        raise ConfigError(message, thing="column", value=", ".join(missing))
    _check_faults(table, (*preparation.raw, *keep, *(labels if labelled else ())))
    columns = columns_for(table, preparation, how.comma)
    x = preparation.apply(columns)
    if "line" in keep:
        raise ConfigError("the column line to keep is also a column of the predictions: rename it")
    names = {"line": list(map(str, table.lines)), **{name: [*table.columns[name].texts] for name in keep}}
    gaps = ", ".join(f"{name} {count}" for name, cells in columns.items() if (count := count_missing(cells)))
    filled = (f"missing values, filled in as in training: {gaps}",) if gaps else ()
    notes = (*table.notes, *filled, *far_from_training(columns, preparation))
    if not labelled:
        return NewSamples(Samples(x, np.full(len(x), -1)), names, labelled, notes)
    patients, alone = _patients_in(table, str(options.get("group", "")))
    if model.about.task == "survival":
        samples = Samples.of_outcomes(x, _outcomes_of(model, table), groups=patients)
        return NewSamples(samples, names, labelled, (*notes, *alone))
    y = _labels_of(model, table, preparation)
    samples = Samples(x, y, groups=patients, what=model.about.task)
    return NewSamples(samples, names, labelled, (*notes, *alone))


def _check_faults(table: RawTable, names: Iterable[str]) -> None:
    """Raise a `ConfigError` on columns that are used and cannot be read."""
    problems = Problems()
    table.check(names, problems)
    for problem in problems.entries.values():  # A run's options are no remedy for new rows.
        problem.remedy = "correct it, or export the table as CSV"
    problems.raise_first()


def from_images(model: LoadedModel, folder: Path, labelled: bool = False) -> NewSamples:
    """Return the images in a folder and its subfolders; with labels, in the folders of the run's images.

    Raise a `ConfigError` if there is no image or, with labels, one is not in its place or of no patient.
    """
    if not isinstance(model.preparation, ImagePreparation):
        raise ConfigError(f"the model cannot predict the images in '{folder}': {_why_not(model, 'images')}")
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is not there"
        raise unusable("folder", folder, what, "give a folder with images")
    images, alone, notes = _images_in(model, folder, labelled)
    files = model.preparation.apply([folder / path for path in images.images])
    samples = Samples(files, np.full(len(files), -1))
    if labelled:
        samples = _labelled(model, images, files)
    names = {"file": [str(path.relative_to(folder)) for path in files.paths]}
    names |= {"frame": list(map(str, files.frames))} if files.frames else {}
    paths = dict.fromkeys(files.paths)
    fewer = describe_fewer_bits(bits_in(paths), model.preparation.depth)
    return NewSamples(samples, names, labelled, (*left_out(images.others), *notes, *fewer, *alone))


def _images_in(
    model: LoadedModel, folder: Path, labelled: bool
) -> tuple[ImageFolder, list[str], Sequence[str]]:
    """Return the images in a folder, with the labels of a list if there is one, and sentences on them."""
    path, (group, of_folders) = list_in(folder), _grouping_of(model)
    if labelled and path is not None:
        return _listed_in(model, folder, path)
    if labelled and model.about.task == "multilabel":
        remedy = f"put a table there, labels.csv, with the columns file, {', '.join(_label_columns(model))}"
        raise unusable("folder", folder, "has no list of its images' several labels", remedy)
    images = ImageFolder.read(folder, group if labelled else None)
    images.check("folder", "give another", in_classes=labelled)
    others = tuple(each for each in images.others if folder / each != path)
    alone = [] if of_folders or not labelled else [EACH_ALONE.format("images")]
    return replace(images, others=others), alone, []


def _listed_in(model: LoadedModel, folder: Path, path: Path) -> tuple[ImageFolder, list[str], Sequence[str]]:
    """Return the images that a list names."""
    options, notes, problems = model.about.dataset_options, list[str](), Problems()
    group = str(options.get("group", ""))
    alone = [] if not group or group == TAG or has_column(path, group) else [EACH_ALONE.format("images")]
    columns = ListOptions(_label_columns(model), "" if alone else group)
    listed = read_list(path, ImageFolder.read(folder), columns, problems, notes)
    problems.raise_first()
    if not listed:
        raise unusable("list of images", path, "has no row", "add a row for each image")
    (images,) = listed.values()
    images.check("list of images", "add rows of it")
    return images, alone, notes


def _labelled(model: LoadedModel, images: ImageFolder, files: ImageFiles) -> Samples:
    """Return the images with their labels and patients, in the order of `files`."""
    label_of = {path: label for label, paths in images.classes.items() for path in paths}
    if model.about.task == "multilabel":
        y = np.array([from_one(label_of[path]) for path in files.paths], np.float32)
    else:
        classes = model.classes_.astype(str).tolist()
        y = np.array([_class(classes, str(path), label_of[path]) for path in files.paths])
    patients: list[str] = []
    if images.names_patients:
        patients = [images.patient_of(path) for path in files.paths]
    elif files.frames:
        patients = [str(path) for path in files.paths]
    groups = numbered(patients) if patients else None
    return Samples(files, y, groups=groups, what=model.about.task)


EACH_ALONE = "no column of the option 'group' says which {} are of one patient, so each counts as another's"


def _grouping_of(model: LoadedModel) -> tuple[Grouping | None, bool]:
    """Return which new images are of one patient, and whether that follows from files as in training."""
    options = model.about.dataset_options
    group = str(options.get("group", ""))
    if {"domain", "partitioner"} & options.keys() and group != TAG:  # a column, which files lack
        return None, not group
    return Grouping.read(group), True


def _patients_in(table: RawTable, group: str) -> tuple[NDArray[np.int64] | None, list[str]]:
    """Return the patient of each row, if known, and a sentence if the option's column is not there."""
    if group not in table.header:
        return None, [EACH_ALONE.format("rows")] if group else []
    _check_faults(table, [group])
    cells, problems = table.columns[group], Problems()
    check_patients(cells, problems)
    problems.raise_first()
    check_words([cells], patients=True)
    return numbered(list(map(as_name, cells.texts))), []


def _why_not(model: LoadedModel, what: str) -> str:
    if model.about.holder == "server":
        return (
            "it is the server's, and the preparation of samples stays at the target: predict there, with the "
            "folder in the node's state-dir"
        )
    return f"its data set has no named {what}; in Python, fda_flower.load takes arrays"


def _label_columns(model: LoadedModel) -> tuple[str, ...]:
    """Return the columns of what a model predicts, in a table or a list of images."""
    label = model.about.label or str(model.about.dataset_options.get("label", TableOptions.label))
    return labels_in(label, model.about.task, str(model.about.dataset_options.get("event", "")))


def _other_columns(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns that the run's data may have besides the features and the label."""
    named = (str(options[name]) for name in ("group", "domain") if name in options)
    return (SPLIT, *named, *read_names("ignore", str(options.get("ignore", ""))))


def _labels_of(model: LoadedModel, table: RawTable, preparation: TablePreparation) -> NDArray[Any]:
    problems = Problems()
    if model.about.task == "multilabel":
        held = labels_held([table.columns[name] for name in _label_columns(model)], problems)
        problems.raise_first()
        return held.astype(np.float32)
    labels = table.columns[model.about.label]
    if model.about.task == "regression":
        numbers = numbers_to_predict(labels, problems)
        problems.raise_first()
        return preparation.outputs(numbers)
    known = model.classes_.astype(str).tolist()
    names = [text if text in known else text.removesuffix(".0") for text in labels.texts]
    places = (f"'{table.path}', line {line}, column '{labels.name}'" for line in labels.lines)
    return np.array([_class(known, *pair) for pair in zip(places, names, strict=True)])


def _outcomes_of(model: LoadedModel, table: RawTable) -> Outcomes:
    problems = Problems()
    numbers = followed([table.columns[name] for name in _label_columns(model)], problems)
    problems.raise_first()
    return outcomes(numbers, model.horizons)


def _class(known: Sequence[str], where: str, name: str) -> int:
    if name not in known:
        raise ConfigError(f"the label of {where} is none of the model's classes, {', '.join(known)}: fix it")
    return known.index(name)


DIGITS = 7
"""Significant digits of a number to predict, and as many more as its labels have in common."""

NONE_FITS = "none fits"
"""An empty set."""


def write_predictions(
    model: LoadedModel,
    new: NewSamples,
    path: Path,
    coverage: float | None = None,
    flags: Flags | None = None,
) -> None:
    """Write a CSV file with a row for each sample: its names, the prediction and the probabilities.

    The columns are `NewSamples.names`, ``prediction`` and, per class, ``p(CLASS)``; of several labels only
    ``p(LABEL)``, since what makes one a prediction is its user's threshold. A regression of several numbers
    has ``prediction-1`` and so on, and a survival ``survival(TIME)`` for each horizon and ``risk``. With a
    `coverage` there is ``set``, the classes of the set with semicolons, or for a regression ``low`` and
    ``high``. With the model's `flags` there is ``flag``, 1 or 0.
    Raise a `ConfigError` if the file cannot be written, a column to keep has one of these names, or the model
    cannot promise the coverage.
    """
    thresholds = None if coverage is None else model.thresholds(coverage)
    outputs = model.outputs(new.samples, new.drawing)
    if model.about.task == "regression":
        predictions = _numbers(model, outputs, thresholds)
    elif model.about.task == "survival":
        predictions = _curves(model, outputs)
    elif model.about.task == "multilabel":
        predictions = _shares(model, outputs)
    else:
        predictions = _classes(model, outputs, thresholds, flags)
    if twice := sorted(predictions.keys() & new.names.keys()):
        raise ConfigError(
            f"the column {', '.join(twice)} to keep is also a column of the predictions: rename it"
        )
    columns = {**new.names, **predictions}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(as_cell, columns))
    writer.writerows(map(as_cell, row) for row in zip(*columns.values(), strict=True))
    with writing("file", path):
        write_atomically(path, text.getvalue().encode())


def _numbers(model: LoadedModel, outputs: NDArray[Any], thresholds: NDArray[Any] | None) -> dict[str, Any]:
    """Return the columns of a regression."""
    values = {"prediction": outputs}
    if thresholds is not None:
        precise = outputs.astype(np.float64)
        values |= {"low": precise - thresholds, "high": precise + thresholds}
    mean, deviation = model.label_scale
    digits = DIGITS + math.ceil(math.log10(max(abs(mean) / deviation, 1)))
    ends = [f"-{i}" for i in range(1, outputs.shape[1] + 1)] if outputs.shape[1] > 1 else [""]
    return {
        f"{name}{end}": [f"{number:.{digits}g}" for number in column]
        for name, each in values.items()
        for end, column in zip(ends, model.labels(each).T, strict=True)
    }


def _curves(model: LoadedModel, outputs: NDArray[Any]) -> dict[str, Any]:
    """Return the columns of a survival."""
    curves = model.predictions(outputs)
    columns = {f"survival({time:g})": share for time, share in zip(model.horizons, curves.T, strict=True)}
    return {
        name: [f"{share:.6g}" for share in each]
        for name, each in {**columns, "risk": risk_of(curves)}.items()
    }


def _classes(
    model: LoadedModel, outputs: NDArray[Any], thresholds: NDArray[Any] | None, flags: Flags | None
) -> dict[str, Any]:
    """Return the columns of classes."""
    names, shares = model.classes_.astype(str).tolist(), probabilities(outputs)
    columns: dict[str, Any] = {"prediction": model.predictions(outputs).tolist()}
    if thresholds is not None:
        rows = sets_of(shares, thresholds)
        columns["set"] = ["; ".join(compress(names, row)) or NONE_FITS for row in rows]
    if flags is not None:
        columns["flag"] = flags.of(shares).astype(int).tolist()
    return columns | _shares(model, outputs)


def _shares(model: LoadedModel, outputs: NDArray[Any]) -> dict[str, Any]:
    """Return the columns of probabilities, of classes or of several labels."""
    names, shares = model.classes_.astype(str).tolist(), probabilities(outputs, model.about.task)
    return {f"p({name})": [f"{p:.6g}" for p in column] for name, column in zip(names, shares.T, strict=True)}
