"""The folders that commands write to where no ``--output`` names one."""

import hashlib
import json
import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from fda_flower.datasets.registry import DATASETS
from fda_flower.errors import ConfigError
from fda_flower.files import read_json
from fda_flower.names.registry import known_name
from fda_flower.runs.settings import RunSettings

RUNS = Path("runs")
LONGEST = 40
"""The most characters of a data folder's name in a default folder's."""


def data_name(settings: Mapping[str, Any]) -> str:
    """Return a name for the data of some settings: two data sets have two names.

    It is the data set and its shift. One's own data have, in place of a shift, the name of their folder and
    six digits of a hash of its path, of the options of the data set and of the target.

    Examples
    --------
    >>> data_name({}), data_name({"dataset": "usps", "shift": "noise"}), data_name({"dataset": "table"})
    ('digits-rotate', 'usps-noise', 'table')
    >>> data_name({"dataset": "table", "data_dir": "/srv/my hospitals"})[:-6]
    'table-my_hospitals-'
    """
    name = known_name(settings.get("dataset", RunSettings.dataset), DATASETS)
    dataset, folder = DATASETS.get(name), settings.get("data_dir")
    if dataset is None or not dataset.is_own:
        shift = settings.get("shift") or (dataset.shift if dataset and dataset.domains == () else None)
        return "-".join(filter(None, (name, shift)))
    if folder is None:
        return name
    path, options = _resolved(folder), dict(settings.get("dataset_options") or {})
    identity = [
        str(path),
        sorted((key, str(value)) for key, value in options.items()),
        settings.get("target"),
    ]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:6]
    readable = re.sub(r"[^\w.-]", "_", path.stem if path.is_file() else path.name)
    return f"{name}-{readable[:LONGEST]}-{digest}"


def folder_of_run(settings: Mapping[str, Any], method: str, seed: int, resume: bool, repeats: bool) -> Path:
    """Return the folder named after a run, with a number if the run repeats another."""
    rest = f"{method.replace(':', '-')}-seed{seed}"
    earlier = "-".join(filter(None, (settings["dataset"], settings.get("shift"), rest)))
    folder = _of_now(RUNS / f"{data_name(settings)}-{rest}", RUNS / earlier, settings, resume)
    if not repeats or not folder.exists():
        return folder
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return next(path for path in numbered if not path.exists())


def folder_of(command: str, settings: Mapping[str, Any], resume: bool) -> Path:
    """Return the folder of a command's several runs: named after it and, unless by default, its data."""
    earlier, data = RUNS / command, data_name(settings)
    if data == data_name({}):
        return earlier
    return _of_now(RUNS / f"{command}-{data}", earlier, settings, resume)


def _of_now(folder: Path, earlier: Path, settings: Mapping[str, Any], resume: bool) -> Path:
    """Return the folder or, to resume what an earlier version began on the same data, the one by its name."""
    if not resume or folder.exists() or not earlier.exists():
        return folder
    return earlier if _holds(earlier, settings) else folder


def _holds(folder: Path, settings: Mapping[str, Any]) -> bool:
    """Return whether a folder holds runs on some data, or does not say on which."""
    for path in (folder / "config.json", *sorted(folder.glob("runs/*/config.json"))):
        try:
            known = read_json(path, "", settings=dict)["settings"]
        except (ConfigError, KeyError):
            continue
        before, now = known.get("data_dir"), settings.get("data_dir")
        same = before is None or now is None or _resolved(before) == _resolved(now)
        return same and known.get("dataset") == settings.get("dataset", RunSettings.dataset)
    return True


def _resolved(folder: str | Path) -> Path:
    return Path(folder).expanduser().resolve()
