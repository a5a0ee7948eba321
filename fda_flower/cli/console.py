"""Where commands print."""

from collections.abc import Mapping, Sequence
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


def read_seeds(text: str) -> Sequence[int]:
    """Return the seeds that a text names: a number of seeds from 0 on, a list, or a range.

    Raises
    ------
    ConfigError
        If it is none of them.

    Examples
    --------
    >>> list(read_seeds("3")), list(read_seeds("4,7")), list(read_seeds("10-12"))
    ([0, 1, 2], [4, 7], [10, 11, 12])
    """
    first, dash, last = text.partition("-")
    try:
        if dash:
            seeds: Sequence[int] = range(int(first), int(last) + 1)
        else:
            seeds = [int(part) for part in text.split(",")] if "," in text else range(int(text))
    except ValueError:
        seeds = ()
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ConfigError(
            f"seeds is '{text}': give their number, such as 3, or a list or range: 4,7 or 10-12"
        )
    return seeds


def check_jobs(jobs: int) -> None:
    """Raise a `ConfigError` if no runs are to run at a time."""
    if jobs < 0:
        raise ConfigError(f"jobs is {jobs}, it must be at least 1 (0 for the number of cores)")


def end_with(failures: Mapping[str, str]) -> None:
    """Name the cells that failed; with any, the exit code is 1."""
    for cell, reason in failures.items():
        console.print(f"[red]Failed:[/red] {cell}: {escape(reason)}", soft_wrap=True)
    if failures:
        raise typer.Exit(1)
