"""What the figures of an experiment share: size, panels and legend, legible in print."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

SIZE = 8
"""Of all text, in points, at the width that the figure is printed in."""

PRINT: Any = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), SIZE),
    **{"axes.linewidth": 0.6, "lines.linewidth": 1.2, "lines.markersize": 4},
}
COLUMN, PAGE = 3.5, 7.0
"""Widths in print, in inches."""

LEGEND_LINE = 0.18


def panels(
    titles: Sequence[str], xlabel: str, ylabel: str, per_line: int = 3, height: float = 1.7
) -> tuple[Figure, list[Axes]]:
    """A panel for each title, with common axes that are labelled at the edges.

    Parameters
    ----------
    titles : list[str]
        Of the panels, at least one.
    xlabel, ylabel : str
        What the axes are.
    per_line : int
        Panels side by side, at most.
    height : float
        Of a panel, in inches; one that stands alone is higher.
    """
    per_line = min(per_line, len(titles))
    lines = math.ceil(len(titles) / per_line)
    size = (COLUMN, 1.4 * height) if per_line == 1 else (PAGE, height * lines + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    every = list(figure.subplots(lines, per_line, sharex=True, sharey=True, squeeze=False).flat)
    axes = every[: len(titles)]
    for spare in every[len(titles) :]:
        spare.remove()
    for i, (axis, title) in enumerate(zip(axes, titles, strict=True)):
        lowest = i + per_line >= len(titles)
        axis.set_title(title)
        axis.tick_params(labelsize=SIZE, labelbottom=lowest)
        axis.set(xlabel=xlabel if lowest else "", ylabel=ylabel if i % per_line == 0 else "")
    return figure, axes


def set_categories(axis: Axes, labels: Sequence[str]) -> None:
    """Put labels along the x axis, slanted where they would run into each other."""
    width = axis.get_figure().get_figwidth() / axis.get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
    slanted = max(map(len, labels)) * len(labels) * 0.075 > 0.8 * width
    axis.set_xticks(range(len(labels)), labels)
    axis.tick_params(axis="x", labelrotation=40 if slanted else 0)


def add_legend(figure: Figure, axes: Sequence[Axes], more: Sequence[Artist] = ()) -> None:
    """One legend below all panels, in room of its own; each label once."""
    entries = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    entries |= {str(handle.get_label()): handle for handle in more}
    if not entries:
        return
    room = figure.get_figwidth() / (0.65 + 0.065 * max(map(len, entries)))
    columns = min(len(entries), max(1, int(room)))
    lines = math.ceil(len(entries) / columns)
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE * lines)
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=SIZE,
    )


def blank(message: str) -> Figure:
    """A figure that says why there is nothing to see."""
    figure = Figure(figsize=(COLUMN, COLUMN / 3))
    FigureCanvasAgg(figure)
    figure.text(0.5, 0.5, message, ha="center", va="center", fontsize=SIZE)
    return figure
