"""A picture of a board: for each method, its regret in every cell, with mean and worst."""

import textwrap
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fda_flower.reporting.panels import PAGE, PRINT, SIZE, add_about, add_legend, blank, wrapped
from fda_flower.reporting.regret import NEAR, Board, RowRegret
from fda_flower.reporting.regret_tables import cell_label
from fda_flower.reporting.results import CENTRALISED, ENSEMBLE, Results

LINEAR = 2 * NEAR
"""Regrets up to this size are drawn linearly, larger ones logarithmically, in points."""
TICKS = (-50, -20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 50)
FEW_TICKS, WIDE = (-200, -50, -10, -2, 0, 2, 10, 50, 200), 100
"""The ticks of regrets of `WIDE` points or more, which would not have room for all."""
LINE = 0.21
"""Height of a method, in inches."""
LETTERS = 26
"""Most letters of a cell's label."""
CELL, MEAN, WORST = "#8fb8de", "#1b3a5c", "#c0392b"


@matplotlib.rc_context(PRINT)
def plot_regret(results: Results) -> Figure:
    """Plot each method's regret by cell on a line, the best mean first; accuracy and R² have a panel each."""
    board = Board(results)
    tasks = {task: [row for row in rows if row.cells] for task, rows in board.rows.items()}
    tasks = {task: sorted(rows, key=_mean, reverse=True) for task, rows in tasks.items() if rows}
    if not tasks:
        return blank("No cell has two rivals yet.")
    lines = [len(rows) for rows in tasks.values()]
    figure = Figure(figsize=(PAGE, LINE * sum(lines) + 0.5 * len(lines) + 0.3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(len(lines), 1, squeeze=False, height_ratios=lines).flat)
    for axis, (task, rows) in zip(axes, tasks.items(), strict=True):
        _draw(axis, results, rows, len(board.tasks[task]))
        axis.set_title(task, loc="left")
    marked = f"; {ENSEMBLE} an ensemble" if results.ensembles else ""
    marked += f"; {CENTRALISED} centralised" if results.centralised else ""
    axis_label = f"Regret to the best other method (points, logarithmic beyond {LINEAR:g}{marked})"
    axes[-1].set_xlabel(wrapped(axis_label, 0.6 * PAGE))
    add_about(figure, results.about(spread=False))
    add_legend(figure, axes, ["a cell", "mean", "worst"])
    return figure


def _draw(axis: Axes, results: Results, rows: Sequence[RowRegret], cells: int) -> None:
    """Draw the rows from top to bottom, and beside each in words its mean and worst."""
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


def _mean(row: RowRegret) -> float:
    return float(np.mean([cell.regret for cell in row.cells]))
