"""What the sources bring, by the target's held-out labels."""

from fda_flower.metrics import METRICS, metric_names
from fda_flower.names.words import of_units
from fda_flower.records.record import HEADLINE, JUDGED_IN, Record, default_metric, judged_in
from fda_flower.strategies.nodes import Node
from fda_flower.wire.protocol import GROUPS, LABELLED

HELD_OUT, TARGET_ALONE, HALF, UNITS = "held-out", "held-out-target", "held-out-half", "units"
"""Entries of a method's own part of the record: a metric by held-out labels, without the sources, and with
half of the labels; the number of units, such as patients, of the labels, if some have several."""


def benefit_of_sources(entry: Record, record: Record) -> list[str]:
    """Return a line on what the sources bring, by held-out labels; none if a metric is unknown.

    Examples
    --------
    >>> benefit_of_sources({"held-out": 0.84, "held-out-target": 0.77}, {"judged-in": "auroc"})
    ['The sources bring +7.0 points of AUROC here, by held-out labels: 84.0% with them, 77.0% without']
    >>> benefit_of_sources({"held-out": 0.8, "held-out-target": 0.8, "units": 6}, {"r2": 0.7})
    ['The sources bring +0.000 of R² here, by held-out labels of 6 patients: 0.800 with them, 0.800 without']
    """
    both, alone = (entry.get(name) for name in (HELD_OUT, TARGET_ALONE))
    if both is None or alone is None:
        return []
    metric, of = METRICS[judged_in(record)], of_units(0, entry.get(UNITS))
    shares = f"{metric.show(both)} with them, {metric.show(alone)} without"
    return [f"The sources bring {metric.show_gain(both - alone)} here, by held-out labels{of}: {shares}"]


def curve_of_labels(entry: Record, record: Record, labels: int | None, where: str = "") -> list[str]:
    """Return a line on what half of the labels were worth; none if a metric is unknown.

    Examples
    --------
    >>> curve_of_labels({"held-out": 0.75, "held-out-half": 0.7}, {"accuracy": 0.8}, 40)
    ['Held out: 75.0% with all 40 labels, 70.0% with half of them; more labels: not forecast']
    """
    full, half = (entry.get(name) for name in (HELD_OUT, HALF))
    if full is None or half is None:
        return []
    name, known = judged_in(record), "" if labels is None else f"{labels} "
    metric = METRICS[name]
    title = "" if name == next(iter(METRICS)) else f"{metric.title} "
    known += f"labels{of_units(0, entry.get(UNITS))}"
    both = f"{metric.show(full)} with all {known}, {metric.show(half)} with half of them{where}"
    return [f"Held out: {title}{both}; more labels: not forecast"]


def units_of(node: Node | None) -> dict[str, int]:
    """Return the entry with the units, such as patients, of a node's labels; empty if each is of its own."""
    labels, units = (None if node is None else node.info.get(key) for key in (LABELLED, GROUPS))
    return {UNITS: units} if isinstance(units, int) and units != labels else {}


def metric_of(metric: str | None, record: Record) -> str | None:
    """Return the `metric` that a run names, or else the headline of a round's record; None without either."""
    return metric or record.get(HEADLINE)


def judged_by(node: Node | None, metric: str | None, record: Record) -> dict[str, str]:
    """Return the entry with the metric of a node's held-out labels, given the one that the run names.

    By default it is the first that the record has of an evaluation, or else of the node's task.
    """
    metric = metric_of(metric, record)
    if metric is None and not any(name in record for name in METRICS):
        return {} if node is None else {JUDGED_IN: metric_names(node.task)[0]}
    return {JUDGED_IN: metric or default_metric(record)}
