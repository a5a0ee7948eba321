"""The figures of runs, of sites, and of an experiment's columns, rounds and weights."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from fda_flower.metrics import METRICS
from fda_flower.records.record import Record, curve, source_weight
from fda_flower.reporting.figures import (
    BASELINE,
    FEW,
    PAGE,
    PRINT,
    SIZE,
    TEXT_LINE,
    Line,
    add_about,
    add_legend,
    blank,
    deviation,
    draw_baseline,
    draw_curves,
    draw_dots,
    draw_sources,
    named,
    panels,
    style,
    styles_of,
)
from fda_flower.reporting.results import Results, named_baseline
from fda_flower.reporting.sites import metric_of, sites_in
from fda_flower.reporting.summary import ACCURACY, LAST, baseline_in, name_of_baseline, samples_of, scores
from fda_flower.reporting.tables import mean_std

Runs = Mapping[str, Sequence[Sequence[Record]]]
"""By method: a history for each seed."""

WEIGHT = "Weight (β) of the source"
PER_LINE, HEIGHT, ROW = 3, 1.9, 0.16
"""Panels of β side by side, their height, and the height of a method's name, in inches."""


@matplotlib.rc_context(PRINT)
def plot_runs(runs: Runs, metric: str = ACCURACY, about: str = "") -> Figure:
    """Plot a figure by round for each method, and β by round for each method that estimates it.

    Lines are means over seeds, bands one standard deviation. With several methods a second panel names them,
    the best mean of the last 5 rounds first. A single method that is evaluated once shows the members of its
    mixture as bars. `metric` is a name of `fda_flower.metrics.METRICS`; the sub-title `about` names data and
    seeds.
    """
    estimated = {label: histories for label, histories in runs.items() if estimated_sources(histories)}
    tall = max(2.6, 0.7 + ROW * len(runs))
    below = HEIGHT * math.ceil(len(estimated) / PER_LINE) + TEXT_LINE
    ratios = [tall, below] if estimated else [tall]
    figure = Figure(figsize=(PAGE, sum(ratios)), layout="constrained")
    parts = figure.subfigures(len(ratios), 1, height_ratios=ratios, squeeze=False)[:, 0]
    _plot_figures(parts[0], runs, metric)
    if estimated:
        _plot_betas(parts[1], estimated)
    add_about(figure, about)
    return figure


def _plot_figures(part: SubFigure, runs: Runs, metric: str) -> None:
    styles, unit = styles_of([*runs]), METRICS[metric]
    line = baseline_line([each for histories in runs.values() for each in histories], metric)
    values = {label: [curve(history, metric) for history in histories] for label, histories in runs.items()}
    last = {
        label: [score for each in histories if (score := scores(each, metric)["last5"]) is not None]
        for label, histories in runs.items()
    }
    if len(runs) == 1:
        axis = part.subplots()
        ((label, histories),) = runs.items()
        axis.set_title(label)
        members = member_weights(histories)
        if members and max(np.isfinite(each).sum() for each in values[label]) < 2:
            axis.set_title(f"{label}: {unit.axis} {mean_std(last[label], unit.decimals)}")
            _plot_members(axis, members)
            return
    else:
        axis, beside = part.subplots(1, 2, width_ratios=[2, 1])
        sign = -1 if unit.higher_is_better else 1
        best = sorted(last, key=lambda label: sign * float(np.mean(last[label])) if last[label] else math.inf)
        draw_dots(beside, {label: last[label] for label in best}, styles)
        draw_baseline(beside, line, upright=True)
        beside.yaxis.tick_right()
        beside.set_xlabel(f"Mean ± std of the last {LAST} rounds")
    draw_curves(axis, values, styles)
    draw_baseline(axis, line, key=True)
    axis.set(xlabel="Round", ylabel=unit.axis)


def baseline_line(histories: Sequence[Sequence[Record]], metric: str) -> Line | None:
    """Return the mean figure of a model that ignores the samples, with its name; None if unknown."""
    values = [value for each in histories if (value := baseline_in(each, metric)) is not None]
    sizes = [size for each in histories if (size := samples_of(each))]
    return (float(np.mean(values)), named_baseline(name_of_baseline(metric), sizes)) if values else None


def _plot_members(axis: Axes, members: Mapping[str, Sequence[float]]) -> None:
    """Draw a bar for each member's mean weight, with one standard deviation over seeds."""
    means, deviations = zip(*((np.mean(each), deviation(each)) for each in members.values()), strict=True)
    spread = deviations if any(deviations) else None
    axis.barh([*members], means, xerr=spread, color=style(0).color, capsize=2)
    axis.invert_yaxis()
    axis.set(xlabel="Weight of the member in the mixture", xlim=(0, None))


