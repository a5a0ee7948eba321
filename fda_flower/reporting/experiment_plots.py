"""The figure of an experiment's columns: curves over numbers, dots with intervals for categories."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fda_flower.aggregation.estimation import predicted_best_rule
from fda_flower.errors import unknown
from fda_flower.records.record import Record, curve
from fda_flower.reporting.figures import (
    FEW,
    PRINT,
    SIZE,
    add_legend,
    blank,
    draw_curves,
    draw_dots,
    draw_sources,
    panels,
    save_figure,
    set_categories,
    styles_of,
)
from fda_flower.reporting.lost import plot_lost
from fda_flower.reporting.plots import WEIGHT, betas, estimated_sources
from fda_flower.reporting.regret import plot_regret
from fda_flower.reporting.results import CellResult, Place, Results
from fda_flower.runs.methods import METHODS

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


BETA = 0.5
INITIAL = "At initialisation"
"""Label of the row from which the prediction is made, if there is such a row."""
ESTIMATES = ("sigma2", "d2", "tau2-d2")

RULES = {METHODS[name].label: name for name in ("source-only", "target-only", "fedda", "fedgp")}
LETTERS = "STDG"
COLORS = ("#fde725", "#5ec0d0", "#2a788e", "#440154")
"""From light to dark, so that they also differ in greyscale."""


@matplotlib.rc_context(PRINT)
def plot_best_rule(results: Results) -> Figure:
    """Plot the best rule by column and group: predicted, with fixed β, and with estimated β."""
    fixed = [row for row in results.rows if "_Auto" not in row]
    auto = [row for row in results.rows if row not in fixed or rule_of(row) in ("Source Only", "Target Only")]
    maps: Mapping[str, Callable[[str, str], str | None]] = {
        f"(a) Predicted, β = {BETA}": partial(predict, results),
        "(b) Measured, β fixed": partial(find_best, results, fixed),
        "(c) Measured, β estimated": partial(find_best, results, auto),
    }
    height = max(1.4, 0.5 + 0.2 * len(results.groups))
    figure, axes = panels(
        list(maps), results.axis, results.group_axis, about=results.about(spread=False), height=height
    )
    names = list(RULES)
    for axis, best in zip(axes, maps.values(), strict=True):
        table = np.full((len(results.groups), len(results.columns)), np.nan)
        for y, group in enumerate(results.groups):
            for x, column in enumerate(results.columns):
                rule = best(group, column)
                if rule is not None:
                    i = names.index(rule)
                    table[y, x] = i
                    white = "white" if i >= 2 else "black"
                    axis.text(x, y, LETTERS[i], ha="center", va="center", color=white, fontsize=SIZE)
        cells = np.ma.masked_invalid(table)
        axis.imshow(cells, ListedColormap(COLORS), vmin=0, vmax=3, origin="lower", aspect="auto")
        set_categories(axis, results.columns)
        axis.set_yticks(range(len(results.groups)), results.groups)
    keys = zip(COLORS, names, LETTERS, strict=True)
    add_legend(figure, axes, [], [Patch(facecolor=c, label=f"{name} ({letter})") for c, name, letter in keys])
    return figure


def rule_of(row: str) -> str | None:
    """Return the rule that a row runs, by the start of its label."""
    return next((name for name in RULES if row.startswith(name)), None)


def predict(results: Results, group: str, column: str) -> str | None:
    """Return the rule with the smallest Delta error, by the mean estimates of the first round that has any.

    The estimates are those of the row `INITIAL` or, without it, of all rows.
    """
    cells = [cell for cell in results.cells if (cell.place[0], cell.place[2]) == (group, column)]
    cells = [cell for cell in cells if cell.place[1] == INITIAL] or cells
    found = [(cell, entry) for cell in cells if cell.parameters for entry in first_estimates(cell)]
    if not found:
        return None
    values = np.array([[entry.get(key) for key in ESTIMATES] for _, entry in found], dtype=float)
    sigma2, d2, tau2_d2 = np.ma.masked_invalid(values).mean(axis=0).filled(np.nan).tolist()
    rule = predicted_best_rule(BETA, sigma2, d2, tau2_d2, found[0][0].parameters)
    return METHODS[rule].label


def first_estimates(cell: CellResult) -> Sequence[Mapping[str, float]]:
    """Return each source's entry in the record of the first round with estimates."""
    rounds = (
        [entry for entry in record["sources"].values() if entry.get("sigma2") is not None]
        for record in cell.history
    )
    return next((entries for entries in rounds if entries), [])


