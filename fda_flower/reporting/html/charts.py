"""Plotly charts as JSON; the page draws them in its own colours."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from fda_flower.reporting.figures import (
    DASHES,
    FEW,
    MANY,
    MARKERS,
    RANGE,
    Line,
    Range,
    Series,
    Style,
    deviation,
    mean_and_deviation,
    mean_and_range,
    style,
    styles_of,
    with_gaps,
)

HEIGHT, LINE = 420, 26
"""Height of a chart, and of a row in a chart of names, in pixels."""
STATES = {
    "took part": ("#009e73", "square"),
    "not used": ("#d55e00", "x"),
    "could not take part": ("#cc79a7", "diamond"),
    "no reply": ("#9a9a9a", "circle-open"),
}
"""A domain's states in a round, with their colours and symbols."""
POINTS: dict[str, Any] = {"type": "scatter", "mode": "markers"}
NAMES: dict[str, Any] = {"autorange": "reversed", "type": "category", "automargin": True}
"""Marks without lines, and an axis of names from top to bottom."""


def curves(
    series: Mapping[str, Series],
    styles: Mapping[str, Style],
    ylabel: str,
    baseline: Line | None = None,
    **axis: Any,
) -> str:
    """Return curves by round: means over seeds; few curves have bands of one standard deviation.

    `series` holds by name, for each seed, a value for each round. `baseline` is drawn as a dashed line, and
    `axis` holds further settings of Plotly's y axis.
    """
    traces = []
    for name, values in series.items():
        rounds, mean, spread = mean_and_deviation(values)
        traces.append(_line(name, rounds, mean, styles[name], spread if len(values) > 1 else None))
        if len(values) > 1 and len(series) <= FEW:
            ends = np.subtract(mean, spread).tolist(), np.add(mean, spread).tolist()
            traces.append(_area(name, (rounds, *ends), styles[name]))
    longest = max((len(each) for values in series.values() for each in values), default=0)
    if baseline:
        traces.append(_dashed(baseline) | {"x": [1, max(longest, 1)], "y": [baseline[0]] * 2})
    return _by_round(traces, longest, len(series), ylabel, axis)


def _dashed(line: Line) -> dict[str, Any]:
    value, label = line
    look = {"type": "scatter", "mode": "lines", "line": {"color": "#7a7a7a", "dash": "dash", "width": 1.5}}
    return {**look, "name": label, "showlegend": True, "hovertemplate": f"{value:.4g}"}


def sources(series: Mapping[str, Series], ylabel: str) -> str:
    """Return each source's weight by round; for more than `MANY` sources, their mean and range."""
    if len(series) <= MANY:
        return curves(series, styles_of([*series]), ylabel, rangemode="tozero")
    name, mean, ends = mean_and_range(series)
    line = _line(name, range(1, len(mean) + 1), mean, style(0))
    area = _area(RANGE, ends, style(0)) | {"legendgroup": RANGE, "showlegend": True}
    return _by_round([line, area], len(mean), 2, ylabel, {"rangemode": "tozero"})


def dots(
    values: Mapping[str, Sequence[float]],
    styles: Mapping[str, Style],
    xlabel: str,
    paper: Mapping[str, float],
    baseline: Line | None = None,
) -> str:
    """Return a dot for the mean of each name's values, with one standard deviation; the paper's are hollow.

    `baseline` is drawn as a dashed line.
    """
    known = {name: each for name, each in values.items() if each}
    traces = []
    for name, each in known.items():
        mean, spread = float(np.mean(each)), deviation(each)
        marker = {"color": styles[name].color, "symbol": MARKERS[styles[name].marker], "size": 9}
        shared = {**POINTS, "name": name, "y": [name], "showlegend": False}
        hover = f"{mean:.1f} ± {spread:.1f}, n = {len(each)}<extra>{_plain(name)}</extra>"
        error = {"array": [spread], "thickness": 1.5}
        traces.append(shared | {"x": [mean], "error_x": error, "marker": marker, "hovertemplate": hover})
        if name in paper:
            hollow = marker | {"symbol": f"{marker['symbol']}-open"}
            hover = f"paper: {paper[name]:.1f}<extra>{_plain(name)}</extra>"
            traces.append(shared | {"x": [paper[name]], "marker": hollow, "hovertemplate": hover})
    if baseline and known:
        ends = [*known][:: max(len(known) - 1, 1)]
        traces.append(_dashed(baseline) | {"x": [baseline[0]] * len(ends), "y": ends})
    layout = {"height": 110 + LINE * len(known), "xaxis": {"title": {"text": xlabel}}, "yaxis": NAMES}
    return _json(traces, layout)


