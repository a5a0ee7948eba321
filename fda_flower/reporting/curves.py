"""What figures are drawn of: curves by round with bands over seeds, and dots with intervals."""

import io
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fda_flower.files import write_atomically
from fda_flower.reporting.panels import FEW, SIZE
from fda_flower.reporting.styles import Style, style

Series = Sequence[Sequence[float]]
"""For each seed, a value for each round; NaN where it is unknown."""

MUCH = 1.5
"""How many times the usual number of rounds is too many to be drawn to scale."""
PRESSED = 0.25
"""The width of the rounds beyond the usual number, as a share of that of the usual ones."""


def by_round(values: Series) -> NDArray[np.float64]:
    """Return the values of each seed by round as a table; NaN where a seed has no more rounds."""
    table = np.full((len(values), max(map(len, values), default=0)), np.nan)
    for row, series in zip(table, values, strict=True):
        row[: len(series)] = series
    return table


def mean_and_deviation(values: Series) -> tuple[list[int], list[float], list[float]]:
    """Return the rounds that any seed knows, the mean in each, and the sample standard deviation.

    The deviation is 0 where fewer than two seeds know the value.

    Examples
    --------
    >>> mean_and_deviation([[1.0, float("nan"), 3.0], [3.0]])
    ([1, 3], [2.0, 3.0], [1.4142135623730951, 0.0])
    """
    table = by_round(values)
    known = ~np.isnan(table).all(axis=0)
    seeds = np.ma.masked_invalid(table[:, known])
    deviation = seeds.std(axis=0, ddof=1).filled(0) if len(values) > 1 else np.zeros(known.sum())
    return (np.flatnonzero(known) + 1).tolist(), seeds.mean(axis=0).tolist(), deviation.tolist()


def draw_curves(axis: Axes, curves: Mapping[str, Series], styles: Mapping[str, Style]) -> None:
    """Draw each curve's mean over seeds, and for few curves one standard deviation around it.

    A curve of many more rounds than usual does not squeeze the others: the rounds beyond the usual ones are
    pressed together, on grey ground.
    """
    for i, (label, values) in enumerate(curves.items()):
        rounds, mean, deviation = mean_and_deviation(values)
        look = styles[label]
        step = max(1, len(rounds) // 5)
        axis.plot(
            *with_gaps(rounds, mean),
            label=label,
            color=look.color,
            linestyle=look.dash,
            marker=look.marker,
            markevery=(i * step // len(curves), step),
        )
        if len(values) > 1 and len(curves) <= FEW:
            low, high = np.subtract(mean, deviation), np.add(mean, deviation)
            axis.fill_between(rounds, low, high, color=look.color, alpha=0.15, linewidth=0)
    axis.grid(alpha=0.3, linewidth=0.5)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    _press_rounds(axis, [max(map(len, values), default=0) for values in curves.values()])


def with_gaps(rounds: Sequence[int], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return a line that is broken where much more rounds are unknown than usual."""
    steps = [after - before for before, after in pairwise(rounds)]
    usual = statistics.median_low(steps or [1])
    x: list[float] = []
    y: list[float] = []
    for number, value, step in zip(rounds, values, [0, *steps], strict=False):
        if step > 2 * usual:
            x.append(number - step / 2)
            y.append(np.nan)
        x.append(number)
        y.append(value)
    return x, y


def draw_dots(axis: Axes, values: Mapping[str, Sequence[float]], styles: Mapping[str, Style]) -> None:
    """Draw for each label, from top to bottom, a dot at the mean of its values and one deviation around it.

    A label without values has an empty line.
    """
    for height, (label, each) in enumerate(values.items()):
        if each:
            deviation = float(np.std(each, ddof=1)) if len(each) > 1 else 0.0
            look: dict[str, Any] = {"color": styles[label].color, "marker": styles[label].marker}
            axis.errorbar(
                [float(np.mean(each))],
                [height],
                xerr=[deviation],
                label=label,
                capsize=2,
                elinewidth=0.8,
                **look,
            )
    axis.set_yticks(range(len(values)), [*values])
    axis.set_ylim(len(values) - 0.5, -0.5)
    axis.tick_params(labelsize=SIZE)
    axis.grid(alpha=0.3, linewidth=0.5)


def styles_of(labels: Sequence[str]) -> dict[str, Style]:
    """Return a style for each label, by its place."""
    return {label: style(i) for i, label in enumerate(labels)}


def save_figure(path: Path, figure: Figure, dpi: int = 200) -> None:
    """Save a figure atomically, in the format of its extension; the text of a PDF is searchable.

    The same figure is the same file: a PDF has no date.
    """
    buffer = io.BytesIO()
    more: Any = {"metadata": {"CreationDate": None}} if path.suffix == ".pdf" else {}
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=dpi, **more)
    write_atomically(path, buffer.getvalue())


def save_both(path: Path, figure: Figure) -> list[Path]:
    """Save a figure as PNG and, for print, as PDF in the same layout; return both paths."""
    paths = [path.with_name(f"{path.name}.{ending}") for ending in ("png", "pdf")]
    for each in paths:
        save_figure(each, figure)
        figure.set_layout_engine("none")  # the PNG has laid it out; a second time takes as long again
    return paths


def _press_rounds(axis: Axes, lengths: Sequence[int]) -> None:
    usual, longest = statistics.median_low(lengths or [0]), max(lengths, default=0)
    if not 0 < MUCH * usual < longest:
        return
    factor = PRESSED * usual / (longest - usual)

    def press(rounds: NDArray[Any]) -> NDArray[Any]:
        return np.where(rounds <= usual, rounds, usual + factor * (rounds - usual))

    def stretch(places: NDArray[Any]) -> NDArray[Any]:
        return np.where(places <= usual, places, usual + (places - usual) / factor)

    axis.set_xscale("function", functions=(press, stretch))
    axis.axvspan(usual, longest, color="0.93", linewidth=0, zorder=0)
    words: Any = {"rotation": 90, "ha": "center", "fontsize": SIZE, "color": "0.5"}
    axis.text((usual + longest) / 2, 0.03, "pressed together", transform=axis.get_xaxis_transform(), **words)
    ticks = [tick for tick in MaxNLocator(nbins=4, integer=True).tick_values(0, usual) if tick <= usual]
    axis.set_xticks([*ticks, longest])
