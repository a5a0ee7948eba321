"""The progress of a table's cells: a bar on a terminal, a line for each cell elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Self

from fda_flower.cli.console import progress_bar, say_without_bar

if TYPE_CHECKING:
    from fda_flower.experiments.cell import Progress


class CellBar:
    """Shows the progress that it is called with, from ``with`` until its end."""

    def __init__(self) -> None:
        self._bar = progress_bar()
        self._task = self._bar.add_task("Rounds", total=None, shown="")
        self._told: set[str] = set()
        self._reasons: set[str] = set()
        self._state: Progress | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, state: "Progress") -> None:
        """Show a state."""
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
        """How many cells are done, in words."""
        return f"{self._state.done} of {self._state.cells} cells done" if self._state else "no cell done"

    def where(self, path: Path) -> str:
        """Say which file has those that are done, if there are any."""
        return f" ({path} has them)" if self._state and self._state.done else ""
