"""The record of a round, one line of ``rounds.jsonl``, and its display."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from textwrap import shorten
from typing import Any

from fda_flower.errors import RunError
from fda_flower.metrics import METRICS
from fda_flower.names.words import MOST_NAMED, by_reason, domains_by_reason, listed

COSTS = logging.getLogger("flwr.costs")
"""Log for a method's choice and costs, which `fda run` prints even when it hides the rest of Flower's log."""

Record = dict[str, Any]
"""A JSON object. `docs/records.md` explains each field of a round's record."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What the records of a run hold, and who receives them.

    Attributes
    ----------
    on_round : callable, optional
        Called with each round's record.
    outcomes : bool
        Whether records have the test samples that are right.
    validation : Mapping[int, float], optional
        Metrics of cross-validation by round, which choose the round of the last of its runs.
    """

    on_round: Callable[[Record], None] | None = None
    outcomes: bool = False
    validation: Mapping[int, float] | None = None


NOTHING_MORE = Recording()
"""Of a run that nobody watches."""

TEST_EXAMPLES = "test-examples"
"""Field with the number of test samples; for that of units see `fda_flower.metrics.UNITS`."""
OF_UNITS = "-units"
"""Ending of the name of a number of samples, for the number of units, such as patients, that they are of."""

DRAWN = "drawn"
"""Field with the domains of the sources that a round has drawn, if not all take part."""

CONFUSION, MOST_FREQUENT = "confusion", "most-frequent"
"""Field with the confusion matrix of the target's last evaluation, and its entry with the metrics of always
predicting the most frequent class."""
MEAN_OF_LABELS = "mean-of-labels"
"""Entry of a regression's record with the metrics of always predicting the mean test label."""

LABELS, FREQUENCIES = "labels", "frequencies"
"""Entry with each label's figures, where samples have several, and in it the metrics of always predicting the
labels' frequencies in the test set."""
FOLLOWED, EVENTS, CURVE = "followed", "events", "curve"
"""Entry of a survival's record with the number of events in the test set, and the metrics of its own
Kaplan-Meier curve, predicted for everyone."""

HEADLINE, JUDGED_IN = "headline", "judged-in"
"""Fields with names of metrics: the headline that a rare class asks for, where the run names none; and what a
method has judged on labels held out by itself, or at each site, where every site is a target."""


def default_metric(metrics: Mapping[str, Any]) -> str:
    """Return the first metric of `METRICS` among metrics.

    Examples
    --------
    >>> default_metric({"loss": 0.7, "accuracy": 0.5})
    'accuracy'
    """
    return next((name for name in METRICS if name in metrics), next(iter(METRICS)))


def judged_in(record: Mapping[str, Any]) -> str:
    """Return the metric of a record's figures on labels held out by the method, or at each site."""
    name: str = record.get(JUDGED_IN) or default_metric(record)
    return name


LAST = 5
"""Number of final rounds that tables average over; each of them is evaluated."""

DESCRIBED = "described"
"""Entry of a record that says what sites have, without training; see `fda_flower.records.alike`."""

UNCOVERED = "uncovered"
"""Entry of a domain's privacy in a record: the parts of its replies that left without noise."""

NOT_EVALUATED = "target not evaluated"


def source_weight(entry: Record) -> float | None:
    """Return a source's weight against the target: its β or its joint weight; None without either.

    Examples
    --------
    >>> source_weight({"beta": 0.5}), source_weight({"weight": 0.2}), source_weight({})
    (0.5, 0.2, None)
    """
    return entry.get("beta", entry.get("weight"))


def value_of(record: Mapping[str, Any], metric: str, ending: str = "") -> float | None:
    """Return a metric of the target from a round's record, by its name in `METRICS`; None if absent.

    The ending is ``-average`` for the averaged model and ``-global`` for the global one.

    Examples
    --------
    >>> value_of({"accuracy": 0.7, "auroc-average": 0.9}, "auroc", "-average")
    0.9
    """
    value: float | None = record.get(f"{metric}{ending}")
    return value


