"""New samples from files: rows of a CSV file, or images in a folder, each with what tells it from others."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from fda_flower.datasets import Samples
from fda_flower.datasets.folders import SUFFIXES
from fda_flower.datasets.preparation import ImagePreparation, TablePreparation
from fda_flower.errors import ConfigError
from fda_flower.prediction.model import LoadedModel, check_columns
from fda_flower.prediction.passes import Drawing, seeded


@dataclass(frozen=True)
class NewSamples:
    """Samples to predict.

    Attributes
    ----------
    samples : Samples
        Their inputs; without known labels, labels that tell nothing.
    names : dict of list
        By column, what tells the samples from others, such as their lines; in order.
    labelled : bool
        Whether the labels are known.
    left_out : tuple of str
        Files that are no images.
    drawing : callable
        Gives the random numbers of samples with noise.
    """

    samples: Samples
    names: dict[str, list[str]] = field(default_factory=dict)
    labelled: bool = False
    left_out: tuple[str, ...] = ()
    drawing: Drawing = seeded


def from_csv(model: LoadedModel, path: Path, keep: Sequence[str] = (), labelled: bool = False) -> NewSamples:
    """Return the rows of a CSV file, whose columns are found by their names.

    Parameters
    ----------
    model : LoadedModel
        For which they are.
    path : Path
        The file: a header, and a row for each sample.
    keep : sequence of str
        Columns that are no features, to be kept beside the predictions.
    labelled : bool
        Whether to read the column of the label, which is ignored otherwise.

    Raises
    ------
    ConfigError
        If the file or a value cannot be read, or columns are missing or unknown. The message names them.
    """
    preparation = model.preparation
    if not isinstance(preparation, TablePreparation):
        raise ConfigError(f"the model cannot predict the rows of '{path}': {_why_not(model, 'columns')}")
    header, rows = _read(path)
    who, label = f"the file '{path}' has", model.about.label
    if len({*header}) < len(header):
        raise ConfigError(f"{who} a column twice ({', '.join(header)}): leave one of them out")
    check_columns(who, header, preparation, (*keep, label), "leave them out, or name them with --keep")
    if missing := [name for name in (*keep, *([label] if labelled else [])) if name not in header]:
        raise ConfigError(f"{who} no column {', '.join(missing)}: it has {', '.join(header)}")
    at = {name: header.index(name) for name in header}
    columns = {
        name: [_number(path, line, name, cells[at[name]]) for cells, line in rows]
        for name in preparation.columns
    }
    names = {"line": [str(line) for _, line in rows]}
    names |= {name: [cells[at[name]] for cells, _ in rows] for name in keep}
    samples = model.samples(columns)
    if labelled:
        labels = [_label(model, path, line, cells[at[label]]) for cells, line in rows]
        samples = Samples(samples.x, _labels(model, labels))
    return NewSamples(samples, names, labelled)


def from_images(model: LoadedModel, folder: Path, labelled: bool = False) -> NewSamples:
    """Return the images in a folder and the folders in it; with labels, from a folder for each class.

    Raises
    ------
    ConfigError
        If there is no image, or with labels an image is not in the folder of a class.
    """
    if not isinstance(model.preparation, ImagePreparation):
        raise ConfigError(f"the model cannot predict the images in '{folder}': {_why_not(model, 'images')}")
    if not folder.is_dir():
        raise ConfigError(f"there is no folder '{folder}': give one with images")
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    paths = [path for path in found if path.suffix.lower() in SUFFIXES]
    others = tuple(str(path.relative_to(folder)) for path in found if path not in {*paths})
    if not paths:
        raise ConfigError(f"the folder '{folder}' has no image ({', '.join(SUFFIXES)}): give another")
    names = {"file": [str(path.relative_to(folder)) for path in paths]}
    samples = model.samples(paths)
    if labelled:
        labels = [_class(model, str(path), path.relative_to(folder).parts[0]) for path in paths]
        samples = Samples(samples.x, _labels(model, labels))
    return NewSamples(samples, names, labelled, others)


def _why_not(model: LoadedModel, what: str) -> str:
    if model.about.holder == "server":
        return (
            "it is what the server has, without the preparation of samples, which stays at the target: "
            "predict there, with the folder in the node's state-dir"
        )
    return f"its data set has no {what} with names; in Python, fda_flower.load takes arrays"


def _read(path: Path) -> tuple[list[str], list[tuple[list[str], int]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file)
            header = [cell.strip() for cell in next(lines, [])]
            rows = [([cell.strip() for cell in cells], lines.line_num) for cells in lines if cells]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"the file '{path}' cannot be read ({reason}): give a CSV file") from error
    if not rows:
        raise ConfigError(f"the file '{path}' has no rows: give a header and a row for each sample")
    for cells, line in rows:
        if len(cells) != len(header):
            raise ConfigError(f"the file '{path}' has {len(cells)} columns in line {line}, not {len(header)}")
    return header, rows


def _number(path: Path, line: int, column: str, cell: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"the file '{path}' has no number in line {line}, column '{column}': fix it")
    return number


def _label(model: LoadedModel, path: Path, line: int, cell: str) -> float:
    where = f"'{path}', line {line}, column '{model.about.label}'"
    if model.about.regression:
        return _number(path, line, model.about.label, cell)
    return _class(model, where, cell if cell in model.about.class_names else cell.removesuffix(".0"))


def _class(model: LoadedModel, where: str, name: str) -> int:
    known = model.about.class_names
    if name not in known:
        raise ConfigError(f"the label of {where} is none of the model's classes, {', '.join(known)}: fix it")
    return known.index(name)


def _labels(model: LoadedModel, labels: Sequence[float]) -> torch.Tensor:
    if model.about.regression:
        return torch.tensor(labels, dtype=torch.float32)[:, None]
    return torch.tensor(labels, dtype=torch.int64)
