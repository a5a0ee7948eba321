"""The charts of a page, as figures of matplotlib."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fda_flower.reporting.figures import (
    PRINT,
    Ends,
    Line,
    Series,
    Style,
    add_legend,
    draw_bars,
    draw_baseline,
    draw_confusion,
    draw_curves,
    draw_dots,
    draw_sources,
    mark_rounds,
    panels,
    styles_of,
)
from fda_flower.reporting.plots import PAPER, paper_keys

STATES = {
    "took part": ("#009e73", "s"),
    "not used": ("#d55e00", "X"),
    "could not take part": ("#cc79a7", "D"),
    "no reply": ("#9a9a9a", "o"),
}
"""The states of a domain in a round, with their colours and markers."""


@matplotlib.rc_context(PRINT)
def curves(
    series: Mapping[str, Series],
    styles: Mapping[str, Style],
    ylabel: str,
    baseline: Line | None = None,
) -> Figure:
    """Return curves by round: means over seeds, for few curves with bands of one standard deviation.

    `series` holds by name, for each seed, a value for each round. A `baseline` is a dashed line.
    """
    figure, (axis,) = panels([""], "Round", ylabel, wide=True, height=2.4)
    draw_curves(axis, series, styles)
    draw_baseline(axis, baseline)
    return _by_round(figure, axis, series)


@matplotlib.rc_context(PRINT)
def shares(series: Mapping[str, Series], ylabel: str) -> Figure:
    """Return a weight of each name by round; of many sources their mean and their range."""
    figure, (axis,) = panels([""], "Round", ylabel, wide=True, height=2.4)
    draw_sources(axis, series, styles_of([*series]))
    axis.set_ylim(bottom=0)
    return _by_round(figure, axis, series)


def _by_round(figure: Figure, axis: Axes, series: Mapping[str, Series]) -> Figure:
    """Show all rounds, and the legend."""
    mark_rounds(axis, max((len(each) for values in series.values() for each in values), default=1))
    add_legend(figure, [axis], [*series])
    return figure


@matplotlib.rc_context(PRINT)
def dots(
    values: Mapping[str, Sequence[float]],
    styles: Mapping[str, Style],
    xlabel: str,
    paper: Mapping[str, float],
    baseline: Line | None = None,
) -> Figure:
    """Return a dot at the mean of each name's values, with one standard deviation; the paper's are hollow.

    A `baseline` is a dashed line.
    """
    known = {name: each for name, each in values.items() if each}
    figure, (axis,) = panels([""], xlabel, wide=True, height=0.5 + 0.16 * len(known))
    draw_dots(axis, known, styles)
    dashed = draw_baseline(axis, baseline, upright=True)
    for height, name in enumerate(known):
        if name in paper:
            look: Any = {"color": styles[name].color, "marker": styles[name].marker}
            axis.plot([paper[name]], [height], **PAPER, **look)
    add_legend(figure, [], more=[*(paper_keys() if known.keys() & paper.keys() else ()), *dashed])
    return figure


@matplotlib.rc_context(PRINT)
def bars(values: Mapping[str, tuple[float, Ends]], xlabel: str, baseline: Line | None = None) -> Figure:
    """Return a bar for each name, with its interval; a `baseline` is a dashed line."""
    figure, (axis,) = panels([""], xlabel, wide=True, height=0.6 + 0.2 * len(values))
    draw_bars(axis, values)
    add_legend(figure, [], more=draw_baseline(axis, baseline, upright=True))
    return figure


@matplotlib.rc_context(PRINT)
def matrix(confusion: Mapping[str, Any]) -> Figure:
    """Return a confusion matrix, as a record has it."""
    figure, (axis,) = panels([""], "Predicted", wide=True, height=1.0 + 0.2 * len(confusion["classes"]))
    draw_confusion(axis, confusion["counts"], confusion["classes"])
    return figure


@matplotlib.rc_context(PRINT)
def presence(states: Mapping[str, Sequence[str]]) -> Figure:
    """Return who took part in which round: a row for each domain, a line for rounds in a row.

    `states` holds by domain one of `STATES` for each round. A line has marks at its ends alone, so that a
    chart grows with the changes, not with the rounds.
    """
    figure, (axis,) = panels([""], "Round", wide=True, height=0.5 + 0.16 * len(states))
    for name, (color, marker) in STATES.items():
        ends = [
            point
            for height, each in enumerate(states.values())
            for first, last in _spans(each, name)
            for point in ((first, height), (last, height), (np.nan, height))
        ]
        if ends:
            look: Any = {"color": color, "marker": marker, "linewidth": 2, "label": name}
            axis.plot(*zip(*ends, strict=True), **look)
    axis.set_yticks(range(len(states)), [*states])
    axis.set_ylim(len(states) - 0.5, -0.5)
    mark_rounds(axis, max(map(len, states.values()), default=1))
    add_legend(figure, [axis])
    return figure


def _spans(states: Sequence[str], wanted: str) -> Iterator[tuple[int, int]]:
    """Yield the first and the last round of each row of rounds in the wanted state."""
    for state, group in groupby(enumerate(states, start=1), key=itemgetter(1)):
        if state == wanted:
            numbers = [number for number, _ in group]
            yield numbers[0], numbers[-1]
