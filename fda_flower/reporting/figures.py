"""The look of figures: print sizes, panels and legends, and distinct curves and dots."""

import io
import math
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fda_flower.files import write_atomically

COLORS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a7a7a"),
    *("#7b61c9", "#a6761d", "#c2185b", "#8fae1b", "#00a6a6", "#f28e8e"),
)
"""Okabe and Ito's palette for all kinds of colour vision, with a grey for black, visible on dark pages.

Six more colours follow, for pictures with 8 to 13 curves.
"""
MARKERS = ("o", "s", "D", "^", "v", "P", "*", "X", "<", ">", "h")
DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Style:
    """The look of one curve."""

    color: str
    marker: str
    dash: str


def style(number: int) -> Style:
    """Return the look of a curve by its number.

    The first 13 differ in colour, and the first 143 in colour or marker. The numbers of colours, markers and
    dashes are coprime, so neighbours differ in all three.
    """
    return Style(*(looks[number % len(looks)] for looks in (COLORS, MARKERS, DASHES)))


def styles_of(labels: Sequence[str]) -> dict[str, Style]:
    """Return a style for each label, by its position."""
    return {label: style(i) for i, label in enumerate(labels)}


SIZE = 8
"""Size of all text, in points, at the printed width of the figure."""
PRINT: Any = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), SIZE),
    **{"axes.linewidth": 0.6, "lines.linewidth": 1.2, "lines.markersize": 4},
    "text.parse_math": False,  # names are no formulas
}
COLUMN, PAGE = 3.5, 7.0
"""Widths in print, in inches."""
LETTER, TEXT_LINE = 0.062, 0.18
"""Approximate width of a letter and height of a line of text, in inches."""
FEW, MANY = 6, 12
"""The most curves with bands, and the most sources with curves of their own."""


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
    """Return a figure with a panel for each title, at most `per_line` side by side, and its axes.

    `height` is a panel's, in inches. A single panel is as narrow as a column and higher, unless it is
    `wide`. `share_y` is ``"row"`` where only the panels of a line have the same y axis.
    """
    lines, per_line = _lines(titles, per_line)
    narrow = per_line == 1 and not wide
    width, tall = (COLUMN, 1.4 * height) if narrow else (PAGE, height)
    figure = Figure(figsize=(width, tall * lines + 0.4), layout="constrained")
    axes = panels_of(figure, titles, xlabel, ylabel, per_line, (width, tall), share_y)
    add_about(figure, about)
    return figure, axes


def panels_of(
    part: Figure | SubFigure,
    titles: Sequence[str],
    xlabel: str,
    ylabel: str,
    per_line: int,
    size: tuple[float, float],
    share_y: bool | str = False,
) -> list[Axes]:
    """Add panels to a figure or a part of one; `size` is the width of a line and the height of a panel."""
    (width, tall), (lines, per_line) = size, _lines(titles, per_line)
    every = list(part.subplots(lines, per_line, sharex=True, sharey=share_y, squeeze=False).flat)  # type: ignore[arg-type]
    axes = every[: len(titles)]
    for spare in every[len(titles) :]:
        spare.remove()
    for i, (axis, title) in enumerate(zip(axes, titles, strict=True)):
        axis.set_title(wrapped(title, 0.75 * width / per_line))
        lowest = i + per_line >= len(titles)
        axis.tick_params(labelsize=SIZE, labelbottom=lowest)
        if lowest:
            axis.set_xlabel(wrapped(xlabel, 0.8 * width / per_line))
        if i % per_line == 0:
            axis.set_ylabel(wrapped(ylabel, tall - 0.2))
    return axes


def _lines(titles: Sequence[str], per_line: int) -> tuple[int, int]:
    """Return the number of lines of panels, and of panels in a line."""
    lines = math.ceil(len(titles) / per_line)
    return lines, math.ceil(len(titles) / lines)


