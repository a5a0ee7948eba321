"""A cell of an experiment: one run, and its result in a file."""

import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fda_flower.config import RunConfig
from fda_flower.errors import ConfigError, RunError
from fda_flower.experiments.definition import file_name
from fda_flower.experiments.run import run_config
from fda_flower.files import write_atomically
from fda_flower.reporting import summarise
from fda_flower.reporting.results import Place
from fda_flower.server_app import versions

NEEDED = {"config", "history", "group", "row", "column", "seed", "rounds", "parameters"}
"""Keys of a cell's result that are read."""


@dataclass(frozen=True)
class Cell:
    """One run of an experiment, with where it is written to."""

    place: Place
    config: RunConfig
    folder: Path
    tensorboard: bool = False

    @property
    def name(self) -> str:
        """Its name in messages and of its files."""
        return f"{file_name(self.place)}-seed{self.config.seed}"

    @property
    def run_folder(self) -> Path:
        """Where the run is kept, round by round."""
        return self.folder / "runs" / self.name

    @property
    def path(self) -> Path:
        """Its result: configuration, records, timing and versions, written when it is done."""
        return self.folder / "cells" / f"{self.name}.json"

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What makes two cells the same, as JSON."""
        identity: dict[str, Any] = json.loads(json.dumps(self.config.fingerprint()))
        return identity

    def is_done(self) -> bool:
        """Whether its result is there, with as many rounds.

        Raises
        ------
        ConfigError
            If the result is of another configuration.
        """
        if not self.path.exists():
            return False
        found = read_cell(self.path)
        if found["config"] != self.fingerprint:
            theirs, ours = found["config"], self.fingerprint
            keys = sorted(key for key in {*theirs, *ours} if theirs.get(key) != ours.get(key))
            differences = ", ".join(f"{k}: {theirs.get(k)!r} there, {ours.get(k)!r} asked for" for k in keys)
            raise ConfigError(
                f"'{self.path}' is of another configuration ({differences}): choose another --output"
            )
        return len(found["history"]) >= self.config.all_rounds

    def rounds_done(self) -> int:
        """Rounds written so far."""
        path = self.run_folder / "rounds.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0


def run_cell(cell: Cell) -> None:
    """Run it, from where it was left, and write its result."""
    on_round = None
    if cell.tensorboard:
        from fda_flower.reporting.tensorboard import tensorboard_writer

        on_round = tensorboard_writer(cell.run_folder)
    result = run_config(cell.config, output=cell.run_folder, resume=True, on_round=on_round)
    group, row, column = cell.place
    found = {
        **{"group": group, "row": row, "column": column, "seed": cell.config.seed},
        "rounds": cell.config.rounds,
        "config": cell.fingerprint,
        "summary": summarise(result.history),
        "parameters": sum(a.size for a in result.model.values() if np.issubdtype(a.dtype, np.floating)),
        "versions": versions(),
        "machine": platform.machine(),
        "history": result.history,
    }
    try:
        write_atomically(cell.path, (json.dumps(found) + "\n").encode())
    except OSError as error:
        raise RunError(
            f"the result '{cell.path}' cannot be written ({error}): make room, and run again"
        ) from error


def read_cell(path: Path) -> dict[str, Any]:
    """A cell's result; a `ConfigError` if it is damaged."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if missing := NEEDED - found.keys():
            raise ValueError(f"it has no '{min(missing)}'")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"the result '{path}' is damaged ({error}): delete it, and run again") from error
    return found
