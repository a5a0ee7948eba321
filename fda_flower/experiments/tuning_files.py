"""The files of a search: its trials as tables and a picture, and the best one's run."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import tomli_w
from matplotlib import pyplot
from matplotlib.figure import Figure
from optuna.exceptions import ExperimentalWarning
from optuna.visualization.matplotlib import plot_slice

from fda_flower.experiments.tuning import Tuning, direction_of
from fda_flower.files import json_safe, write_atomically
from fda_flower.metrics import METRICS
from fda_flower.reporting import save_figure
from fda_flower.reporting.tables import Cell, Table, markdown
from fda_flower.runs.config import RunConfig

BEST = "best.json"


NO_SELECTION = {"validation": None, "patience": None}
"""The selection settings in `BEST`, whose run trains on all labels."""


def write_tuning(tuning: Tuning, folder: Path, config: RunConfig | None = None) -> list[Path]:
    """Write ``trials.md``, ``trials.csv``, ``trials.png``, and the best trial's run as ``best.json``.

    Return the files. Without a complete trial there is neither a picture nor ``best.json``.
    """
    files = {"trials.md": trials_markdown(tuning), "trials.csv": trials_csv(tuning)}
    if config is not None:
        files[BEST] = best_json(tuning, config)
    for name, text in files.items():
        write_atomically(folder / name, text.encode())
    if tuning.best is None:
        return [folder / name for name in files]
    save_figure(folder / "trials.png", plot_trials(tuning))
    return [folder / name for name in (*files, "trials.png")]


def best_json(tuning: Tuning, config: RunConfig) -> str:
    """Return the best trial's settings in the form of ``fda run --config``, and their origin."""
    assert tuning.best is not None
    best = tuning.best
    content = {
        "settings": config.settings() | NO_SELECTION,
        "found": {"trial": best.number, "values": dict(best.values), "round": best.round},
        "validation": {"by": config.validation, "metric": tuning.metric, "figure": best.score},
    }
    return json.dumps(json_safe(content), indent=2) + "\n"


def trials_markdown(tuning: Tuning) -> str:
    """Return a table with a row for each trial; the best are bold, if they are better than the baseline."""
    metric, names = METRICS[tuning.metric], list(tuning.spaces)
    best = tuning.equals if tuning.is_better else []
    rows = []
    for trial in tuning.trials:
        cells = [
            str(trial.number),
            *(as_text(trial.values.get(name)) for name in names),
            "-" if trial.score is None else f"{metric.scaled(trial.score):.{metric.decimals}f}",
            as_text(trial.round),
            trial.state + (f": {trial.reason}" if trial.reason else ""),
        ]
        rows.append([Cell(cell, best=trial in best) for cell in cells])
    table = Table(["Trial", *names, f"validation {metric.label}", "round", "state"], rows)
    return markdown([table, *tuning.doubts])


def trials_csv(tuning: Tuning) -> str:
    """Return the table as CSV with unrounded numbers."""
    names, scaled = list(tuning.spaces), METRICS[tuning.metric].scaled
    rows = [
        [
            *(t.number, *(t.values.get(name) for name in names)),
            *(None if t.score is None else scaled(t.score), t.round, t.state, t.reason),
        ]
        for t in tuning.trials
    ]
    return Table(["trial", *names, f"validation_{tuning.metric}", "round", "state", "reason"], rows).csv()


def as_toml(tuning: Tuning) -> str:
    """Return the best trial's values as lines of an experiment's file."""
    assert tuning.best is not None
    lines = []
    for name, value in tuning.best.values.items():
        table, _, key = name.rpartition(".")
        lines.append((table and f"{table}s.") + tomli_w.dumps({key: _typed(value)}))
    return "".join(lines).rstrip()


def _typed(value: Any) -> Any:
    """Return the number or truth value that a word stands for, else the word."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def plot_trials(tuning: Tuning) -> Figure:
    """Plot the metric of each complete trial against the value of each setting, by Optuna."""
    metric = METRICS[tuning.metric]
    study = optuna.create_study(direction=direction_of(tuning.metric))
    for trial in tuning.trials:
        if trial.score is not None:
            score, values = metric.scaled(trial.score), dict(trial.values)
            study.add_trial(
                optuna.create_trial(value=score, params=values, distributions=dict(tuning.spaces))
            )
    # Optuna sets a global style; the context restores ours.
    with warnings.catch_warnings(action="ignore", category=ExperimentalWarning), pyplot.rc_context():
        axes = plot_slice(study, target_name=f"Validation {metric.label}")
    drawn: Figure = np.ravel(np.array(axes))[0].figure
    pyplot.close(drawn)
    return drawn


def as_text(value: Any) -> str:
    """Return a value as text for a table, numbers with four significant digits."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
