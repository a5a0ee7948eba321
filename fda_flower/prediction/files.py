"""The files of a model: the model itself, and a description for people and other tools."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

from fda_flower.aggregation import Calibration, Layers
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import (
    BODY,
    DESCRIPTION,
    MODEL,
    PRIVATE,
    as_safetensors,
    checksum,
    make_private,
    write_atomically,
)
from fda_flower.models import LINEAR
from fda_flower.models.linear import HEAD
from fda_flower.names.tasks import Task
from fda_flower.prediction.predictors import Predictor

FORMAT = 1
FROZEN, CALIBRATION = "frozen", "calibration"
"""The group of arrays that all networks share, also the entry that lists these networks; and the group of the
labels' held-out scores."""
KEY = "fda-flower"
"""The key of the description in the metadata of the safetensors file."""
OPTIONAL = ("task", "mask", "train", "body", "answers")
"""Fields that descriptions of older versions lack."""
TYPES = {
    **{"network": str, "network_options": dict, "shape": list, "class_names": list},
    **{"classes": int, "round": int, "rounds": int},
}
"""JSON types of the required fields of a description."""


@dataclass(frozen=True, kw_only=True)
class About:
    """The description of a model, in JSON values.

    Attributes
    ----------
    method, domain : str
        The run's method, and the target's domain.
    network, network_options : str, Mapping
        The architecture and its options.
    answers : tuple of float
        What a network from elsewhere computes, to notice other code; see `fda_flower.models.probe`.
    shape : tuple of int
        Shape of one sample.
    classes : int
        Number of classes, or of a regression's outputs.
    holder : {"target", "server"}
        Whose model it is: the target's, or the server's part of it.
    train : str
        The trained part of the network; see `fda_flower.models.Train`.
    body : str
        The digest of the frozen backbone; empty if there is none.
    prototypes : float, optional
        Temperature of the prototype head, if there is one.
    class_names, features : tuple of str
        Names in order; empty if there are none.
    task : str
        What it predicts, a name of `fda_flower.names.tasks.TASKS`.
    mask : bool
        Whether its numbers are the pixels of a mask.
    label : str
        The column of a table that holds the label.
    dataset_options : Mapping
        The run's data set options, with which new samples are read.
    preparation : Mapping, optional
        The transform from raw samples to inputs; see `fda_flower.datasets.preparation.Preparation`.
    round, rounds : int
        The round of the model, and the rounds of its run.
    versions : Mapping[str, str]
        Versions of the packages that made it.
    """

    method: str
    domain: str
    network: str
    shape: tuple[int, ...]
    classes: int
    holder: Literal["target", "server"] = "target"
    network_options: Mapping[str, Any] = field(default_factory=dict)
    answers: tuple[float, ...] = ()
    train: str = "all"
    body: str = ""
    prototypes: float | None = None
    class_names: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    task: Task = "classes"
    mask: bool = False
    label: str = ""
    dataset_options: Mapping[str, Any] = field(default_factory=dict)
    preparation: Mapping[str, Any] | None = None
    round: int = 0
    rounds: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether the model is from the last round."""
        return self.round >= self.rounds

    def to_json(self) -> dict[str, Any]:
        """Return the description as a file has it: ``regression``, and other tasks by their name."""
        fields = {name.replace("_", "-"): value for name, value in asdict(self).items()}
        task, mask = fields.pop("task"), fields.pop("mask")
        named = {} if task in ("classes", "regression") else {"task": task}
        named |= {"mask": True} if mask else {}
        return {**fields, "regression": task == "regression", **named}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "About":
        """Read the description from a file's JSON."""
        fields: dict[str, Any] = {
            name: content[key]
            for name in cls.__dataclass_fields__
            if (key := name.replace("_", "-")) in content or name not in OPTIONAL
        }
        if content.get("regression"):
            fields["task"] = "regression"
        lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        for name, kind in TYPES.items():
            if not isinstance(fields[name], kind):
                raise TypeError(f"its {name} is {fields[name]!r}")
        return cls(**{**fields, **lists})


