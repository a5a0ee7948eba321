"""The cells of a table of runs: each is a run in its own process, whose result may go to a file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fda_flower.config import RunConfig
from fda_flower.errors import RefusedError
from fda_flower.experiments.attacks import Attack
from fda_flower.experiments.cell_files import REFUSED, write_cell
from fda_flower.experiments.definition import file_name
from fda_flower.experiments.processes import State, run_all
from fda_flower.experiments.run import RunResult, run_config
from fda_flower.reporting.results import Place
from fda_flower.run_folder import RunFolder
from fda_flower.selection import has_ended


@dataclass(frozen=True)
class Cell:
    """One run of a table of runs, in its own folder below `runs`.

    Without a folder `results`, no result file is written besides the run; `engine`, `workers`, `resume` and
    `track` are as in `fda_flower.run`, and `track_in` and `attack` as in `run_config`.
    """

    place: Place
    config: RunConfig
    runs: Path
    results: Path | None = None
    engine: str = "local"
    resume: bool = True
    track: Sequence[str] = ()
    track_in: Path | None = None
    workers: int | None = None
    attack: Attack | None = None

    @property
    def name(self) -> str:
        """The cell's name, in messages and in names of files."""
        return f"{file_name(self.place)}-seed{self.config.seed}"

    @property
    def run_folder(self) -> Path:
        """The folder of the cell's run."""
        return self.runs / self.name

    @property
    def result(self) -> Path | None:
        """The file of the cell's result, written when the run is done."""
        return None if self.results is None else self.results / f"{self.name}.json"

    def has_ended(self) -> bool:
        """Return whether the run has no round to go."""
        return has_ended(
            RunFolder(self.run_folder).read_rounds(), self.config.all_rounds, self.config.patience
        )

    def rounds_done(self) -> int:
        """Return the number of rounds written so far."""
        path = self.run_folder / "rounds.jsonl"
        return min(path.read_bytes().count(b"\n"), self.config.all_rounds) if path.exists() else 0


@dataclass(frozen=True)
class Progress:
    """The progress of a table's cells; rounds leave out cells that were done before or have failed.

    `finished` names the cells done by this call, in that order; `done` counts those done before too.
    """

    cells: int
    done: int
    running: Sequence[str]
    finished: Sequence[str]
    failures: Mapping[str, str]
    rounds: int
    rounds_done: int


def run_cells(
    cells: Sequence[Cell], jobs: int, on_progress: Callable[[Progress], None] | None, done: int = 0
) -> dict[str, str]:
    """Run cells, each in its own process, `jobs` of them at a time.

    A cell that fails does not stop the others. `done` cells of the table are already done.

    Returns
    -------
    dict[str, str]
        The reason for each failure, by the name of the cell.
    """

    def on_poll(state: State) -> None:
        if on_progress is not None:
            left = [cell for cell in cells if cell.name not in state.failures]
            rounds = sum(cell.config.all_rounds for cell in left), sum(cell.rounds_done() for cell in left)
            counts = done + len(cells), done + len(state.done)
            on_progress(Progress(*counts, state.running, state.done, state.failures, *rounds))

    return run_all(run_cell, {cell.name: cell for cell in cells}, jobs, on_poll)


def run_cell(cell: Cell) -> None:
    """Run a cell and write its result; where there is one, also that the method refuses the federation."""
    try:
        result = run_config(
            cell.config,
            engine=cell.engine,
            workers=cell.workers,
            output=cell.run_folder,
            resume=cell.resume,
            track=cell.track,
            track_in=cell.track_in,
            attack=cell.attack,
        )
    except RefusedError as error:
        if cell.result is None:
            raise
        result = RunResult(cell.config, [], {REFUSED: str(error)}, {}, None)
    if cell.result is not None:
        write_cell(cell.result, cell.place, result, cell.attack)
