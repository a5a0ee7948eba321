"""Figures of an experiment, for print in a paper."""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fda_flower.errors import unknown
from fda_flower.records import Record, curve
from fda_flower.reporting.curves import draw_curves, draw_sources, save_figure, styles_of
from fda_flower.reporting.experiment_columns import plot_columns
from fda_flower.reporting.experiment_maps import plot_best_rule
from fda_flower.reporting.lost import plot_lost
from fda_flower.reporting.panels import FEW, PRINT, add_legend, blank, panels
from fda_flower.reporting.plots import WEIGHT, betas, estimated_sources
from fda_flower.reporting.regret_plots import plot_regret
from fda_flower.reporting.results import Place, Results


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
