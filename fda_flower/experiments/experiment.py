"""Running an experiment: its cells, its folder."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fda_flower.engines import ENGINES, Resources
from fda_flower.errors import ConfigError, invalid, unknown
from fda_flower.experiments.definition import ATTACK_KEYS, Experiment
from fda_flower.experiments.folders import DEFINITION, MARK, RUNS, read_mark, read_runs
from fda_flower.files import only_writer, output_error, write_atomically
from fda_flower.names.options import Count, read_list, read_value
from fda_flower.records.folder import ANSWERS, SAMPLES, check_answers, check_same_data
from fda_flower.records.record import has_ended
from fda_flower.reporting.results import Place, RecordedRun, file_name
from fda_flower.reporting.summary import REFUSED
from fda_flower.reporting.trackers import check_trackers
from fda_flower.runs.config import RunConfig

if TYPE_CHECKING:
    from fda_flower.running.attacks import Attack
    from fda_flower.running.processes import Progress, Task


def _check_free(folder: Path, mark: Mapping[str, Any]) -> list[Any]:
    """Return the calls of an experiment in its folder; raise a `ConfigError` for another's folder.

    An experiment with other settings is another one.
    """
    path = folder / MARK
    if not path.exists():
        return []
    other = read_mark(folder)
    if any(other[key] != mark[key] for key in ("experiment", "settings")):
        raise ConfigError(
            f"'{folder}' holds the experiment '{other['experiment']}' with the settings {other['settings']}, "
            f"not '{mark['experiment']}' with {mark['settings']}: choose another --output",
            thing=str(folder),
        )
    return list(other["calls"])


def _claim(experiment: Experiment, folder: Path, mark: Mapping[str, Any]) -> None:
    """Mark a folder as this experiment's, and note the call, once."""
    calls = _check_free(folder, mark)
    calls += [call for call in mark["calls"] if call not in calls]
    try:
        (folder / RUNS).mkdir(parents=True, exist_ok=True)
        write_atomically(folder / DEFINITION, experiment.text.encode())
        write_atomically(folder / MARK, (json.dumps({**mark, "calls": calls}, indent=2) + "\n").encode())
    except OSError as error:
        raise output_error("cannot write", folder, str(error)) from error


def run_experiment(
    experiment: Experiment,
    output: str | Path,
    *,
    only: Collection[str] = (),
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
    settings: Mapping[str, Any] | None = None,
    machine: Mapping[str, Any] | None = None,
    engine: str = "local",
    workers: int | None = None,
    jobs: int = 1,
    track: Sequence[str] = (),
    on_progress: "Callable[[Progress], None] | None" = None,
) -> dict[str, str]:
    """Run the remaining cells, each in its own process; return the failures' reasons by cell.

    Parameters
    ----------
    experiment : Experiment
        From `read_experiment`.
    output : str or Path
        The folder of its results; finished cells are kept, and the others continue.
    only : collection of str
        Labels of the rows, columns and groups to run. Default: all.
    seeds, rounds, settings : optional
        Replace the experiment's; the settings are fields of `RunConfig`, ``attack`` and ``attackers``.
    machine : Mapping, optional
        ``data_dir`` and ``device``.
    engine, workers, track
        As in `fda_flower.run`, for each cell; the engine is not "deploy".
    jobs : int
        Cells to run at a time; take one with Ray, which uses the whole machine.
    on_progress : callable, optional
        Called a few times a second.

    Raises
    ------
    ConfigError
        If a setting is invalid, before anything is trained.
    """
    from fda_flower.running.processes import Task, run_tasks  # loads PyTorch
    from fda_flower.running.run import Execution

    jobs = read_value("jobs", jobs, Count)
    given = None if seeds is None else read_list("seeds", seeds, "range(3)")
    check_trackers(track)
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    Resources(workers=workers)
    folder = Path(output).absolute()
    changed, overrides = dict(settings or {}), overrides_of(settings, rounds, machine)
    how = Execution(engine=engine, workers=workers, resume=True, track=track, track_in=folder)
    tasks: list[Task] = []
    for seed in experiment.seeds if given is None else given:
        configs = experiment.configs(chosen_places(experiment, only), seed, overrides)
        for place, attack in attacks_of(experiment, configs, changed).items():
            tasks.append(Task(place, configs[place], folder / RUNS, replace(how, attack=attack)))
    call = {"only": list(only), "seeds": given, "rounds": rounds}
    mark = {"experiment": experiment.name, "settings": json.loads(json.dumps(changed)), "calls": [call]}
    with only_writer(folder):
        _check_free(folder, mark)
        earlier = read_runs(folder) if (folder / MARK).exists() else {}
        todo = [task for task in tasks if not _is_done(task, earlier.get(task.name))]
        names = {task.name for task in tasks}
        others = {name: run for name, run in earlier.items() if name not in names}
        _check_others(experiment, folder, others, overrides, changed)
        _claim(experiment, folder, mark)
        return run_tasks(todo, jobs, on_progress, len(tasks) - len(todo))


