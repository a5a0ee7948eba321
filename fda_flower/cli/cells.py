"""The cells of a comparison, an experiment or a search: their seeds, progress and failures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import typer

from fda_flower.cli.output import out
from fda_flower.errors import invalid
from fda_flower.names.options import as_written

if TYPE_CHECKING:
    from fda_flower.experiments import Plan
    from fda_flower.running.processes import Progress


MOST = 10_000
"""Seeds in one command, which a seed in place of their number, such as a date, exceeds."""


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
    remedy = "give their number, such as 3, or a list or range: 4,7 or 10-12"
    if seeds[MOST:]:
        raise invalid("seeds", text, f"{remedy}, or 7-7 for seed 7 alone", f"more than {MOST:,} seeds")
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise invalid("seeds", text, remedy)
    return seeds


class CellBar:
    """Shows the progress of an experiment's cells: a callback, and a context manager."""

    def __init__(self) -> None:
        self._bar = out.progress()
        self._task = self._bar.add_task("Rounds", total=None, shown="")
        self._announced: set[str] = set()
        self._reasons: set[str] = set()
        self._state: Progress | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, state: "Progress") -> None:
        """Show the current progress."""
        self._state = state
        status = f"{self.done}, {len(state.running)} running"
        if state.failures:
            status += f", {len(state.failures)} failed"
        self._bar.update(self._task, completed=state.rounds_done, total=state.rounds, shown=status)
        for name in [name for name in state.finished if name not in self._announced]:
            self._announced.add(name)
            number = state.done - len(state.finished) + state.finished.index(name) + 1
            out.log(f"cell {number}/{state.cells}: {name} is done")
        for name, reason in state.failures.items():
            if reason not in self._reasons:
                self._reasons.add(reason)
                out.log(f"cell {name} has failed: {reason}")

    @property
    def done(self) -> str:
        """The number of finished cells, in words."""
        return f"{self._state.done} of {self._state.cells} cells done" if self._state else "no cell done"

    def where(self, path: Path) -> str:
        """Return a note on the file with the finished cells; empty if there are none."""
        return f" ({path} has them)" if self._state and self._state.done else ""


def end_with(failures: Mapping[str, str], result: Mapping[str, Any], *lines: str) -> None:
    """Print the result, and the failed cells, one line per reason; exit with code 1 if there are any."""
    failed = []
    for reason in dict.fromkeys(failures.values()):
        first, *others = [cell for cell in failures if failures[cell] == reason]
        cells = f"{first} and {len(others)} more" if others else first
        failed.append(f"Failed: {cells}: {reason}")
    out.result({**result, "failures": failures}, *lines, *failed)
    if failures:
        raise typer.Exit(1)


def show_plan(plan: "Plan", command: str) -> None:
    """Print what an experiment's runs need and cost; exit with code 1 if something is missing."""
    from fda_flower.reporting.tables import Table
    from fda_flower.reporting.words import span

    if plan.rows:
        times = [[e.row, e.runs, span(e.seconds / e.runs), span(e.seconds)] for e in plan.rows]
        out.table(Table(["Row", "Runs", "A run", "All runs"], times, "Cost on this machine, cheapest first"))
        if plan.features:
            out.text(f"Features of the frozen network, computed once: {span(plan.features)}")
        out.text(f"All, one run at a time: {span(plan.seconds)}")
        if len(plan.rows) > 1:
            out.text(f"Run the rows from the top, one after the other: {command} --only ROW")
    if plan.published:
        out.text("Measured on random images, for as many as the missing data have as published")
    lines = [f"Missing: {sentence}" for sentence in plan.missing] or ["No file is missing"]
    lines += [f"Cannot run: {sentence}" for sentence in plan.refused]
    rows = [{"row": each.row, "runs": each.runs, "seconds": each.seconds} for each in plan.rows]
    reasons = {"missing": [*plan.missing], "refused": [*plan.refused]}
    out.result({**reasons, "rows": rows, "seconds": plan.seconds}, *lines)
    if plan.missing or plan.refused:
        raise typer.Exit(1)
