"""The commands run, compare and experiment."""

import logging
import shlex
from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fda_flower.cli.advice import advice
from fda_flower.cli.cells import CellBar, end_with, read_seeds, show_plan
from fda_flower.cli.data import show_alike
from fda_flower.cli.folders import folder_of, folder_of_run
from fda_flower.cli.options import ConfigFile, Track, among, complete_methods, with_settings
from fda_flower.cli.output import out, saying
from fda_flower.cli.report import write_tables
from fda_flower.cli.stopping import this_command, when_stopped
from fda_flower.engines import ENGINES
from fda_flower.errors import ConfigError, invalid, near
from fda_flower.files import only_writer, read_json, usable_cores
from fda_flower.names.options import Count, read_value, split_options
from fda_flower.names.packages import importing
from fda_flower.records.record import COSTS, UNCOVERED, Record, headline, round_line
from fda_flower.reporting.trackers import check_trackers, read_names
from fda_flower.runs.config import RunConfig
from fda_flower.runs.request import Request
from fda_flower.runs.settings import AUTO, OPTION_FIELDS, SETTINGS

if TYPE_CHECKING:
    from fda_flower.experiments import RunResult


PLAIN = (int, float, str, bool, int | None, float | None, str | None)
COMPARABLE = [each.name for each in SETTINGS if each.defines_run and each.hint in PLAIN]
"""Settings that config.json records as given, or as what `auto` stood for."""

Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the output folder.")]
Only = Annotated[
    list[str], typer.Option(help="Run only the cells with this row, column or group label; repeatable.")
]
Workers = Annotated[
    int | None,
    typer.Option(help="Processes that train clients in parallel.", show_default="1; on Ray all that fit"),
]


@with_settings()
def run(
    settings: dict[str, Any],
    config: ConfigFile = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder to write to.", show_default="runs/DATA-METHOD-seedSEED"),
    ] = None,
    resume: Resume = False,
    engine: Annotated[
        str,
        typer.Option(
            help="local: on this machine; ray: on Ray, here or on a cluster; deploy: over a SuperLink.",
            autocompletion=among((*ENGINES, "deploy")),
        ),
    ] = "local",
    connection: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The SuperLink of --engine deploy, by its name in Flower's config.toml.",
            show_default="none",
        ),
    ] = None,
    gpus_per_client: Annotated[
        float | None,
        typer.Option(help="GPU share of each client, on Ray.", show_default="an even share"),
    ] = None,
    gpus_for_target: Annotated[
        float | None,
        typer.Option(help="GPU share of the target, on Ray.", show_default="as each client's"),
    ] = None,
    workers: Workers = None,
    track: Track = [],  # noqa: B006
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show Flower's log.")] = False,
) -> None:
    """Run one method on one data set; write its records, model and picture to a folder.

    No picture is drawn of a single round.
    """
    trackers = read_names(track)
    with importing():
        wanted, folder = _begin(
            Request(**settings), output, resume, repeats=config is not None and not resume
        )
        from fda_flower.experiments import Execution, run_config
    from fda_flower.records.folder import RunFolder

    RunFolder(folder.absolute(), wanted.fingerprint(), resume=resume).check()
    done, before = 0, None
    when_stopped(
        lambda: (
            f"Stopped {f'after round {done} of {wanted.all_rounds}' if done else 'before a round was done'}. "
            f"Continue with: {this_command('--resume', output=folder)}"
        )
    )
    from fda_flower.names.notes import logger
    from fda_flower.names.packages import require
    from fda_flower.reporting.words import cost_of_round, missing_replies

    require("matplotlib")  # for the picture at the end
    logging.getLogger("flwr").setLevel(logging.INFO if verbose else logging.WARNING)
    with saying(COSTS), saying(logger, out.warning), out.progress() as progress:
        task = progress.add_task(wanted.entry.title, total=wanted.all_rounds, shown="")

        def on_round(record: Record) -> None:
            nonlocal done, before
            if "fold" in record:
                fold = f"fold {record['fold']} of {str(wanted.validation).removeprefix('cv:')}"
                progress.update(task, completed=record["round"], shown=fold)
                out.log(f"{fold}: {round_line(record, wanted.all_rounds, wanted.headline_of([record]))}")
                return
            line = round_line(record, wanted.all_rounds, wanted.headline_of([record]), before)
            done, before = record["round"], record
            out.log(line)
            progress.update(task, completed=done, shown=headline(record, wanted.headline_of([record])))
            if done == min(2, wanted.all_rounds - 1):  # the first round also loads and warms up
                out.text(cost_of_round(record, wanted.all_rounds))

        how = Execution(
            engine=engine,
            output=folder,
            resume=resume,
            gpus_per_client=_gpu_share(wanted, engine, gpus_per_client),
            gpus_for_target=gpus_for_target,
            workers=workers,
            connection=connection,
            on_round=on_round,
            on_ready=lambda lines: out.text("\n".join(lines)),
            track=trackers,
        )
        result = run_config(wanted, how)
    _show_sites(result, folder)
    if faults := missing_replies(wanted, result.history):
        out.warning(f"{faults} (see rounds.jsonl)", "Incomplete")
    about, lines = {"folder": folder, "method": wanted.method, "seed": wanted.seed}, advice(result)
    out.result(about | result.summary, *_conclusion(result, folder))
    for line in lines:
        out.text(line)