def _plot_betas(part: SubFigure, runs: Runs) -> None:
    lines = math.ceil(len(runs) / PER_LINE)
    columns = math.ceil(len(runs) / lines)
    every = list(part.subplots(lines, columns, squeeze=False).flat)
    for spare in every[len(runs) :]:
        spare.remove()
    styles = styles_of(estimated_sources([history for each in runs.values() for history in each]))
    keys: dict[str, Any] = {}
    for i, (axis, (label, histories)) in enumerate(zip(every, runs.items(), strict=False)):
        draw_sources(axis, betas(histories), styles)
        axis.set(title=label, xlabel="Round", ylabel="" if i % columns else WEIGHT, ylim=(0, None))
        keys |= {text: line for line, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    how: Any = {"loc": "outside lower center", "frameon": False, "fontsize": SIZE}
    part.legend([*keys.values()], [*keys], ncols=min(len(keys), 6), **how)


def estimated_sources(histories: Sequence[Sequence[Record]]) -> list[str]:
    """Return the sources whose β was estimated in any round."""
    sources = (each for history in histories for record in history for each in record["sources"].items())
    return sorted({domain for domain, entry in sources if entry.get("sigma2") is not None})


def member_weights(histories: Sequence[Sequence[Record]]) -> dict[str, list[float]]:
    """Return each member's weight in the last record of a mixture, by seed."""
    weights: dict[str, list[float]] = {}
    for history in histories:
        mixtures = [
            record["mixture"]["members"] for record in history if "members" in record.get("mixture", {})
        ]
        for name, member in mixtures[-1].items() if mixtures else ():
            if "weight" in member:
                weights.setdefault(name, []).append(member["weight"])
    return weights


def weights(histories: Sequence[Sequence[Record]]) -> dict[str, list[list[float]]]:
    """Return by source, for each history, its β or weight by round; sources without any are left out."""
    by_source: dict[str, list[list[float]]] = {}
    for source in sorted({name for history in histories for record in history for name in record["sources"]}):
        entries = [[record["sources"].get(source, {}) for record in history] for history in histories]
        values = [np.array([source_weight(entry) for entry in row], dtype=float) for row in entries]
        if not all(np.isnan(row).all() for row in values):
            by_source[source] = [row.tolist() for row in values]
    return by_source


def betas(histories: Sequence[Sequence[Record]]) -> dict[str, list[list[float]]]:
    """Return `weights`, for sources with an estimated β only."""
    estimated = estimated_sources(histories)
    return {source: values for source, values in weights(histories).items() if source in estimated}


PAPER: Any = {"markerfacecolor": "none", "linestyle": "none", "markeredgewidth": 0.8}
KEY: Any = {"color": "0.4", "marker": "o"}


@matplotlib.rc_context(PRINT)
def plot_columns(results: Results) -> Figure:
    """Plot the headline by column, for the rows that were run; the paper's values are hollow.

    If two or more columns have numeric values, they form the axis, with a panel for each group. Otherwise
    each column of each group has a panel with one line for each row.
    """
    groups, rows, columns = (
        [label for label in labels if any(place[i] == label for place in results.runs)]
        for i, labels in enumerate((results.groups, results.rows, results.columns))
    )
    if not rows:
        return blank("Nothing measured yet.")
    numeric = len(columns) > 1 and all(column in results.values for column in columns)
    plot = _plot_numbers if numeric else _plot_categories
    return plot(results, rows, groups, columns)


def _plot_numbers(
    results: Results, rows: Sequence[str], groups: Sequence[str], columns: Sequence[str]
) -> Figure:
    titles = results.titles([(group,) for group in groups])
    how: Any = {"about": results.about(), "wide": len(rows) > FEW, "height": 2.1}
    figure, axes = panels(titles, results.axis, results.value_label, **how)
    styles = styles_of(results.rows)
    keys = []
    ascending = sorted(columns, key=lambda column: results.values[column])
    for axis, group in zip(axes, groups, strict=True):
        axis.grid(alpha=0.3, linewidth=0.5)
        for row in rows:
            places = {results.values[column]: (group, row, column) for column in ascending}
            measured = {x: v for x, place in places.items() if (v := results.scores(place, "last5"))}
            printed = {x: results.paper[place] for x, place in places.items() if place in results.paper}
            look: Any = {"color": styles[row].color, "marker": styles[row].marker}
            if measured:
                means, spread = zip(*((np.mean(v), deviation(v)) for v in measured.values()), strict=True)
                bars: Any = {"capsize": 2, "elinewidth": 0.8, "linestyle": styles[row].dash}
                axis.errorbar([*measured], means, spread, label=named(row), **bars, **look)
            if printed:
                keys = [Line2D([], [], label="in the paper", **KEY | PAPER)]
                axis.plot([*printed], [*printed.values()], **PAPER, **look)
        lines = {results.values[c]: line for c in ascending if (line := results.line(group, c))}
        if lines:
            values, names = zip(*lines.values(), strict=True)
            axis.plot([*lines], values, label=names[0].split(",")[0], **BASELINE)
    add_legend(figure, axes, rows, keys)
    return figure


def _plot_categories(
    results: Results, rows: Sequence[str], groups: Sequence[str], columns: Sequence[str]
) -> Figure:
    places = [*product(groups, columns)]
    per_line = len(columns) if len(columns) <= 4 else 4 if len(columns) % 3 else 3
    how: Any = {"about": results.about(), "per_line": per_line, "height": 0.5 + 0.15 * len(rows)}
    figure, axes = panels(results.titles(places), results.value_label, wide=True, **how)
    styles = dict.fromkeys(results.rows, style(0))  # names stand next to the dots, so colours say nothing
    keys = []
    for axis, (group, column) in zip(axes, places, strict=True):
        draw_dots(axis, {row: results.scores((group, row, column), "last5") for row in rows}, styles)
        draw_baseline(axis, results.line(group, column), upright=True)
        for height, row in enumerate(rows):
            if (place := (group, row, column)) in results.paper:
                measured = Line2D([], [], linestyle="none", label="measured", **KEY)
                keys = [measured, Line2D([], [], label="in the paper", **KEY | PAPER)]
                look: Any = {"color": styles[row].color, "marker": styles[row].marker}
                axis.plot([results.paper[place]], [height], **PAPER, **look)
    add_legend(figure, [], more=keys)
    return figure


@matplotlib.rc_context(PRINT)
def plot_rounds(results: Results) -> Figure:
    """Plot each row's headline by round, with a panel for each group and column; few rows have bands."""
    places = results.measured
    if not places:
        return blank("No rounds were run.")
    per_line = len(results.columns) if len(results.columns) in (1, 2, 4) else 3
    how: Any = {"about": results.about(spread=len(results.rows) <= FEW), "per_line": per_line, "wide": True}
    figure, axes = panels(results.titles(places), "Round", results.value_label, **how)
    styles = styles_of(results.rows)
    for axis, (group, column) in zip(axes, places, strict=True):
        by_row = {row: runs for row in results.rows if (runs := results.at((group, row, column)))}
        draw_curves(axis, {row: [run.curve for run in runs] for row, runs in by_row.items()}, styles)
        draw_baseline(axis, results.line(group, column))
        _mark_warmup(axis, [run.history for run in results.column(group, column)])
    add_legend(figure, axes, results.rows)
    return figure


@matplotlib.rc_context(PRINT)
def plot_betas(results: Results) -> Figure:
    """Plot the sources' β by round: a line of panels for each row that estimates β, a panel for each column.

    The panels of a line share their scale.
    """
    histories = {place: [run.history for run in results.at(place)] for place in results.places}
    estimated = [place for place in results.places if estimated_sources(histories[place])]
    if not estimated:
        return blank("No β was estimated.")
    columns = [column for column in results.columns if any(column == place[2] for place in estimated)]
    lines = {place[:2] for place in estimated}
    places = [p for p in results.places if p[:2] in lines and p[2] in columns]
    sources = estimated_sources([run.history for run in results.all_runs])
    titles = results.titles([(group, column, row) for group, row, column in places])
    how: Any = {"about": results.about(spread=len(sources) <= FEW), "per_line": len(columns)}
    figure, axes = panels(titles, "Round", WEIGHT, share_y="row", wide=len(columns) > 1, **how)
    styles = styles_of(sources)
    for axis, place in zip(axes, places, strict=True):
        draw_sources(axis, betas(histories[place]), styles)
        _mark_warmup(axis, histories[place])
    for axis in axes:
        axis.set_ylim(0, None)
    add_legend(figure, axes, sources)
    return figure


def _mark_warmup(axis: Axes, histories: Sequence[Sequence[Record]]) -> None:
    """Mark the end of the warm-up rounds."""
    for end in {sum(bool(record.get("warmup")) for record in history) for history in histories} - {0}:
        axis.axvline(end + 0.5, color="0.3", linewidth=0.8, linestyle=":", label="end of warm-up rounds")


@matplotlib.rc_context(PRINT)
def plot_sites(history: Sequence[Record], about: str = "") -> Figure:
    """Plot two dots for each site, alone and with the others, the largest gain first; see `sites_table`."""
    metric = metric_of(history)
    sites = {name: site for name, site in sites_in(history).items() if "with-others" in site}
    if not sites:
        return blank("No site reported a figure.")
    names = sorted(sites, key=lambda name: -sites[name].get("gain", -np.inf))
    figure = Figure(figsize=(PAGE, 0.6 + 2 * TEXT_LINE * max(len(sites), 2)), layout="constrained")
    axis = figure.subplots()
    for label, key, look in (("alone", "alone", style(1)), ("with the others", "with-others", style(0))):
        known = [(i, sites[name][key]) for i, name in enumerate(names) if key in sites[name]]
        values = [metric.scaled(value) for _, value in known]
        axis.plot(values, [i for i, _ in known], look.marker, color=look.color, label=label, zorder=3)
    for i, name in enumerate(names):
        if "alone" in sites[name]:
            ends = [metric.scaled(sites[name][key]) for key in ("alone", "with-others")]
            axis.plot(ends, [i, i], color="0.7", linewidth=1)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_xlabel(metric.axis.replace("Target test", "Each site's own"))
    axis.tick_params(labelsize=SIZE)
    axis.grid(alpha=0.3, linewidth=0.5)
    add_legend(figure, [axis])
    add_about(figure, about)
    return figure
