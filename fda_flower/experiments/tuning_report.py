"""What a search writes: a table and a picture of its trials, and the settings that it has found best."""

import json
import math
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fda_flower.config import RunConfig
from fda_flower.experiments.tuning import Tuning
from fda_flower.experiments.tuning_space import Space, settings_of_trial
from fda_flower.files import json_safe, write_atomically
from fda_flower.metrics import METRICS
from fda_flower.reporting import save_figure
from fda_flower.reporting.tables import Cell, Table
from fda_flower.run_settings import OPTION_FIELDS

BEST = "best.json"
HELD_OUT = {"validation": None, "select_by": "target", "patience": None}
"""What the settings in `BEST` say of selection: the run that uses them trains on all labels."""


def write_tuning(tuning: Tuning, folder: Path, config: RunConfig | None = None) -> list[Path]:
    """Write ``trials.md``, ``trials.csv``, ``trials.png``, and of the best trial's run ``best.json``.

    Returns
    -------
    list[Path]
        The files.
    """
    files = {"trials.md": trials_markdown(tuning), "trials.csv": trials_csv(tuning)}
    if config is not None:
        files[BEST] = best_json(tuning, config)
    for name, text in files.items():
        write_atomically(folder / name, text.encode())
    save_figure(folder / "trials.png", plot_trials(tuning))
    return [folder / name for name in (*files, "trials.png")]


def best_json(tuning: Tuning, config: RunConfig) -> str:
    """Return the best trial's settings as ``fda run --config`` takes them, and how they were found."""
    assert tuning.best is not None
    best = tuning.best
    found = {
        "settings": config.settings() | HELD_OUT,
        "found": {"trial": best.number, "values": dict(best.values), "round": best.round},
        "validation": {"by": config.validation, "metric": tuning.metric, "figure": best.figure},
    }
    return json.dumps(json_safe(found), indent=2) + "\n"


def trials_markdown(tuning: Tuning) -> str:
    """Return a table with a line for each trial; the best is bold."""
    metric, names = METRICS[tuning.metric], [space.name for space in tuning.spaces]
    rows = []
    for trial in tuning.trials:
        cells = [
            str(trial.number),
            *(shown(trial.values.get(name)) for name in names),
            "-" if trial.figure is None else f"{metric.scaled(trial.figure):.{metric.decimals}f}",
            shown(trial.round),
            trial.state + (f": {trial.reason}" if trial.reason else ""),
        ]
        rows.append([Cell(cell, best=trial is tuning.best) for cell in cells])
    return str(Table(["Trial", *names, f"validation {metric.label}", "round", "state"], rows))


def trials_csv(tuning: Tuning) -> str:
    """Return the same with unrounded numbers; the figure is a share where the table has percent."""
    names = [space.name for space in tuning.spaces]
    rows = [
        [t.number, *(t.values.get(name) for name in names), t.figure, t.round, t.state, t.reason]
        for t in tuning.trials
    ]
    return Table(["trial", *names, f"validation_{tuning.metric}", "round", "state", "reason"], rows).csv()


def as_toml(tuning: Tuning) -> str:
    """Return the best trial's values as lines of an experiment's file."""
    assert tuning.best is not None
    lines = []
    for name, value in settings_of_trial(tuning.best.values).items():
        key = name.replace("_", "-")
        if name in OPTION_FIELDS:
            inner = ", ".join(f"{option} = {_toml(one)}" for option, one in value.items())
            lines.append(f"{key} = {{ {inner} }}")
        else:
            lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines)


def plot_trials(tuning: Tuning) -> Figure:
    """Plot the figure of each trial: by its number, with the best so far, and by each setting's value."""
    panels = 1 + len(tuning.spaces)
    columns = min(panels, 3)
    rows = -(-panels // columns)
    figure = Figure(figsize=(4.2 * columns, 3.6 * rows + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
    metric = METRICS[tuning.metric]
    figures = {t.number: metric.scaled(t.figure) for t in tuning.trials if t.figure is not None}
    _draw(axes[0], tuning, {t.number: t.number for t in tuning.trials})
    if figures:
        so_far = [metric.best(v for n, v in figures.items() if n <= number) for number in figures]
        axes[0].step(list(figures), so_far, where="post", color="0.4", linestyle="--", label="best so far")
    axes[0].set_xlabel("Trial")
    axes[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    for axis, space in zip(axes[1:], tuning.spaces, strict=False):
        _draw(axis, tuning, {t.number: t.values.get(space.name) for t in tuning.trials}, space)
        axis.set_xlabel(space.name)
    for axis in axes[::columns]:
        axis.set_ylabel(f"Validation {metric.label}")
    for axis in axes[panels:]:
        axis.set_visible(False)
    for axis in axes:
        axis.grid(alpha=0.3)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=9)
    return figure


def _draw(axis: Axes, tuning: Tuning, positions: dict[int, Any], space: Space | None = None) -> None:
    """Draw a marker for each trial; pruned and failed ones, which have no figure, at the lower edge."""
    metric = METRICS[tuning.metric]
    if space is not None and space.choices:
        axis.set_xticks(range(len(space.choices)), space.choices)
        axis.set_xlim(-0.5, len(space.choices) - 0.5)
        positions = {n: space.choices.index(v) for n, v in positions.items() if v is not None}
    elif space is not None and space.low is not None and space.high is not None:
        axis.set_xscale("log" if space.log else "linear")
        edge = 0.04 * (math.log(space.high / space.low) if space.log else space.high - space.low)
        grown = math.exp(edge)
        ends = (space.low / grown, space.high * grown) if space.log else (space.low - edge, space.high + edge)
        axis.set_xlim(*ends)
    else:
        axis.set_xlim(0.5, len(tuning.trials) + 0.5)
    lower_edge = axis.get_xaxis_transform()
    for state, marker, color in (("complete", "o", "C0"), ("pruned", "x", "0.5"), ("failed", "v", "C3")):
        chosen = [t for t in tuning.trials if t.state == state and positions.get(t.number) is not None]
        if not chosen:
            continue
        x = [positions[t.number] for t in chosen]
        if state == "complete":
            y = [metric.scaled(t.figure) for t in chosen if t.figure is not None]
            axis.scatter(x, y, marker=marker, color=color, label=state, zorder=2)
        else:
            axis.scatter(
                x,
                [0.02] * len(x),
                marker=marker,
                color=color,
                label=state,
                transform=lower_edge,
                clip_on=False,
            )
    best = tuning.best
    if best is not None and best.figure is not None:
        axis.scatter(
            positions[best.number],
            metric.scaled(best.figure),
            marker="*",
            s=220,
            facecolor="gold",
            edgecolor="black",
            label="best",
            zorder=3,
        )


def shown(value: Any) -> str:
    """Return a value as a table has it: numbers with four digits.

    Examples
    --------
    >>> shown(0.00123456), shown("sgd"), shown(None), shown(16)
    ('0.001235', 'sgd', '-', '16')
    """
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _toml(value: Any) -> str:
    """Return a value in TOML; the words of a list are numbers or truth values where they look so."""
    if isinstance(value, str):
        try:
            return json.dumps(json.loads(value))
        except ValueError:
            return json.dumps(value)
    return json.dumps(value)