def _show_sites(result: "RunResult", folder: Path) -> None:
    """Print what a run says of its sites; draw its picture, unless it has a single round."""
    from fda_flower.reporting import sites_in, sites_note, sites_table
    from fda_flower.reporting.alike import described_in

    sites = any("with-others" in site for site in sites_in(result.history).values())
    if sites or len(result.history) > 1:
        from fda_flower.experiments.pages import draw  # loads matplotlib

        draw(folder)
    if sites:
        out.table(sites_table(result.history))
        if note := sites_note(result.history):
            out.text(note)
    show_alike(described_in(result.history))


def _conclusion(result: "RunResult", folder: Path) -> list[str]:
    """Return a run's last lines: scores and privacy."""
    from fda_flower.reporting.words import outcome

    wanted, history = result.config, result.history
    scores = outcome(wanted, history, result.summary)
    lines = [f"{wanted.entry.title}: {scores}. Written to {folder}"]
    if history:
        lines += wanted.conclusion(history[-1])
    if spent := result.summary.get("privacy"):
        domain, largest = max(spent.items(), key=lambda item: item[1]["epsilon"])
        lines.append(
            f"Privacy: the largest ε is {largest['epsilon']:.4g}, of {domain} "
            f"(δ = {largest['delta']:g}{', for each patient by dp-group' if 'unit' in largest else ''})"
        )
        bare = {name: each[UNCOVERED] for name, each in spent.items() if each.get(UNCOVERED)}
        names = (f"{', '.join(records)} of {name}" for name, records in bare.items())
        lines += [f"No ε covers what left without noise: {'; '.join(names)}"] if bare else []
    return lines


