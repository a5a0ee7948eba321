"""Regret: how far a method is ahead of, or behind, the best other one in each cell of a board.

A board is an experiment whose cells, a group and a column each, differ much in difficulty.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np

from fda_flower.metrics import METRICS, Metric
from fda_flower.reporting.outcomes import paired_error
from fda_flower.reporting.results import CellResult, Place, Results

BoardCell = tuple[str, str]
"""A cell of the board: group (empty if there are none) and column."""

ROLES = ("source", "target")
NEAR = 1.0
"""A method is near the best in a cell if its regret is at least the negative of this, in points."""
ROUNDING = 1e-9
"""The last digits of differences of means, in points."""


@dataclass(frozen=True)
class CellRegret:
    """The regret of a row in a cell, in points.

    Attributes
    ----------
    cell : BoardCell
        Where it was measured.
    rival : str
        The best other rival, by its mean over the seeds.
    scores : mapping of int to float
        The row's ``last5`` in points, by the seeds that the row and all other rivals have; see
        `CellResult.points`.
    leads : mapping of int to float
        By seed, how far the row is ahead of `rival`.
    paired_error : float, optional
        The standard error of the regret over test samples, if all runs recorded their outcomes.
    """

    cell: BoardCell
    rival: str
    scores: Mapping[int, float]
    leads: Mapping[int, float]
    paired_error: float | None = None

    @property
    def regret(self) -> float:
        """The mean lead; positive if no other rival is as good."""
        return float(np.mean([*self.leads.values()]))

    @property
    def standard_error(self) -> float | None:
        """The standard error of the regret over seeds; None for one seed."""
        return standard_error([*self.leads.values()])


@dataclass(frozen=True)
class RowRegret:
    """The regret of a row over cells that have the same measure, in points.

    Attributes
    ----------
    row : str
        The row's label.
    cells : sequence of CellRegret
        The cells in which the row and all other rivals have runs.
    epochs : mapping of str to (int, int)
        By role, the fewest and most epochs of a run; without a role whose epochs are unknown.
    """

    row: str
    cells: Sequence[CellRegret]
    epochs: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def mean(self) -> float | None:
        """The mean over the cells; None without cells."""
        return float(np.mean([cell.regret for cell in self.cells])) if self.cells else None

    @property
    def worst(self) -> CellRegret | None:
        """The cell with the lowest regret; None without cells."""
        return min(self.cells, key=lambda cell: cell.regret, default=None)

    @property
    def near(self) -> int:
        """The number of cells with a regret of at least ``-NEAR``."""
        return sum(cell.regret >= -NEAR - ROUNDING for cell in self.cells)

    @property
    def standard_error(self) -> float | None:
        """The standard error of `mean` over seeds, each with the same best rivals; None below two seeds."""
        seeds = set.intersection(*(set(cell.leads) for cell in self.cells)) if self.cells else set()
        return standard_error([float(np.mean([cell.leads[s] for cell in self.cells])) for s in sorted(seeds)])

    @property
    def paired_error(self) -> float | None:
        """The standard error of `mean` over test samples; None unless all cells have one."""
        return _combined([cell.paired_error for cell in self.cells])


@dataclass(frozen=True)
class Board:
    """The regrets of an experiment's rows."""

    results: Results

    @cached_property
    def tasks(self) -> dict[str, list[BoardCell]]:
        """The cells by what is measured there, such as ``"Accuracy"`` or ``"R²"``."""
        cells: dict[str, list[BoardCell]] = {_heading(metric): [] for metric in METRICS.values()}
        for cell in product(self.results.groups, self.results.columns):
            cells[_heading(self.results.metric(*cell))].append(cell)
        return {task: found for task, found in cells.items() if found}

    @cached_property
    def rows(self) -> dict[str, list[RowRegret]]:
        """By task, each row's regret over its cells, in the order of the table."""
        return {
            task: [
                RowRegret(
                    row,
                    [found for cell in cells if (found := self.regret(row, cell)) is not None],
                    self.epochs(row, cells),
                )
                for row in self.results.rows
            ]
            for task, cells in self.tasks.items()
        }

    @property
    def rivals(self) -> Sequence[str]:
        """The rows that a regret is measured against; by default all but centralised references."""
        results = self.results
        return results.rivals or [row for row in results.rows if row not in results.centralised]

    def best_single(self, task: str) -> RowRegret | None:
        """Return the row with the best mean regret of those with most cells, without marked rows."""
        marked = {*self.results.ensembles, *self.results.centralised}
        single = [row for row in self.rows[task] if row.cells and row.row not in marked]
        most = max((len(row.cells) for row in single), default=0)
        whole = [row for row in single if len(row.cells) == most]
        return max(whole, key=lambda row: sum(cell.regret for cell in row.cells), default=None)

    def regret(self, row: str, cell: BoardCell) -> CellRegret | None:
        """Return a row's regret in a cell; None unless it has a seed in common with all other rivals."""
        others = [rival for rival in self.rivals if rival != row]
        known = {name: self._scores.get(_place(cell, name), {}) for name in (row, *others)}
        seeds = sorted(set.intersection(*map(set, known.values())))
        if not seeds or not others:
            return None
        rival = max(others, key=lambda name: np.mean([known[name][seed] for seed in seeds]))
        ours, theirs = self._runs[_place(cell, row)], self._runs[_place(cell, rival)]
        return CellRegret(
            cell,
            rival,
            {seed: known[row][seed] for seed in seeds},
            {seed: known[row][seed] - known[rival][seed] for seed in seeds},
            _combined([paired_error(ours[seed].outcomes, theirs[seed].outcomes) for seed in seeds]),
        )

    def epochs(self, row: str, cells: Sequence[BoardCell]) -> dict[str, tuple[int, int]]:
        """Return the fewest and most epochs of a row's runs in cells, by role, of those that are known."""
        runs = [run for cell in cells for run in self._runs.get(_place(cell, row), {}).values()]
        found = {role: [run.epochs[role] for run in runs if role in run.epochs] for role in ROLES}
        return {role: (min(epochs), max(epochs)) for role, epochs in found.items() if epochs}

    @cached_property
    def _runs(self) -> dict[Place, dict[int, CellResult]]:
        runs: dict[Place, dict[int, CellResult]] = {}
        for run in self.results.cells:
            runs.setdefault(run.place, {})[run.seed] = run
        return runs

    @cached_property
    def _scores(self) -> dict[Place, dict[int, float]]:
        """The ``last5`` of each place in points by seed, of the seeds that have it."""
        scores = {
            place: {seed: run.points for seed, run in runs.items()} for place, runs in self._runs.items()
        }
        return {
            place: {seed: score for seed, score in each.items() if not math.isnan(score)}
            for place, each in scores.items()
        }


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of a mean; None for fewer than two values."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None


def _heading(metric: Metric) -> str:
    return metric.title[0].upper() + metric.title[1:]


def _place(cell: BoardCell, row: str) -> Place:
    return cell[0], row, cell[1]


def _combined(errors: Sequence[float | None]) -> float | None:
    """Return the standard error of the mean of independent numbers; None unless each has one."""
    known = [error for error in errors if error is not None]
    return math.hypot(*known) / len(known) if known and len(known) == len(errors) else None
