"""The figure of runs: accuracy by round, and the β of each source by round."""

import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure

from fda_flower.metrics import METRICS
from fda_flower.records.record import Record, curve, source_weight
from fda_flower.reporting.figures import (
    PAGE,
    PRINT,
    SIZE,
    TEXT_LINE,
    add_about,
    draw_curves,
    draw_dots,
    draw_sources,
    style,
    styles_of,
)
from fda_flower.reporting.summary import ACCURACY, LAST, scores
from fda_flower.reporting.tables import mean_std

Runs = Mapping[str, Sequence[Sequence[Record]]]
"""By method: a history for each seed."""

WEIGHT = "Weight (β) of the source"
PER_LINE, HEIGHT, ROW = 3, 1.9, 0.16
"""Panels of β side by side, their height, and the height of a method's name, in inches."""


@matplotlib.rc_context(PRINT)
def plot_runs(runs: Runs, metric: str = ACCURACY, about: str = "") -> Figure:
    """Plot a figure by round for each method, and β by round for each method that estimates it.

    Lines are means over seeds, bands one standard deviation. Several methods are named beside their last 5
    rounds, the best mean first. Where a single method is evaluated once, the members of its mixture are bars.

    Parameters
    ----------
    runs : Mapping
        By method, a history for each seed.
    metric : str
        The figure, a name of `fda_flower.metrics.METRICS`.
    about : str
        What the sub-title says: data set, seeds.
    """
    estimated = [label for label, histories in runs.items() if estimated_sources(histories)]
    tall = max(2.6, 0.7 + ROW * len(runs))
    below = HEIGHT * math.ceil(len(estimated) / PER_LINE) + TEXT_LINE
    figure = Figure(figsize=(PAGE, tall + (below if estimated else 0)), layout="constrained")
    FigureCanvasAgg(figure)
    ratios = [tall, below] if estimated else [tall]
    parts = figure.subfigures(len(ratios), 1, height_ratios=ratios, squeeze=False)[:, 0]
    _plot_figures(parts[0], runs, metric)
    if estimated:
        _plot_betas(parts[1], {label: runs[label] for label in estimated})
    add_about(figure, about)
    return figure


def _plot_figures(part: SubFigure, runs: Runs, metric: str) -> None:
    styles = styles_of([*runs])
    values = {label: [curve(history, metric) for history in histories] for label, histories in runs.items()}
    if len(runs) == 1:
        axis = part.subplots()
        ((label, histories),) = runs.items()
        axis.set_title(label)
        members = member_weights(histories)
        if members and max(np.isfinite(each).sum() for each in values[label]) < 2:
            found = [score for each in histories if (score := scores(each, metric)["last5"]) is not None]
            axis.set_title(f"{label}: {METRICS[metric].axis} {mean_std(found, METRICS[metric].decimals)}")
            _plot_members(axis, members)
            return
    else:
        axis, beside = part.subplots(1, 2, width_ratios=[2, 1])
        last = {
            label: [score for each in histories if (score := scores(each, metric)["last5"]) is not None]
            for label, histories in runs.items()
        }
        sign = -1 if METRICS[metric].higher_is_better else 1
        best = sorted(last, key=lambda label: sign * float(np.mean(last[label])) if last[label] else math.inf)
        draw_dots(beside, {label: last[label] for label in best}, styles)
        beside.yaxis.tick_right()
        beside.set_xlabel(f"Mean ± std of the last {LAST} rounds")
    draw_curves(axis, values, styles)
    axis.set(xlabel="Round", ylabel=METRICS[metric].axis)


def _plot_members(axis: Axes, members: Mapping[str, Sequence[float]]) -> None:
    """Draw a bar for the mean weight of each member, with one deviation over seeds."""
    deviations = [float(np.std(each, ddof=1)) if len(each) > 1 else 0.0 for each in members.values()]
    means = [float(np.mean(each)) for each in members.values()]
    axis.barh(
        [*members], means, xerr=deviations if any(deviations) else None, color=style(0).color, capsize=2
    )
    axis.invert_yaxis()
    axis.set(xlabel="Weight of the member in the mixture", xlim=(0, None))


def _plot_betas(part: SubFigure, runs: Runs) -> None:
    lines = math.ceil(len(runs) / PER_LINE)
    columns = math.ceil(len(runs) / lines)
    every = list(part.subplots(lines, columns, squeeze=False).flat)
    for spare in every[len(runs) :]:
        spare.remove()
    sources = {label: estimated_sources(histories) for label, histories in runs.items()}
    styles = styles_of(sorted({source for each in sources.values() for source in each}))
    for i, (axis, (label, histories)) in enumerate(zip(every, runs.items(), strict=False)):
        draw_sources(axis, {source: betas(histories, source) for source in sources[label]}, styles)
        axis.set_title(label)
        axis.set_xlabel("Round")
        axis.set_ylabel(WEIGHT if i % columns == 0 else "")
        axis.set_ylim(0, None)
    lines_of = [axis.get_legend_handles_labels() for axis in every[: len(runs)]]
    shown = {text: line for handles, texts in lines_of for line, text in zip(handles, texts, strict=True)}
    part.legend(
        [*shown.values()],
        [*shown],
        loc="outside lower center",
        ncols=min(len(shown), 6),
        frameon=False,
        fontsize=SIZE,
    )


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


def member_weights(histories: Sequence[Sequence[Record]]) -> dict[str, list[float]]:
    """Return the weights of each member of a mixture in the last records with them, by seed."""
    weights: dict[str, list[float]] = {}
    for history in histories:
        found = [record["mixture"]["members"] for record in history if "members" in record.get("mixture", {})]
        for name, member in found[-1].items() if found else ():
            if "weight" in member:
                weights.setdefault(name, []).append(member["weight"])
    return weights


def betas(histories: Sequence[Sequence[Record]], source: str) -> list[list[float]]:
    """Return β or the joint weight of a source by round, for each history; NaN where it is unknown."""
    entries = [[record["sources"].get(source, {}) for record in history] for history in histories]
    found = [[source_weight(entry) for entry in row] for row in entries]
    return [[np.nan if value is None else value for value in row] for row in found]
