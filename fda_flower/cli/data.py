"""The command `fda data`, for the user's own data."""

import logging
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fda_flower.cli.console import fits, marked, say, saying, show_table
from fda_flower.cli.options import with_settings
from fda_flower.names import known_name
from fda_flower.runs.settings import SETTINGS, command_options

if TYPE_CHECKING:
    from fda_flower.datasets.check import DomainCheck
    from fda_flower.datasets.problems import Problem, Problems

app = typer.Typer(no_args_is_help=True, help="Check your own data before a run.")

MAX_CLASS_COLUMNS = 4
"""The most classes shown as columns of the table of domains; more get a table of their own."""

MAX_FILES = 50
"""The most files that are listed with a problem."""

ON_FEATURES, ON_VALUES = "ridge", "mixture"
"""The method to begin with: for photos and where every site is a target; for all other data."""

TAKEN = ("dataset", "dataset_options", "target", "target_samples", "source_samples", "test_samples")


@app.command(epilog="Example: `fda data check hospitals --dataset-option label=diagnosis`")
@with_settings(TAKEN, dataset="", shown={"dataset": "found by the folder's content"})
def check(
    settings: dict[str, Any],
    folder: Annotated[
        Path,
        typer.Argument(
            help="The folder with the data: DOMAIN.csv, DOMAIN/CLASS/, or a data set of Hugging Face, which "
            "may be on the hub instead.",
            show_default="the current one",
        ),
    ] = Path(),
) -> None:
    """Show rows, classes and missing values of each domain, and every problem that would stop a run.

    The exit code is 1 if there is one.
    """
    from fda_flower.datasets import DataSpec
    from fda_flower.datasets.check import CHECKS, find_dataset, sizes_of
    from fda_flower.errors import unknown

    dataset = known_name(settings.pop("dataset"), CHECKS) or find_dataset(folder)
    if dataset not in CHECKS:
        raise unknown("data set of one's own", dataset, CHECKS)
    settings |= {"dataset": dataset, "data_dir": str(folder)}
    settings["dataset_options"] = tuple(settings.get("dataset_options", {}).items())
    spec = DataSpec(**settings)
    warnings: dict[str, None] = {}
    lacks: list[str] = []
    with saying(logging.getLogger("fda_flower"), warnings.setdefault):
        found = CHECKS[dataset](folder, dict(spec.dataset_options))
        sizes = {} if found.problems else sizes_of(spec, found.problems, lacks)
    names = {name: f"{name} (target)" if name == spec.target_name else name for name in found.domains}
    show_domains(found.domains, sizes, names, f"{dataset} in {folder}")
    say(f"Inputs: {found.inputs}")
    for warning in [*warnings, *lacks]:
        say(marked("Warning:", warning))
    if found.problems:
        show_problems(found.problems)
        raise typer.Exit(1)
    photos = "image_size" in dict(spec.dataset_options)
    settings["method"] = ON_FEATURES if spec.every_site or photos else ON_VALUES
    given = [each for each in SETTINGS if each.name in settings]
    say("Run it:")
    say(shlex.join(["fda", "run", *command_options(given, settings)]))


def show_domains(
    domains: "Mapping[str, DomainCheck]",
    sizes: Mapping[str, tuple[str, str]],
    names: Mapping[str, str],
    title: str,
) -> None:
    """Print each domain's samples, classes and missing values: in one table if it fits the terminal."""
    from fda_flower.reporting import Table

    classes = list(dict.fromkeys(label for domain in domains.values() for label in domain.classes))
    columns = dict.fromkeys(column for domain in domains.values() for column in domain.missing)
    rows = [[names[name], each.samples, *sizes.get(name, ("", ""))] for name, each in domains.items()]
    counts = [[each.classes.get(label, 0) for label in classes] for each in domains.values()]
    gaps = [
        [", ".join(f"{name} {count}" for name, count in each.missing.items())] for each in domains.values()
    ]
    last = ["Missing values"] if columns else []
    header = ["Domain", "Samples", "Train", "Test"]
    wide = Table(
        [*header, *classes, *last],
        [[*row, *count, *(gap if last else [])] for row, count, gap in zip(rows, counts, gaps, strict=True)],
        title,
    )
    if len(classes) <= MAX_CLASS_COLUMNS and fits(wide):
        show_table(wide, last)
        return
    show_table(Table(header, rows, title))
    counted = [[label, *(each.classes.get(label, 0) for each in domains.values())] for label in classes]
    missing = [[name, *(each.missing.get(name, 0) for each in domains.values())] for name in columns]
    for kind, about, cells in (
        ("Class", "Samples of each class", counted),
        ("Column", "Missing values", missing),
    ):
        if cells:
            show_table(Table([kind, *domains], cells, about))


def show_problems(problems: "Problems") -> None:
    """Print each kind of problem with its first place and the number of cells, then all places."""
    kinds = problems.by_kind()
    for kind, places in kinds.items():
        say(marked("Refused:", kind, "red"))
        if first := places[0].path:
            cells = sum(each.count for each in places)
            say(f"  {_where(first, places[:1])}{f'; {cells} in all' if len(places) > 1 else ''}")
    if all(len(places) == 1 for places in kinds.values()):
        return
    say("All places:")
    for places in kinds.values():
        if len(places) > 1:
            say(f"  {places[0].what}")
            paths = list(dict.fromkeys(each.path for each in places))
            for path in paths[:MAX_FILES]:
                say(f"    {_where(path, [each for each in places if each.path == path])}")
            if len(paths) > MAX_FILES:
                say(f"    and {len(paths) - MAX_FILES} more")


def _where(path: Path | None, problems: "Sequence[Problem]") -> str:
    return ": ".join(filter(None, (str(path), "; ".join(each.place for each in problems if each.place))))
