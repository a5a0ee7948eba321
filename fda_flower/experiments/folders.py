"""Folders of runs, comparisons and experiments: what they hold."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from fda_flower.runs.methods import find_method, method_names
from fda_flower.runs.settings import AUTO, SETTINGS, as_stored, command_options

DEFINITION, MARK = "experiment.toml", "experiment.json"
RUNS = "runs"
"""The folder of the runs."""
AGAIN = "delete it, and run again"
NOT_SHARED = ("method", "method_options", "seed", "variant", "beta")
"""Settings that the runs of a comparison need not share."""


def read_mark(folder: Path) -> dict[str, Any]:
    """Return a folder's experiment, settings and calls."""
    path, remedy = folder / MARK, "choose another --output"
    mark = read_json(path, remedy, experiment=str, settings=dict, calls=list | None)
    return {**mark, "calls": mark.get("calls") or []}


def kind_of(folder: Path) -> str:
    """Return whether a folder holds a run, a comparison or an experiment; else raise a `ConfigError`.

    Any folder of runs counts as a comparison.
    """
    if (folder / MARK).exists():
        return "experiment"
    if (folder / CONFIG).exists():
        return "run"
    if any(folder.glob(f"*/{CONFIG}")):
        return "comparison"
    raise ConfigError(
        f"'{folder}' holds no run, comparison or experiment: give the --output of `fda run`, `fda compare` "
        "or `fda experiment`",
        thing=str(folder),
    )


def read_runs(folder: Path, failed: Collection[str] = ()) -> dict[str, RecordedRun]:
    """Return the runs in a folder by name.

    Runs outside an experiment are in the usual order of methods, and labelled by their names if federations
    differ, or a method and seed occur twice. Runs in `failed` are not read.
    """
    if (folder / MARK).exists():
        paths = sorted(path.parent for path in (folder / RUNS).glob(f"*/{CONFIG}"))
        return {path.name: read_run(path) for path in paths}
    several = sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))
    paths = [folder] if (folder / CONFIG).exists() else several
    runs = {path.name: read_run(path) for path in paths if path.name not in failed}
    if not _is_comparison(runs.values()):
        runs = {name: replace(run, label=name) for name, run in runs.items()}
    order = {name: number for number, name in enumerate(method_names())}
    return dict(sorted(runs.items(), key=lambda v: order.get(str(v[1].settings.get("method")), len(order))))


def _is_comparison(runs: Collection[RecordedRun]) -> bool:
    """Return whether runs differ only in method and seed, and in what follows from the method."""
    if len({(run.label, run.seed) for run in runs}) < len(runs):
        return False
    shared = [{k: v for k, v in run.settings.items() if k not in NOT_SHARED} for run in runs]
    return all(each == shared[0] for each in shared) or shared_settings(runs) is not None


def shared_settings(runs: Collection[RecordedRun]) -> dict[str, Any] | None:
    """Return the settings with which a comparison of the runs' methods repeats them, if there are any."""
    configs = [config for run in runs if (config := config_of(run.settings)) is not None]
    return settings_of_comparison(configs) if 0 < len(configs) == len(runs) else None


def settings_of_comparison(configs: Sequence[RunConfig]) -> dict[str, Any] | None:
    """Return the settings of the comparison whose cells are these runs; None if there is none.

    A method's own number of rounds, and the network that fits, are not settings. Runs of fewer rounds than
    others are to be continued.
    """
    of_rounds = [config for config in configs if config.entry.rounds is None]
    usual = max(of_rounds, key=lambda config: config.rounds, default=None)
    shared: dict[str, Any] = {
        each.name: getattr(usual or configs[0], each.name)
        for each in SETTINGS
        if each.name not in ("method", "seed")
    }
    shared |= {} if usual else {"rounds": RunConfig.rounds}
    shared |= {"model": AUTO} if all(config.model == config.fitting_model for config in configs) else {}
    shared["beta"] = next((config.beta for config in configs if config.beta is not None), None)
    options: dict[str, Any] = {}
    for config in configs:
        options |= dict(config.method_options)
    shared["method_options"] = tuple(options.items())
    methods = [config.method for config in configs]
    for config in configs:
        with suppress(ConfigError):
            made = _config(config.method, config.seed, methods, shared)
            if made.fingerprint() == config.fingerprint():
                continue
        return None
    return shared


def read_run(folder: Path) -> RecordedRun:
    """Return the run in a folder; a `ConfigError` names a damaged file."""
    path = folder / CONFIG
    description = read_json(path, "restore it from a copy", run=dict, settings=dict | None)
    settings = description.get("settings") or description["run"]
    history = RunFolder(folder).read_rounds(light=True)
    summary = read_json(folder / SUMMARY, AGAIN) if (folder / SUMMARY).exists() else None
    config = config_of(settings)
    rounds = config.all_rounds if config else int(description.get("rounds", 0))
    return RecordedRun(
        label=config.entry.title if config else str(settings.get("method", folder.name)),
        seed=int(settings.get("seed", 0)),
        history=history,
        settings=settings,
        notes={key: value for key, value in description.items() if key not in ("settings", "run")},
        rounds=rounds,
        done=has_ended(history, rounds, config.patience) if config else summary is not None,
        commands=[] if ATTACK_KEYS[0] in description["run"] else list(_commands(folder, config)),
        fingerprint=description["run"],
        summary=summary or {},
        **({} if config is None else {"metric": config.headline}),
    )


def _commands(folder: Path, config: RunConfig | None) -> Iterator[str]:
    """Yield the commands that repeat a run, continue it, and show it."""
    repeat = ["fda", "run", "--config", str(folder / CONFIG)]
    if (folder / SUBMITTED).exists():
        connection = read_json(folder / SUBMITTED, AGAIN, connection=str)["connection"]
        repeat += ["--engine", "deploy", "--connection", connection]
    if config is not None:
        yield shlex.join(["fda", "run", *command_options(SETTINGS, vars(config)), *repeat[4:]])
    yield shlex.join(repeat)
    yield shlex.join([*repeat, "--resume", "--output", str(folder)])
    yield shlex.join(["fda", "report", "--html", str(folder)])


@only_read()
def config_of(settings: Mapping[str, Any]) -> RunConfig | None:
    """Return the configuration of settings; None if they are of another version or project."""
    try:
        return RunConfig(**as_stored(settings))
    except (FdaError, TypeError, ValueError, KeyError):
        return None


def _config(method: str, seed: int, methods: Sequence[str], settings: Mapping[str, Any]) -> RunConfig:
    """Return one cell's configuration: the shared settings without those of other methods."""

    def applies(option: str) -> bool:
        takers = [name for name in methods if find_method(name).takes(option)]
        return method in takers or not takers

    options = dict(settings.get("method_options", ()))
    own = {name: value for name, value in options.items() if applies(name)}
    shared = {name: value for name, value in settings.items() if name != "beta" or applies("beta")}
    return RunConfig.read({**shared, "method": method, "seed": seed, "method_options": own})