@with_settings([each.name for each in SETTINGS if each.name not in ("method", "seed")])
def compare(
    settings: dict[str, Any],
    methods: Annotated[
        str,
        typer.Option(
            help="Methods, separated by commas; or the usual ones, or all, that fit; `fda list` shows them.",
            autocompletion=complete_methods,
        ),
    ] = "usual",
    seeds: Annotated[str, typer.Option(help="Number of seeds, or a list or range: 3, 4,7, 10-12.")] = "3",
    config: ConfigFile = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder to write to.", show_default="runs/compare, or -DATA")
    ] = None,
    resume: Resume = False,
    engine: Annotated[
        str,
        typer.Option(
            help="local: on this machine; ray: on Ray, here or on a cluster.", autocompletion=among(ENGINES)
        ),
    ] = "local",
    jobs: Annotated[
        int | None, typer.Option(help="Parallel runs.", show_default="cores / workers; 1 on Ray")
    ] = None,
    workers: Workers = None,
    track: Track = [],  # noqa: B006
) -> None:
    """Run several methods with several seeds; write a table and a picture."""
    bar, folder = CellBar(), output or folder_of("compare", settings, resume)
    report, again = folder / "report.md", this_command("--resume", output=folder)
    when_stopped(lambda: f"Stopped with {bar.done}{bar.where(report)}. Continue with: {again}")
    from fda_flower.experiments import compare as run_comparison
    from fda_flower.names.packages import require
    from fda_flower.reporting.experiment_tables import caption, numbers, shares_of, table_of_scores

    require("matplotlib")  # for the picture at the end
    with bar:
        comparison = run_comparison(
            methods if methods in ("usual", "all") else [name.strip() for name in methods.split(",")],
            read_seeds(seeds),
            folder,
            engine=engine,
            workers=workers,
            jobs=_parallel(engine, workers) if jobs is None else jobs,
            resume=resume,
            track=read_names(track),
            on_progress=bar,
            **settings,
        )
    results = comparison.results
    if results.runs:
        what = filter(None, (settings.get("dataset", RunConfig.dataset), settings.get("shift")))
        axis = results.value_label
        title = f"{', '.join(what)}: {axis[0].lower()}{axis[1:]}, mean (std) over seeds"
        out.table(replace(table_of_scores(results), title=title))
        out.text(caption(results))
    for reason in (*comparison.left_out.values(), *results.refused.values()):
        out.text(f"Left out: {reason}")
    rows = shares_of(results, numbers(results))
    result = {"folder": folder, "rows": rows, "left-out": comparison.left_out}
    end_with(comparison.failures, result, f"Written to {folder}: report.md, report, runs")