def why_held(held: Sequence[Record]) -> str:
    """Return why rounds have no new model: the reason of the last, and each of dropped replies once.

    Examples
    --------
    >>> dropped = [{"domain": "west", "reason": "no memory"}]
    >>> why_held([{"held": "no usable reply of the target", "dropped": dropped}] * 2)
    'no usable reply of the target; west: no memory'
    """
    dropped = {(drop["domain"], drop["reason"]): None for each in held for drop in each["dropped"]}
    return "; ".join([held[-1]["held"], *(f"{who}: {why}" for who, why in by_reason(dropped))])


def without_model(history: Sequence[Record]) -> RunError | None:
    """Return the error of a run in which no round has a new model; None for other runs."""
    if not history or not all(record.get("held") for record in history):
        return None
    reason = why_held(history)
    remedy = "remove the cause, then continue with more rounds, or start again"
    return RunError(f"no round has a new model ({reason})", thing="new model", value=reason, remedy=remedy)


def recorded(history: Sequence[Mapping[str, Any]], metric: str, ending: str = "") -> list[float]:
    """Return a metric of the target by round, as recorded; NaN for rounds without evaluation."""
    values = (value_of(record, metric, ending) for record in history)
    return [math.nan if value is None else value for value in values]


def curve(history: Sequence[Mapping[str, Any]], metric: str = "accuracy", ending: str = "") -> list[float]:
    """Return a metric of the target by round, in the unit of tables; NaN for rounds without evaluation.

    Examples
    --------
    >>> curve([{"accuracy": 0.5}, {}])
    [50.0, nan]
    """
    return [METRICS[metric].scaled(value) for value in recorded(history, metric, ending)]


def headline(record: Record, metric: str | None = None) -> str:
    """Return the target's headline metric in words, or else its loss and the metrics of other names.

    The default metric is accuracy or, for a regression, R². If every site is a target, it is their mean.

    Examples
    --------
    >>> headline({"accuracy": 0.734}), headline({"r2": 0.734}), headline({"auroc": 0.9}, "auroc")
    ('target accuracy 73.4%', 'target R² 0.734', 'target AUROC 90.0%')
    >>> headline({"loss": 0.25, "metrics": {"eval_acc": 0.5}}), headline({})
    ('target loss 0.25, eval_acc 0.5', 'target not evaluated')
    >>> headline({"evaluation-failed": "no reply within the timeout"})
    'target accuracy unknown'
    >>> headline({"accuracy": 0.734, "accuracy-average": 0.75})
    'target accuracy 73.4%, average 75.0%'
    >>> headline({"accuracy": 0.734, "server": {"loss": 0.51}}), headline({"server": {"loss": 0.51}})
    ('target accuracy 73.4%, server loss 0.51', 'server loss 0.51')
    >>> headline({"accuracy": 0.734, "sites": {"a": {"with-others": 0.734}}})
    'mean accuracy 73.4%'
    """
    if DESCRIBED in record:
        return "nobody trains"
    target, server = _of_target(record, metric), _listed(record.get("server", {}))
    if not server:
        return target
    return f"server {server}" if target == NOT_EVALUATED else f"{target}, server {server}"


def _of_target(record: Record, metric: str | None) -> str:
    loss = {} if metric else {"loss": record.get("loss")}
    metric = metric or ("r2" if "r2" in record else "accuracy")
    unit, value = METRICS[metric], value_of(record, metric)
    whose = "mean" if "sites" in record else "target"
    if value is not None:
        average = value_of(record, metric, "-average")
        beside = "" if average is None else f", average {unit.show(average)}"
        return f"{whose} {unit.title} {unit.show(value)}{beside}"
    if others := _listed(loss | record.get("metrics", {})):
        return f"target {others}"
    expected = {"loss", "evaluation-failed", "mixture", "sites"} & record.keys()
    return f"{whose} {unit.title} unknown" if expected else NOT_EVALUATED


def _listed(metrics: Mapping[str, Any]) -> str:
    numbers = {key: value for key, value in metrics.items() if isinstance(value, int | float)}
    return ", ".join(f"{key} {value:.4g}" for key, value in numbers.items())


FEW_BETAS = 6
"""The largest number of sources whose β a log names."""


