"""Experiments, and comparisons, which are experiments of one column: running them, reading their folders."""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from fda_flower.engines import ENGINES, Resources
from fda_flower.errors import ConfigError, FdaError, invalid, unknown
from fda_flower.experiments.definition import ATTACK_KEYS, Experiment, read_experiment
from fda_flower.files import check_writable, only_writer, output_error, read_json, write_atomically, writing
from fda_flower.models.own import only_read
from fda_flower.names.options import Count, read_list, read_value
from fda_flower.names.registry import known_name
from fda_flower.records.folder import CONFIG, SAMPLES, SUBMITTED, RunFolder, check_same_data
from fda_flower.records.record import has_ended, has_stopped
from fda_flower.reporting.experiment_tables import comparison, comparison_numbers
from fda_flower.reporting.results import Place, RecordedRun, Results, file_name
from fda_flower.reporting.summary import AVERAGE, REFUSED, SUMMARY
from fda_flower.reporting.tables import escaped, latex, markdown
from fda_flower.reporting.trackers import check_trackers
from fda_flower.runs.config import RunConfig
from fda_flower.runs.methods import OF_FLOWER, check_federated, find_method, method_names
from fda_flower.runs.settings import AUTO, SETTINGS, command_options

if TYPE_CHECKING:
    from fda_flower.running.processes import Cell, CellProgress

DEFINITION, MARK = "experiment.toml", "experiment.json"
RUNS = "runs"
"""The folder of the runs."""
AGAIN = "delete it, and run again"
NOT_SHARED = ("method", "method_options", "seed", "variant", "beta")
"""Settings that the runs of a comparison need not share."""


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


def read_mark(folder: Path) -> dict[str, Any]:
    """Return a folder's experiment, settings and calls."""
    path, remedy = folder / MARK, "choose another --output"
    mark = read_json(path, remedy, experiment=str, settings=dict, calls=list | None)
    return {**mark, "calls": mark.get("calls") or []}


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


