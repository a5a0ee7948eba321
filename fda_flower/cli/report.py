"""The command report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fda_flower.cli.output import out
from fda_flower.errors import ConfigError, invalid


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Folders of `fda experiment`, `fda compare` or `fda run`."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="Markdown or HTML file to write.",
            show_default="report.md, with --html report.html, in the first folder",
        ),
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="Write one self-contained HTML page.")] = False,
    card: Annotated[
        bool, typer.Option("--card", help="Write the model card of a run, README.md in its folder.")
    ] = False,
    figures: Annotated[
        str, typer.Option(help="Format of the pictures: png, pdf or svg; not with --html or --card.")
    ] = "png",
    sent: Annotated[
        list[Path], typer.Option(help="With --card: the state-dir of a site; the card sums up its log.")
    ] = [],  # noqa: B006
) -> None:
    """Write the tables (Markdown, LaTeX, CSV) and pictures of experiments and comparisons; draw runs.

    With --html: one page of runs, comparisons or experiments, with sortable tables and interactive charts.
    With --card: the model card of a run, for readers who did not train the model.
    """
    _check_form(html=html, card=card, sent=sent)
    if figures != "png" and (html or card):
        raise invalid("figures", figures, "leave one of them out", "but --html and --card have no such files")
    if card and len(folders) > 1 and output is not None:
        raise invalid("output", output, "leave it out", "but there are several cards")
    from fda_flower.experiments.folders import kind_of
    from fda_flower.experiments.pages import draw, write_card, write_html
    from fda_flower.experiments.results import load_results
    from fda_flower.reporting.experiment_tables import numbers, shares_of

    written: list[list[str]] = []
    if card:
        written += [[str(write_card(folder, output, sent))] for folder in folders]
    if html:
        page = output or folders[0] / "report.html"
        write_html(folders, page)
        written.append([str(page)])
    rows: list[dict[str, Any]] = []
    if not (card or html):
        of_runs = [folder for folder in folders if kind_of(folder) == "run"]
        if output is not None and of_runs:
            why = f"but the picture of '{of_runs[0]}' is written there"
            raise invalid("output", output, "leave it out, or add --html", why)
        written += [[str(draw(folder, figures=figures))] for folder in of_runs]
        for results in map(load_results, of_runs):
            rows += shares_of(results, numbers(results))
        if tables := [folder for folder in folders if folder not in of_runs]:
            files, of_tables = write_tables(tables, output or tables[0] / "report.md", figures)
            written, rows = [*written, files], [*rows, *of_tables]
    lines = (f"Written: {', '.join(files)}" for files in written)
    out.result({"files": [file for files in written for file in files], "rows": rows}, *lines)


def _check_form(html: bool, card: bool, sent: Sequence[Path]) -> None:
    """Raise a `ConfigError` for options of a report of which one would be ignored."""
    if html and card:
        raise ConfigError("--html and --card are given: give one of them", thing="--card")
    if sent and not card:
        raise invalid("sent", ", ".join(map(str, sent)), "add --card", "but only a model card sums up logs")


def write_tables(
    folders: list[Path], output: Path, figures: str = "png"
) -> tuple[list[str], list[dict[str, Any]]]:
    """Write the report of experiments; return its files, and the rows of its tables."""
    from fda_flower.experiments import load_results, write_report
    from fda_flower.reporting.experiment_tables import numbers, shares_of

    results = [load_results(folder) for folder in folders]
    files = list(map(str, write_report(results, output, figures)))
    return files, [
        {"experiment": one.design.name, **row} for one in results for row in shares_of(one, numbers(one))
    ]
