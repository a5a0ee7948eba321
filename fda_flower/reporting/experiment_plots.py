"""Figures of an experiment, for print in a paper."""

from collections.abc import Callable, Iterable, Sequence
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fda_flower.errors import unknown
from fda_flower.records import Record
from fda_flower.reporting.experiment_maps import plot_best_rule
from fda_flower.reporting.panels import PRINT, add_legend, blank, panels, set_categories
from fda_flower.reporting.plots import band, betas, color, estimated_sources, save_figure
from fda_flower.reporting.regret_plots import plot_regret
from fda_flower.reporting.results import Place, Results
from fda_flower.reporting.summary import accuracies

ACCURACY = "Target test accuracy (%)"
DPI = 200
MARKERS = "osD^vP*X<>"
DASHES = ("-", "--", "-.", ":")


@matplotlib.rc_context(PRINT)
def plot_columns(results: Results) -> Figure:
    """Plot accuracy by column, a panel for each group: measured solid, the paper's dashed and hollow."""
    figure, axes = panels(_titles(results, [(group,) for group in results.groups]), results.axis, ACCURACY)
    numeric = all(column in results.values for column in results.columns)
    positions = {c: results.values[c] if numeric else i for i, c in enumerate(results.columns)}
    for axis, group in zip(axes, results.groups, strict=True):
        axis.grid(alpha=0.3, linewidth=0.5)
        for i, row in enumerate(results.rows):
            style: dict[str, Any] = {"color": color("tab10", i), "marker": MARKERS[i % len(MARKERS)]}
            places = {x: (group, row, column) for column, x in positions.items()}
            measured = {x: v for x, place in places.items() if (v := results.scores(place, "last5"))}
            printed = {x: results.paper[place] for x, place in places.items() if place in results.paper}
            if measured:
                means = [np.mean(values) for values in measured.values()]
                deviations = [float(np.std(v, ddof=1)) if len(v) > 1 else 0 for v in measured.values()]
                axis.errorbar([*measured], means, deviations, label=row, capsize=2, elinewidth=0.8, **style)
            if printed:
                hollow: dict[str, Any] = {"linestyle": "--", "linewidth": 0.8, "markerfacecolor": "none"}
                axis.plot([*printed], [*printed.values()], **hollow, **style)
        if not numeric:
            set_categories(axis, results.columns)
    paper = Line2D(
        [], [], color="0.4", marker="o", markerfacecolor="none", linestyle="--", label="in the paper"
    )
    add_legend(figure, axes, results.rows, [paper] if results.paper else [])
    return figure


@matplotlib.rc_context(PRINT)
def plot_rounds(results: Results) -> Figure:
    """Plot accuracy by round of each row, a panel for each group and column; bands are over seeds."""
    run = {(group, column) for group, _, column in (cell.place for cell in results.cells)}
    places = [place for place in product(results.groups, results.columns) if place in run]
    if not places:
        return blank("No round was run.")
    figure, axes = panels(_titles(results, places), "Round", ACCURACY, _per_line(results))
    for axis, (group, column) in zip(axes, places, strict=True):
        shown = []
        for i, row in enumerate(results.rows):
            histories = _histories(results, (group, row, column))
            if histories:
                values = [accuracies(history) for history in histories]
                step = max(1, max(int(np.isfinite(series).sum()) for series in values) // 5)
                style = {
                    "linestyle": DASHES[i % len(DASHES)],
                    "marker": MARKERS[i % len(MARKERS)],
                    "markevery": (i * step // len(results.rows), step),
                    "linewidth": 1.1,
                }
                band(axis, values, row, color("tab10", i), **style)
            shown += histories
        _finish_rounds(axis, shown)
    add_legend(figure, axes, results.rows)
    return figure


@matplotlib.rc_context(PRINT)
def plot_betas(results: Results) -> Figure:
    """Plot β of each source by round, a panel for each column of each row that estimates β."""
    found = {cell.place for cell in results.cells if estimated_sources([cell.history])}
    places = [place for place in product(results.groups, results.rows, results.columns) if place in found]
    if not places:
        return blank("No β was estimated.")
    titles = _titles(results, [(group, column, row) for group, row, column in places])
    figure, axes = panels(titles, "Round", "Weight (β) of the source", _per_line(results))
    sources = estimated_sources([cell.history for cell in results.cells])
    for axis, place in zip(axes, places, strict=True):
        histories = _histories(results, place)
        for source in estimated_sources(histories):
            i = sources.index(source)
            style = {"linestyle": DASHES[i % len(DASHES)], "linewidth": 1.1}
            band(axis, betas(histories, source), source, color("Dark2", i), **style)
    _scale_betas(axes)
    for axis, place in zip(axes, places, strict=True):
        _finish_rounds(axis, _histories(results, place))
    add_legend(figure, axes, sources)
    return figure


FIGURES: dict[str, Callable[[Results], Figure]] = {
    "columns": plot_columns,
    "rounds": plot_rounds,
    "betas": plot_betas,
    "best-rule": plot_best_rule,
    "regret": plot_regret,
}
"""The pictures that an experiment's file may ask for, by name."""


def check_figures(names: Iterable[str]) -> None:
    """Raise a `ConfigError` if a name is not in `FIGURES`."""
    for name in names:
        if name not in FIGURES:
            raise unknown("figure", name, FIGURES)


def save_figures(results: Results, folder: Path) -> list[Path]:
    """Write each of the experiment's figures as PNG and PDF; return their paths."""
    check_figures(results.figures)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in results.figures:
        figure = FIGURES[name](results)
        for ending in ("png", "pdf"):
            paths.append(folder / f"{results.name}-{name}.{ending}")
            save_figure(paths[-1], figure, DPI)
    return paths


def _titles(results: Results, places: Iterable[Sequence[str]]) -> list[str]:
    """Return each place's title, a line each: group and column with their axes (no units), then the rest."""
    axes = [axis.split(" (")[0] for axis in (results.group_axis, results.axis)]
    return [
        "\n".join(
            f"{axis}: {label}" if axis else label
            for axis, label in zip_longest(axes[: len(place)], place, fillvalue="")
            if label
        )
        for place in places
    ]


def _per_line(results: Results) -> int:
    return len(results.columns) if len(results.columns) in (1, 2, 4) else 3


def _histories(results: Results, place: Place) -> list[Sequence[Record]]:
    return [cell.history for cell in results.at(place)]


def _finish_rounds(axis: Axes, histories: Sequence[Sequence[Record]]) -> None:
    """Number rounds in integers; mark the end of the warm-up rounds."""
    axis.grid(alpha=0.3, linewidth=0.5)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    for end in {sum(bool(record.get("warmup")) for record in history) for history in histories} - {0}:
        axis.axvline(end + 0.5, color="0.3", linewidth=0.8, linestyle=":", label="end of warm-up rounds")


def _scale_betas(axes: Sequence[Axes]) -> None:
    """Scale β from 0, or logarithmically if the means span more than a decade."""
    drawn = np.concatenate([np.ma.filled(line.get_ydata(), 0) for axis in axes for line in axis.get_lines()])
    positive = drawn[drawn > 0]
    logarithmic = len(positive) > 0 and positive.max() > 10 * positive.min()
    for axis in axes:
        if logarithmic:
            axis.set_yscale("log", nonpositive="clip")
            axis.set_ylim(max(positive.min() / 1.5, 1e-4 * positive.max()), 1.5 * positive.max())
        else:
            axis.set_ylim(0, None)
