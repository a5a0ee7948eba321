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

from fda_flower.records.record import Record, source_weight
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
    draw_confusion,
    draw_curves,
    draw_dots,
    draw_sources,
    named,
    panels,
    panels_of,
    style,
    styles_of,
    with_one_label,
)
from fda_flower.reporting.results import Results, named_baseline
from fda_flower.reporting.sites import metric_of, sites_in
from fda_flower.reporting.summary import LAST, baseline_in, name_of_baseline
from fda_flower.reporting.tables import mean_std

WEIGHT = "Weight (β) of the source"
MEMBER = "Weight of the member in the mixture"
PER_LINE, HEIGHT, ROW = 3, 1.9, 0.16
"""Panels of β side by side, their height, and the height of a method's name, in inches."""


@matplotlib.rc_context(PRINT)
def plot_runs(results: Results) -> Figure:
    """Plot the figure of a comparison's rows by round, and below it β for each row that estimates it.

    Lines are means over seeds, bands one standard deviation. With several rows a second panel names them,
    the best mean of the last 5 rounds first; rows that are evaluated once have only that panel. A single
    row that is evaluated once is a bar, or one bar for each member of its mixture.
    """
    by_row = {row: runs for row in results.rows if (runs := results.at(("", row, "")))}
    if not by_row:
        return blank("Nothing measured yet.")
    estimated = {row: b for row, runs in by_row.items() if (b := betas([run.history for run in runs]))}
    tall, lines = max(2.6, 0.7 + ROW * len(by_row)), math.ceil(len(estimated) / PER_LINE)
    ratios = [tall, HEIGHT * lines + TEXT_LINE] if estimated else [tall]
    figure = Figure(figsize=(PAGE, sum(ratios)), layout="constrained")
    above, *below = figure.subfigures(len(ratios), 1, height_ratios=ratios, squeeze=False)[:, 0]
    _draw_scores(above, results, [*by_row])
    for part in below:
        axes = panels_of(part, [*estimated], "Round", WEIGHT, PER_LINE, (PAGE, HEIGHT))
        add_legend(part, axes, _draw_betas(axes, [*estimated.values()]))
    add_about(figure, results.about())
    return figure


def _draw_scores(part: SubFigure, results: Results, rows: Sequence[str]) -> None:
    """Draw a comparison's rows by round, and their last rounds next to it."""
    metric, line, styles = results.metric("", ""), results.line("", ""), styles_of(results.rows)
    last = {row: results.scores(("", row, ""), "last5") for row in rows}
    sign = -1 if metric.higher_is_better else 1
    best = sorted(last, key=lambda row: sign * float(np.mean(last[row])) if last[row] else math.inf)
    dots = {row: last[row] for row in best}
    once = are_single({row: [run.curve for run in results.at(("", row, ""))] for row in rows})
    if once and len(rows) == 1:
        _draw_one(part, results, *rows)
    elif once:
        axis = part.subplots()
        draw_dots(axis, dots, styles)
        axis.set_xlabel(f"{metric.axis}, mean ± std")
        add_legend(part, [], more=draw_baseline(axis, line, upright=True))
    else:
        ratios = [2, 1][: len(rows)]
        axis, *others = part.subplots(1, len(ratios), width_ratios=ratios, squeeze=False)[0]
        axis.set(xlabel="Round", ylabel=metric.axis, title="" if others else rows[0])
        for right in others:
            draw_dots(right, dots, styles)
            draw_baseline(right, line, upright=True)
            right.yaxis.tick_right()
            right.set_xlabel(f"Mean ± std of the last {LAST} rounds")
        add_legend(part, [], more=_draw_rounds(axis, results, ("", ""), line))


def baseline_line(histories: Sequence[Sequence[Record]], metric: str) -> Line | None:
    """Return the mean figure of a model that ignores the samples, with its name; None if unknown."""
    values = [value for each in histories if (value := baseline_in(each, metric)) is not None]
    return (float(np.mean(values)), named_baseline(name_of_baseline(metric), histories)) if values else None


MOST_CLASSES = 30
"""The most classes of a confusion matrix in a picture."""


def last_confusion(history: Sequence[Record]) -> Record:
    """Return the last record's confusion matrix; empty without one, or with too many classes to draw."""
    matrices = (record.get("confusion", {}) for record in reversed(history))
    last: Record = next((each for each in matrices if "counts" in each), {})
    return last if len(last.get("classes", ())) <= MOST_CLASSES else {}


