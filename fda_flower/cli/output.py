"""What a command prints: for people, the result alone (``--quiet``), or one JSON object (``--json``)."""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from fda_flower.errors import FdaError, printable_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table as RichTable

    from fda_flower.reporting import Table

COLOURS = {
    **dict.fromkeys(("Error", "Failed", "Not ok", "Refused"), "red"),
    **dict.fromkeys(("Incomplete", "Note", "Warning"), "yellow"),
}
"""By the word before a line's first colon, its colour."""


LEAST = 20
"""Letters of a wrapped text in the narrowest terminal."""


class Output:
    """The output of the current command, in the mode that its options choose.

    For people, all but errors is on standard output. ``--quiet`` leaves the `result`; warnings and errors are
    on standard error. ``--json`` leaves one object on standard output, a `result` or an `error`, and the rest
    is on standard error, except with ``--quiet``: then it has the warnings, too.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self, *, quiet: bool = False, as_json: bool = False) -> None:
        """Begin a command in a mode."""
        self.quiet, self.json = quiet, as_json
        self._warnings: list[str] = []
        self._people: Console | None = None

    @property
    def console(self) -> "Console":
        """The terminal or file that people read; ``--quiet`` silences it."""
        if self._people is None:
            self._people = _console(quiet=self.quiet, stderr=self.json)
        return self._people

    def text(self, line: object, style: str = "") -> None:
        """Print a line for people as it is, without markup."""
        _print(self.console, line, style)

    def entries(self, entries: Mapping[str, str]) -> None:
        """Print names, each with its text, which is wrapped between words where a terminal is too narrow."""
        indent = max(map(len, entries)) + 3
        for name, text in entries.items():
            lines = wrap(text, max(self._room - indent, LEAST)) if self.console.is_terminal else [text]
            self.text(f"  {name}".ljust(indent) + f"\n{' ' * indent}".join(lines))

    def log(self, line: object) -> None:
        """Print a line on the progress, unless a terminal shows the bar."""
        if not self.console.is_terminal:
            self.text(line)

    def table(self, table: "Table", words: Collection[str] = ()) -> None:
        """Print a table with its title; only the first column and those in `words` are left-aligned.

        Where the terminal is too narrow, headings and words are wrapped, numbers are not, and columns that
        have no room even so go into further tables with the same first column.
        """
        left = {table.header[0], *words}
        rest = range(1, len(table.header))
        while True:
            sizes = range(len(rest), 1, -1)
            parts = (_chosen(table, rest[:size]) for size in sizes)
            fitting = (len(part.header) - 1 for part in parts if _width(_least(part, left)) <= self._room)
            size = next(fitting, 1)
            self.console.print(_drawn(_chosen(table, rest[:size]), left, self._room))
            rest = rest[size:]
            if not rest:
                return

    def fits(self, table: "Table") -> bool:
        """Return whether a table has room in the terminal without wrapped lines."""
        return _width(_most(table)) <= self._room

    @property
    def _room(self) -> int:
        return self.console.width

    def progress(self) -> "Progress":
        """Return a progress bar with a text field `shown`, which disappears at the end."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        return Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[shown]}", markup=False),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )

    def warning(self, message: object, word: str = "Warning") -> None:
        """Print a warning once; it is also in the result of ``--json``, with ``--quiet`` there alone."""
        if str(message) in self._warnings:
            return
        self._warnings.append(str(message))
        if not (self.quiet and self.json):
            _print(_console(stderr=True) if self.quiet else self.console, f"{word}: {message}")

    @property
    def _warned(self) -> dict[str, list[str]]:
        return {"warnings": self._warnings} if self._warnings else {}

    def result(self, result: Mapping[str, Any], *lines: object) -> None:
        """Print what the command is called for: `lines`, or with ``--json`` the object `result`."""
        console = _console() if self.quiet and not self.json else self.console
        for line in lines:
            _print(console, line)
        self.object({**result, **self._warned})

    def error(self, error: FdaError) -> None:
        """Print an error on standard error; with ``--json``, it is the object on standard output, too."""
        _print(_console(stderr=True), f"Error: {error}")
        self.error_object(error)

    def error_object(self, error: FdaError) -> None:
        """Print an error as the object of ``--json``, if that is chosen."""
        details = {"message": str(error), "thing": error.thing, "value": error.value, "remedy": error.remedy}
        self.object({"error": details, **self._warned})

    def object(self, result: Mapping[str, Any]) -> None:
        """Print the one object of ``--json``, if that is chosen."""
        if self.json:
            from fda_flower.files import json_safe

            print(json.dumps(json_safe(result), default=str), flush=True)


out = Output()
"""The output of all commands."""


@contextmanager
def saying(logger: logging.Logger, show: Callable[[str], object] = out.text) -> Iterator[None]:
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


def _console(*, quiet: bool = False, stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(emoji=False, quiet=quiet, stderr=stderr)


def _print(console: "Console", line: object, style: str = "") -> None:
    from rich.text import Text

    text = Text(printable_lines(line), style)
    word = text.plain.partition(":")[0]
    if word in COLOURS:
        text.stylize(COLOURS[word], 0, len(word) + 1)
    console.print(text, soft_wrap=True)


def _drawn(table: "Table", left: Collection[str], room: int) -> "RichTable":
    """Draw a table in a terminal of `room` letters; the widest columns are wrapped first, between words."""
    from rich.table import Table as RichTable
    from rich.text import Text

    widths, least = _most(table), _least(table, left)
    while _width(widths) > room and max(widths) > 1:
        wide = [i for i, width in enumerate(widths) if width > least[i]] or range(len(widths))
        widths[max(wide, key=widths.__getitem__)] -= 1
    drawn = RichTable(title=Text(printable_lines(table.title)))
    for name, width in zip(table.header, widths, strict=True):
        how: Any = {"justify": "left" if name in left else "right", "overflow": "fold", "width": width}
        drawn.add_column(Text(printable_lines(name)), **how)
    for row in table.rows:
        drawn.add_row(*(Text(_shown(cell), "bold" if getattr(cell, "best", False) else "") for cell in row))
    return drawn


def _chosen(table: "Table", columns: Sequence[int]) -> "Table":
    """Return a table's first column and these others."""
    header, *rows = ([row[0], *(row[i] for i in columns)] for row in (table.header, *table.rows))
    return replace(table, header=[*map(str, header)], rows=rows)


def _shown(cell: object) -> str:
    return printable_lines(getattr(cell, "text", cell))


def _most(table: "Table") -> list[int]:
    """Return the width of each column that is not wrapped."""
    return [_longest(each, str.splitlines) for each in zip(table.header, *table.rows, strict=True)]


def _least(table: "Table", left: Collection[str]) -> list[int]:
    """Return the width of each column that is wrapped as far as it may be: numbers are not."""
    return [
        max(_longest([name], str.split), _longest(cells, str.split if name in left else str.splitlines))
        for name, *cells in zip(table.header, *table.rows, strict=True)
    ]


def _longest(cells: Iterable[object], parts: Callable[[str], Iterable[str]]) -> int:
    from rich.cells import cell_len

    return max((cell_len(part) for cell in cells for part in parts(_shown(cell))), default=0)


def _width(widths: Sequence[int]) -> int:
    """Return a table's width: each column has a blank on both sides and a line."""
    return sum(widths) + 3 * len(widths) + 1