def presence(states: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """Return who took part in which round: a row for each domain, a line for consecutive rounds.

    `states` holds by domain, for each round, one of `STATES` and the reason, which may be empty. Only the
    ends of a line have marks, so a chart grows with the changes of state, not with the rounds.
    """
    traces = []
    for name, (color, symbol) in STATES.items():
        rounds: list[int | None] = []
        domains: list[str] = []
        notes: list[str] = []
        for domain, each in states.items():
            for reason, first, last in _spans(each, name):
                when = f"round {first}" if first == last else f"rounds {first} to {last}"
                ends = [first] if first == last else [first, last]
                rounds += [*ends, None]
                domains += [domain] * (len(ends) + 1)
                why = f" ({_plain(reason)})" if reason else ""
                notes += [f"{when}, {_plain(domain)}: {name}{why}"] * (len(ends) + 1)
        if rounds:
            marks = {
                "x": rounds,
                "y": domains,
                "customdata": notes,
                "hovertemplate": "%{customdata}<extra></extra>",
            }
            look = {
                "marker": {"color": color, "symbol": symbol, "size": 9},
                "line": {"color": color, "width": 3},
            }
            traces.append({"type": "scatter", "mode": "lines+markers", **marks, **look, "name": name})
    rounds_axis = _round_axis(max(map(len, states.values()), default=0))
    layout = {"height": 150 + LINE * len(states), "showlegend": True, "xaxis": rounds_axis, "yaxis": NAMES}
    return _json(traces, layout)


def _spans(states: Sequence[tuple[str, str]], wanted: str) -> Iterator[tuple[str, int, int]]:
    """Yield the reason, the first and the last of consecutive rounds in the wanted state."""
    for (state, reason), group in groupby(enumerate(states, start=1), key=itemgetter(1)):
        if state == wanted:
            numbers = [number for number, _ in group]
            yield reason, numbers[0], numbers[-1]


def _by_round(traces: list[Any], rounds: int, names: int, ylabel: str, axis: Mapping[str, Any]) -> str:
    layout = {
        "height": HEIGHT + 20 * max(0, names - 16),
        "hovermode": "x" if names <= FEW else "closest",
        "xaxis": _round_axis(rounds),
        "yaxis": {"title": {"text": ylabel}, **axis},
    }
    return _json(traces, layout)


def _round_axis(rounds: int) -> dict[str, Any]:
    """Return the axis of rounds; few rounds have a label each."""
    margin = max(0.5, rounds / 40)
    axis = {"title": {"text": "Round"}, "tickformat": "d", "range": [1 - margin, rounds + margin]}
    return axis | ({"dtick": 1} if rounds <= 10 else {})


def _line(
    name: str,
    rounds: Sequence[int],
    mean: Sequence[float],
    look: Style,
    spread: Sequence[float] | None = None,
) -> dict[str, Any]:
    x, y = with_gaps(rounds, mean)
    line: dict[str, Any] = {
        **{"type": "scatter", "mode": "lines+markers", "name": name, "legendgroup": name, "x": x, "y": y},
        "line": {"color": look.color, "dash": DASHES[look.dash], "width": 2},
        "marker": {"symbol": MARKERS[look.marker], "size": 7, "maxdisplayed": 8},
        "hovertemplate": "%{y:.4g}",
    }
    if spread is not None:
        line["customdata"] = with_gaps(rounds, spread)[1]
        line["hovertemplate"] += " ± %{customdata:.2g}"
    return line


def _area(name: str, ends: Range, look: Style) -> dict[str, Any]:
    rounds, low, high = ends
    color = ", ".join(str(int(look.color[i : i + 2], 16)) for i in (1, 3, 5))
    return {
        **{"type": "scatter", "mode": "lines", "name": name, "legendgroup": name, "showlegend": False},
        **{"x": [*rounds, *rounds[::-1]], "y": [*high, *low[::-1]], "fill": "toself", "hoverinfo": "skip"},
        **{"line": {"width": 0}, "fillcolor": f"rgba({color}, 0.15)"},
    }


def _plain(text: str) -> str:
    """Return text escaped for Plotly, which interprets some HTML tags and %{...}."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "% {")


def _json(traces: Sequence[dict[str, Any]], layout: dict[str, Any]) -> str:
    """Return a chart as JSON that is safe inside a page; Plotly checks it first."""
    import plotly.graph_objects as go

    text: str = go.Figure(data=list(traces), layout=layout | {"template": "none"}).to_json()
    return text.replace("<", "\\u003c")