def _draw_one(part: SubFigure, results: Results, row: str) -> None:
    """Draw a method that is evaluated once: its confusion matrix, and a bar for each member of its mixture.

    With several seeds, or without a matrix, a bar of its figure takes the matrix's place.
    """
    metric, last = results.metric("", ""), results.scores(("", row, ""), "last5")
    members = member_weights([run.history for run in results.all_runs])
    matrix = last_confusion(results.all_runs[0].history) if len(results.all_runs) == 1 else {}
    axis, *others = part.subplots(1, 2 if members and matrix else 1, squeeze=False)[0]
    axis.set_title(f"{row}: {metric.axis} {mean_std(last, metric.decimals)}")
    if matrix:
        draw_confusion(axis, matrix["counts"], matrix["classes"])
    for bars in others if matrix else [axis] * bool(members):
        draw_bars(bars, {name: with_deviation(each) for name, each in members.items()})
        bars.set_xlabel(MEMBER)
    if last and not matrix and not members:
        draw_bars(axis, {row: with_deviation(last)})
        axis.set_xlabel(metric.axis)
        add_legend(part, [], more=draw_baseline(axis, results.line("", ""), upright=True))


def with_deviation(values: Sequence[float]) -> tuple[float, Ends]:
    """Return the mean, and one standard deviation around it if there are several values."""
    mean, spread = float(np.mean(values)), deviation(values)
    return mean, (mean - spread, mean + spread) if spread else None


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
    figure, axes = panels(titles, results.design.axis, results.value_label, **how)
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
    lines = with_one_label([results.line(*place) for place in places])
    for axis, place, line in zip(axes, places, lines, strict=True):
        _draw_rounds(axis, results, place, line)
    add_legend(figure, axes, results.rows)
    return figure


def _draw_rounds(axis: Axes, results: Results, place: tuple[str, str], line: Line | None) -> list[Artist]:
    """Draw the rows of a group and a column by round; return the lines that are no row's."""
    group, column = place
    by_row = {row: runs for row in results.rows if (runs := results.at((group, row, column)))}
    curves = {row: [run.curve for run in runs] for row, runs in by_row.items()}
    draw_curves(axis, curves, styles_of(results.rows))
    warmup = _mark_warmup(axis, [run.history for run in results.column(group, column)])
    return [*draw_baseline(axis, line), *warmup]


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
    _draw_betas(axes, [by_place[place] for place in places])
    for axis, place in zip(axes, places, strict=True):
        _mark_warmup(axis, histories[place])
    add_legend(figure, axes, sources)
    return figure


def _draw_betas(axes: Sequence[Axes], panels: Sequence[Mapping[str, Series]]) -> list[str]:
    """Draw β by round, a panel for each row; return the sources."""
    sources = sorted({source for known in panels for source in known})
    for axis, known in zip(axes, panels, strict=True):
        draw_sources(axis, known, styles_of(sources))
    for axis in axes:
        axis.set_ylim(0, None)
    return sources


def _mark_warmup(axis: Axes, histories: Sequence[Sequence[Record]]) -> list[Artist]:
    """Mark the ends of the warm-up rounds, and return the marks."""
    ends = {sum(bool(record.get("warmup")) for record in history) for history in histories} - {0}
    look: Any = {"color": "0.3", "linewidth": 0.8, "linestyle": ":", "label": "end of warm-up rounds"}
    return [axis.axvline(end + 0.5, **look) for end in ends]


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


FARTHEST = 3.0
"""Distance from which the colour is the darkest."""


def plot_alike(described: Mapping[str, Any]) -> Figure:
    """Plot the distance of each column between two sites, in deviations; grey where one says none."""
    pairs = described["pairs"]
    if not pairs:
        return blank("Each site compares itself with the others, in its own log.")
    columns = [*described["all"]] or ["features"]
    values = np.array([_distances(pair, columns) for pair in pairs], np.float64).reshape(
        len(pairs), len(columns)
    )
    height = 1.6 + TEXT_LINE * (max(len(pairs), 1) + 0.35 * max(map(len, columns)))
    figure = Figure(figsize=(PAGE, height), layout="constrained")
    axis = figure.subplots()
    axis.set_facecolor("0.8")
    image = axis.imshow(np.ma.masked_invalid(values), vmin=0, vmax=FARTHEST, cmap="Blues", aspect="auto")
    axis.set_xticks(range(len(columns)), columns, rotation=90, fontsize=SIZE)
    axis.set_yticks(range(len(pairs)), [" / ".join(pair["sites"]) for pair in pairs], fontsize=SIZE)
    what = "Distance of means, in deviations" if described["all"] else "Fréchet distance by feature"
    figure.colorbar(image, ax=axis, extend="max").set_label(what, fontsize=SIZE)
    return figure


def _distances(pair: Mapping[str, Any], columns: Sequence[str]) -> list[float]:
    if not pair["distances"]:
        frechet = pair.get("frechet")
        return [np.nan if frechet is None else float(np.sqrt(frechet))]
    return [np.nan if (far := pair["distances"].get(name)) is None else far for name in columns]
