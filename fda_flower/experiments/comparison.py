"""Comparisons of methods."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fda_flower.engines import ENGINES, Resources
from fda_flower.errors import ConfigError, invalid, unknown
from fda_flower.experiments.folders import _config, read_run, settings_of_comparison
from fda_flower.experiments.results import compared
from fda_flower.files import check_writable, only_writer, write_atomically
from fda_flower.names.options import Count, read_list, read_value
from fda_flower.names.registry import known_name
from fda_flower.records.folder import CONFIG
from fda_flower.reporting.experiment_tables import comparison, comparison_numbers
from fda_flower.reporting.results import RecordedRun, Results
from fda_flower.reporting.tables import latex, markdown
from fda_flower.reporting.trackers import check_trackers
from fda_flower.runs.config import RunConfig
from fda_flower.runs.methods import OF_FLOWER, check_federated, method_names
from fda_flower.runs.settings import SETTINGS, command_options

if TYPE_CHECKING:
    from fda_flower.running.processes import Progress


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
    on_progress: "Callable[[Progress], None] | None" = None,
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
        The seeds; each method with each seed is a task.
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
    from fda_flower.running.processes import Task, run_tasks  # loads PyTorch
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
    tasks = [
        Task(("", method, ""), _config(method, seed, chosen, settings), folder, how)
        for seed in seeds
        for method in chosen
        if method not in left_out
    ]
    with only_writer(folder):
        try:
            failures = run_tasks(tasks, jobs, on_progress)
        except KeyboardInterrupt:
            begun = [read_run(task.run_folder) for task in tasks if (task.run_folder / CONFIG).exists()]
            _write(folder, [run for run in begun if run.done])
            raise
        results = _write(folder, [read_run(task.run_folder) for task in tasks if task.name not in failures])
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


def _write(folder: Path, runs: Sequence[RecordedRun]) -> Results:
    """Write the table of the runs that are done, if there are any; return the results."""
    results = compared(folder.name, runs)
    if results.runs:
        write_atomically(folder / "table.md", markdown(comparison(results)).encode())
        write_atomically(folder / "table.tex", latex(comparison(results)).encode())
        write_atomically(folder / "table.csv", comparison_numbers(results).csv().encode())
    return results