def add_about(figure: Figure, about: str) -> None:
    """Add a sub-title above all panels, in its own space."""
    if about:
        text = wrapped(about, figure.get_figwidth() - 0.2)
        figure.suptitle(text, fontsize=SIZE, color="0.3")
        figure.set_figheight(figure.get_figheight() + TEXT_LINE * (text.count("\n") + 1))


def set_categories(axis: Axes, labels: Sequence[str]) -> None:
    """Put labels along the x axis, slanted if they would overlap."""
    width = axis.get_figure().get_figwidth() / axis.get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
    slanted = (max(map(len, labels)) + 1) * len(labels) * LETTER > 0.8 * width
    how: Any = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
    axis.set_xticks(range(len(labels)), labels, **how)


def named(label: str) -> str:
    """Return the label of a curve or dot: legends leave out labels that begin with an underscore."""
    return f" {label}" if label.startswith("_") else label


def add_legend(
    figure: Figure | SubFigure, axes: Sequence[Axes], order: Sequence[str] = (), more: Sequence[Artist] = ()
) -> None:
    """Add one legend below all panels, in columns: each label once, the ones in `order` first.

    A figure grows by it; a part of one has kept its room.
    """
    keys = [axis.get_legend_handles_labels() for axis in axes]
    entries: dict[str, Artist] = {label: handle for pair in keys for handle, label in zip(*pair, strict=True)}
    entries |= {str(handle.get_label()): handle for handle in more}
    if not entries:
        return
    first = [label for label in map(named, order) if label in entries]
    labels = [*first, *(label for label in entries if label not in first)]
    room = (figure.bbox.width / figure.dpi + 0.2) / (0.53 + LETTER * max(map(len, labels)))
    columns = min(len(labels), max(1, int(room)))
    if isinstance(figure, Figure):
        figure.set_figheight(figure.get_figheight() + TEXT_LINE * math.ceil(len(labels) / columns))
    handles = [entries[label] for label in labels]
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=SIZE)


def blank(message: str) -> Figure:
    """Return a figure with only a message."""
    figure = Figure(figsize=(COLUMN, COLUMN / 3))
    figure.text(0.5, 0.5, message, ha="center", va="center", fontsize=SIZE)
    return figure


def wrapped(text: str, width: float) -> str:
    """Return a text whose lines are about `width` inches at most."""
    return "\n".join(
        textwrap.fill(line, max(1, int(width / LETTER)), break_long_words=False) for line in text.splitlines()
    )


Series = Sequence[Sequence[float]]
"""For each seed, a value for each round; NaN where it is unknown."""


def by_round(values: Series) -> NDArray[np.float64]:
    """Return a table of values by seed and round, padded with NaN."""
    table = np.full((len(values), max(map(len, values), default=0)), np.nan)
    for row, series in zip(table, values, strict=True):
        row[: len(series)] = series
    return table


def deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation; 0 for fewer than two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def mean_and_deviation(values: Series) -> tuple[list[int], list[float], list[float]]:
    """Return the rounds known to any seed, with the mean and the sample standard deviation of each.

    The deviation is 0 if fewer than two seeds know the value.

    Examples
    --------
    >>> mean_and_deviation([[1.0, float("nan"), 3.0], [3.0]])
    ([1, 3], [2.0, 3.0], [1.4142135623730951, 0.0])
    """
    table = by_round(values)
    known = ~np.isnan(table).all(axis=0)
    seeds = np.ma.masked_invalid(table[:, known])
    spread = seeds.std(axis=0, ddof=1).filled(0) if len(values) > 1 else np.zeros(known.sum())
    return (np.flatnonzero(known) + 1).tolist(), seeds.mean(axis=0).tolist(), spread.tolist()


RANGE = "lowest to highest"
Range = tuple[list[int], list[float], list[float]]
"""Rounds, and the lowest and the highest value in each."""


