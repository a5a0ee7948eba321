"""Where commands print."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape

from fda_flower.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress

console = Console()


def say(text: object) -> None:
    """Print a line as it is."""
    console.print(escape(str(text)), soft_wrap=True, highlight=False)


def show_error(text: str) -> None:
    """Print a line on standard error."""
    Console(stderr=True).print(f"[red]Error:[/red] {escape(text)}", soft_wrap=True, highlight=False)


def progress_bar() -> "Progress":
    """Make a bar with a field `shown` behind it, which is gone when it ends."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[shown]}"),
        console=console,
        transient=True,
    )


def check_counts(seeds: int | None, jobs: int) -> None:
    """Raise a `ConfigError` unless there are seeds to run, some at a time."""
    if seeds is not None and seeds < 1:
        raise ConfigError(f"seeds is {seeds}, it must be at least 1")
    if jobs < 0:
        raise ConfigError(f"jobs is {jobs}, it must be at least 1 (0 for the number of cores)")


def end_with(failures: Mapping[str, str]) -> None:
    """Name the cells that failed; with any, the exit code is 1."""
    for cell, reason in failures.items():
        console.print(f"[red]Failed:[/red] {cell}: {escape(reason)}", soft_wrap=True)
    if failures:
        raise typer.Exit(1)
