"""Regret: a method's lead over, or gap to, the best other method in each cell of a board.

A board is an experiment whose cells, each a group and a column, differ much in difficulty.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fda_flower.metrics import METRICS, Metric
from fda_flower.reporting import REPORTS
from fda_flower.reporting.figures import PAGE, PRINT, SIZE, add_about, add_legend, blank, wrapped
from fda_flower.reporting.reports import Report
from fda_flower.reporting.results import CENTRALISED, ENSEMBLE, Place, Results, paired_error
from fda_flower.reporting.tables import Cell, Heading, Part, Table, escaped, marked, mean_and_std, top

BoardCell = tuple[str, str]
"""A cell of the board: group (empty if there are none) and column."""

ROLES = ("source", "target")
NEAR = 1.0
"""A method is near the best in a cell if its regret is at least the negative of this, in points."""
ROUNDING = 1e-9
"""The last digits of differences of means, in points."""


@dataclass(frozen=True)
class CellRegret:
    """The regret of a row in a cell, in points, over the seeds that the row and all other rivals have.

    `rival` is the best other rival by its mean over these seeds. `scores` holds the row's ``last5`` by seed,
    `leads` its differences from `rival`. `paired_error` is the standard error of the regret over test
    samples, if all runs recorded their outcomes.
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
    """The regret of a row over cells with the same measure, in points.

    `cells` are the cells in which the row and all other rivals have runs. `epochs` holds the fewest and most
    epochs of a run by role, if known.
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
        """The cells by their measure, such as ``"Accuracy"`` or ``"R²"``."""
        cells: dict[str, list[BoardCell]] = {_heading(metric): [] for metric in METRICS.values()}
        for cell in product(self.results.groups, self.results.columns):
            cells[_heading(self.results.metric(*cell))].append(cell)
        return {task: members for task, members in cells.items() if members}

    @cached_property
    def rows(self) -> dict[str, list[RowRegret]]:
        """By task, each row's regret over its cells, in the order of the table."""
        return {
            task: [
                RowRegret(row, [*filter(None, (self.regret(row, c) for c in cells))], self.epochs(row, cells))
                for row in self.results.rows
            ]
            for task, cells in self.tasks.items()
        }

    @property
    def rivals(self) -> Sequence[str]:
        """The rows that a regret is measured against; by default all but centralised references."""
        results = self.results
        return results.design.rivals or [row for row in results.rows if row not in results.centralised]

    def best_single(self, task: str) -> RowRegret | None:
        """Return the unmarked row with the best mean regret, among the rows with most cells."""
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
        ours, theirs = (
            {run.seed: run.outcomes for run in self.results.at(_place(cell, name)) if run.seed in seeds}
            for name in (row, rival)
        )
        scores = {seed: known[row][seed] for seed in seeds}
        leads = {seed: score - known[rival][seed] for seed, score in scores.items()}
        error = _combined([paired_error(ours[seed], theirs[seed]) for seed in seeds])
        return CellRegret(cell, rival, scores, leads, error)

    def epochs(self, row: str, cells: Sequence[BoardCell]) -> dict[str, tuple[int, int]]:
        """Return the fewest and most epochs of a row's runs in cells, by role, of those that are known."""
        runs = [run for cell in cells for run in self.results.at(_place(cell, row))]
        by_role = {role: [run.epochs[role] for run in runs if role in run.epochs] for role in ROLES}
        return {role: (min(epochs), max(epochs)) for role, epochs in by_role.items() if epochs}

    @cached_property
    def _scores(self) -> dict[Place, dict[int, float]]:
        """The ``last5`` of each place in points by seed."""
        return {place: self.results.points(place) for place in self.results.places}


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


CELLS = (
    *("group", "row", "column", "measure", "rival", "regret", "score", "std", "n", "se", "se_paired"),
    *(f"{role}_epochs" for role in ROLES),
)


