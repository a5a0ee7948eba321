"""Size, panels, sub-title and legend of figures, legible in print."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

SIZE = 8
"""Size of all text, in points, at the printed width of the figure."""

PRINT: Any = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), SIZE),
    **{"axes.linewidth": 0.6, "lines.linewidth": 1.2, "lines.markersize": 4},
}
COLUMN, PAGE = 3.5, 7.0
"""Widths in print, in inches."""

LETTER, TEXT_LINE = 0.062, 0.18
"""Approximate width of a letter and height of a line of text, in inches."""

FEW = 6
"""The most curves for which a single panel is as narrow as a column, and has bands."""


def panels(
    titles: Sequence[str],
    xlabel: str,
    ylabel: str = "",
    *,
    about: str = "",
    per_line: int = 3,
    height: float = 1.7,
    wide: bool = False,
    share_y: bool | str = True,
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each title, and its axes; those at the edges are labelled.

    Parameters
    ----------
    titles : list[str]
        Titles of the panels, at least one.
    xlabel, ylabel : str
        Labels of the axes.
    about : str
        The sub-title of the figure: what is shown, of which data and seeds.
    per_line : int
        The most panels side by side.
    height : float
        Height of a panel, in inches; a single panel in a column is higher.
    wide : bool
        Whether a single panel is as wide as the page.
    share_y : bool or "row"
        Whether all panels have the same y axis, or those of a line.
    """
    lines = math.ceil(len(titles) / per_line)
    per_line = math.ceil(len(titles) / lines)
    narrow = per_line == 1 and not wide
    width, tall = (COLUMN, 1.4 * height) if narrow else (PAGE, height)
    figure = Figure(figsize=(width, tall * lines + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    every = list(figure.subplots(lines, per_line, sharex=True, sharey=share_y, squeeze=False).flat)  # type: ignore[arg-type]
    axes = every[: len(titles)]
    for spare in every[len(titles) :]:
        spare.remove()
    for i, (axis, title) in enumerate(zip(axes, titles, strict=True)):
        axis.set_title(wrapped(title, 0.9 * width / per_line))
        lowest = i + per_line >= len(titles)
        axis.tick_params(labelsize=SIZE, labelbottom=lowest)
        if lowest:
            axis.set_xlabel(wrapped(xlabel, 0.8 * width / per_line))
        if i % per_line == 0:
            axis.set_ylabel(wrapped(ylabel, tall - 0.2))
    add_about(figure, about)
    return figure, axes


def add_about(figure: Figure, about: str) -> None:
    """Add a sub-title above all panels, in its own space."""
    if about:
        text = wrapped(about, figure.get_figwidth() - 0.2)
        figure.suptitle(text, fontsize=SIZE, color="0.3")
        figure.set_figheight(figure.get_figheight() + TEXT_LINE * (text.count("\n") + 1))


def set_categories(axis: Axes, labels: Sequence[str]) -> None:
    """Put labels along the x axis, slanted where they would run into each other."""
    width = axis.get_figure().get_figwidth() / axis.get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
    slanted = (max(map(len, labels)) + 1) * len(labels) * LETTER > 0.8 * width
    how: Any = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
    axis.set_xticks(range(len(labels)), labels, **how)


def add_legend(
    figure: Figure, axes: Sequence[Axes], order: Sequence[str], more: Sequence[Artist] = ()
) -> None:
    """Add one legend below all panels, in columns of its own: each label once, those of `order` first."""
    entries = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    entries |= {str(handle.get_label()): handle for handle in more}
    if not entries:
        return
    labels = [label for label in order if label in entries]
    labels += [label for label in entries if label not in order]
    room = (figure.get_figwidth() + 0.2) / (0.53 + LETTER * max(map(len, labels)))
    columns = min(len(labels), max(1, int(room)))
    figure.set_figheight(figure.get_figheight() + TEXT_LINE * math.ceil(len(labels) / columns))
    handles = [entries[label] for label in labels]
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=SIZE)


def blank(message: str) -> Figure:
    """Return a figure that says why there is nothing to see."""
    figure = Figure(figsize=(COLUMN, COLUMN / 3))
    FigureCanvasAgg(figure)
    figure.text(0.5, 0.5, message, ha="center", va="center", fontsize=SIZE)
    return figure


def wrapped(text: str, width: float) -> str:
    """Return a text whose lines are about `width` inches at most."""
    return "\n".join(textwrap.fill(line, max(1, int(width / LETTER))) for line in text.splitlines())
