"""What figures are drawn of: curves by round with bands over seeds, and dots with intervals."""

import io
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

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


MANY = 12
"""The most sources that are told apart in a picture."""


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
    """Draw each curve's mean over seeds, and for few curves one standard deviation around it."""
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


def draw_sources(axis: Axes, sources: Mapping[str, Series], styles: Mapping[str, Style]) -> None:
    """Draw a value of each source; of more than `MANY` sources their mean by round, and their range."""
    if len(sources) <= MANY:
        draw_curves(axis, sources, styles)
        return
    means = [
        np.ma.masked_invalid(by_round(values)).mean(axis=0).filled(np.nan) for values in sources.values()
    ]
    table = np.ma.masked_invalid(by_round(means))
    name = f"mean of {len(sources)} sources"
    draw_curves(axis, {name: [table.mean(axis=0).filled(np.nan)]}, {name: style(0)})
    known = table[:, table.count(axis=0) > 0]
    rounds = np.flatnonzero(table.count(axis=0)) + 1
    look: Any = {"color": style(0).color, "alpha": 0.15, "linewidth": 0, "label": "lowest to highest"}
    axis.fill_between(rounds, known.min(axis=0).filled(), known.max(axis=0).filled(), **look)


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
    """Save a figure atomically, in the format of its extension."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=dpi)
    write_atomically(path, buffer.getvalue())