def report(results: Results) -> list[Part]:
    """Return, for accuracy and for R², a table of each method over all cells, and one of each cell."""
    board = Board(results)
    parts: list[Part] = [Heading("Regret"), _explain(board)]
    for task, rows in board.rows.items():
        cells, best = board.tasks[task], board.best_single(task)
        parts += [Heading(task, 3), _summary(board, rows, cells)]
        if best is not None:
            mean, count = f"mean regret {best.mean:+z.1f}", f"in {len(best.cells)} of {len(cells)} cells"
            parts.append(f"Best single-model row: **{escaped(best.row)}**, {mean} {count}.")
        parts.append("By cell, with the standard error over seeds; the best regret of each is bold.")
        parts.append(_by_cell(board, rows, cells))
    return parts


def by_cell(results: Results) -> Table:
    """Return one line for each place, with unrounded numbers; unknown ones are empty."""
    board, lines = Board(results), []
    for task, rows in board.rows.items():
        for row, cell in product(rows, board.tasks[task]):
            numbers: list[object] = [None, None, None, None, 0, None, None]
            for at in (at for at in row.cells if at.cell == cell):
                scores = [*at.scores.values()]
                errors = at.standard_error, at.paired_error
                numbers = [at.rival, at.regret, *mean_and_std(scores), len(scores), *errors]
            epochs = board.epochs(row.row, [cell])
            own = [epochs.get(role, (None, None))[1] for role in ROLES]
            lines.append([cell[0], row.row, cell[1], task, *numbers, *own])
    return Table(CELLS, lines)


SCORES = REPORTS["table"]
REGRET = Report([*SCORES.sections, report], {**SCORES.tables, "-regret": by_cell})
"""The usual tables, then the regrets."""


def cell_label(cell: BoardCell) -> str:
    """Return a cell's label: its column, and its group if there is one."""
    return ", ".join(filter(None, (cell[1], cell[0])))


def _explain(board: Board) -> str:
    seeds = ", ".join(str(seed) for seed in sorted({run.seed for run in board.results.all_runs}))
    sentences = [
        "How far a method's mean over seeds is above (+) or below (-) the best *other* rival's in the "
        f"same cell, in points. Rivals: {escaped(', '.join(board.rivals))}. Seeds: {seeds or 'none'}.",
        "A cell without runs of the method or of another rival is left out of the method's mean.",
        "Standard errors are over seeds and, paired, over test samples.",
        "Epochs are per run: the fewest to the most of all cells.",
    ]
    if not all(metric.percent for metric in board.results.distinct_metrics):
        sentences.append("A point is a hundredth of the figure, such as 0.01 of R².")
    return " ".join(filter(None, (*sentences, board.results.marks)))


def _summary(board: Board, rows: Sequence[RowRegret], cells: Sequence[BoardCell]) -> Table:
    best = top([row.mean] for row in rows if row.mean is not None)
    lines = [
        [
            board.results.label(row.row),
            "-" if row.mean is None else marked(f"{row.mean:+z.1f}", [row.mean], best),
            *map(_error, (row.standard_error, row.paired_error)),
            "-" if row.worst is None else f"{row.worst.regret:+z.1f} ({cell_label(row.worst.cell)})",
            f"{row.near} of {len(row.cells)}",
            f"{len(row.cells)} of {len(cells)}",
            *(_span(row.epochs.get(role)) for role in ROLES),
        ]
        for row in rows
    ]
    header = ("Method", "mean", "se (seeds)", "se (samples)", "worst", f"within {NEAR:g} point", "cells")
    return Table([*header, "epochs of a source", "epochs of the target"], lines)


def _by_cell(board: Board, rows: Sequence[RowRegret], cells: Sequence[BoardCell]) -> Table:
    regrets = {(row.row, cell.cell): cell for row in rows for cell in row.cells}
    tops = {cell: top([at.regret] for (_, where), at in regrets.items() if where == cell) for cell in cells}
    lines = [
        [board.results.label(row.row), *(_text(regrets.get((row.row, c)), tops[c]) for c in cells)]
        for row in rows
    ]
    return Table(["Method", *map(cell_label, cells)], lines)


def _text(regret: CellRegret | None, best: float) -> Cell | str:
    """Return ``+1.2 (0.4)``: a regret, and its standard error over seeds if it has one."""
    if regret is None:
        return "-"
    error = "" if regret.standard_error is None else f" ({regret.standard_error:.1f})"
    return marked(f"{regret.regret:+z.1f}{error}", [regret.regret], best)


