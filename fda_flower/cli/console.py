"""Output of the commands: full, only the last line (``--quiet``), or JSON (``--json``)."""

import inspect
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.console import Console
from rich.text import Text

from fda_flower.errors import invalid
from fda_flower.names import as_written

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table as RichTable

    from fda_flower.reporting import Table
    from fda_flower.running.processes import Progress as CellProgress

console = Console(emoji=False)

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the last line.")]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the result as a JSON object; the rest goes to standard error."),
]


def with_output(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options ``--quiet`` and ``--json``; the command must end with `conclude`."""
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def call(*, quiet: bool, as_json: bool, **values: Any) -> None:
        console.quiet, console.stderr = quiet, as_json
        try:
            command(**values)
        finally:
            console.quiet, console.stderr = False, False

    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=hint)
        for name, hint in (("quiet", Quiet), ("as_json", Json))
    ]
    given = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in signature.parameters.values()]
    call.__signature__ = signature.replace(parameters=[*given, *own])  # type: ignore[attr-defined]
    call.__annotations__ = {}
    return call


def conclude(*lines: str | Text, result: Mapping[str, Any]) -> None:
    """Print a command's last lines, despite ``--quiet``; with ``--json`` also its result."""
    for line in lines:
        say(line, always=not console.stderr)
    if console.stderr:
        from fda_flower.files import json_safe

        print(json.dumps(json_safe(result)))


def say(line: object, always: bool = False) -> None:
    """Print a line as it is, without markup; `always` overrides ``--quiet``."""
    quiet, console.quiet = console.quiet, console.quiet and not always
    console.print(line if isinstance(line, Text) else Text(str(line)), soft_wrap=True)
    console.quiet = quiet


def marked(word: str, text: object, color: str = "yellow") -> Text:
    """Return a line that begins with a coloured word."""
    return Text.assemble((word, color), f" {text}")


def show_table(table: "Table", words: Collection[str] = ()) -> None:
    """Print a table with its title; only the first column and those in `words` are left-aligned.

    Where the terminal is too narrow, cells are folded: nothing is cut.
    """
    console.print(_drawn(table, words))


def fits(table: "Table") -> bool:
    """Return whether a table has room in the terminal without folded cells."""
    return (
        _drawn(table).__rich_measure__(console, console.options.update(max_width=10_000)).maximum
        <= console.width
    )


def _drawn(table: "Table", words: Collection[str] = ()) -> "RichTable":
    from rich.table import Table as RichTable

    shown = RichTable(title=Text(table.title))
    for name in table.header:
        left = name in (table.header[0], *words)
        shown.add_column(Text(name), justify="left" if left else "right", overflow="fold")
    for row in table.rows:
        texts = [(str(getattr(cell, "text", cell)), getattr(cell, "best", False)) for cell in row]
        shown.add_row(*(Text(text, "bold" if best else "") for text, best in texts))
    return shown


def say_without_bar(text: object) -> None:
    """Print a line unless a terminal shows the progress bar."""
    if not console.is_terminal:
        say(text)


@contextmanager
def saying(logger: logging.Logger, show: Callable[[str], object] = say) -> Iterator[None]:
    """Give a logger's messages to `show`: by default, they are plain lines of the command."""
    handler = logging.Handler()
    handler.emit = lambda record: show(record.getMessage())  # type: ignore[assignment]
    handlers, propagate, level = logger.handlers, logger.propagate, logger.level
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def show_error(text: str) -> None:
    """Print an error on standard error."""
    Console(stderr=True).print(marked("Error:", text, "red"), soft_wrap=True)


def progress_bar() -> "Progress":
    """Return a progress bar with a text field `shown`, which disappears at the end."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[shown]}", markup=False),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def read_seeds(text: str) -> Sequence[int]:
    """Return the seeds in a text: a number of seeds, counted from 0, a list, or a range.

    Examples
    --------
    >>> list(read_seeds("3")), list(read_seeds("4,7")), list(read_seeds("10-12"))
    ([0, 1, 2], [4, 7], [10, 11, 12])
    """
    first, dash, last = text.partition("-")
    try:
        as_written(text)
        if dash:
            seeds: Sequence[int] = range(int(first), int(last) + 1)
        else:
            seeds = [int(part) for part in text.split(",")] if "," in text else range(int(text))
    except ValueError:
        seeds = ()
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise invalid("seeds", text, "give their number, such as 3, or a list or range: 4,7 or 10-12")
    return seeds


def end_with(failures: Mapping[str, str]) -> None:
    """Print the failed cells, one line per reason; exit with code 1 if there are any."""
    for reason in dict.fromkeys(failures.values()):
        first, *others = [cell for cell in failures if failures[cell] == reason]
        cells = f"{first} and {len(others)} more" if others else first
        say(marked("Failed:", f"{cells}: {reason}", "red"), always=True)
    if failures:
        raise typer.Exit(1)


class CellBar:
    """Shows the progress of an experiment's cells: a callback, and a context manager."""

    def __init__(self) -> None:
        self._bar = progress_bar()
        self._task = self._bar.add_task("Rounds", total=None, shown="")
        self._told: set[str] = set()
        self._reasons: set[str] = set()
        self._state: CellProgress | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, state: "CellProgress") -> None:
        """Show the current progress."""
        self._state = state
        shown = f"{self.done}, {len(state.running)} running"
        if state.failures:
            shown += f", {len(state.failures)} failed"
        self._bar.update(self._task, completed=state.rounds_done, total=state.rounds, shown=shown)
        for name in [name for name in state.finished if name not in self._told]:
            self._told.add(name)
            number = state.done - len(state.finished) + state.finished.index(name) + 1
            say_without_bar(f"cell {number}/{state.cells}: {name} is done")
        for name, reason in state.failures.items():
            if reason not in self._reasons:
                self._reasons.add(reason)
                say_without_bar(f"cell {name} has failed: {reason}")

    @property
    def done(self) -> str:
        """The number of finished cells, in words."""
        return f"{self._state.done} of {self._state.cells} cells done" if self._state else "no cell done"

    def where(self, path: Path) -> str:
        """Return a note on the file with the finished cells; empty if there are none."""
        return f" ({path} has them)" if self._state and self._state.done else ""
