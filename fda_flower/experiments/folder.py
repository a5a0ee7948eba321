"""The folder of an experiment's results: which experiment it belongs to, and what it holds."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fda_flower.errors import ConfigError
from fda_flower.experiments.cell_files import REFUSED, read_cell
from fda_flower.experiments.definition import Experiment, read_experiment
from fda_flower.files import write_atomically
from fda_flower.models.own import only_read
from fda_flower.reporting.results import CellResult, Place, Results
from fda_flower.reporting.summary import AVERAGE
from fda_flower.selection import has_stopped

DEFINITION, MARK = "experiment.toml", "experiment.json"
RESULTS, RUNS = "cells", "runs"


def check_free(folder: Path, mark: Mapping[str, Any]) -> None:
    """Raise a `ConfigError` if the folder belongs to another experiment or the same with other settings."""
    found = _read_mark(folder)
    if found is not None and {**found, "calls": []} != {**mark, "calls": []}:
        raise ConfigError(
            f"'{folder}' holds the experiment '{found['experiment']}' with the settings {found['settings']}, "
            f"not '{mark['experiment']}' with {mark['settings']}: choose another --output"
        )


def _read_mark(folder: Path) -> dict[str, Any] | None:
    """Return the experiment and settings that a folder belongs to, if any, and how it was called."""
    path = folder / MARK
    try:
        if not path.exists():
            return None
        mark: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {
            "experiment": mark["experiment"],
            "settings": dict(mark["settings"]),
            "calls": list(mark.get("calls", ())),
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"'{path}' cannot be read ({error!r}): choose another --output") from error


def claim(experiment: Experiment, folder: Path, mark: Mapping[str, Any]) -> None:
    """Mark the folder as this experiment's, and note how it is called, each way once."""
    calls = [] if (found := _read_mark(folder)) is None else found["calls"]
    calls += [call for call in mark["calls"] if call not in calls]
    try:
        for name in (RESULTS, RUNS):
            (folder / name).mkdir(parents=True, exist_ok=True)
        write_atomically(folder / DEFINITION, experiment.text.encode())
        write_atomically(folder / MARK, (json.dumps({**mark, "calls": calls}, indent=2) + "\n").encode())
    except OSError as error:
        raise ConfigError(f"cannot use the output folder '{folder}': {error}") from error


@only_read()
def load_results(folder: str | Path) -> Results:
    """Return the results that an experiment's folder holds so far.

    Raises
    ------
    ConfigError
        If the folder is not an experiment's, or a result is damaged.
    """
    folder = Path(folder)
    mark = _read_mark(folder)
    if mark is None:
        raise ConfigError(
            f"'{folder}' holds no results of an experiment: give the --output of `fda experiment`"
        )
    experiment = read_experiment(folder / DEFINITION)
    configs = {place: experiment.config(place, 0, mark["settings"]) for place in experiment.places}
    asked = {place: experiment.config(place, 0, {}).rounds for place in configs}
    endings = {row.label: {"model": "", "average": AVERAGE}[row.headline] for row in experiment.rows}
    cells, rounds, short, stopped = [], [], [], []
    refused: dict[Place, str] = {}
    for path in sorted((folder / RESULTS).glob("*.json")):
        found = read_cell(path)
        place: Place = (found["group"], found["row"], found["column"])
        if place in configs and REFUSED in found.get("summary", {}):
            refused[place] = found["summary"][REFUSED]
        elif place in configs:
            epochs = found.get("summary", {}).get("epochs", {})
            history, parameters = found["history"], found["parameters"]
            judged_by = configs[place].headline, endings[place[1]]
            cells.append(CellResult(place, found["seed"], history, parameters, epochs, *judged_by))
            rounds.append(found["rounds"])
            if found["rounds"] < asked[place]:
                short.append((found["rounds"], asked[place]))
            if len(history) < found["rounds"] and has_stopped(history, configs[place].patience):
                stopped.append(len(history))
    labels = [group.label for group in experiment.groups]
    begun = {place[0] for place in (*(cell.place for cell in cells), *refused)}
    groups = [label for label in labels if label in begun] or labels
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
        groups=groups,
        group_axis=experiment.group_axis,
        values={c.label: c.value for c in experiment.columns if c.value is not None},
        group_values={g.label: g.value for g in experiment.groups if g.value is not None},
        paper=experiment.paper,
        figures=experiment.figures,
        average=experiment.average,
        cuts=[
            *_cuts(experiment, cells, short, len(refused)),
            *(f"no runs of '{label}'" for label in labels if label not in groups),
            *_early(stopped),
            *(f"{key.replace('_', '-')} is {value}" for key, value in mark["settings"].items()),
        ],
        report=experiment.report,
        rivals=experiment.rivals,
        ensembles={place[1] for place, config in configs.items() if config.entry.ensemble},
        centralised={place[1] for place, config in configs.items() if config.entry.centralised},
        data=list(dict.fromkeys(config.dataset for config in configs.values())),
        refused=refused,
        metrics={(group, column): config.headline for (group, _, column), config in configs.items()},
    )


def _early(stopped: Collection[int]) -> list[str]:
    """Describe how many runs their patience has ended; `stopped` has the rounds of each."""
    if not stopped:
        return []
    return [f"ended by their patience: runs {len(stopped)}, rounds {min(stopped)} to {max(stopped)}"]


def _cuts(
    experiment: Experiment, cells: Sequence[CellResult], short: Collection[tuple[int, int]], refused: int
) -> list[str]:
    """Describe what is missing; `short` has the rounds run and asked for, of each cell with too few.

    So many places as are `refused` are not missing.
    """
    cuts = []
    if short:
        run, asked = (sorted(set(numbers)) for numbers in zip(*short, strict=True))
        shown = " to ".join(map(str, sorted({run[0], run[-1]})))
        cuts.append(f"{shown} {'round' if shown == '1' else 'rounds'} instead of {asked[-1]}")
    places, seeds = len({cell.place for cell in cells}), len(experiment.seeds)
    if places + refused < len(experiment.places):
        cuts.append(f"{places + refused} of {len(experiment.places)} cells")
    if len(cells) < places * seeds:
        cuts.append(f"{len(cells)} of {places * seeds} runs over {seeds} seeds")
    return cuts
