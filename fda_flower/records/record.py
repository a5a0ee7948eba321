"""The record of a round: one line of ``rounds.jsonl``, and what displays show of it."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fda_flower.metrics import METRICS

COSTS = logging.getLogger("flwr.costs")
"""The log of what a method costs, which `fda run` prints even where it hides the rest of Flower's log."""

Record = dict[str, Any]
"""A JSON object. `docs/records.md` explains each field of a round's."""

TEST_EXAMPLES = "test-examples"
"""The field with the number of test samples."""

MOST_FREQUENT = "most-frequent"
"""The entry of a record's confusion matrix with the figures of naming the most frequent class."""
MEAN_OF_LABELS = "mean-of-labels"
"""The entry of a regression's record with the figures of predicting the mean of the test labels."""

LAST = 5
"""The last rounds, whose mean is what tables show, so that each of them is evaluated."""

NOT_EVALUATED = "target not evaluated"


def source_weight(entry: Record) -> float | None:
    """Return the weight of a source against the target: its β or its joint weight; None without either.

    Examples
    --------
    >>> source_weight({"beta": 0.5}), source_weight({"weight": 0.2}), source_weight({})
    (0.5, 0.2, None)
    """
    return entry.get("beta", entry.get("weight"))


def figure_of(record: Mapping[str, Any], metric: str, ending: str = "") -> float | None:
    """Return a figure of the target in a round's record, by its name in `METRICS`; None if it is not there.

    The ending is ``-average`` for the averaged model, ``-global`` for the global one.

    Examples
    --------
    >>> figure_of({"accuracy": 0.7, "auroc-average": 0.9}, "auroc", "-average")
    0.9
    """
    value: float | None = record.get(f"{metric}{ending}")
    return value


def curve(history: Sequence[Mapping[str, Any]], metric: str = "accuracy", ending: str = "") -> list[float]:
    """Return a figure of the target by round, in the unit of tables; NaN where the target did not evaluate.

    Examples
    --------
    >>> curve([{"accuracy": 0.5}, {}])
    [50.0, nan]
    """
    found = [figure_of(record, metric, ending) for record in history]
    return [math.nan if value is None else METRICS[metric].scaled(value) for value in found]


def headline(record: Record, metric: str | None = None) -> str:
    """Return the target's headline in words, or its metrics by whatever names they have.

    The default metric is the accuracy or, of a regression, R². Where every site is a target it is their mean.

    Examples
    --------
    >>> headline({"accuracy": 0.734}), headline({"r2": 0.734}), headline({"auroc": 0.9}, "auroc")
    ('target accuracy 73.4%', 'target R² 0.734', 'target AUROC 90.0%')
    >>> headline({"metrics": {"eval_acc": 0.5}}), headline({})
    ('target eval_acc 0.5', 'target not evaluated')
    >>> headline({"evaluation-failed": "no reply within the timeout"})
    'target accuracy unknown'
    >>> headline({"accuracy": 0.734, "accuracy-average": 0.75})
    'target accuracy 73.4%, average 75.0%'
    >>> headline({"accuracy": 0.734, "server": {"loss": 0.51}}), headline({"server": {"loss": 0.51}})
    ('target accuracy 73.4%, server loss 0.51', 'server loss 0.51')
    >>> headline({"accuracy": 0.734, "sites": {"a": {"with-others": 0.734}}})
    'mean accuracy 73.4%'
    """
    target, server = _of_target(record, metric), _listed(record.get("server", {}))
    if not server:
        return target
    return f"server {server}" if target == NOT_EVALUATED else f"{target}, server {server}"


def _of_target(record: Record, metric: str | None) -> str:
    metric = metric or ("r2" if "r2" in record else "accuracy")
    shown, value = METRICS[metric], figure_of(record, metric)
    whose = "mean" if "sites" in record else "target"
    if value is not None:
        average = figure_of(record, metric, "-average")
        beside = "" if average is None else f", average {shown.show(average)}"
        return f"{whose} {shown.title} {shown.show(value)}{beside}"
    if others := _listed(record.get("metrics", {})):
        return f"target {others}"
    asked = {"loss", "evaluation-failed", "mixture", "sites"} & record.keys()
    return f"{whose} {shown.title} unknown" if asked else NOT_EVALUATED