def _error(error: float | None) -> str:
    return "-" if error is None else f"{error:.1f}"


def _span(ends: tuple[int, int] | None) -> str:
    return "-" if ends is None else " to ".join(map(str, sorted(set(ends))))


LINEAR = 2 * NEAR
"""Regrets up to this size are drawn linearly, larger ones logarithmically, in points."""
TICKS = (-50, -20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 50)
FEW_TICKS, WIDE = (-200, -50, -10, -2, 0, 2, 10, 50, 200), 100
"""The ticks of regrets of `WIDE` points or more."""
LINE = 0.21
"""Height of a method, in inches."""
LETTERS = 26
"""Most letters of a cell's label."""
CELL, MEAN, WORST = "#8fb8de", "#1b3a5c", "#c0392b"


@matplotlib.rc_context(PRINT)
def plot_regret(results: Results) -> Figure:
    """Plot each method's regret by cell on a line, the best mean first; accuracy and R² have a panel each."""
    board = Board(results)
    tasks = {
        task: sorted(measured, key=lambda row: row.mean or 0.0, reverse=True)
        for task, rows in board.rows.items()
        if (measured := [row for row in rows if row.cells])
    }
    if not tasks:
        return blank("No cell has two rivals yet.")
    lines = [len(rows) for rows in tasks.values()]
    figure = Figure(figsize=(PAGE, LINE * sum(lines) + 0.5 * len(lines) + 0.3), layout="constrained")
    axes = list(figure.subplots(len(lines), 1, squeeze=False, height_ratios=lines).flat)
    for axis, (task, rows) in zip(axes, tasks.items(), strict=True):
        _draw(axis, results, rows, len(board.tasks[task]))
        axis.set_title(task, loc="left")
    marks = f"; {ENSEMBLE} an ensemble" * bool(results.ensembles)
    marks += f"; {CENTRALISED} centralised" * bool(results.centralised)
    label = f"Regret to the best other method (points, logarithmic beyond {LINEAR:g}{marks})"
    axes[-1].set_xlabel(wrapped(label, 0.6 * PAGE))
    add_about(figure, results.about(spread=False))
    add_legend(figure, axes, ["a cell", "mean", "worst"])
    return figure


def _draw(axis: Axes, results: Results, rows: Sequence[RowRegret], cells: int) -> None:
    """Draw the rows from top to bottom, each with its mean and worst as text."""
    regrets = [np.array([cell.regret for cell in row.cells]) for row in rows]
    together, heights = np.concatenate(regrets), range(len(rows))
    axis.axvspan(-NEAR, NEAR, color="0.92", label=f"within {NEAR:g} point", linewidth=0)
    axis.axvline(0, color="0.4", linewidth=0.8)
    axis.grid(axis="x", alpha=0.3, linewidth=0.5)
    every = np.repeat(heights, [len(values) for values in regrets])
    axis.plot(together, every, "o", color=CELL, markeredgecolor="white", mew=0.4, label="a cell")
    axis.plot([values.min() for values in regrets], heights, "X", color=WORST, label="worst")
    axis.plot([values.mean() for values in regrets], heights, "D", color=MEAN, label="mean")
    axis.set_yticks(heights, [results.label(row.row) for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xscale("symlog", linthresh=LINEAR, linscale=0.7)
    ticks = TICKS if np.abs(together).max() < WIDE else FEW_TICKS
    axis.set_xticks(ticks, [f"{tick:+d}" if tick else "0" for tick in ticks], minor=False)
    axis.set_xticks([], minor=True)
    axis.set_xlim(min(1.3 * together.min(), -1.5 * NEAR), max(1.3 * together.max(), 1.5 * NEAR))
    axis.tick_params(labelsize=SIZE)
    for height, row in zip(heights, rows, strict=True):
        assert row.worst is not None, "rows without cells are left out"
        where = textwrap.shorten(cell_label(row.worst.cell), LETTERS, placeholder="…")
        words = f"{row.mean:+z.1f}, worst {row.worst.regret:+z.1f} ({where})"
        if len(row.cells) < cells:
            words += f", {len(row.cells)} of {cells} cells"
        axis.text(1.015, height, words, transform=axis.get_yaxis_transform(), va="center", fontsize=SIZE)
