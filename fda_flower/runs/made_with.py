"""What decides a run's numbers besides its settings: versions, the user's own code, the kind of CPU."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fda_flower.datasets import DATASETS
from fda_flower.files import file_hash, processor, version, versions
from fda_flower.models import TORCH, find_model, runtime_of, version_of
from fda_flower.models.own import LIBRARIES
from fda_flower.records.parts import CPU, VERSIONS
from fda_flower.runs.config import RunConfig

DIGITS = 12
"""How many hexadecimal digits of a file's hash stand for its version."""


def made_with(config: RunConfig) -> dict[str, Any]:
    """Return the notes of ``config.json`` on versions, with digests of other modules' files, and the CPU."""
    library = config.model.partition(":")[0]
    used = {library: version(library)} if library in LIBRARIES else version_of(runtime(config))
    return {VERSIONS: {**versions(), **used, **dict(_own_modules(config))}, CPU: processor()}


def runtime(config: RunConfig) -> str:
    """Return the package that computes features of a run's frozen network on this machine."""
    return TORCH if config.trained.what == "all" else runtime_of(config.model, config.device)


def _own_modules(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Yield the modules from elsewhere of a run's method, data set and network, each with a digest."""
    things: list[Any] = [config.entry.strategy_class, DATASETS[config.dataset].loader]
    modules = [str(getattr(thing, "func", thing).__module__) for thing in things]
    for module in (*modules, find_model(config.model).module):
        file = getattr(sys.modules.get(module), "__file__", None)
        if module.partition(".")[0] != "fda_flower" and file is not None and Path(file).is_file():
            yield module, file_hash(Path(file))[:DIGITS]
