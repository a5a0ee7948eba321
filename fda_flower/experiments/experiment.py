"""Run an experiment's cells and collect what they came to."""

import json
import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fda_flower.config import RunConfig
from fda_flower.errors import ConfigError, RunError, unknown
from fda_flower.experiments.definition import Experiment, file_name, read_experiment
from fda_flower.experiments.processes import State, run_all
from fda_flower.experiments.run import run_config
from fda_flower.reporting import summarise
from fda_flower.reporting.results import CellResult, Place, Results
from fda_flower.server_app import versions
from fda_flower.strategies.run_folder import write_atomically

DEFINITION, MARK = "experiment.toml", "experiment.json"
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
    def identity(self) -> dict[str, Any]:
        """What makes two cells the same, as JSON."""
        identity: dict[str, Any] = json.loads(json.dumps(self.config.identity()))
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
        if found["config"] != self.identity:
            theirs, ours = found["config"], self.identity
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


@dataclass(frozen=True)
class Progress:
    """How far an experiment is."""

    cells: int
    done: int
    running: Sequence[str]
    failed: int
    rounds: int
    rounds_done: int


def run_experiment(
    experiment: Experiment,
    output: str | Path,
    *,
    only: Collection[str] = (),
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
    settings: Mapping[str, Any] | None = None,
    machine: Mapping[str, Any] | None = None,
    jobs: int = 1,
    tensorboard: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> dict[str, str]:
    """Run the cells that are not done yet, each in a process of its own.

    Parameters
    ----------
    experiment : Experiment
        From `read_experiment`.
    output : str or Path
        The folder of its results; what it holds of the experiment is kept and gone on with.
    only : collection of str
        Labels of rows, columns and groups; the cells of the others are left out.
    seeds, rounds : optional
        In place of the experiment's.
    settings : Mapping, optional
        Fields of `RunConfig` in place of the experiment's, for a cut-down run.
    machine : Mapping, optional
        ``data_dir``, ``device`` and ``threads``.
    jobs : int
        Cells at a time.
    tensorboard : bool
        Write TensorBoard's files into each run's folder.
    on_progress : callable, optional
        Called a few times a second.

    Returns
    -------
    dict[str, str]
        Why it failed, by the name of the cell.

    Raises
    ------
    ConfigError
        If something cannot work, before anything is trained.
    """
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}, it must be at least 1")
    folder = Path(output).absolute()
    changed = dict(settings or {})
    overrides = {**changed, **(machine or {}), **({} if rounds is None else {"rounds": rounds})}
    cells = [
        Cell(place, experiment.config(place, seed, overrides), folder, tensorboard)
        for seed in (experiment.seeds if seeds is None else seeds)
        for place in _chosen(experiment, only)
    ]
    mark = {"experiment": experiment.name, "settings": json.loads(json.dumps(changed))}
    _check_free(folder, mark)
    todo = {cell.name: cell for cell in cells if not cell.is_done()}
    _claim(experiment, folder, mark)

    def on_poll(state: State) -> None:
        if on_progress is not None:
            finished = len(cells) - len(todo) + state.done
            left = [cell for cell in todo.values() if cell.name not in state.failures]
            total = sum(cell.config.all_rounds for cell in left)
            done = sum(min(cell.rounds_done(), cell.config.all_rounds) for cell in left)
            on_progress(Progress(len(cells), finished, state.running, len(state.failures), total, done))

    return run_all(_run_cell, todo, jobs, on_poll)