def comparison_of(config: RunConfig, others: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the methods and the options of a run's comparison with those `others` that fit its settings."""
    settings, methods = settings_of_comparison([config]), list[str]()
    if settings is None:
        return methods, []
    for method in dict.fromkeys([*others, config.method]):
        with suppress(ConfigError):
            _config(method, config.seed, [config.method, method], settings)
            methods.append(method)
    return methods, command_options([each for each in SETTINGS if each.name in settings], settings)


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
        return RunConfig(**settings)
    except (FdaError, TypeError, ValueError, KeyError):
        return None


def compared(title: str, runs: Sequence[RecordedRun]) -> Results:
    """Return the results of runs as an experiment of one column, with a row for each label."""
    by_place: dict[Place, list[RecordedRun]] = {}
    for run in runs:
        by_place.setdefault(("", run.label, ""), []).append(run)
    return Results(
        name=title,
        title=title,
        source="",
        note="",
        axis="",
        rows=[label for _, label, _ in by_place],
        columns=[""],
        runs=by_place,
        rounds=max((len(run.history) for run in runs), default=0),
        metrics={("", ""): runs[0].metric} if runs else {},
        data=list(dict.fromkeys(run.data for run in runs if run.data)),
    )


@only_read()
def load_results(folder: str | Path) -> Results:
    """Return the results so far in a folder of an experiment, a comparison, or any runs.

    Raises
    ------
    ConfigError
        If the folder holds no results, or a damaged one.
    """
    folder = Path(folder)
    if kind_of(folder) != "experiment":
        return compared(folder.resolve().name, [run for run in read_runs(folder).values() if run.history])
    mark = read_mark(folder)
    experiment = replace(read_experiment(folder / DEFINITION), name=mark["experiment"])
    return _of_calls(results_of(experiment, mark["settings"], read_runs(folder)), experiment, mark["calls"])


def _of_calls(results: Results, experiment: Experiment, calls: Sequence[Mapping[str, Any]]) -> Results:
    """Return the results without the rows, columns and groups that no call asked for, unless one has runs."""
    places = {place for call in calls for place in chosen_places(experiment, call.get("only", ()))}
    places = places | {*results.runs, *results.refused} if calls else {*results.places}
    groups, rows, columns = (
        [label for label in labels if any(place[i] == label for place in places)]
        for i, labels in enumerate((results.groups, results.rows, results.columns))
    )
    average = results.average and len(columns) == len(results.columns)  # the paper's is over all columns
    return replace(results, groups=groups, rows=rows, columns=columns, average=average)


def results_of(
    experiment: Experiment, settings: Mapping[str, Any], runs: Mapping[str, RecordedRun]
) -> Results:
    """Return the results of an experiment with changed `settings`, from its runs by name."""
    plain = experiment.configs(experiment.places, 0, {})
    requested = {place: config.rounds for place, config in plain.items()}
    configs = plain | _changed(experiment, settings)
    endings = {row.label: {"model": "", "average": AVERAGE}[row.headline] for row in experiment.rows}
    names = {file_name(place): place for place in configs}
    rounds, short, stopped = [], [], []
    by_place: dict[Place, list[RecordedRun]] = {}
    refused: dict[Place, str] = {}
    for name, run in runs.items():
        place = names.get(name.rpartition("-seed")[0])
        if place is None or not run.whole:
            continue
        if REFUSED in run.summary:
            refused[place] = run.summary[REFUSED]
            continue
        config = configs[place]
        judged = replace(run, metric=config.headline, ending=endings[place[1]])
        by_place.setdefault(place, []).append(judged)
        ran = sum(not record.get("warmup") for record in run.history)
        ended = has_stopped(run.history, config.patience)
        rounds.append(max(ran, run.notes.get("rounds", 0)) if ended else ran)
        if rounds[-1] < requested[place]:
            short.append((rounds[-1], requested[place]))
        if len(run.history) < rounds[-1]:
            stopped.append(len(run.history))
    labels = [group.label for group in experiment.groups]
    begun = {place[0] for place in (*by_place, *refused)}
    groups = [label for label in labels if label in begun] or labels
    same = ("name", "title", "source", "note", "axis", "group_axis", "figures", "average", "report", "rivals")
    cuts = _cuts(experiment, by_place, short, len(refused))
    cuts += [f"no runs of '{label}'" for label in labels if label not in groups]
    if stopped:
        cuts.append(f"ended by their patience: runs {len(stopped)}, rounds {min(stopped)} to {max(stopped)}")
    cuts += [f"{key.replace('_', '-')} is {value}" for key, value in settings.items()]
    return Results(
        **{name: getattr(experiment, name) for name in same},
        paper=experiment.paper,
        rows=[row.label for row in experiment.rows],
        columns=[column.label for column in experiment.columns],
        runs=by_place,
        rounds=max(rounds, default=0),
        groups=groups,
        values={c.label: c.value for c in experiment.columns if c.value is not None},
        cuts=cuts,
        ensembles={place[1] for place, c in configs.items() if c.entry.is_ensemble(dict(c.method_options))},
        centralised={place[1] for place, config in configs.items() if config.entry.centralised},
        data=list(dict.fromkeys(config.dataset for config in configs.values())),
        refused=refused,
        metrics={(group, column): config.headline for (group, _, column), config in configs.items()},
    )


def _changed(experiment: Experiment, settings: Mapping[str, Any]) -> dict[Place, RunConfig]:
    """Return the cells' configurations with changed settings; a cell that refuses them has had no run."""
    configs = {}
    for place in experiment.places if settings else ():
        with suppress(ConfigError):
            configs[place] = experiment.config(place, 0, settings)
    return configs


def _cuts(
    experiment: Experiment,
    by_place: Mapping[Place, Collection[RecordedRun]],
    short: Collection[tuple[int, int]],
    refused: int,
) -> list[str]:
    """Describe missing cells, except `refused` ones; `short` has the rounds run and requested."""
    cuts = []
    if short:
        ran, requested = (sorted(set(numbers)) for numbers in zip(*short, strict=True))
        span = " to ".join(map(str, sorted({ran[0], ran[-1]})))
        cuts.append(f"{span} {'round' if span == '1' else 'rounds'} instead of {requested[-1]}")
    count, places, seeds = sum(map(len, by_place.values())), len(by_place), len(experiment.seeds)
    if places + refused < len(experiment.places):
        cuts.append(f"{places + refused} of {len(experiment.places)} cells")
    if count < places * seeds:
        cuts.append(f"{count} of {places * seeds} runs over {seeds} seeds")
    return cuts


def write_report(results: Sequence[Results], output: str | Path, figures: str = "png") -> list[Path]:
    """Write the tables and figures of experiments, and return the files.

    Parameters
    ----------
    results : sequence of Results
        From `load_results`, in the order of the report; several may belong to the same experiment.
    output : str or Path
        The Markdown file. A folder with its name, without the extension, receives each experiment's
        tables as CSV files and in LaTeX, and its figures.
    figures : {"png", "pdf", "svg"}
        The figures' format.

    Raises
    ------
    ConfigError
        If the files cannot be written, or figures have no such format.
    """
    from fda_flower.reporting import REPORTS, check_format, save_figures

    check_format(figures)
    output = Path(output)
    folder = output.with_suffix("")
    paths, sections, seen = [], [], Counter[str]()
    with writing("report", output):
        folder.mkdir(parents=True, exist_ok=True)
        for one in results:
            seen[one.name] += 1
            if seen[one.name] > 1:  # files of its own
                one = replace(one, name=f"{one.name}-{seen[one.name]}")
            report = REPORTS[one.report]
            for ending, table in report.tables.items():
                paths.append(folder / f"{one.name}{ending}.csv")
                write_atomically(paths[-1], table(one).csv().encode())
            paths.append(folder / f"{one.name}.tex")
            write_atomically(paths[-1], report.latex(one).encode())
            drawn = save_figures(one, folder, figures) if one.runs else []
            pictures = [f"![{escaped(one.title)}]({quote(f'{folder.name}/{path.name}')})" for path in drawn]
            sections.append("\n\n".join([report.markdown(one).strip(), *pictures]))
            paths += drawn
        write_atomically(output, ("\n\n".join(sections) + "\n").encode())
    return [output, *paths]


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
    on_progress: "Callable[[CellProgress], None] | None" = None,
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
        ``data_dir``, ``device`` and ``threads``.
    jobs, track, on_progress
        As in `compare`.

    Raises
    ------
    ConfigError
        If a setting is invalid, before anything is trained.
    """
    from fda_flower.running.processes import Cell, run_cells  # loads PyTorch
    from fda_flower.running.run import Execution

    jobs = read_value("jobs", jobs, Count)
    given = None if seeds is None else read_list("seeds", seeds, "range(3)")
    check_trackers(track)
    folder = Path(output).absolute()
    changed = dict(settings or {})
    if rounds is not None and "rounds" in changed:
        raise invalid("rounds", rounds, "leave one of them out", f"but the settings say {changed['rounds']}")
    overrides = {**changed, **(machine or {}), **({} if rounds is None else {"rounds": rounds})}
    how = Execution(resume=True, track=track, track_in=folder)
    cells = [
        Cell(
            *(place, config, folder / RUNS),
            replace(how, attack=experiment.attack(place, config, changed)),
            may_refuse=True,
        )
        for seed in (experiment.seeds if given is None else given)
        for place, config in experiment.configs(chosen_places(experiment, only), seed, overrides).items()
    ]
    if changed.keys() & ATTACK_KEYS and changed.get("attackers") not in (0, "0"):
        _check_attacked(changed, cells)
    call = {"only": list(only), "seeds": given, "rounds": rounds}
    mark = {"experiment": experiment.name, "settings": json.loads(json.dumps(changed)), "calls": [call]}
    with only_writer(folder):
        _check_free(folder, mark)
        earlier = read_runs(folder) if (folder / MARK).exists() else {}
        todo = [cell for cell in cells if not _is_done(cell, earlier.get(cell.name))]
        _claim(experiment, folder, mark)
        return run_cells(todo, jobs, on_progress, len(cells) - len(todo))


def _check_attacked(changed: Mapping[str, Any], cells: "Sequence[Cell]") -> None:
    if all(cell.how.attack is None for cell in cells):
        name = next(key for key in ATTACK_KEYS if key in changed)
        raise invalid(name, changed[name], "give attack and attackers", "but no source of any cell attacks")


def _is_done(cell: "Cell", run: RecordedRun | None) -> bool:
    """Return whether a cell's run has ended or been refused.

    Raise a `ConfigError` if it is another run. A setting that is newer than the run had its default.
    """
    if run is None:
        return False
    attack = {} if cell.how.attack is None else cell.how.attack.settings()
    ours, default = (
        json.loads(json.dumps(fingerprint))
        for fingerprint in (cell.config.fingerprint() | attack, RunConfig().fingerprint())
    )
    theirs = {**default, **run.fingerprint}
    theirs.pop("strategy", None)  # it follows from the settings
    if theirs != ours:
        keys = sorted(key for key in {*theirs, *ours} if theirs.get(key) != ours.get(key))
        differences = ", ".join(f"{k}: {theirs.get(k)!r} there, {ours.get(k)!r} asked for" for k in keys)
        raise ConfigError(
            f"'{cell.run_folder}' is from another configuration ({differences}): choose another --output",
            thing=str(cell.run_folder),
            value=differences,
        )
    if SAMPLES in run.notes:
        from fda_flower.datasets.federation import data_digests  # loads PyTorch

        check_same_data(cell.run_folder, run.notes[SAMPLES], data_digests(cell.config.data))
    ended = has_ended(run.history, cell.config.all_rounds, cell.config.patience)
    return run.whole and (ended or REFUSED in run.summary)


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


USUAL = (
    *("source-only", "fedavg", "target-only", "fedda", "fedgp", "fedda-auto", "fedgp-auto", "fedda-joint"),
    *("mixture", "ridge"),
)
"""The methods that a comparison has if none is named."""


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison: its results, with a row for each method.

    `failures` holds reasons by cell. The folder at `path` has a folder per cell, ``table.md``,
    ``table.tex`` and ``table.csv``. Unless methods were named, `left_out` holds the methods that do
    not fit the settings, with the reasons.
    """

    results: Results = field(repr=False)
    failures: dict[str, str]
    path: Path
    left_out: dict[str, str] = field(default_factory=dict)


def compare(
    methods: Sequence[str] | Literal["usual", "all"],
    seeds: Sequence[int],
    output: str | Path,
    *,
    engine: str = "local",
    workers: int | None = None,
    jobs: int = 1,
    resume: bool = False,
    track: Sequence[str] = (),
    on_progress: "Callable[[CellProgress], None] | None" = None,
    **settings: Any,
) -> Comparison:
    """Run each method with each seed, each cell in its own process.

    A failed cell does not stop the others; the result holds the failures. Ctrl-C leaves a table of the
    finished cells.

    Parameters
    ----------
    methods : sequence of str, "usual" or "all"
        The methods, or the ones of `USUAL` or of all that fit the settings.
    seeds : sequence of int
        The seeds; each method with each seed is a cell.
    output : str or Path
        The output folder, also of trackers with local stores.
    jobs : int
        Cells to run at a time; take one with Ray, which uses the whole machine.
    resume : bool
        Keep the finished cells and continue the others.
    on_progress : callable, optional
        Called a few times a second.
    engine, workers, track
        As in `fda_flower.run`, for each cell; the engine is not "deploy".
    **settings
        Fields of `RunConfig` for all cells. ``beta`` and each of the ``method_options`` apply only to methods
        that have them.

    Raises
    ------
    ConfigError
        If a setting is invalid, or a method does not fit the data or the network; raised before training.
    """
    from fda_flower.running.processes import Cell, run_cells  # loads PyTorch
    from fda_flower.running.run import Execution
    from fda_flower.server_app import check_data

    for name in ("method", "seed"):
        if name in settings:
            raise invalid(name, settings[name], f"give {name}s", "but a comparison has several")
    chosen, named = _methods(methods), not isinstance(methods, str)
    seeds = _each_once("seed", seeds)
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    jobs = read_value("jobs", jobs, Count)
    Resources(workers=workers)
    check_trackers(track)
    folder = Path(output).absolute()
    check_writable(folder)
    if not resume and folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"the output folder '{folder}' already holds a comparison: go on with --resume (resume=True), "
            "or choose another --output",
            thing="output folder",
            value=folder,
        )
    left_out = {}
    for method in chosen:
        try:
            if ENGINES[engine].parallel:
                check_federated(method)
            check_data(_config(method, seeds[0], chosen, settings))
        except ConfigError as error:
            if named:
                raise
            left_out[method] = str(error)
    if len(left_out) == len(chosen):
        message = f"no method can work with these settings: {next(iter(left_out.values()))}"
        raise ConfigError(message, thing="methods", value=methods)
    how = Execution(engine=engine, workers=workers, resume=resume, track=track, track_in=folder)
    cells = [
        Cell(("", method, ""), _config(method, seed, chosen, settings), folder, how)
        for seed in seeds
        for method in chosen
        if method not in left_out
    ]
    with only_writer(folder):
        try:
            failures = run_cells(cells, jobs, on_progress)
        except KeyboardInterrupt:
            begun = [read_run(cell.run_folder) for cell in cells if (cell.run_folder / CONFIG).exists()]
            _write(folder, [run for run in begun if run.done])
            raise
        results = _write(folder, [read_run(cell.run_folder) for cell in cells if cell.name not in failures])
    return Comparison(results, failures, folder, left_out)


