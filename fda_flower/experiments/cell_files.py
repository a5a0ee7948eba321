"""The results of an experiment's cells: a JSON file for each."""

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np

from fda_flower.config import RunConfig
from fda_flower.errors import ConfigError, RunError
from fda_flower.experiments.attacks import Attack
from fda_flower.experiments.run import RunResult
from fda_flower.files import write_atomically
from fda_flower.reporting.results import Place
from fda_flower.selection import has_ended
from fda_flower.versions import versions

NEEDED = {"config", "history", "group", "row", "column", "seed", "rounds", "parameters"}
"""Keys that a cell's result must have."""
REFUSED = "refused"
"""The entry of its summary that says why the method refuses the federation."""


def write_cell(path: Path, place: Place, result: RunResult, attack: Attack | None = None) -> None:
    """Write a cell's configuration, records, timing and versions."""
    group, row, column = place
    found = {
        **{"group": group, "row": row, "column": column, "seed": result.config.seed},
        "rounds": result.config.rounds,
        "config": _fingerprint(result.config, attack),
        "summary": result.summary,
        "parameters": sum(a.size for a in result.model.values() if np.issubdtype(a.dtype, np.floating)),
        "versions": versions(),
        "machine": platform.machine(),
        "history": result.history,
    }
    try:
        write_atomically(path, (json.dumps(found) + "\n").encode())
    except OSError as error:
        raise RunError(
            f"the result '{path}' cannot be written ({error}): make room, and run again"
        ) from error


def read_cell(path: Path) -> dict[str, Any]:
    """Read a cell's result; raise a `ConfigError` if it is damaged."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if missing := NEEDED - found.keys():
            raise ValueError(f"it has no '{min(missing)}'")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"the result '{path}' is damaged ({error}): delete it, and run again") from error
    return found


def is_done(path: Path, config: RunConfig, attack: Attack | None = None) -> bool:
    """Return whether a cell's run has ended, by its rounds or its patience, or has been refused.

    Raise a `ConfigError` if the result is from another run.

    A setting that is younger than the result had its default.
    """
    if not path.exists():
        return False
    found, ours = read_cell(path), _fingerprint(config, attack)
    theirs = {**_fingerprint(RunConfig()), **found["config"]}
    if theirs != ours:
        keys = sorted(key for key in {*theirs, *ours} if theirs.get(key) != ours.get(key))
        differences = ", ".join(f"{k}: {theirs.get(k)!r} there, {ours.get(k)!r} asked for" for k in keys)
        raise ConfigError(f"'{path}' is from another configuration ({differences}): choose another --output")
    if REFUSED in found.get("summary", {}):
        return True
    return has_ended(found["history"], config.all_rounds, config.patience)


def _fingerprint(config: RunConfig, attack: Attack | None = None) -> dict[str, Any]:
    of_attack = {} if attack is None else attack.settings()
    fingerprint: dict[str, Any] = json.loads(json.dumps(config.fingerprint() | of_attack))
    return fingerprint