def load_results(folder: str | Path) -> Results:
    """What an experiment's folder holds so far.

    Raises
    ------
    ConfigError
        If it is not the folder of an experiment, or a result is damaged.
    """
    folder = Path(folder)
    mark = _read_mark(folder)
    if mark is None:
        raise ConfigError(
            f"'{folder}' holds no results of an experiment: name the --output of `fda experiment`"
        )
    experiment = read_experiment(folder / DEFINITION)
    cells, rounds, wanted = [], set(), set()
    for path in sorted((folder / "cells").glob("*.json")):
        found = read_cell(path)
        place: Place = (found["group"], found["row"], found["column"])
        if place in experiment.places:
            cells.append(CellResult(place, found["seed"], found["history"], found["parameters"]))
            rounds.add(found["rounds"])
            wanted.add(experiment.config(place, found["seed"], {}).rounds)
    asked = max(wanted, default=0)
    return Results(
        name=mark["experiment"],
        title=experiment.title,
        source=experiment.source,
        note=experiment.note,
        axis=experiment.axis,
        rows=[row.label for row in experiment.rows],
        columns=[column.label for column in experiment.columns],
        cells=cells,
        rounds=max(rounds, default=0),
        groups=[group.label for group in experiment.groups],
        group_axis=experiment.group_axis,
        values={c.label: c.value for c in experiment.columns if c.value is not None},
        group_values={g.label: g.value for g in experiment.groups if g.value is not None},
        paper=experiment.paper,
        figures=experiment.figures,
        average=experiment.average,
        cuts=[*_cuts(experiment, cells, rounds, asked), *_changes(mark["settings"])],
    )


def read_cell(path: Path) -> dict[str, Any]:
    """A cell's result; a `ConfigError` if it is damaged."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if missing := NEEDED - found.keys():
            raise ValueError(f"it has no '{min(missing)}'")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"the result '{path}' is damaged ({error}): delete it, and run again") from error
    return found


def _cuts(
    experiment: Experiment, cells: Sequence[CellResult], rounds: Collection[int], asked: int
) -> list[str]:
    cuts = []
    if rounds and min(rounds) < asked:
        shown = " to ".join(str(n) for n in sorted({min(rounds), max(rounds)}))
        cuts.append(f"{shown} {'round' if shown == '1' else 'rounds'} instead of {asked}")
    places = len(experiment.places)
    run = len({cell.place for cell in cells})
    if run < places:
        cuts.append(f"{run} of {places} cells")
    if len(cells) < run * len(experiment.seeds):
        cuts.append(f"{len(cells)} of {run * len(experiment.seeds)} runs over {len(experiment.seeds)} seeds")
    return cuts


def _changes(settings: Mapping[str, Any]) -> list[str]:
    return [f"{key.replace('_', '-')} is {value}" for key, value in settings.items()]


def _chosen(experiment: Experiment, only: Collection[str]) -> list[Place]:
    kinds = [
        {entry.label for entry in entries if entry.label}
        for entries in (experiment.groups, experiment.rows, experiment.columns)
    ]
    for label in only:
        if not any(label in kind for kind in kinds):
            raise unknown("row, column or group", label, [name for kind in kinds for name in kind])
    wanted = [kind & set(only) for kind in kinds]
    return [
        place
        for place in experiment.places
        if all(not names or label in names for names, label in zip(wanted, place, strict=True))
    ]


def _check_free(folder: Path, mark: Mapping[str, Any]) -> None:
    """Raise a `ConfigError` if the folder is of another experiment, or of this with other settings."""
    found = _read_mark(folder)
    if found is not None and found != mark:
        raise ConfigError(
            f"'{folder}' holds the experiment '{found['experiment']}' with the settings {found['settings']}, "
            f"not '{mark['experiment']}' with {mark['settings']}: choose another --output"
        )


def _read_mark(folder: Path) -> dict[str, Any] | None:
    """What experiment a folder is of, if any."""
    path = folder / MARK
    try:
        if not path.exists():
            return None
        mark: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {"experiment": mark["experiment"], "settings": dict(mark["settings"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"'{path}' cannot be read ({error!r}): choose another --output") from error


def _claim(experiment: Experiment, folder: Path, mark: Mapping[str, Any]) -> None:
    try:
        for name in ("cells", "runs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        write_atomically(folder / DEFINITION, experiment.text.encode())
        write_atomically(folder / MARK, (json.dumps(mark, indent=2) + "\n").encode())
    except OSError as error:
        raise ConfigError(f"cannot use the output folder '{folder}': {error}") from error


def _run_cell(cell: Cell) -> None:
    on_round = None
    if cell.tensorboard:
        from fda_flower.reporting.tensorboard import tensorboard_writer

        on_round = tensorboard_writer(cell.run_folder)
    result = run_config(cell.config, output=cell.run_folder, resume=True, on_round=on_round)
    group, row, column = cell.place
    found = {
        **{"group": group, "row": row, "column": column, "seed": cell.config.seed},
        "rounds": cell.config.rounds,
        "config": cell.identity,
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
