"""Run the cells of an experiment that are not done yet."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fda_flower.errors import ConfigError, unknown
from fda_flower.experiments.cell import Cell, Progress, run_cells
from fda_flower.experiments.cell_files import is_done
from fda_flower.experiments.definition import Experiment
from fda_flower.experiments.folder import RESULTS, RUNS, check_free, claim
from fda_flower.files import only_writer
from fda_flower.reporting.results import Place
from fda_flower.trackers import check_trackers


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
    track: Sequence[str] = (),
    on_progress: Callable[[Progress], None] | None = None,
) -> dict[str, str]:
    """Run the cells that are not done yet, each in its own process.

    Parameters
    ----------
    experiment : Experiment
        From `read_experiment`.
    output : str or Path
        The folder of its results; cells that are done are kept, and the others continue.
    only : collection of str
        Labels of the rows, columns and groups to run. Default: all.
    seeds, rounds : optional
        Replace the experiment's.
    settings : Mapping, optional
        Fields of `RunConfig` that replace the experiment's, for a cut-down run.
    machine : Mapping, optional
        ``data_dir``, ``device`` and ``threads``.
    jobs : int
        Cells to run at a time.
    track : sequence of str
        Trackers of each run, as in `fda_flower.run`; local stores are in `output`.
    on_progress : callable, optional
        Called a few times a second.

    Returns
    -------
    dict[str, str]
        The reason for each failure, by the name of the cell.

    Raises
    ------
    ConfigError
        If a setting is invalid, before anything is trained.
    """
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}, it must be at least 1")
    check_trackers(track)
    folder = Path(output).absolute()
    changed = dict(settings or {})
    overrides = {**changed, **(machine or {}), **({} if rounds is None else {"rounds": rounds})}
    folders = folder / RUNS, folder / RESULTS
    cells = [
        Cell(place, config, *folders, track=track, track_in=folder, attack=experiment.attack(place, config))
        for seed in (experiment.seeds if seeds is None else seeds)
        for place in chosen_places(experiment, only)
        for config in [experiment.config(place, seed, overrides)]
    ]
    call = {"only": list(only), "seeds": None if seeds is None else list(seeds), "rounds": rounds}
    mark = {"experiment": experiment.name, "settings": json.loads(json.dumps(changed)), "calls": [call]}
    with only_writer(folder):
        check_free(folder, mark)
        todo = [
            cell for cell in cells if not (cell.result and is_done(cell.result, cell.config, cell.attack))
        ]
        claim(experiment, folder, mark)
        return run_cells(todo, jobs, on_progress, len(cells) - len(todo))


def chosen_places(experiment: Experiment, only: Collection[str]) -> list[Place]:
    """Return the places of cells with these labels of rows, columns and groups; all without labels.

    Raises
    ------
    ConfigError
        If there is no such label.
    """
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