def find_best(results: Results, rows: Sequence[str], group: str, column: str) -> str | None:
    """Return the rule of the row with the best ``last5`` at a place, if any was run."""
    sign = 1 if results.metric(group, column).higher_is_better else -1
    means = [
        (sign * float(np.mean(values)), rule)
        for row in rows
        if (rule := rule_of(row)) and (values := results.scores((group, row, column), "last5"))
    ]
    return max(means, key=itemgetter(0), default=(0.0, None))[1]


@matplotlib.rc_context(PRINT)
def plot_rounds(results: Results) -> Figure:
    """Plot accuracy by round of each row, a panel for each group and column; few rows have bands."""
    run = {(group, column) for group, _, column in (cell.place for cell in results.cells)}
    places = [place for place in product(results.groups, results.columns) if place in run]
    if not places:
        return blank("No round was run.")
    per_line = len(results.columns) if len(results.columns) in (1, 2, 4) else 3
    what = results.about(spread=len(results.rows) <= FEW)
    titles = results.titles(places)
    figure, axes = panels(titles, "Round", results.value_label, about=what, per_line=per_line, wide=True)
    styles = styles_of(results.rows)
    for axis, (group, column) in zip(axes, places, strict=True):
        shown = {row: found for row in results.rows if (found := results.at((group, row, column)))}
        curves = {
            row: [curve(cell.history, cell.metric, cell.ending) for cell in cells]
            for row, cells in shown.items()
        }
        draw_curves(axis, curves, styles)
        _mark_warmup(axis, [cell.history for cells in shown.values() for cell in cells])
    add_legend(figure, axes, results.rows)
    return figure


@matplotlib.rc_context(PRINT)
def plot_betas(results: Results) -> Figure:
    """Plot β of the sources by round: each row that estimates β has a line of panels, one for each column.

    The panels of a line share their scale.
    """
    found = {cell.place for cell in results.cells if estimated_sources([cell.history])}
    if not found:
        return blank("No β was estimated.")
    columns = [column for column in results.columns if any(column == place[2] for place in found)]
    lines = [
        (group, row)
        for group, row in product(results.groups, results.rows)
        if any((group, row) == place[:2] for place in found)
    ]
    places = [(group, row, column) for group, row in lines for column in columns]
    sources = estimated_sources([cell.history for cell in results.cells])
    titles = results.titles([(group, column, row) for group, row, column in places])
    figure, axes = panels(
        titles,
        "Round",
        WEIGHT,
        about=results.about(spread=len(sources) <= FEW),
        per_line=len(columns),
        share_y="row",
        wide=len(columns) > 1,
    )
    styles = styles_of(sources)
    for axis, place in zip(axes, places, strict=True):
        histories = _histories(results, place)
        drawn = {source: betas(histories, source) for source in estimated_sources(histories)}
        draw_sources(axis, drawn, styles)
        _mark_warmup(axis, histories)
    for axis in axes:
        axis.set_ylim(0, None)
    add_legend(figure, axes, sources)
    return figure


FIGURES: dict[str, Callable[[Results], Figure]] = {
    "columns": plot_columns,
    "rounds": plot_rounds,
    "betas": plot_betas,
    "best-rule": plot_best_rule,
    "regret": plot_regret,
    "lost": plot_lost,
}
"""The pictures that an experiment's file may ask for, by name."""


def check_figures(names: Iterable[str]) -> None:
    """Raise a `ConfigError` if a name is not in `FIGURES`."""
    for name in names:
        if name not in FIGURES:
            raise unknown("figure", name, FIGURES)


def save_figures(results: Results, folder: Path) -> list[Path]:
    """Write each of the experiment's figures as PNG; return their paths."""
    check_figures(results.figures)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{results.name}-{name}.png" for name in results.figures]
    for path, name in zip(paths, results.figures, strict=True):
        save_figure(path, FIGURES[name](results))
    return paths


def _histories(results: Results, place: Place) -> list[Sequence[Record]]:
    return [cell.history for cell in results.at(place)]


def _mark_warmup(axis: Axes, histories: Sequence[Sequence[Record]]) -> None:
    """Mark the end of the warm-up rounds."""
    for end in {sum(bool(record.get("warmup")) for record in history) for history in histories} - {0}:
        axis.axvline(end + 0.5, color="0.3", linewidth=0.8, linestyle=":", label="end of warm-up rounds")
