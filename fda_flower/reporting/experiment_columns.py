"""The figure of an experiment's columns: curves over numbers, dots with intervals for categories."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fda_flower.reporting.curves import draw_dots, styles_of
from fda_flower.reporting.panels import FEW, PRINT, add_legend, blank, panels
from fda_flower.reporting.results import Results

ROW = 0.15
"""Height of a row's name, in inches."""
PAPER: Any = {"markerfacecolor": "none", "linestyle": "none", "markeredgewidth": 0.8}


@matplotlib.rc_context(PRINT)
def plot_columns(results: Results) -> Figure:
    """Plot the headline by column, of the rows that were run; the paper's values are hollow.

    Two columns or more with values are a numeric axis, with a panel for each group. Else each column of each
    group has a panel, in which the rows stand below each other.
    """
    rows = [row for row in results.rows if any(cell.place[1] == row for cell in results.cells)]
    if not rows:
        return blank("Nothing was measured yet.")
    run = {(group, column) for group, _, column in (cell.place for cell in results.cells)}
    columns = [column for column in results.columns if any(column == place[1] for place in run)]
    groups = [group for group in results.groups if any(group == place[0] for place in run)]
    numeric = len(columns) > 1 and all(column in results.values for column in columns)
    plot = _plot_numbers if numeric else _plot_categories
    return plot(results, rows, groups, columns)


def _plot_numbers(
    results: Results, rows: Sequence[str], groups: Sequence[str], columns: Sequence[str]
) -> Figure:
    titles = results.titles([(group,) for group in groups])
    figure, axes = panels(
        titles, results.axis, results.value_label, about=results.about(), wide=len(rows) > FEW, height=2.1
    )
    styles = styles_of(results.rows)
    printed_any = False
    ascending = sorted(columns, key=lambda column: results.values[column])
    for axis, group in zip(axes, groups, strict=True):
        axis.grid(alpha=0.3, linewidth=0.5)
        for row in rows:
            places = {results.values[column]: (group, row, column) for column in ascending}
            measured = {x: v for x, place in places.items() if (v := results.scores(place, "last5"))}
            printed = {x: results.paper[place] for x, place in places.items() if place in results.paper}
            look: dict[str, Any] = {"color": styles[row].color, "marker": styles[row].marker}
            if measured:
                means = [np.mean(values) for values in measured.values()]
                deviations = [float(np.std(v, ddof=1)) if len(v) > 1 else 0 for v in measured.values()]
                bars: dict[str, Any] = {"capsize": 2, "elinewidth": 0.8, "linestyle": styles[row].dash}
                axis.errorbar([*measured], means, deviations, label=row, **bars, **look)
            if printed:
                printed_any = True
                axis.plot([*printed], [*printed.values()], **PAPER, **look)
    add_legend(figure, axes, rows, [_paper()] if printed_any else [])
    return figure


def _plot_categories(
    results: Results, rows: Sequence[str], groups: Sequence[str], columns: Sequence[str]
) -> Figure:
    places = [(group, column) for group in groups for column in columns]
    per_line = len(columns) if len(columns) <= 4 else 4 if len(columns) % 3 else 3
    figure, axes = panels(
        results.titles(places),
        results.value_label,
        about=results.about(),
        per_line=per_line,
        height=0.5 + ROW * len(rows),
        wide=True,
    )
    styles = styles_of(results.rows)
    printed_any = False
    for axis, (group, column) in zip(axes, places, strict=True):
        draw_dots(axis, {row: results.scores((group, row, column), "last5") for row in rows}, styles)
        for height, row in enumerate(rows):
            if (group, row, column) in results.paper:
                printed_any = True
                look: dict[str, Any] = {"color": styles[row].color, "marker": styles[row].marker}
                axis.plot([results.paper[group, row, column]], [height], **PAPER, **look)
    if printed_any:
        add_legend(figure, [], [], [_measured(), _paper()])
    return figure


def _measured() -> Line2D:
    return Line2D([], [], color="0.4", marker="o", linestyle="none", label="measured")


def _paper() -> Line2D:
    return Line2D([], [], color="0.4", marker="o", label="in the paper", **PAPER)
