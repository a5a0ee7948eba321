"""Figures of runs: accuracy by round, and the β of each source by round."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fda_flower.files import write_atomically
from fda_flower.metrics import METRICS
from fda_flower.records import Record, curve, source_weight

Runs = Mapping[str, Sequence[Sequence[Record]]]
"""By method: a history for each seed."""


def plot_runs(runs: Runs, metric: str = "accuracy") -> Figure:
    """Plot a figure by round for each method, and β by round for each method that estimates it.

    Lines are means over seeds, bands are one standard deviation.
    """
    estimated = [label for label, histories in runs.items() if estimated_sources(histories)]
    panels = 1 + len(estimated)
    figure = Figure(figsize=(6.4 if panels == 1 else 6 + 3.6 * (panels - 1), 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    widths = [1.6] + [1.0] * len(estimated)
    axes = figure.subplots(1, panels, width_ratios=widths, squeeze=False)[0]
    values = {label: [curve(history, metric) for history in histories] for label, histories in runs.items()}
    _draw(axes[0], values, "tab10", ylabel=METRICS[metric].axis)
    for axis, label in zip(axes[1:], estimated, strict=True):
        domains = estimated_sources(runs[label])
        sources = {domain: betas(runs[label], domain) for domain in domains}
        _draw(axis, sources, "Dark2", ylabel="Weight (β) of the source", title=label)
        axis.set_ylim(0, None)
    return figure


def save_figure(path: Path, figure: Figure, dpi: int = 150) -> None:
    """Save a figure atomically, in the format of its extension; the text of a PDF is searchable."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=dpi)
    write_atomically(path, buffer.getvalue())


def _draw(axis: Axes, curves: Mapping[str, Sequence[Sequence[float]]], colors: str, **labels: str) -> None:
    for i, (label, values) in enumerate(curves.items()):
        band(axis, values, label, color(colors, i))
    axis.set(xlabel="Round", **labels)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)


def color(colors: str, i: int) -> Any:
    """Return a colour of a qualitative colormap; colours repeat if there are too few."""
    listed = matplotlib.colormaps[colors].colors  # type: ignore[attr-defined]
    return listed[i % len(listed)]


def estimated_sources(histories: Sequence[Sequence[Record]]) -> list[str]:
    """Return the sources whose β was estimated in any round."""
    return sorted(
        {
            domain
            for history in histories
            for record in history
            for domain, entry in record["sources"].items()
            if entry.get("sigma2") is not None
        }
    )


def betas(histories: Sequence[Sequence[Record]], source: str) -> list[list[float]]:
    """Return β or the joint weight of a source by round, for each history; NaN where it is unknown."""
    entries = [[record["sources"].get(source, {}) for record in history] for history in histories]
    found = [[source_weight(entry) for entry in row] for row in entries]
    return [[np.nan if value is None else value for value in row] for row in found]


def band(axis: Axes, values: Sequence[Sequence[float]], label: str, color: object, **style: Any) -> None:
    """Draw the mean by round, and one standard deviation around it.

    Parameters
    ----------
    axis : Axes
        The axes to draw on.
    values : list[list[float]]
        For each seed, a value for each round; NaN where it is unknown.
    label, color, **style
        Label, colour and style of the line.
    """
    length = max(map(len, values))
    table: NDArray[np.float64] = np.full((len(values), length), np.nan)
    for row, series in zip(table, values, strict=True):
        row[: len(series)] = series
    known = ~np.isnan(table).all(axis=0)
    rounds = np.arange(1, length + 1)[known]
    seeds = np.ma.masked_invalid(table[:, known])
    mean = seeds.mean(axis=0)
    default = {"linewidth": 1.6, "marker": "o" if len(rounds) == 1 else None}
    axis.plot(rounds, mean, label=label, color=color, **default | style)
    if len(values) > 1:
        deviation = seeds.std(axis=0, ddof=1).filled(0)
        axis.fill_between(rounds, mean - deviation, mean + deviation, color=color, alpha=0.15, linewidth=0)
