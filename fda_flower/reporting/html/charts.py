"""Charts of plotly, as JSON; a page draws them in its own colours."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fda_flower.reporting.figures import DASHES, FEW, MARKERS, Series, Style, mean_and_deviation, with_gaps

HEIGHT, LINE = 420, 26
"""Height of a chart, and of a row of one with names, in pixels."""
STATES = {
    "took part": "#009e73",
    "not used": "#d55e00",
    "could not take part": "#cc79a7",
    "no reply": "#9a9a9a",
}
"""The states of a domain in a round, and their colours."""
SYMBOLS = dict(zip(STATES, ("square", "x", "diamond", "circle-open"), strict=True))


def curves(
    series: Mapping[str, Series],
    styles: Mapping[str, Style],
    ylabel: str,
    from_zero: bool = False,
) -> str:
    """Return curves by round: means over seeds, for few curves with bands of one standard deviation.

    Parameters
    ----------
    series : Mapping
        By name, for each seed a value for each round.
    styles : Mapping
        By name.
    ylabel : str
        The label of the axis.
    from_zero : bool
        Whether the axis begins at 0.
    """
    traces = []
    for name, values in series.items():
        traces += _curve(name, values, styles[name], band=len(series) <= FEW)
    layout: dict[str, Any] = {
        "height": HEIGHT + 20 * max(0, len(series) - 16),
        "hovermode": "x" if len(series) <= FEW else "closest",
        "xaxis": _round_axis(max((len(each) for values in series.values() for each in values), default=0)),
        "yaxis": {"title": {"text": ylabel}} | ({"rangemode": "tozero"} if from_zero else {}),
    }
    return _json(traces, layout)


def dots(
    values: Mapping[str, Sequence[float]],
    styles: Mapping[str, Style],
    xlabel: str,
    paper: Mapping[str, float],
) -> str:
    """Return a dot at the mean of each name's values, with one standard deviation; the paper's are hollow."""
    names = [name for name, each in values.items() if each]
    traces = []
    for name in names:
        each = values[name]
        deviation = float(np.std(each, ddof=1)) if len(each) > 1 else 0.0
        marker = {"color": styles[name].color, "symbol": MARKERS[styles[name].marker], "size": 9}
        shared: dict[str, Any] = {"type": "scatter", "mode": "markers", "y": [name], "showlegend": False}
        mean = float(np.mean(each))
        hover = f"{mean:.1f} ± {deviation:.1f}, n = {len(each)}<extra>{_plain(name)}</extra>"
        error = {"array": [deviation], "thickness": 1.5}
        traces.append(
            shared | {"name": name, "x": [mean], "error_x": error, "marker": marker, "hovertemplate": hover}
        )
        if name in paper:
            hollow = marker | {"symbol": f"{marker['symbol']}-open"}
            hover = f"paper: {paper[name]:.1f}<extra>{_plain(name)}</extra>"
            traces.append(
                shared | {"name": name, "x": [paper[name]], "marker": hollow, "hovertemplate": hover}
            )
    layout = {
        "height": 110 + LINE * len(names),
        "xaxis": {"title": {"text": xlabel}},
        "yaxis": {"autorange": "reversed", "type": "category", "automargin": True},
    }
    return _json(traces, layout)


def presence(states: Mapping[str, Sequence[str]], reasons: Mapping[str, Sequence[str]]) -> str:
    """Return who took part in which round: a line for each domain, a square for each round.

    Parameters
    ----------
    states : Mapping
        By domain, one of `STATES` for each round.
    reasons : Mapping
        By domain, the reason for each round; empty where there is none.
    """
    traces = []
    for state, color in STATES.items():
        found = [
            (number, domain, reasons[domain][number - 1])
            for domain, each in states.items()
            for number, one in enumerate(each, start=1)
            if one == state
        ]
        if found:
            rounds, domains, why = zip(*found, strict=True)
            traces.append(
                {
                    **{"type": "scatter", "mode": "markers", "name": state, "x": rounds, "y": domains},
                    "customdata": [_plain(each) for each in why],
                    "marker": {"color": color, "symbol": SYMBOLS[state], "size": 9},
                    "hovertemplate": "round %{x}, %{y}: " + state + " %{customdata}<extra></extra>",
                }
            )
    layout = {
        "height": 150 + LINE * len(states),
        "showlegend": True,
        "xaxis": _round_axis(max(map(len, states.values()), default=0)),
        "yaxis": {"autorange": "reversed", "type": "category", "automargin": True},
    }
    return _json(traces, layout)


def _round_axis(rounds: int) -> dict[str, Any]:
    """Return an axis of all rounds, with a label for each if there are few."""
    margin = max(0.5, rounds / 40)
    axis = {"title": {"text": "Round"}, "tickformat": "d", "range": [1 - margin, rounds + margin]}
    return axis | ({"dtick": 1} if rounds <= 10 else {})


def _curve(name: str, values: Series, look: Style, band: bool) -> list[dict[str, Any]]:
    rounds, mean, deviation = mean_and_deviation(values)
    x, y = with_gaps(rounds, mean)
    line = {
        **{
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "legendgroup": name,
            "x": x,
            "y": y,
        },
        "customdata": with_gaps(rounds, deviation)[1],
        "line": {"color": look.color, "dash": DASHES[look.dash], "width": 2},
        "marker": {"symbol": MARKERS[look.marker], "size": 7, "maxdisplayed": 8},
        "hovertemplate": "%{y:.4g}" + (" ± %{customdata:.2g}" if len(values) > 1 else ""),
    }
    if not band or len(values) < 2:
        return [line]
    low, high = np.subtract(mean, deviation).tolist(), np.add(mean, deviation).tolist()
    area = {
        **{"type": "scatter", "mode": "lines", "name": name, "legendgroup": name, "showlegend": False},
        **{"x": [*rounds, *rounds[::-1]], "y": [*high, *low[::-1]], "fill": "toself", "hoverinfo": "skip"},
        **{"line": {"width": 0}, "fillcolor": _faint(look.color)},
    }
    return [line, area]


def _faint(color: str) -> str:
    return f"rgba({', '.join(str(int(color[i : i + 2], 16)) for i in (1, 3, 5))}, 0.15)"


def _plain(text: str) -> str:
    """Return text that plotly shows as it is: it reads some tags of HTML, and %{...}."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "% {")


def _json(traces: Sequence[dict[str, Any]], layout: dict[str, Any]) -> str:
    """Return a chart as JSON that may stand in a page, after plotly has checked it."""
    import plotly.graph_objects as go

    text: str = go.Figure(data=list(traces), layout=layout | {"template": "none"}).to_json()
    return text.replace("<", "\\u003c")
