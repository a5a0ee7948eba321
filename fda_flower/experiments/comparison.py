"""Comparisons of methods: experiments with a row for each method, and one column without a name."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fda_flower.engines import ENGINES
from fda_flower.errors import ConfigError, invalid, unknown
from fda_flower.experiments.definition import MACHINE, Entry, Experiment, experiment_of, read_definition
from fda_flower.experiments.experiment import run_experiment
from fda_flower.experiments.folders import COMPARISON, DEFINITION, MARK, RUNS
from fda_flower.experiments.results import load_results, write_report
from fda_flower.files import check_writable, only_writer
from fda_flower.names.options import read_list, read_value, split_options
from fda_flower.names.registry import known_name
from fda_flower.records.folder import CONFIG
from fda_flower.reporting.results import Results, file_name, slug
from fda_flower.runs.config import RunConfig
from fda_flower.runs.methods import OF_FLOWER, check_federated, find_method, method_names
from fda_flower.runs.settings import AUTO, OPTION_FIELDS, SETTINGS

if TYPE_CHECKING:
    from fda_flower.running.processes import Progress

USUAL = (
    *("source-only", "fedavg", "target-only", "fedda", "fedgp", "fedda-auto", "fedgp-auto", "fedda-joint"),
    *("mixture", "ridge"),
)
"""The methods that a comparison has if none is named."""


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison: its results, with a row for each method.

    `failures` holds reasons by cell. The folder at `path` is an experiment's, with ``report.md``. Unless
    methods were named, `left_out` holds the methods that do not fit the settings, with the reasons.
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

    A failed cell does not stop the others; the result holds the failures. Ctrl-C leaves a report of the
    finished cells.

    Parameters
    ----------
    methods : sequence of str, "usual" or "all"
        The methods, or the ones of `USUAL` or of all that fit the settings.
    seeds : sequence of int
        The seeds; each method with each seed is a cell.
    output : str or Path
        The output folder, also of trackers with local stores.
    resume : bool
        Keep the finished cells and continue the others; methods and seeds may be added.
    engine, workers, jobs, track, on_progress
        As in `fda_flower.experiments.run_experiment`.
    **settings
        Fields of `RunConfig` for all cells. ``beta`` and each of the ``method_options`` apply only to methods
        that have them.

    Raises
    ------
    ConfigError
        If a setting is invalid, or a method does not fit the data or the network; raised before training.
    """
    for name in ("method", "seed"):
        if name in settings:
            raise invalid(name, settings[name], f"give {name}s", "but a comparison has several")
    seeds = [read_value("seed", seed, int) for seed in _each_once("seed", seeds)]
    folder = Path(output).absolute()
    check_writable(folder)
    if not resume and folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"the output folder '{folder}' already holds a comparison: go on with --resume (resume=True), "
            "or choose another --output",
            thing="output folder",
            value=folder,
        )
    earlier = read_definition(folder / DEFINITION) if (folder / DEFINITION).exists() else None
    rows = earlier.rows if earlier else ()
    fitting, left_out = _fitting(methods, seeds[0], engine, settings, rows)
    experiment = _experiment(folder, fitting, seeds, settings, earlier)
    chosen = [find_method(method).title for method in fitting]
    try:
        failures = run_experiment(
            experiment,
            folder,
            only=chosen if len(chosen) < len(experiment.rows) else (),
            seeds=seeds,
            machine={name: settings[name] for name in MACHINE if name in settings},
            engine=engine,
            workers=workers,
            jobs=jobs,
            track=track,
            on_progress=on_progress,
        )
    except KeyboardInterrupt:
        if (folder / MARK).exists():
            _report(folder)
        raise
    return Comparison(_report(folder), failures, folder, left_out)


def _report(folder: Path) -> Results:
    """Write the report of a folder, and return its results."""
    results = load_results(folder)
    write_report([results], folder / "report.md")
    return results