def _listed(metrics: Mapping[str, Any]) -> str:
    numbers = {key: value for key, value in metrics.items() if isinstance(value, int | float)}
    return ", ".join(f"{key} {value:.4g}" for key, value in numbers.items())


FEW_BETAS = 6
"""The most sources whose β a log names."""


def betas_line(record: Record) -> str:
    """Return the sources' β in words, of many the range; empty without any.

    Examples
    --------
    >>> betas_line({"sources": {"a": {"beta": 0.5}, "b": {"beta": 0.125}}})
    'β a 0.50, b 0.12'
    """
    sources = record.get("sources", {}).items()
    betas = {name: entry["beta"] for name, entry in sources if entry.get("beta") is not None}
    if len(betas) > FEW_BETAS:
        return f"β {min(betas.values()):.2f} to {max(betas.values()):.2f}"
    return f"β {', '.join(f'{name} {beta:.2f}' for name, beta in betas.items())}" if betas else ""


def round_line(record: Record, rounds: int, metric: str | None = None, before: Record | None = None) -> str:
    """Return a line of a log on a round; that the target was not evaluated is said once of rounds in a row.

    Examples
    --------
    >>> round_line({"round": 3, "accuracy": 0.412}, 30), round_line({"round": 2}, 30, before={"round": 1})
    ('round 3/30: target accuracy 41.2%', 'round 2/30')
    """
    shown = headline(record, metric)
    again = before is not None and shown == headline(before, metric) == NOT_EVALUATED
    return f"round {record['round']}/{rounds}{'' if again else f': {shown}'}"


VALIDATION, SELECTED, BY = "validation", "selected", "selected-by"
"""Fields of a round's record: its figure on the samples held out, the round chosen so far, and whose samples
they are."""

Records = Sequence[Mapping[str, Any]]


def choose(
    history: Records, number: int, value: float, *, by: str, higher_is_better: bool = True
) -> dict[str, Any]:
    """Return the fields of the record of a round with a figure; of equal figures, the earlier is chosen.

    `history` has the records of the rounds before, and `by` says whose samples are held out.

    Examples
    --------
    >>> first = choose([], 1, 0.5, by="target")
    >>> choose([first], 2, 0.5, by="target")
    {'validation': 0.5, 'selected': 1, 'selected-by': 'target'}
    """
    sign, before = 1 if higher_is_better else -1, chosen_round(history)
    improved = before is None or sign * value > sign * history[before - 1][VALIDATION]
    return {VALIDATION: value, SELECTED: number if improved else before, BY: by}


def chosen_round(history: Records) -> int | None:
    """Return the round that the samples held out have chosen; None without them.

    A centralised reference that reports the chosen round's model in every record leaves nothing to choose:
    its records have no ``selected-by``.
    """
    return next((record[SELECTED] for record in reversed(history) if BY in record), None)


def has_stopped(history: Records, patience: int | None) -> bool:
    """Return whether the figure has not improved in as many rounds as the patience lasts.

    Rounds without a figure do not count.

    Examples
    --------
    >>> records = [choose([], 1, 0.5, by="target")]
    >>> records.append(choose(records, 2, 0.4, by="target"))
    >>> has_stopped(records, 1), has_stopped(records, 2)
    (True, False)
    """
    chosen = chosen_round(history)
    if patience is None or chosen is None:
        return False
    return sum(VALIDATION in record for record in history[chosen:]) >= patience


def has_ended(history: Records, rounds: int, patience: int | None) -> bool:
    """Return whether a run has no round to go: all are done, or its patience has stopped it."""
    return len(history) >= rounds or has_stopped(history, patience)
