"""The figures of runs, of sites, and of an experiment's columns, rounds and weights."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from fda_flower.metrics import METRICS, Metric
from fda_flower.records.record import Record, curve, source_weight
from fda_flower.reporting.figures import (
    BASELINE,
    FEW,
    PAGE,
    PRINT,
    SIZE,
    TEXT_LINE,
    Ends,
    Line,
    Series,
    add_about,
    add_legend,
    are_single,
    blank,
    deviation,
    draw_bars,
    draw_baseline,
    draw_curves,
    draw_dots,
    draw_sources,
    named,
    panels,
    style,
    styles_of,
    with_one_label,
)
from fda_flower.reporting.results import Results, named_baseline
from fda_flower.reporting.sites import metric_of, sites_in
from fda_flower.reporting.summary import ACCURACY, LAST, baseline_in, name_of_baseline, scores
from fda_flower.reporting.tables import mean_std

Runs = Mapping[str, Sequence[Sequence[Record]]]
"""By method: a history for each seed."""

WEIGHT = "Weight (β) of the source"
MEMBER = "Weight of the member in the mixture"
PER_LINE, HEIGHT, ROW = 3, 1.9, 0.16
"""Panels of β side by side, their height, and the height of a method's name, in inches."""


@matplotlib.rc_context(PRINT)
def plot_runs(runs: Runs, metric: str = ACCURACY, about: str = "") -> Figure:
    """Plot a figure by round for each method, and β by round for each method that estimates it.

    Lines are means over seeds, bands one standard deviation. With several methods a second panel names them,
    the best mean of the last 5 rounds first; methods that are evaluated once have only that panel. A single
    method that is evaluated once is a bar, or one bar for each member of its mixture. `metric` is a name of
    `fda_flower.metrics.METRICS`; the sub-title `about` names data and seeds.
    """
    estimated = {label: known for label, histories in runs.items() if (known := betas(histories))}
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
    xlabel = f"Mean ± std of the last {LAST} rounds"
    values = {label: [curve(history, metric) for history in histories] for label, histories in runs.items()}
    last = {
        label: [score for each in histories if (score := scores(each, metric)["last5"]) is not None]
        for label, histories in runs.items()
    }
    sign = -1 if unit.higher_is_better else 1
    best = sorted(last, key=lambda label: sign * float(np.mean(last[label])) if last[label] else math.inf)
    dots, once = {label: last[label] for label in best}, are_single(values)
    if len(runs) == 1 and once:
        _plot_one(part, runs, dots, unit, line)
        return
    if once:
        axis = part.subplots()
        draw_dots(axis, dots, styles)
        axis.set_xlabel(f"{unit.axis}, mean ± std")
    elif len(runs) == 1:
        axis = part.subplots()
        axis.set_title(next(iter(runs)))
    else:
        axis, dots_axis = part.subplots(1, 2, width_ratios=[2, 1])
        draw_dots(dots_axis, dots, styles)
        draw_baseline(dots_axis, line, upright=True)
        dots_axis.yaxis.tick_right()
        dots_axis.set_xlabel(xlabel)
    if not once:
        draw_curves(axis, values, styles)
        axis.set(xlabel="Round", ylabel=unit.axis)
    _add_key(part, draw_baseline(axis, line, upright=once))


def _add_key(part: SubFigure, handles: Sequence[Artist]) -> None:
    """Add a legend below the panels, where it covers nothing."""
    if handles:
        labels = [str(handle.get_label()) for handle in handles]
        how: Any = {"loc": "outside lower center", "frameon": False, "fontsize": SIZE}
        part.legend([*handles], labels, ncols=min(len(handles), 6), **how)


def baseline_line(histories: Sequence[Sequence[Record]], metric: str) -> Line | None:
    """Return the mean figure of a model that ignores the samples, with its name; None if unknown."""
    values = [value for each in histories if (value := baseline_in(each, metric)) is not None]
    return (float(np.mean(values)), named_baseline(name_of_baseline(metric), histories)) if values else None


def _plot_one(
    part: SubFigure, runs: Runs, last: Mapping[str, Sequence[float]], metric: Metric, line: Line | None
) -> None:
    """Draw a method that is evaluated once: a bar for each member of its mixture, or one bar."""
    ((label, histories),), axis = runs.items(), part.subplots()
    axis.set_title(f"{label}: {metric.axis} {mean_std(last[label], metric.decimals)}")
    if members := member_weights(histories):
        draw_bars(axis, {name: with_deviation(each) for name, each in members.items()})
        axis.set_xlabel(MEMBER)
    elif last[label]:
        draw_bars(axis, {label: with_deviation(last[label])})
        axis.set_xlabel(metric.axis)
        _add_key(part, draw_baseline(axis, line, upright=True))


def with_deviation(values: Sequence[float]) -> tuple[float, Ends]:
    """Return the mean, and one standard deviation around it if there are several values."""
    mean, spread = float(np.mean(values)), deviation(values)
    return mean, (mean - spread, mean + spread) if spread else None


