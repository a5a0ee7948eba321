"""The commands for experiments and their reports."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fda_flower.cli.cells import CellBar
from fda_flower.cli.console import check_jobs, conclude, end_with, read_seeds, say, with_output
from fda_flower.cli.options import Track, with_settings
from fda_flower.cli.stopping import this_command, when_stopped
from fda_flower.errors import ConfigError
from fda_flower.options import split_options
from fda_flower.run_settings import OPTION_FIELDS
from fda_flower.trackers.registry import read_names


@with_output
@with_settings(("data_dir", "device"))
def experiment(
    settings: dict[str, Any],
    file: Annotated[Path, typer.Argument(help="The experiment, a TOML file.")],
    only: Annotated[
        list[str], typer.Option(help="Label of a row, column or group to run; repeat it for more.")
    ] = [],  # noqa: B006
    seeds: Annotated[
        str | None,
        typer.Option(help="Number of seeds, or a list or range: 3, 4,7, 10-12.", show_default="the file's"),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of each run.", show_default="the file's")] = None,
    change: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="Another setting for all runs, such as model=lenet."),
    ] = [],  # noqa: B006
    jobs: Annotated[int, typer.Option(help="Runs at a time.", show_default="the number of cores")] = 0,
    track: Track = [],  # noqa: B006
    output: Annotated[
        Path | None, typer.Option(help="Folder of the results.", show_default="runs/FILE")
    ] = None,
) -> None:
    """Run an experiment, and write its report: a paper's table measured again, beside the paper's numbers.

    What is done is kept: call it again to go on after an interruption, or with more seeds.
    """
    bar = CellBar()
    when_stopped(lambda: f"Stopped. Go on with: {this_command()}")
    from fda_flower.experiments import load_results, read_experiment, run_experiment, write_report

    definition = read_experiment(file)
    check_jobs(jobs)
    chosen = None if seeds is None else read_seeds(seeds)
    folder = output or Path("runs") / definition.name
    file_of_report = folder / "report.md"
    when_stopped(
        lambda: (
            f"Stopped with {bar.done}{bar.where(file_of_report)}. Go on with: {this_command(output=output)}"
        )
    )
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
                jobs=jobs or os.cpu_count() or 1,
                track=read_names(track),
                on_progress=bar,
            )
    except KeyboardInterrupt:
        write_report([load_results(folder)], file_of_report)
        raise
    _report([folder], file_of_report, failures)
    end_with(failures)


@with_output
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Folders of results: of `fda experiment`, `fda compare` and `fda run`."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="The Markdown or HTML file to write.",
            show_default="report.md, with --html report.html, in the first folder",
        ),
    ] = None,
    html: Annotated[
        bool, typer.Option("--html", help="Write one page for a browser, which needs no network.")
    ] = False,
) -> None:
    """Write the tables (Markdown, CSV) and pictures (PNG) of experiments, and the picture of runs.

    With --html: one page of runs, comparisons or experiments, with tables that sort and charts to point at.
    """
    from fda_flower.experiments.html_report import kind_of, write_html
    from fda_flower.experiments.views import draw

    if html:
        page = output or folders[0] / "report.html"
        write_html(folders, page)
        say(f"Written: {page}")
        return
    of_runs = [folder for folder in folders if kind_of(folder) != "experiment"]
    if output is not None and of_runs:
        raise ConfigError(
            f"output is '{output}', but the picture of '{of_runs[0]}' is written there: leave it out, or add "
            "--html"
        )
    for folder in of_runs:
        say(f"Written: {draw(folder)}")
    if tables := [folder for folder in folders if folder not in of_runs]:
        _report(tables, output or tables[0] / "report.md")


def _report(folders: list[Path], output: Path, failures: Mapping[str, str] | None = None) -> None:
    from fda_flower.experiments import load_results, write_report
    from fda_flower.reporting.experiment_tables import numbers

    results = [load_results(folder) for folder in folders]
    paths = write_report(results, output)
    result = {
        "files": list(map(str, paths)),
        "rows": [{"experiment": one.name, **row} for one in results for row in numbers(one).records()],
        **({} if failures is None else {"failures": failures}),
    }
    conclude(f"Written: {escape(', '.join(map(str, paths)))}", result=result)


def _changes(pairs: list[str]) -> dict[str, Any]:
    from fda_flower.experiments.definition import RUN_KEYS

    changes: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        name = key.replace("-", "_")
        if not equals or name.replace("_", "-") not in RUN_KEYS:
            raise ConfigError(
                f"--set is '{pair}': give KEY=VALUE with one of the keys {', '.join(sorted(RUN_KEYS))}"
            )
        changes[name] = split_options(value) if name in OPTION_FIELDS else value
    return changes