def mean_and_range(sources: Mapping[str, Series]) -> tuple[str, list[float], Range]:
    """Return a name for the mean of sources, the mean by round, and the range.

    Each source counts with its mean over seeds.
    """
    each = [np.ma.masked_invalid(by_round(values)).mean(axis=0).filled(np.nan) for values in sources.values()]
    table = np.ma.masked_invalid(by_round(each))
    known = np.flatnonzero(table.count(axis=0))
    low, high = (end(axis=0).filled(np.nan)[known].tolist() for end in (table.min, table.max))
    mean = table.mean(axis=0).filled(np.nan).tolist()
    return f"mean of {len(sources)} sources", mean, ((known + 1).tolist(), low, high)


def draw_curves(axis: Axes, curves: Mapping[str, Series], styles: Mapping[str, Style]) -> None:
    """Draw each curve's mean over seeds, and for few curves one standard deviation around it.

    A curve of one round is a large mark with its standard deviation.
    """
    for i, (label, values) in enumerate(curves.items()):
        rounds, mean, spread = mean_and_deviation(values)
        look = styles[label]
        if len(rounds) == 1:
            mark: Any = {"marker": look.marker, "markersize": 7, "markeredgecolor": "white", "zorder": 3}
            bar: Any = {"linestyle": "none", "capsize": 3, "elinewidth": 0.8}
            axis.errorbar(rounds, mean, spread, label=named(label), color=look.color, **mark, **bar)
            continue
        step = max(1, len(rounds) // 5)
        axis.plot(
            *with_gaps(rounds, mean),
            label=named(label),
            color=look.color,
            linestyle=look.dash,
            marker=look.marker,
            markevery=(i * step // len(curves), step),
        )
        if len(values) > 1 and len(curves) <= FEW:
            low, high = np.subtract(mean, spread), np.add(mean, spread)
            axis.fill_between(rounds, low, high, color=look.color, alpha=0.15, linewidth=0)
    axis.grid(alpha=0.3, linewidth=0.5)
    mark_rounds(axis)


def mark_rounds(axis: Axes, longest: int = 0) -> None:
    """Mark whole rounds along the x axis; with the number of the `longest` run's rounds, show all of them."""
    axis.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    if longest:
        margin = max(0.5, longest / 40)
        axis.set_xlim(1 - margin, longest + margin)


def are_single(curves: Mapping[str, Series]) -> bool:
    """Return whether no curve has two rounds, so that there is nothing to see by round."""
    return all(np.isfinite(each).sum() < 2 for values in curves.values() for each in values)


def draw_sources(axis: Axes, sources: Mapping[str, Series], styles: Mapping[str, Style]) -> None:
    """Draw a curve for each source or, for more than `MANY` sources, their mean and range by round."""
    if len(sources) <= MANY:
        draw_curves(axis, sources, styles)
        return
    name, mean, ends = mean_and_range(sources)
    draw_curves(axis, {name: [mean]}, {name: style(0)})
    axis.fill_between(*ends, color=style(0).color, alpha=0.15, linewidth=0, label=RANGE)


def with_gaps(rounds: Sequence[int], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return a line with gaps at unusually long stretches of unknown rounds."""
    steps = [after - before for before, after in pairwise(rounds)]
    usual = statistics.median_low(steps or [1])
    points: list[tuple[float, float]] = []
    for number, value, step in zip(rounds, values, [0, *steps], strict=False):
        points += [(number - step / 2, np.nan)] if step > 2 * usual else []
        points.append((number, value))
    return [x for x, _ in points], [y for _, y in points]


def draw_dots(axis: Axes, values: Mapping[str, Sequence[float]], styles: Mapping[str, Style]) -> None:
    """Draw for each label, from top to bottom, a dot at the mean of its values and one deviation around it.

    A label without values has an empty line.
    """
    for height, (label, each) in enumerate(values.items()):
        if each:
            look: Any = {"color": styles[label].color, "marker": styles[label].marker, "capsize": 2}
            mean = [float(np.mean(each))]
            axis.errorbar(mean, [height], xerr=[deviation(each)], label=named(label), elinewidth=0.8, **look)
    axis.set_yticks(range(len(values)), [*values])
    axis.set_ylim(len(values) - 0.5, -0.5)
    axis.tick_params(labelsize=SIZE)
    axis.grid(alpha=0.3, linewidth=0.5)


Ends = tuple[float, float] | None
"""The lowest and the highest value of an interval, if known."""


def draw_bars(axis: Axes, bars: Mapping[str, tuple[float, Ends]]) -> None:
    """Draw for each label, from top to bottom, a bar to its value, with its interval."""
    values = [value for value, _ in bars.values()]
    axis.barh([*bars], values, height=0.6, color=style(0).color)
    for height, (value, ends) in enumerate(bars.values()):
        if ends is not None:
            low, high = (max(abs(end - value), 0.0) for end in ends)
            axis.errorbar([value], [height], xerr=[[low], [high]], color="0.2", capsize=3, elinewidth=0.8)
    margin = 0.5 if len(bars) > 1 else 1.0
    axis.set_ylim(len(bars) - 1 + margin, -margin)
    axis.tick_params(labelsize=SIZE)
    axis.grid(axis="x", alpha=0.3, linewidth=0.5)
    axis.set_axisbelow(True)


def draw_confusion(axis: Axes, counts: Sequence[Sequence[int]], classes: Sequence[str]) -> None:
    """Draw a confusion matrix: true classes in rows with their number of test samples, counts in cells."""
    table = np.array(counts, np.float64)
    support = table.sum(axis=1, keepdims=True)
    shares = table / np.maximum(support, 1)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    if len(classes) <= MANY:
        for (row, column), share in np.ndenumerate(shares):
            look: Any = {"ha": "center", "va": "center", "color": "white" if share > 0.5 else "0.2"}
            axis.text(column, row, f"{table[row, column]:,.0f}", **look)
    numbers = support[:, 0].astype(int).tolist()
    axis.set_xticks(range(len(classes)), classes, rotation=0 if len(classes) <= FEW else 40)
    axis.set_yticks(range(len(classes)), [f"{n} ({s:,})" for n, s in zip(classes, numbers, strict=True)])
    axis.set(xlabel="Predicted", ylabel="True (test samples)")
    axis.tick_params(labelsize=SIZE, length=0)


BASELINE: Any = {"color": "0.35", "linestyle": "--", "linewidth": 0.9, "zorder": 1}
"""The look of a baseline's line."""
Line = tuple[float, str]
"""A value and its label."""


def draw_baseline(axis: Axes, line: Line | None, upright: bool = False) -> list[Artist]:
    """Draw a dashed line at a value, if there is one, and return it for a legend."""
    if line is None:
        return []
    value, label = line
    draw = axis.axvline if upright else axis.axhline
    return [draw(value, label=label, **BASELINE)]


def with_one_label(lines: Sequence[Line | None]) -> list[Line | None]:
    """Return the lines of several panels: labels that differ in the number of samples lose it.

    Examples
    --------
    >>> with_one_label([(50.0, "mean of the labels, 36 test samples"), (40.0, "mean of the labels"), None])
    [(50.0, 'mean of the labels'), (40.0, 'mean of the labels'), None]
    """
    if len({line[1] for line in lines if line}) < 2:
        return [*lines]
    return [line and (line[0], line[1].split(",")[0]) for line in lines]


FORMATS = ("png", "pdf", "svg")
"""The formats of figures' files."""


def save_figure(path: Path, figure: Figure, dpi: int = 200) -> None:
    """Save a figure atomically, in the format of its extension, one of `FORMATS`."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42}):  # publishers want TrueType
        figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=dpi)
    write_atomically(path, buffer.getvalue())