def _plot_betas(part: SubFigure, runs: Mapping[str, Mapping[str, Series]]) -> None:
    lines = math.ceil(len(runs) / PER_LINE)
    columns = math.ceil(len(runs) / lines)
    every = list(part.subplots(lines, columns, squeeze=False).flat)
    for spare in every[len(runs) :]:
        spare.remove()
    styles = styles_of(sorted({source for known in runs.values() for source in known}))
    keys: dict[str, Any] = {}
    for i, (axis, (label, known)) in enumerate(zip(every, runs.items(), strict=False)):
        draw_sources(axis, known, styles)
        axis.set(title=label, xlabel="Round", ylabel="" if i % columns else WEIGHT, ylim=(0, None))
        keys |= {text: line for line, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    _add_key(part, [*keys.values()])


def member_weights(histories: Sequence[Sequence[Record]]) -> dict[str, list[float]]:
    """Return each member's weight in the last record of a mixture, by seed."""
    weights: dict[str, list[float]] = {}
    for history in histories:
        mixtures = (record.get("mixture", {}).get("members") for record in reversed(history))
        for name, member in next(filter(None, mixtures), {}).items():
            if "weight" in member:
                weights.setdefault(name, []).append(member["weight"])
    return weights


def weights(histories: Sequence[Sequence[Record]]) -> dict[str, list[list[float]]]:
    """Return by source, for each history, its β or weight by round; sources without any are left out."""
    return _weights(histories)[0]


def betas(histories: Sequence[Sequence[Record]]) -> dict[str, list[list[float]]]:
    """Return `weights`, for sources whose β was estimated in any round only."""
    by_source, estimated = _weights(histories)
    return {source: values for source, values in by_source.items() if source in estimated}


def _weights(histories: Sequence[Sequence[Record]]) -> tuple[dict[str, list[list[float]]], set[str]]:
    """Return the weights by source, and the sources whose β was estimated."""
    by_source: dict[str, list[list[float]]] = {}
    estimated: set[str] = set()
    for i, history in enumerate(histories):
        for number, record in enumerate(history):
            for source, entry in record["sources"].items():
                if (weight := source_weight(entry)) is not None:
                    rows = by_source.setdefault(source, [[math.nan] * len(each) for each in histories])
                    rows[i][number] = weight
                if entry.get("sigma2") is not None:
                    estimated.add(source)
    return dict(sorted(by_source.items())), estimated


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
    keys: list[Artist] = []
    lines, dashed = with_one_label([results.line(*place) for place in places]), list[Artist]()
    for axis, (group, column), line in zip(axes, places, lines, strict=True):
        draw_dots(axis, {row: results.scores((group, row, column), "last5") for row in rows}, styles)
        dashed += draw_baseline(axis, line, upright=True)
        for height, row in enumerate(rows):
            if (place := (group, row, column)) in results.paper:
                keys = paper_keys()
                look: Any = {"color": styles[row].color, "marker": styles[row].marker}
                axis.plot([results.paper[place]], [height], **PAPER, **look)
    add_legend(figure, [], more=[*keys, *dashed])
    return figure


def paper_keys() -> list[Artist]:
    """Return the keys of a legend that tells measured values from the paper's."""
    measured = Line2D([], [], linestyle="none", label="measured", **KEY)
    return [measured, Line2D([], [], label="in the paper", **KEY | PAPER)]


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
    lines = with_one_label([results.line(*place) for place in places])
    for axis, (group, column), line in zip(axes, places, lines, strict=True):
        by_row = {row: runs for row in results.rows if (runs := results.at((group, row, column)))}
        draw_curves(axis, {row: [run.curve for run in runs] for row, runs in by_row.items()}, styles)
        draw_baseline(axis, line)
        _mark_warmup(axis, [run.history for run in results.column(group, column)])
    add_legend(figure, axes, results.rows)
    return figure


@matplotlib.rc_context(PRINT)
def plot_betas(results: Results) -> Figure:
    """Plot the sources' β by round: a line of panels for each row that estimates β, a panel for each column.

    The panels of a line share their scale.
    """
    histories = {place: [run.history for run in results.at(place)] for place in results.places}
    by_place = {place: betas(each) for place, each in histories.items()}
    estimated = [place for place in results.places if by_place[place]]
    if not estimated:
        return blank("No β was estimated.")
    columns = [column for column in results.columns if any(column == place[2] for place in estimated)]
    lines = {place[:2] for place in estimated}
    places = [p for p in results.places if p[:2] in lines and p[2] in columns]
    sources = sorted({source for known in by_place.values() for source in known})
    titles = results.titles([(group, column, row) for group, row, column in places])
    how: Any = {"about": results.about(spread=len(sources) <= FEW), "per_line": len(columns)}
    figure, axes = panels(titles, "Round", WEIGHT, share_y="row", wide=len(columns) > 1, **how)
    styles = styles_of(sources)
    for axis, place in zip(axes, places, strict=True):
        draw_sources(axis, by_place[place], styles)
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
    """Plot each site, alone and with the others, and its gain with its interval, the largest gain first.

    See `sites_table`.
    """
    metric = metric_of(history)
    sites = {name: site for name, site in sites_in(history).items() if "with-others" in site}
    if not sites:
        return blank("No site reported a figure.")
    names = sorted(sites, key=lambda name: -sites[name].get("gain", -np.inf))
    figure = Figure(figsize=(PAGE, 0.6 + 2 * TEXT_LINE * max(len(sites), 2)), layout="constrained")
    axis, gains = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
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
    gains.set_xlabel(f"Gain{' (points)' * metric.percent} and 95% interval")
    gains.axvline(0, color="0.35", linewidth=0.9)
    for height, site in enumerate(map(sites.get, names)):
        if site and "gain" in site:
            gain, ends = (np.multiply(metric.scaled(1), site.get(key, ())) for key in ("gain", "interval"))
            bar = np.abs(ends - gain).reshape(2, 1) if ends.size else None
            gains.errorbar([gain], [height], xerr=bar, fmt="o", color=style(0).color, capsize=2)
    for each in (axis, gains):
        each.tick_params(labelsize=SIZE)
        each.grid(alpha=0.3, linewidth=0.5)
    add_legend(figure, [axis])
    add_about(figure, about)
    return figure
