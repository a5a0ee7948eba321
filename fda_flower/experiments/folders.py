"""Folders of runs, comparisons and experiments: what they hold."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fda_flower.errors import ConfigError, FdaError
from fda_flower.experiments.definition import ATTACK_KEYS
from fda_flower.files import read_json
from fda_flower.models.own import only_read
from fda_flower.records.folder import CONFIG, SUBMITTED, RunFolder
from fda_flower.records.record import has_ended
from fda_flower.reporting.results import RecordedRun
from fda_flower.reporting.summary import SUMMARY
from fda_flower.runs.config import RunConfig
from fda_flower.runs.methods import method_names
from fda_flower.runs.settings import SETTINGS, as_stored, command_options

DEFINITION, MARK = "experiment.toml", "experiment.json"
COMPARISON = "comparison"
"""The name of each comparison, as an experiment."""
RUNS = "runs"
"""The folder of the runs."""
AGAIN = "delete it, and run again"


def read_mark(folder: Path) -> dict[str, Any]:
    """Return a folder's experiment, settings and calls."""
    path, remedy = folder / MARK, "choose another --output"
    mark = read_json(path, remedy, experiment=str, settings=dict, calls=list | None)
    return {**mark, "calls": mark.get("calls") or []}


def kind_of(folder: Path) -> str:
    """Return whether a folder holds a run, a comparison or an experiment; else raise a `ConfigError`.

    A folder of runs alone, as earlier versions left it, counts as a comparison.
    """
    if (folder / MARK).exists():
        return "experiment"
    if (folder / CONFIG).exists():
        return "run"
    if any(folder.glob(f"*/{CONFIG}")):
        return COMPARISON
    raise ConfigError(
        f"'{folder}' holds no run, comparison or experiment: give the --output of `fda run`, `fda compare` "
        "or `fda experiment`",
        thing=str(folder),
    )


def read_runs(folder: Path) -> dict[str, RecordedRun]:
    """Return the runs in a folder by name.

    Runs outside an experiment are in the usual order of methods. They are labelled by their methods if they
    are on the same data, and the runs of a method differ in the seed alone, else by their names.
    """
    if (folder / MARK).exists():
        paths = sorted(path.parent for path in (folder / RUNS).glob(f"*/{CONFIG}"))
        return {path.name: read_run(path) for path in paths}
    several = sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))
    runs = {path.name: read_run(path) for path in ([folder] if (folder / CONFIG).exists() else several)}
    seeds = {(run.label, run.seed) for run in runs.values()}
    kinds = {(run.label, run.data, repr({**run.fingerprint, "seed": 0})) for run in runs.values()}
    labels, data = {label for label, *_ in kinds}, {each for _, each, _ in kinds}
    if len(seeds) < len(runs) or len(labels) < len(kinds) or len(data) > 1:
        runs = {name: replace(run, label=name) for name, run in runs.items()}
    order = {name: number for number, name in enumerate(method_names())}
    return dict(sorted(runs.items(), key=lambda v: order.get(str(v[1].settings.get("method")), len(order))))


def read_run(folder: Path) -> RecordedRun:
    """Return the run in a folder; a `ConfigError` names a damaged file.

    A run that has ended has the metric of its summary, which may be another than it began with.
    """
    path = folder / CONFIG
    description = read_json(path, "restore it from a copy", run=dict, settings=dict | None)
    settings = description.get("settings") or description["run"]
    history = RunFolder(folder).read_rounds(light=True)
    summary = read_json(folder / SUMMARY, AGAIN) if (folder / SUMMARY).exists() else None
    config = config_of(settings)
    rounds = _all_rounds(config, description["run"]) if config else int(description.get("rounds", 0))
    done = has_ended(history, rounds, config.patience) if config else summary is not None
    judged = (summary or {}).get("metric") if done and config else None
    changed = ["--metric", judged] if judged and config and judged != config.headline_of(history) else []
    if changed:
        settings = {**settings, "metric": judged}
        config = config_of(settings)
    return RecordedRun(
        label=config.entry.title if config else str(settings.get("method", folder.name)),
        seed=int(settings.get("seed", 0)),
        history=history,
        settings=settings,
        notes={key: value for key, value in description.items() if key not in ("settings", "run")},
        rounds=rounds,
        done=done,
        commands=[] if ATTACK_KEYS[0] in description["run"] else list(_commands(folder, config, changed)),
        fingerprint=description["run"],
        summary=summary or {},
        **({} if config is None else {"metric": config.headline_of(history)}),
    )


def _commands(folder: Path, config: RunConfig | None, changed: Sequence[str]) -> Iterator[str]:
    """Yield the commands that repeat a run, with what has changed since, continue it, and show it."""
    repeat = ["fda", "run", "--config", str(folder / CONFIG), *changed]
    if (folder / SUBMITTED).exists():
        connection = read_json(folder / SUBMITTED, AGAIN, connection=str)["connection"]
        repeat += ["--engine", "deploy", "--connection", connection]
    if config is not None:
        yield shlex.join(
            ["fda", "run", *command_options(SETTINGS, vars(config)), *repeat[4 + len(changed) :]]
        )
    yield shlex.join(repeat)
    yield shlex.join([*repeat, "--resume", "--output", str(folder)])
    yield shlex.join(["fda", "report", "--html", str(folder)])


def _all_rounds(config: RunConfig, fingerprint: Mapping[str, Any]) -> int:
    """Return the number of rounds, including the warm-up rounds that the run's strategy has noted."""
    noted = fingerprint.get("strategy")
    warmup = noted.get("warmup-rounds") if isinstance(noted, dict) else None
    if isinstance(warmup, int):
        return config.rounds + warmup
    with suppress(ConfigError):  # its strategy is of another version
        return config.all_rounds
    return config.rounds


def conclusion_of(run: RecordedRun) -> list[str]:
    """Return what the method of a run concludes from the last record."""
    config = config_of(run.settings)
    with suppress(ConfigError):  # its strategy is of another version
        return config.conclusion(run.history[-1]) if config and run.history else []
    return []


@only_read()
def config_of(settings: Mapping[str, Any]) -> RunConfig | None:
    """Return the configuration of settings; None if they are of another version or project."""
    try:
        return RunConfig.recorded(as_stored(settings))
    except (FdaError, TypeError, ValueError, KeyError):
        return None