def _fitting(
    methods: Sequence[str] | str, seed: int, engine: str, settings: Mapping[str, Any], rows: Sequence[Entry]
) -> tuple[list[str], dict[str, str]]:
    """Return the methods that fit the settings, and why others do not; raise for a method that is named.

    None may have the title of a method that has one of the `rows` of the folder, or of one before it.
    """
    from fda_flower.server_app import check_data  # loads PyTorch

    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    chosen, left_out = _methods(methods), {}
    owners = {slug(row.label): row.settings.get("method", AUTO) for row in rows}
    for method in chosen:
        try:
            title = find_method(method).title
            if (owner := owners.setdefault(slug(title), method)) != method:
                why = f"whose title '{title}' names the row of '{owner}'"
                raise invalid("method", method, "give its Method another label, or compare it alone", why)
            if ENGINES[engine].parallel:
                check_federated(method)
            check_data(_config(method, seed, chosen, settings))
        except ConfigError as error:
            if not isinstance(methods, str):
                raise
            left_out[method] = str(error)
    if len(left_out) == len(chosen):
        message = f"no method can work with these settings: {next(iter(left_out.values()))}"
        raise ConfigError(message, thing="methods", value=methods)
    return [method for method in chosen if method not in left_out], left_out


def _experiment(
    folder: Path,
    methods: Sequence[str],
    seeds: Sequence[int],
    settings: Mapping[str, Any],
    earlier: Experiment | None = None,
) -> Experiment:
    """Return the experiment of methods with settings, with the rows and seeds of an `earlier` one."""
    rows: dict[str, Mapping[str, Any]] = {}
    if earlier:
        rows = {row.label: _as_toml(row.settings) for row in earlier.rows}
        seeds = sorted({*seeds, *earlier.seeds})
    methods = [*methods, *(name for name in _adopted(folder) if name not in methods)]
    rows |= {find_method(method).title: _row(method, methods, settings) for method in methods}
    own = (*MACHINE, "beta", "method_options")
    data = {
        "title": folder.resolve().name,
        "seeds": list(seeds),
        "figures": ["runs"],
        "run": _as_toml({name: value for name, value in settings.items() if name not in own}),
        "rows": [{"label": label, **row} for label, row in rows.items()],
    }
    return experiment_of(COMPARISON, data)


def _adopted(folder: Path) -> list[str]:
    """Move the runs of an earlier version's comparison to an experiment's places; return their methods."""
    adopted = []
    for method in method_names():
        for path in sorted(folder.glob(f"{file_name(('', method, ''))}-seed*/{CONFIG}")):
            adopted.append(method)
            with only_writer(folder):
                (folder / RUNS).mkdir(exist_ok=True)
                label, (*_, seed) = find_method(method).title, path.parent.name.rpartition("-seed")
                path.parent.rename(folder / RUNS / f"{file_name(('', label, ''))}-seed{seed}")
                for table in ("table.md", "table.tex", "table.csv", "comparison.png"):
                    (folder / table).unlink(missing_ok=True)
    return list(dict.fromkeys(adopted))


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


def _row(method: str, methods: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a method's own settings, as an experiment's file has them, without other methods' settings."""

    def applies(option: str) -> bool:
        own = find_method(method).takes(option)
        return own or not any(find_method(name).takes(option) for name in methods)

    options = settings.get("method_options", ())
    options = split_options(options) if isinstance(options, str) else dict(options)
    own = {"method": method, "method_options": {name: v for name, v in options.items() if applies(name)}}
    return _as_toml(own | ({"beta": settings["beta"]} if "beta" in settings and applies("beta") else {}))


def _config(method: str, seed: int, methods: Sequence[str], settings: Mapping[str, Any]) -> RunConfig:
    """Return one cell's configuration."""
    shared = {name: value for name, value in settings.items() if name not in ("beta", "method_options")}
    own = {name.replace("-", "_"): value for name, value in _row(method, methods, settings).items()}
    return RunConfig.read({**shared, **own, "seed": seed})


def _as_toml(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as an experiment's file has them: without the defaults, and None in words."""
    defaults = {each.name: each.default for each in SETTINGS}
    written = {}
    for name, value in settings.items():
        if name in OPTION_FIELDS:
            value = split_options(value) if isinstance(value, str) else dict(value)
        if value not in (defaults.get(name), {}):
            value = "all" if value is None else json.loads(json.dumps(value, default=str))
            written[name.replace("_", "-")] = value
    return written
