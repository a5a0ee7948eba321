"""The command `fda data`, for the user's own data."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fda_flower.cli.console import say, show_markup, show_table
from fda_flower.cli.options import with_settings
from fda_flower.datasets.own_data import few_tests
from fda_flower.runs.config import RunConfig
from fda_flower.runs.settings import SETTINGS, command_options

app = typer.Typer(no_args_is_help=True, help="Check your own data before a run.")

MAX_CLASS_COLUMNS = 4
"""The most classes shown as columns of the table of domains; more get a table of their own."""

ON_FEATURES, ON_VALUES = "ridge", "mixture"
"""The method to begin with: for photos and where every site is a target; for all other data."""

TAKEN = ("dataset", "dataset_options", "target", "target_samples", "source_samples", "test_samples")


@app.command(epilog="Example: `fda data check hospitals --dataset-option label=diagnosis`")
@with_settings(TAKEN, dataset="", shown={"dataset": "found by the folder's content"})
def check(
    settings: dict[str, Any],
    folder: Annotated[Path, typer.Argument(help="The folder with the data: DOMAIN.csv, or DOMAIN/CLASS/.")],
) -> None:
    """Show rows, classes and missing values of each domain, and every problem that would stop a run.

    The exit code is 1 if there is one.
    """
    from fda_flower.datasets import DataSpec
    from fda_flower.datasets.check import CHECKS, find_dataset, sizes_of
    from fda_flower.errors import unknown
    from fda_flower.reporting import Table

    dataset = settings.pop("dataset") or find_dataset(folder)
    if dataset not in CHECKS:
        raise unknown("data set of one's own", dataset, CHECKS)
    settings = {"target_samples": RunConfig.target_samples, **settings}
    settings |= {"dataset": dataset, "data_dir": str(folder)}
    settings["dataset_options"] = tuple(settings.get("dataset_options", {}).items())
    spec = DataSpec(**settings)
    found = CHECKS[dataset](folder, dict(spec.dataset_options))
    sizes = {} if found.problems else sizes_of(spec, found.problems)
    classes = list(dict.fromkeys(name for domain in found.domains.values() for name in domain.classes))
    shown = classes if len(classes) <= MAX_CLASS_COLUMNS else []
    last = ["Missing values"] if any(domain.missing for domain in found.domains.values()) else []
    header = ["Domain", "Samples", "Train", "Test", *shown, *last]
    rows = []
    for name, domain in found.domains.items():
        missing = [", ".join(f"{column} {count}" for column, count in domain.missing.items())] if last else []
        role = " (target)" if name == spec.target_name else ""
        counts = (domain.classes.get(each, 0) for each in shown)
        rows.append([f"{name}{role}", domain.samples, *sizes.get(name, ("", "")), *counts, *missing])
    show_table(Table(header, rows, f"{dataset} in {folder}"), last)
    if shown != classes:
        rows = [
            [each, *(domain.classes.get(each, 0) for domain in found.domains.values())] for each in classes
        ]
        show_table(Table(["Class", *found.domains], rows, "Samples of each class"))
    say(f"Inputs: {found.inputs}")
    for kind, places in found.problems.by_kind().items():
        show_markup(f"[red]Refused:[/red] {escape(kind)}")
        for place in places:
            say(f"  {place}")
    if found.problems:
        raise typer.Exit(1)
    for name in spec.domain_names if spec.every_site else [spec.target_name]:
        for problem in few_tests(int(sizes[name][1])):
            show_markup(f"[yellow]Warning:[/yellow] {escape(name)}: {escape(problem)}")
    settings["method"] = ON_FEATURES if spec.every_site or dataset == "images" else ON_VALUES
    given = [each for each in SETTINGS if each.name in settings]
    say("Run it:")
    say(shlex.join(["fda", "run", *command_options(given, settings)]))