def overrides_of(
    settings: Mapping[str, Any] | None, rounds: int | None, machine: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return what replaces the settings of all runs; raise a `ConfigError` if the rounds are given twice."""
    changed = dict(settings or {})
    if rounds is not None and "rounds" in changed:
        raise invalid("rounds", rounds, "leave one of them out", f"but the settings say {changed['rounds']}")
    return {**changed, **(machine or {}), **({} if rounds is None else {"rounds": rounds})}


def attacks_of(
    experiment: Experiment, configs: Mapping[Place, RunConfig], changed: Mapping[str, Any]
) -> "dict[Place, Attack | None]":
    """Return the attacks on cells by place; raise a `ConfigError` if no cell has the one in `changed`."""
    attacks = {place: experiment.attack(place, config, changed) for place, config in configs.items()}
    name = next((key for key in ATTACK_KEYS if key in changed), None)
    if name and changed.get("attackers") not in (0, "0") and not any(attacks.values()):
        raise invalid(name, changed[name], "give attack and attackers", "but no source of any cell attacks")
    return attacks


def _is_done(task: "Task", run: RecordedRun | None) -> bool:
    """Return whether a task's run has ended or been refused.

    Raise a `ConfigError` if it is another run. A setting that is newer than the run had its default.
    """
    if run is None:
        return False
    _check_same(task.run_folder, run, task.config, task.how.attack)
    if SAMPLES in run.notes:
        from fda_flower.datasets.federation import data_digests  # loads PyTorch

        check_same_data(task.run_folder, run.notes[SAMPLES], data_digests(task.config.data))
    if run.notes.get(ANSWERS):
        from fda_flower.datasets.federation import load_federation  # loads PyTorch
        from fda_flower.runs.network import answers_of

        data = load_federation(task.config.data)
        answers = answers_of(task.config, data.shape, data.classes)
        check_answers(run.fingerprint, run.notes[ANSWERS], answers)
    ended = has_ended(run.history, task.config.all_rounds, task.config.patience)
    return run.whole and (ended or REFUSED in run.summary)


def _check_same(
    folder: Path, run: RecordedRun, config: RunConfig, attack: "Attack | None", but: Collection[str] = ()
) -> None:
    """Raise a `ConfigError` unless a folder's run has a configuration and attack, `but` some settings."""
    ours, default = (
        json.loads(json.dumps(fingerprint))
        for fingerprint in (
            config.fingerprint() | (attack.settings() if attack else {}),
            RunConfig().fingerprint(),
        )
    )
    theirs = {**default, **run.fingerprint}
    ignored = {"strategy", *but}  # the strategy follows from the settings
    keys = sorted(key for key in {*theirs, *ours} - ignored if theirs.get(key) != ours.get(key))
    if keys:
        differences = ", ".join(f"{k}: {theirs.get(k)!r} there, {ours.get(k)!r} asked for" for k in keys)
        raise ConfigError(
            f"'{folder}' is from another configuration ({differences}): choose another --output",
            thing=str(folder),
            value=differences,
        )


def _check_others(
    experiment: Experiment,
    folder: Path,
    others: Mapping[str, RecordedRun],
    overrides: Mapping[str, Any],
    changed: Mapping[str, Any],
) -> None:
    """Raise a `ConfigError` if a run that was not requested again is not of its cell's configuration.

    It is in the report, next to the requested ones. A cell without its data here has no configuration.
    """
    places = {file_name(place): place for place in experiment.places}
    configs: dict[Place, RunConfig | None] = {}
    for name, run in others.items():
        place = places.get(name.rpartition("-seed")[0])
        if place is None or REFUSED in run.summary:
            continue
        if place not in configs:
            configs[place] = None
            with suppress(ConfigError):
                configs |= experiment.configs([place], experiment.seeds[0], overrides)
        if (config := configs[place]) is not None:
            attack = experiment.attack(place, config, changed)
            _check_same(folder / RUNS / name, run, config, attack, but=("seed",))


def chosen_places(experiment: Experiment, only: Collection[str]) -> list[Place]:
    """Return the places of cells with these row, column and group labels, or all places."""
    kinds = [
        {entry.label for entry in entries if entry.label}
        for entries in (experiment.groups, experiment.rows, experiment.columns)
    ]
    for label in read_list("only", only, '["FedGP"]'):
        if not any(label in kind for kind in kinds):
            raise unknown("row, column or group", label, [name for kind in kinds for name in kind])
    wanted = [kind & set(only) for kind in kinds]
    return [
        place
        for place in experiment.places
        if all(not names or label in names for names, label in zip(wanted, place, strict=True))
    ]