def write_model(
    folder: Path,
    about: About,
    predictor: Predictor,
    frozen: Layers | None = None,
    body: Layers | None = None,
    private: bool = False,
    calibration: Calibration | None = None,
) -> None:
    """Write ``model.safetensors``, which holds the predictor and its description, and ``model.json``.

    `frozen` holds the arrays that the predictor's networks share, which are stored once. `body` holds the
    frozen backbone, which is written once, to ``body.safetensors``. Each file is written whole or not at all;
    the same model has the same bytes. Files of a `private` model, which may hold a site's data, are readable
    by this account only. With a `calibration` the model can predict sets. Raise a `RunError` if the files
    cannot be written.
    """
    parts = predictor.parts
    groups = {**parts.networks, **parts.others}
    shared = {FROZEN: list(parts.networks)} if frozen else {}
    groups |= {FROZEN: frozen} if frozen else {}
    groups |= {CALIBRATION: calibration.to_arrays()} if calibration else {}
    arrays = {f"{group}|{name}": array for group, layers in groups.items() for name, array in layers.items()}
    description = {
        "format": FORMAT,
        **about.to_json(),
        "predictor": {
            "kind": predictor.kind,
            **parts.settings,
            **shared,
            # Safetensors sorts arrays by name.
            "groups": {group: list(layers) for group, layers in groups.items()},
        },
    }
    description = json.loads(json.dumps(description))
    description["sha256"] = checksum(description, arrays)
    try:
        make_private(folder) if private else folder.mkdir(parents=True, exist_ok=True)
        mode = PRIVATE if private else None
        if body and not (folder / BODY).exists():
            write_atomically(folder / BODY, as_safetensors(body), mode)
        write_atomically(folder / MODEL, as_safetensors(arrays, {KEY: json.dumps(description)}), mode)
        write_atomically(folder / DESCRIPTION, (json.dumps(description, indent=2) + "\n").encode(), mode)
    except OSError as error:
        raise RunError(
            f"the model cannot be written to '{folder}' ({error}): make room, or make the folder writable",
            thing="folder",
            value=folder,
        ) from error


def read_model(folder: Path) -> tuple[About, Predictor, Calibration | None]:
    """Return the model in a folder, with its labels' held-out scores if it has any.

    Raise a `ConfigError` if there is none, or it is from a newer version, and a `RunError` if it is damaged.
    """
    path = folder / MODEL
    if not path.exists():
        raise ConfigError(_why_none(folder), thing="folder", value=folder)
    try:
        with safe_open(path, framework="numpy") as file:
            description = json.loads((file.metadata() or {})[KEY])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if int(description["format"]) > FORMAT:
            made = description["versions"]["fda-flower"]
            raise ConfigError(
                f"the model '{path}' has the format {description['format']}, which is newer than this "
                f"version knows ({FORMAT}): install fda-flower {made} or later",
                thing="model",
                value=path,
            )
        if checksum(description, arrays) != description["sha256"]:
            raise ValueError("its checksum does not match")
        settings = dict(description["predictor"])
        kind, named = settings.pop("kind"), settings.pop("groups")
        groups: dict[str, Layers] = {
            group: {name: arrays[f"{group}|{name}"] for name in names} for group, names in named.items()
        }
        for group in settings.pop(FROZEN, ()):
            groups[group] = {**groups[FROZEN], **groups[group]}
        scores = groups.pop(CALIBRATION, None)
        calibration = None if scores is None else Calibration.from_arrays(scores)
        about = About.from_json(description)
        return about, Predictor.of_kind(kind, _of_rows(about, groups), settings), calibration
    except ConfigError:
        raise
    except Exception as error:  # A description may hold anything.
        raise RunError(
            f"the model '{path}' is damaged ({error}): restore it from a copy, or run again",
            thing="model",
            value=path,
        ) from error


def _of_rows(about: About, groups: dict[str, Layers]) -> dict[str, Layers]:
    """Return the arrays of a linear layer on a table's columns for rows, which are the columns over ``√d``.

    An earlier version, whose preparations had no `farthest`, fitted it to the columns themselves.
    """
    bare = about.network == LINEAR and about.train == "linear" and len(about.shape) == 1
    if not bare or about.preparation is None or "farthest" in about.preparation:
        return groups
    name, scale = HEAD[0], np.float32(about.shape[0] ** 0.5)
    return {
        group: {**layers, name: layers[name] * scale} if name in layers else layers
        for group, layers in groups.items()
    }


def read_body(folder: Path, digest: str) -> Layers:
    """Return the arrays of the frozen backbone of the model in a folder.

    Raise a `RunError` if they are missing, damaged, or not the ones of the model's training.
    """
    path, remedy = folder / BODY, "restore it from a copy, or run again"
    try:
        arrays: Layers = load_file(path)
    except Exception as error:
        message = f"the model's body '{path}' cannot be read ({error})"
        raise RunError(message, thing="body", value=path, remedy=remedy) from error
    if checksum({}, arrays) != digest:
        message = f"'{path}' is not the body that the model was trained with"
        raise RunError(message, thing="body", value=path, remedy=remedy)
    return arrays


def _why_none(folder: Path) -> str:
    if not folder.is_dir():
        return f"there is no folder '{folder}': give the folder of a run"
    if sites := sorted(path.parent.name for path in folder.glob(f"clients/*/{MODEL}")):
        return f"in the run in '{folder}' each site has a model: give one of clients/: {', '.join(sites)}"
    if any((folder / name).exists() for name in ("checkpoint", "rounds.jsonl")):
        return (
            f"the run in '{folder}' has no model ({MODEL}): no round has evaluated the target's model, which "
            "Mixture makes in the last round; add --resume and more rounds. The models of a deployed run are "
            "on the server and at the target's node"
        )
    if inside := sorted(path.parent.name for path in folder.glob(f"*/{MODEL}")):
        return f"'{folder}' holds no model ({MODEL}): give one of the folders in it: {', '.join(inside)}"
    return f"'{folder}' holds no model ({MODEL}): give the folder of a run, or at a site the node's own"
