"""Read the replies to evaluate messages into metrics and entries of a record; leave impossible ones out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Message, MetricRecord

from fda_flower.aggregation import Layers
from fda_flower.errors import printable
from fda_flower.metrics import (
    EFFECTIVE,
    HIGH,
    INTERVALS,
    LIMITS,
    LOW,
    METRICS,
    SET_METRICS,
    SETS,
    UNITS,
    intervals_in,
    of_most_frequent,
)
from fda_flower.names.words import listed
from fda_flower.records.record import CONFUSION, MOST_FREQUENT, TEST_EXAMPLES, Record
from fda_flower.strategies.label_figures import read_followed, read_labels
from fda_flower.strategies.replies import (
    LONGEST_NAME,
    MOST_EXAMPLES,
    MOST_METRICS,
    BadReplyError,
    content_of,
    finite,
    metrics_in,
    read_examples,
    read_number,
)
from fda_flower.wire import protocol
from fda_flower.wire.internals import filled

MOST_CLASSES = 1000
"""Largest number of classes in a recorded confusion matrix; more would make records megabytes long."""

DETAILS = (protocol.OUTCOMES, protocol.CONFUSION)
"""Optional records of arrays in an evaluation."""


def read_outcomes(arrays: Layers) -> Record:
    """Return the record's entry for correctly classified test samples; empty if unreadable."""
    right, examples = (arrays.get(name, np.zeros(0)) for name in ("right", "examples"))
    if right.dtype != np.uint8 or examples.size != 1 or not np.issubdtype(examples.dtype, np.integer):
        return {}
    count = int(examples.item())
    if count < 0 or right.size != -(-count // 8):
        return {}
    return {"outcomes": right.tobytes().hex(), "test-examples": count}


def read_confusion(arrays: Layers, names: Sequence[str]) -> Record:
    """Return a confusion matrix with its classes, and the most frequent class; empty if unreadable."""
    counts = arrays.get("counts", np.zeros(0))
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not np.issubdtype(counts.dtype, np.integer):
        return {}
    if len(counts) > MOST_CLASSES or (counts < 0).any():
        return {}
    classes = list(names) if len(names) == len(counts) else [str(i) for i in range(len(counts))]
    confusion: Record = {"classes": classes, "counts": counts.tolist()}
    units, support = arrays.get("units", np.zeros(0)), counts.sum(axis=1)
    if units.shape == support.shape and np.issubdtype(units.dtype, np.integer):
        confusion |= {"units": units.tolist()} if ((units >= 0) & (units <= support)).all() else {}
    if counts.any():
        most = classes[counts.sum(axis=1, dtype=np.float64).argmax()]
        confusion[MOST_FREQUENT] = {"class": most, **of_most_frequent(counts)}
    return {CONFUSION: confusion}


def read_details(records: Mapping[str, Layers], names: Sequence[str]) -> Record:
    """Return the record's entries for the `DETAILS` of a reply; `names` are the classes."""
    outcomes = read_outcomes(records.get(protocol.OUTCOMES, {}))
    confusion = records.get(protocol.CONFUSION, {})
    labels = read_labels(confusion, names) | read_followed(confusion)
    return outcomes | read_confusion(confusion, names) | labels


def left_out(reply: Message | None, evaluation: bool = False) -> str:
    """Return in words which metrics of a reply are left out: no finite numbers, or impossible ones."""
    metrics = {} if reply is None or reply.has_error() else metrics_in(reply.content)
    names = sorted(repr(printable(name, LONGEST_NAME)) for name in metrics if finite(metrics[name]) is None)
    words = [f"{listed(names)}: a metric must be a finite number"] if names else []
    return "; ".join([*words, *(_impossible(metrics).values() if evaluation else ())])


def read_metrics(reply: Message | None) -> MetricRecord:
    """Return the metrics of an evaluation that are finite numbers, and possible; see `left_out`.

    Raise a `BadReplyError` if a number of samples is impossible, or if others than the loss are all not
    finite. A project's own lists are left out.
    """
    content = content_of(reply)
    names = list(metrics_in(content))
    if len(names) > MOST_METRICS:
        raise BadReplyError(f"it has {len(names)} metrics, at most {MOST_METRICS} are read")
    for name in names:
        if printable(name, LONGEST_NAME) != name:
            raise BadReplyError(f"the name of its metric '{name}' is too long, or has control characters")
    finite_metrics = {name: finite(value) for name, value in metrics_in(content).items()}
    metrics = {name: number for name, number in finite_metrics.items() if number is not None}
    if protocol.NUM_EXAMPLES in names:
        metrics[protocol.NUM_EXAMPLES] = read_examples(content, least=0)
    if metrics.keys() <= {protocol.NUM_EXAMPLES, "loss"}:
        for name in names:
            if _metric_of(name) or not isinstance(metrics_in(content)[name], list):
                read_number(content, name)
    impossible = _impossible(metrics)
    checked = check_metrics({name: metrics[name] for name in metrics if name not in impossible})
    return filled(MetricRecord(), checked | {name: int(checked[name]) for name in checked if name == UNITS})


def _metric_of(name: str) -> Any:
    """Return the package's metric of this name, on the test set or held out; None for a project's own."""
    key = name.removeprefix(f"{protocol.VALIDATION}-")
    return METRICS.get(LIMITS.get(key, key)) or SET_METRICS.get(key.removeprefix(f"{SETS}-"))


def _impossible(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Return why values of the package's metrics are impossible, by name."""
    reasons = dict[str, str]()
    for name, value in metrics.items():
        metric, number = _metric_of(name), finite(value)
        if metric and number is not None and not metric.allows(number):
            low, high = metric.lowest, metric.highest
            reasons[name] = f"'{name}' is {number:g}, it must lie between {low:g} and {high:g}"
            if (low, high) == (0, 1) and 1 < number <= 100:
                reasons[name] += f": return the share, {number / 100:g}"
    for name, (low, high) in intervals_in(metrics).items():
        if None not in (finite(low), finite(high)) and low > high:
            ends = f"{name}{LOW}", f"{name}{HIGH}"
            reasons |= dict.fromkeys(
                ends, f"'{ends[0]}' is {low:g}, it must not be above '{ends[1]}', {high:g}"
            )
    return reasons


def check_metrics(metrics: dict[str, float]) -> dict[str, float]:
    """Return metrics by name; raise a `BadReplyError` if a value is impossible."""
    samples = metrics.get(protocol.NUM_EXAMPLES, 0)
    for reason in _impossible(metrics).values():
        raise BadReplyError(f"its metric {reason}")
    for name, value in metrics.items():
        key = name.removeprefix(f"{protocol.VALIDATION}-")
        if key == TEST_EXAMPLES and not (value == int(value) and 0 <= value <= MOST_EXAMPLES):
            raise BadReplyError(f"'{name}' is {value:g}, it must be a whole number")
        if name == UNITS and not (value == int(value) and 1 <= value < samples):
            raise BadReplyError(
                f"its metric '{name}' is {value:g}, it must be a whole number from 1 to less than the number "
                f"of samples, {samples:g}"
            )
        if name in (EFFECTIVE, f"{SETS}-effective") and not (
            0 < value <= samples and metrics.get(UNITS, 0) > 1
        ):
            raise BadReplyError(
                f"its metric '{name}' is {value:g}, it must lie above 0 and not above the number of samples, "
                f"{samples:g}, of at least 2 '{UNITS}'"
            )
    return metrics


def evaluated(metrics: Mapping[str, Any]) -> Record:
    """Return the entries of a record for the metrics of an evaluation."""
    entry: Record = {key: metrics[key] for key in (*METRICS, UNITS, EFFECTIVE) if key in metrics}
    if intervals := intervals_in(metrics):
        entry[INTERVALS] = intervals
    if sets := {key: metrics[of] for key in SET_METRICS if (of := f"{SETS}-{key}") in metrics}:
        entry[SETS] = sets
    if protocol.NUM_EXAMPLES in metrics:
        entry[TEST_EXAMPLES] = metrics[protocol.NUM_EXAMPLES]
    known = {*METRICS, *LIMITS, UNITS, EFFECTIVE, protocol.NUM_EXAMPLES}
    known |= {f"{SETS}-{key}" for key in SET_METRICS}
    others = {key: metrics[key] for key in metrics if key not in known}
    return entry | ({"metrics": others} if others else {})