def _parallel(engine: str, workers: int | None) -> int:
    """Return the number of runs that fit this machine at a time."""
    return 1 if engine == "ray" else max(usable_cores() // (workers or 1), 1)


def _begin(request: Request, output: Path | None, resume: bool, repeats: bool) -> tuple[RunConfig, Path]:
    """Return a run and its folder; raise a `ConfigError` early for a folder that holds a run."""
    wanted = None
    if output is None and request.method == AUTO:
        wanted = RunConfig.of(request)
        request = replace(request, method=wanted.method)  # the folder's name has it
    folder = output or folder_of_run(vars(request), request.method, request.seed, resume, repeats)
    if not resume:
        _refuse_held(folder, request)
    return wanted or RunConfig.of(request), folder


def _refuse_held(folder: Path, request: Request) -> None:
    """Raise a `ConfigError` for a folder that holds a run, early; `RunFolder` checks the rest."""
    if not (folder / "config.json").exists():
        return
    with only_writer(folder.absolute()):
        try:
            earlier = read_json(folder / "config.json", "", run=dict)["run"]
        except ConfigError:
            return
    differences = [
        f"{name}: {earlier[name]!r} there, {value!r} requested"
        for name in COMPARABLE
        if (value := getattr(request, name)) not in (AUTO, None) and value != earlier.get(name, value)
    ]
    if differences:
        raise ConfigError(
            f"'{folder.absolute()}' holds another run ({', '.join(differences)}): choose another --output",
            thing=str(folder.absolute()),
        )
    raise ConfigError(
        f"the output folder '{folder.absolute()}' already holds a run: add --resume, or choose another "
        "--output",
        thing="output folder",
        value=folder.absolute(),
    )


def _gpu_share(config: RunConfig, engine: str, share: float | None) -> float:
    """Return each client's share of a GPU: the one requested, an even one, or 0 without an unnumbered GPU."""
    from fda_flower.models.devices import OF_RAY, is_numbered
    from fda_flower.runs.network import device_of_run

    if share is not None or engine != "ray" or is_numbered(config.device):
        return share or 0.0
    return 1 / len(config.data.domain_names) if device_of_run(config) in OF_RAY else 0.0


@with_settings(("data_dir", "device"))
def experiment(
    settings: dict[str, Any],
    file: Annotated[Path, typer.Argument(help="The experiment, a TOML file.")],
    only: Only = [],  # noqa: B006
    seeds: Annotated[
        str | None,
        typer.Option(help="Number of seeds, or a list or range: 3, 4,7, 10-12.", show_default="the file's"),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of each run.", show_default="the file's")] = None,
    change: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of all runs: model=lenet."),
    ] = [],  # noqa: B006
    jobs: Annotated[
        int | None, typer.Option(help="Parallel runs.", show_default="the number of cores")
    ] = None,
    track: Track = [],  # noqa: B006
    output: Annotated[
        Path | None, typer.Option(help="Folder of the results.", show_default="runs/FILE")
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Run nothing: say which files are missing, and what each row costs on this machine.",
        ),
    ] = False,
) -> None:
    """Run an experiment, such as a paper's table, and write its report with the paper's numbers.

    Finished cells are kept: repeat the command after an interruption, or with more seeds.
    """
    from fda_flower.experiments import load_results, read_experiment, run_experiment, write_report

    bar, definition = CellBar(), read_experiment(file, settings)
    chosen = None if seeds is None else read_seeds(seeds)
    if check:
        from fda_flower.experiments import plan_experiment

        changes = _changes(change)
        check_trackers(read_names(track))
        read_value("jobs", 1 if jobs is None else jobs, Count)
        out.text("Reading the data, and measuring a batch of each network ...")
        plan = plan_experiment(
            definition, only=only, seeds=chosen, rounds=rounds, settings=changes, machine=settings
        )
        return show_plan(plan, _without_rows(this_command(), [row.label for row in definition.rows]))
    folder = output or Path("runs") / definition.name
    written, again = folder / "report.md", this_command(output=output)
    when_stopped(lambda: f"Stopped with {bar.done}{bar.where(written)}. Continue with: {again}")
    try:
        with bar:
            failures = run_experiment(
                definition,
                folder,
                only=only,
                seeds=chosen,
                rounds=rounds,
                settings=_changes(change),
                machine=settings,
                jobs=_parallel("local", None) if jobs is None else jobs,
                track=read_names(track),
                on_progress=bar,
            )
    except KeyboardInterrupt:
        write_report([load_results(folder)], written)
        raise
    files, rows = write_tables([folder], written)
    end_with(failures, {"files": files, "rows": rows}, f"Written: {', '.join(files)}")


def _without_rows(command: str, rows: Collection[str]) -> str:
    """Return a command of all rows that trains, from one that chooses some of them, or checks.

    Examples
    --------
    >>> _without_rows("fda experiment vlcs --check --only Oracle --only C --seeds 1", ["Oracle"])
    'fda experiment vlcs --only C --seeds 1'
    """
    words = [word for word in shlex.split(command) if word not in ("--check", "--json", "--quiet", "-q")]
    chosen = [
        place
        for place, (before, word) in enumerate(pairwise(["", *words]))
        if word.removeprefix("--only=") in rows and (before == "--only" or word.startswith("--only="))
    ]
    left_out = {each for place in chosen for each in (place, place - (words[place - 1] == "--only"))}
    return shlex.join(word for place, word in enumerate(words) if place not in left_out)


def _changes(pairs: list[str]) -> dict[str, Any]:
    from fda_flower.experiments.definition import RUN_KEYS

    changes: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        name = key.replace("-", "_")
        if not equals or name.replace("_", "-") not in RUN_KEYS:
            why = f"but '{key}' is no setting{hint}" if (hint := near(key, RUN_KEYS)) and equals else ""
            remedy = f"give KEY=VALUE with one of the keys {', '.join(sorted(RUN_KEYS))}"
            raise invalid("--set", pair, remedy, why)
        read: Any = split_options(value) if name in OPTION_FIELDS else value
        before = changes.get(name, {})
        if before and (read is value or before.keys() & read.keys()):
            raise invalid("--set", pair, "give each setting once", "but it was given before")
        changes[name] = {**before, **read} if name in OPTION_FIELDS else read
    return changes
