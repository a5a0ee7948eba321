"""The summary of a run: ``summary.json`` and a figure."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fda_flower.config import RunConfig
from fda_flower.errors import RunError
from fda_flower.files import json_safe, write_atomically
from fda_flower.records import Record
from fda_flower.reporting.plots import plot_runs, save_figure
from fda_flower.selection import VALIDATION, chosen_round, has_stopped

LAST = 5
ACCURACY, AVERAGE = "accuracy", "accuracy-average"
"""Fields of a round's record: the headline, and the accuracy of the averaged model."""


def accuracies(history: Sequence[Record], field: str = ACCURACY) -> list[float]:
    """Return the target accuracy of each round, in percent; NaN where the target did not evaluate."""
    return [100 * record.get(field, np.nan) for record in history]


def scores(history: Sequence[Record], field: str = ACCURACY) -> dict[str, float | None]:
    """Return ``last5`` and ``best`` of a field of the records, in percent; None where it is not known.

    Where samples held out have chosen a round, its figure is ``selected``.
    """
    values = np.array(accuracies([record for record in history if not record.get("warmup")], field))
    known = values[~np.isnan(values)]
    tail = values[-LAST:]
    tail = tail[~np.isnan(tail)]
    chosen = chosen_round(history)
    found = np.nan if chosen is None else accuracies([history[chosen - 1]], field)[0]
    return {
        "last5": float(tail.mean()) if tail.size else None,
        "best": float(known.max()) if known.size else None,
        **({} if np.isnan(found) else {"selected": float(found)}),
    }


def summarise(history: Sequence[Record]) -> dict[str, Any]:
    """Return the numbers that summarise a run, accuracies in percent.

    Returns
    -------
    dict
        ``last5`` (mean of the last 5 rounds, the headline), ``best`` (best round on the test set, which
        is optimistic), ``rounds``, ``held-rounds``, ``dropped`` replies and ``seconds`` in total. Warm-up
        rounds, in which the method has not begun, count for neither accuracy. ``average`` holds ``last5`` and
        ``best`` of the averaged model, if there is one; ``mixture`` is that of the last record that has one.
        Where samples held out have chosen a round there are ``selected``, its accuracy on the test set,
        ``selected-round`` and ``validation``, the figure that has chosen it, as in the record.
    """
    average = scores(history, AVERAGE)
    mixtures = [record["mixture"] for record in history if "mixture" in record]
    chosen = chosen_round(history)
    selection = (
        {} if chosen is None else {"selected-round": chosen, "validation": history[chosen - 1][VALIDATION]}
    )
    return {
        **scores(history),
        **selection,
        **({} if average["best"] is None else {"average": average}),
        **({"mixture": mixtures[-1]} if mixtures else {}),
        "rounds": len(history),
        "held-rounds": sum(record["held"] is not None for record in history),
        "dropped": sum(len(record["dropped"]) for record in history),
        "seconds": sum(sum(record["seconds"].values()) for record in history),
    }


def summarise_run(config: RunConfig, history: Sequence[Record]) -> dict[str, Any]:
    """Return the same, and the ``epochs`` that a source and the target train in the whole run."""
    ran = len(history) if has_stopped(history, config.patience) else None
    return {**summarise(history), "epochs": config.training_epochs(_labels(config, history), ran)}


def _labels(config: RunConfig, history: Sequence[Record]) -> int:
    """Return how many labelled samples the target has, as far as the records say."""
    for record in reversed(history):
        if "examples" in (record.get("target") or {}):
            return int(record["target"]["examples"])
        if record.get("mixture"):
            return sum(record["mixture"]["folds"])
    return config.target_samples if isinstance(config.target_samples, int) else 0


def write_summary(folder: Path, config: RunConfig, history: Sequence[Record]) -> dict[str, Any]:
    """Write ``summary.json`` and ``accuracy.png`` into a run's folder; return the summary."""
    numbers = {
        "method": config.method,
        "label": config.entry.title,
        "dataset": config.dataset,
        "shift": config.shift,
        "seed": config.seed,
        **summarise_run(config, history),
    }
    text = json.dumps(json_safe(numbers), indent=2) + "\n"
    try:
        save_figure(folder / "accuracy.png", plot_runs({str(numbers["label"]): [history]}))
        write_atomically(folder / "summary.json", text.encode())
    except OSError as error:
        raise RunError(
            f"the summary cannot be written to '{folder}' ({error}): make room, and resume"
        ) from error
    return numbers