def betas_line(record: Record) -> str:
    """Return the sources' β in words, as a range if there are many; empty without any.

    Examples
    --------
    >>> betas_line({"sources": {"a": {"beta": 0.5, "fallback": "no num-steps"}, "b": {"beta": 0.125}}})
    'β a 0.50 fixed, b 0.12'
    """
    sources = record.get("sources", {}).items()
    weighed = {name: entry for name, entry in sources if entry.get("beta") is not None}
    fixed = {name: " fixed" if entry.get("fallback") else "" for name, entry in weighed.items()}
    if len(weighed) > FEW_BETAS:
        betas, count = [entry["beta"] for entry in weighed.values()], sum(map(bool, fixed.values()))
        return f"β {min(betas):.2f} to {max(betas):.2f}{f', {count} fixed' if count else ''}"
    betas_text = ", ".join(f"{name} {entry['beta']:.2f}{fixed[name]}" for name, entry in weighed.items())
    return f"β {betas_text}" if weighed else ""


LONGEST_REASON = 60
"""Characters of a reason in the line of a round; the record and the warnings have all."""


def without_line(record: Record) -> str:
    """Return who is missing in a round, or has sent no usable reply, with the reasons; empty if nobody.

    Examples
    --------
    >>> away = [{"domain": "west", "reason": "no heartbeat"}, {"domain": "east", "reason": "no heartbeat"}]
    >>> late = [{"domain": "north", "reason": "no reply within the timeout"}]
    >>> without_line({"missing": away, "dropped": late})
    'without west, east (no heartbeat), north (no reply within the timeout)'
    >>> without_line({"missing": [], "dropped": []})
    ''
    """
    out = {each["domain"]: each["reason"] for key in ("missing", "dropped") for each in record.get(key, ())}
    groups = [
        f"{listed(domains)} ({shorten(reason, LONGEST_REASON, placeholder=' ...')})"
        for reason, domains in domains_by_reason(out.items()).items()
    ]
    rest = ["..."] * (len(groups) > MOST_NAMED)
    return f"without {', '.join([*groups[:MOST_NAMED], *rest])}" if groups else ""


def round_line(record: Record, rounds: int, metric: str | None = None, before: Record | None = None) -> str:
    """Return a round's line of the log, with who was away; rounds without evaluation are mentioned once.

    `rounds` is 0 if nobody knows how many there are.

    Examples
    --------
    >>> round_line({"round": 3, "accuracy": 0.412}, 30), round_line({"round": 2}, 30, before={"round": 1})
    ('round 3/30: target accuracy 41.2%', 'round 2/30')
    >>> round_line({"round": 4, "missing": [{"domain": "west", "reason": "no heartbeat"}]}, 0)
    'round 4: target not evaluated; without west (no heartbeat)'
    """
    text = headline(record, metric)
    again = before is not None and text == headline(before, metric) == NOT_EVALUATED
    number = f"{record['round']}/{rounds}" if rounds else record["round"]
    parts = "; ".join(filter(None, ["" if again else text, without_line(record)]))
    return f"round {number}{f': {parts}' if parts else ''}"


VALIDATION, SELECTED, BY = "validation", "selected", "selected-by"
"""Fields of a round's record: its validation metric, the round chosen so far, and the owner of the validation
samples."""

Records = Sequence[Mapping[str, Any]]


def choose(
    history: Records, number: int, value: float, *, by: str, higher_is_better: bool = True
) -> dict[str, Any]:
    """Return the selection's fields for the record of a round; among equal metrics, the earliest wins.

    `history` holds the records of earlier rounds, and `by` names the owner of the validation samples.

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
    """Return the round that validation has chosen; None without validation.

    A centralised reference may report the chosen round's model in every record; such records have no
    ``selected-by``, since no choice remains.
    """
    return next((record[SELECTED] for record in reversed(history) if BY in record), None)


def has_stopped(history: Records, patience: int | None) -> bool:
    """Return whether the metric has not improved for `patience` rounds.

    Rounds without a metric are not counted.

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
    return sum(VALIDATION in record for record in islice(history, chosen, None)) >= patience


def has_ended(history: Records, rounds: int, patience: int | None) -> bool:
    """Return whether a run has finished: all rounds are done, or its patience is exhausted."""
    return len(history) >= rounds or has_stopped(history, patience)