def _methods(methods: Sequence[str] | str) -> list[str]:
    """Return the names of methods, or of a group of them."""
    own = [name for name in method_names() if not name.startswith(OF_FLOWER)]
    groups: dict[str, Sequence[str]] = {"all": own, "usual": USUAL}
    if not isinstance(methods, str):
        return _each_once("method", [known_name(name, method_names()) for name in methods])
    if methods not in groups:
        raise invalid("methods", methods, "give a list of methods, or all or usual")
    return list(groups[methods])


def _each_once(name: str, values: Iterable[Any]) -> list[Any]:
    """Return methods or seeds; raise a `ConfigError` if there are none, or one is repeated."""
    entries = read_list(f"{name}s", values, "range(3)")
    if not entries:
        raise ConfigError(f"a comparison needs at least one {name}", thing=name)
    for value, times in Counter(entries).items():
        if times > 1:
            raise invalid(name, value, "give it once", f"{times} times")
    return entries


def _config(method: str, seed: int, methods: Sequence[str], settings: Mapping[str, Any]) -> RunConfig:
    """Return one cell's configuration: the shared settings without those of other methods."""

    def applies(option: str) -> bool:
        takers = [name for name in methods if find_method(name).takes(option)]
        return method in takers or not takers

    options = dict(settings.get("method_options", ()))
    own = {name: value for name, value in options.items() if applies(name)}
    shared = {name: value for name, value in settings.items() if name != "beta" or applies("beta")}
    return RunConfig.read({**shared, "method": method, "seed": seed, "method_options": own})


def _write(folder: Path, runs: Sequence[RecordedRun]) -> Results:
    """Write the table of the runs that are done, if there are any; return the results."""
    results = compared(folder.name, runs)
    if results.runs:
        write_atomically(folder / "table.md", markdown(comparison(results)).encode())
        write_atomically(folder / "table.tex", latex(comparison(results)).encode())
        write_atomically(folder / "table.csv", comparison_numbers(results).csv().encode())
    return results
