"""The summary of a run: ``summary.json``."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.datasets.amounts import most
from fda_flower.errors import RunError
from fda_flower.files import json_safe, write_atomically
from fda_flower.metrics import CONFIDENCE, EFFECTIVE, INTERVALS, METRICS, SETS, UNITS, by_class, interval
from fda_flower.names.words import of_units
from fda_flower.records.record import (
    CURVE,
    EVENTS,
    FOLLOWED,
    FREQUENCIES,
    LABELS,
    MEAN_OF_LABELS,
    MOST_FREQUENT,
    TEST_EXAMPLES,
    UNCOVERED,
    VALIDATION,
    Record,
    chosen_round,
    curve,
    has_stopped,
    recorded,
)
from fda_flower.records.record import LAST as LAST
from fda_flower.runs.config import RunConfig

ACCURACY, AVERAGE = "accuracy", "-average"
"""The headline where none is named, and how the fields of the averaged model end."""
SUMMARY, TEST_SAMPLES = "summary.json", "test-samples"
PARAMETERS, REFUSED = "parameters", "refused"
"""Entries of the summary: the model's size, and why the method refuses the federation."""


def scores(history: Sequence[Record], metric: str = ACCURACY, ending: str = "") -> dict[str, float | None]:
    """Return ``last5`` and ``best`` of a metric, in the unit of tables; None if unknown.

    If validation has chosen a round, its metric is ``selected``. Warm-up rounds do not count.
    """
    return _scores(history, metric, lambda: curve(history, metric, ending))


def shares(history: Sequence[Record], metric: str = ACCURACY, ending: str = "") -> dict[str, float | None]:
    """Return `scores` in the unit of records and files: shares in place of percent."""
    return _scores(history, metric, lambda: recorded(history, metric, ending))


def _scores(
    history: Sequence[Record], metric: str, by_round_of: Callable[[], list[float]]
) -> dict[str, float | None]:
    by_round = by_round_of()
    values = np.array(by_round)[[not record.get("warmup") for record in history]]
    tail = values[-LAST:]
    tail = tail[~np.isnan(tail)]
    best = METRICS[metric].best(values.tolist())
    chosen = chosen_round(history)
    selected = np.nan if chosen is None else by_round[chosen - 1]
    return {
        "last5": float(tail.mean()) if tail.size else None,
        "best": None if np.isnan(best) else best,
        **({} if np.isnan(selected) else {"selected": float(selected)}),
    }


def summarise(history: Sequence[Record], metric: str = ACCURACY) -> dict[str, Any]:
    """Return the summary of a run's records.

    It has ``metric``, the headline, a name of `fda_flower.metrics.METRICS`; ``last5``, its mean over the last
    5 rounds, and ``best``, its best round on the test set, which is optimistic; the entries of
    `last_evaluation`; ``sizes``, the numbers of samples by domain; and the totals ``rounds``,
    ``held-rounds``, ``dropped`` and ``seconds``. Metrics are shares, as in records.

    If they exist, ``average`` holds ``last5`` and ``best`` of the averaged model, ``mixture`` and ``sites``
    are from the last record with them, and ``privacy`` is the largest ``ε`` of each domain. If validation has
    chosen a round, ``selected-round`` is its number, ``selected`` its metric on the test set, and
    ``validation`` its metric on the labels held out. For ``delta-errors`` and ``labels-worth`` see
    `theory_of`.
    """
    average = shares(history, metric, AVERAGE)
    summary: dict[str, Any] = {"metric": metric, **shares(history, metric)}
    if (chosen := chosen_round(history)) is not None:
        summary |= {"selected-round": chosen, "validation": history[chosen - 1][VALIDATION]}
    if average["best"] is not None:
        summary["average"] = average
    summary |= last_evaluation(history, metric)
    for record in history:
        summary |= {name: record[name] for name in ("sizes", "mixture", "sites") if name in record}
    if spent := largest_epsilons(history):
        summary["privacy"] = spent
    summary |= theory_of(history)
    return summary | {
        "rounds": len(history),
        "held-rounds": sum(record["held"] is not None for record in history),
        "dropped": sum(len(record["dropped"]) for record in history),
        "seconds": sum(sum(record["seconds"].values()) for record in history),
    }


def theory_of(history: Sequence[Record]) -> dict[str, Any]:
    """Return what the estimates of the last 5 rounds with any say; empty without estimates.

    ``delta-errors`` has the mean of each rule's Delta error and of ``gradient``, the squared gradient; the
    number of ``rounds``, and of those that `helps` is true for. ``labels-worth`` has by domain the median
    number of the target's labels that a source is worth, or None where the estimate has no limit.
    """
    rounds = [record for record in history if record.get("delta-errors")][-LAST:]
    if not rounds:
        return {}
    each = [record["delta-errors"] for record in rounds]
    names = [name for name in each[-1] if name != "helps"]
    values = {name: [e[name] for e in each if e[name] is not None and np.isfinite(e[name])] for name in names}
    means: dict[str, Any] = {name: float(np.mean(value)) for name, value in values.items() if value}
    worth: dict[str, list[float]] = {}
    for domain, entry in (item for record in rounds for item in record["sources"].items()):
        if "labels-worth" in entry:
            number = entry["labels-worth"]
            worth.setdefault(domain, []).append(np.inf if number is None else number)
    medians = {domain: float(np.median(numbers)) for domain, numbers in worth.items()}
    return {
        "delta-errors": {**means, "rounds": len(rounds), "helps": sum(e["helps"] for e in each)},
        "labels-worth": {domain: n if np.isfinite(n) else None for domain, n in medians.items()},
    }


def largest_epsilons(history: Sequence[Record]) -> dict[str, Record]:
    """Return each noisy domain's privacy record with the largest ``ε``, and all that left without noise."""
    largest: dict[str, Record] = {}
    bare: dict[str, set[str]] = {}
    for record in history:
        for domain, spent in record.get("privacy", {}).items():
            bare.setdefault(domain, set()).update(spent.get(UNCOVERED, ()))
            if domain not in largest or spent["epsilon"] >= largest[domain]["epsilon"]:
                largest[domain] = spent
    return {
        domain: {**largest[domain], **({UNCOVERED: sorted(bare[domain])} if bare[domain] else {})}
        for domain in sorted(largest)
    }


def last_evaluation(history: Sequence[Record], metric: str = ACCURACY) -> dict[str, Any]:
    """Return the target's last evaluation; unknown entries are left out.

    ``figures`` and ``intervals`` are the last round's, and ``interval`` is the 95% interval of ``last5``
    (`interval_of`). ``confusion`` and ``classes`` are the confusion matrix and each class's metrics,
    ``labels`` each of several labels', ``events`` the number of samples with the event; ``sets`` are as in
    the record; for ``baseline`` see `baseline_of`.
    """
    last = _last_evaluated(history)
    tests = Sampling.of(history)
    value = shares(history, metric)["last5"]
    between = interval_of(value, history, metric)
    evaluation: dict[str, Any] = {"figures": {n: v for n in METRICS if (v := last.get(n)) is not None}}
    counted = {n: interval(n, v, tests.size) for n, v in evaluation["figures"].items() if METRICS[n].share}
    intervals = {n: list(ends) for n, ends in counted.items() if ends} | last.get(INTERVALS, {})
    evaluation |= {INTERVALS: intervals} if intervals else {}
    evaluation |= tests.entries
    if sets := last.get(SETS):
        evaluation[SETS] = sets
    if between is not None:
        evaluation["interval"] = list(between)
    confusion = last.get("confusion", {})
    if "counts" in confusion:  # the lines of an experiment's records keep the baseline alone
        classes = by_class(np.array(confusion["counts"]), confusion["classes"], confusion.get("units"))
        evaluation |= {"confusion": confusion, "classes": classes}
    if labels := last.get(LABELS):
        evaluation["labels"] = labels["labels"]
    if followed := last.get(FOLLOWED):
        evaluation[EVENTS] = followed[EVENTS]
    if baseline := baseline_of(history):
        evaluation["baseline"] = baseline
    return evaluation


def interval_of(
    value: float | None, history: Sequence[Record], metric: str, ending: str = ""
) -> tuple[float, float] | None:
    """Return the 95% interval of a metric's ``last5``, a share of the records; None if it has none.

    Of an accuracy it follows from the number of test samples or, if these are of fewer units, their effective
    size (`fda_flower.metrics.interval`). Others' ends are means over the same rounds as the value, which is
    an interval however the rounds depend on one another.
    """
    if value is None:
        return None
    if METRICS[metric].share:
        return interval(metric, value, Sampling.of(history).size)
    rounds = [record for record in history if not record.get("warmup")][-LAST:]
    known = [record for record in rounds if record.get(f"{metric}{ending}") is not None]
    ends = [record.get(f"{INTERVALS}{ending}", {}).get(metric) for record in known]
    if not ends or None in ends:
        return None
    low, high = (float(np.mean(each)) for each in zip(*ends, strict=True))
    return low, high


def _last_evaluated(history: Sequence[Record]) -> Record:
    evaluated = (record for record in reversed(history) if any(record.get(n) is not None for n in METRICS))
    return next(evaluated, {})


def baseline_of(history: Sequence[Record]) -> dict[str, Any]:
    """Return the metrics of the baseline on the target's test set; empty if unknown.

    The baseline ignores its input: it predicts the most frequent class (``class``), or the mean of the labels
    or, of several, their frequencies, or the Kaplan-Meier curve of the test set.
    Of some metrics it is the same on every test set (`Metric.chance`).
    """
    last = _last_evaluated(history)
    always = {n: m.chance for n, m in METRICS.items() if m.chance is not None and last.get(n) is not None}
    places = ((LABELS, FREQUENCIES), (FOLLOWED, CURVE), ("confusion", MOST_FREQUENT))
    others = (last.get(entry, {}).get(name) for entry, name in places)
    return always | (last.get(MEAN_OF_LABELS) or next(filter(None, others), {}))


def baseline_in(history: Sequence[Record], metric: str = ACCURACY) -> float | None:
    """Return a metric of the baseline, in the unit of tables; None if unknown."""
    value = baseline_of(history).get(metric)
    return None if value is None else METRICS[metric].scaled(value)


def name_of_baseline(metric: str) -> str:
    """Return the baseline's label.

    Examples
    --------
    >>> name_of_baseline("auroc"), name_of_baseline("r2")
    ('chance', 'mean of the labels')
    """
    return METRICS[metric].baseline


UNEVEN = 1.25
"""The excess of the most frequent class over an even share from which accuracy alone misleads."""
BALANCED = "balanced-accuracy"
FAIR = (BALANCED, "auroc")
"""Figures to show with uneven classes."""


EVENT = "with the event"
"""The test samples of a survival that are its cases, in words."""


def cases_of(summary: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of test samples of each class or label, or with the event, as far as known.

    Where several samples are of one unit, such as a patient, it is the number of units with each class.
    """
    each_of = {**summary.get("classes", {}), **summary.get("labels", {})}
    events = {EVENT: summary[EVENTS]} if EVENTS in summary else {}
    return {name: each.get("units", each["support"]) for name, each in each_of.items()} | events


def is_uneven(baseline: Mapping[str, Any]) -> bool:
    """Return whether classes are so uneven that accuracy alone misleads, by the result of `baseline_of`.

    The baseline's balanced accuracy is one over the number of classes.

    Examples
    --------
    >>> is_uneven({"accuracy": 0.75, "balanced-accuracy": 0.5})
    True
    """
    return bool(baseline.get("accuracy", 0.0) > UNEVEN * baseline.get("balanced-accuracy", 1.0))


@dataclass(frozen=True)
class Sampling:
    """The test samples of an evaluation.

    Attributes
    ----------
    samples : int
        Their number; 0 if unknown.
    units : int, optional
        The number of units, such as patients, if some have several samples.
    size : float, optional
        The samples that an interval counts: all, or with units their `fda_flower.metrics.share_size` for
        the accuracy; None if there is a single unit.

    Examples
    --------
    >>> print(Sampling.of([{"test-examples": 24, "test-units": 6, "test-effective": 4.5}, {}]))
    24 test samples of 6 patients
    """

    samples: int = 0
    units: int | None = None
    size: float | None = 0

    @classmethod
    def of(cls, history: Sequence[Record]) -> "Sampling":
        """Return the test samples of the last evaluation."""
        last = next((record for record in reversed(history) if record.get(TEST_EXAMPLES)), {})
        samples, units = int(last.get(TEST_EXAMPLES, 0)), last.get(UNITS)
        return cls(samples, units, samples if units is None else last.get(EFFECTIVE))

    def __str__(self) -> str:
        return f"{self.samples} test samples{of_units(self.samples, self.units)}"

    @property
    def entries(self) -> dict[str, int]:
        """The entries of a summary: ``test-samples`` and ``test-units``, as far as known."""
        known = {TEST_SAMPLES: self.samples or None, UNITS: self.units}
        return {name: number for name, number in known.items() if number is not None}


def sampling_interval(
    value: float | None, tests: Sampling, metric: str = ACCURACY
) -> tuple[float, float] | None:
    """Return the 95% interval of a metric for test samples, in the unit of tables."""
    if value is None:
        return None
    unit = METRICS[metric]
    ends = interval(metric, value / unit.scaled(1), tests.size)
    return None if ends is None else (unit.scaled(ends[0]), unit.scaled(ends[1]))


def describe_interval(value: float | None, tests: Sampling, metric: str = ACCURACY) -> str:
    """Describe half the interval's width and the test samples, as far as known.

    Examples
    --------
    >>> tests = Sampling(450, size=450)
    >>> describe_interval(87.0, tests), describe_interval(0.9, tests, "r2")
    ('±3.1 points for 450 test samples at 95%', '450 test samples')
    >>> describe_interval(50.0, Sampling(24, 6, 3.5))
    '±36.2 points for 24 test samples of 6 patients at 95%'
    """
    ends = sampling_interval(value, tests, metric)
    if ends is None:
        return str(tests) if tests.samples else ""
    return f"±{(ends[1] - ends[0]) / 2:.1f} points for {tests} at {CONFIDENCE:.0%}"


def summarise_run(
    config: RunConfig, history: Sequence[Record], model: Mapping[str, NDArray[np.generic]] | None = None
) -> dict[str, Any]:
    """Return the same, with the ``epochs`` that a source and the target train in the whole run.

    With a model also the number of its ``parameters``.
    """
    ran = len(history) if has_stopped(history, config.patience) else None
    summary = summarise(history, config.headline_of(history))
    summary["epochs"] = config.training_epochs(_labels(config, history), ran)
    if model:
        floating = (layer for layer in model.values() if np.issubdtype(layer.dtype, np.floating))
        summary[PARAMETERS] = sum(layer.size for layer in floating)
    return summary


def _labels(config: RunConfig, history: Sequence[Record]) -> int:
    """Return the target's number of labelled samples, if recorded."""
    for record in reversed(history):
        if "examples" in (record.get("target") or {}):
            return int(record["target"]["examples"])
        if folds := record.get("mixture", {}).get("folds"):
            return sum(folds)
    return most(config.target_samples) or 0


def write_summary(folder: Path, config: RunConfig, summary: Mapping[str, Any]) -> None:
    """Write ``summary.json`` into a run's folder."""
    named = {"method": config.method, "label": config.entry.title, "dataset": config.dataset}
    numbers = {**named, "shift": config.shift, "seed": config.seed, **summary}
    text = json.dumps(json_safe(numbers), indent=2) + "\n"
    try:
        write_atomically(folder / SUMMARY, text.encode())
    except OSError as error:
        raise RunError(
            f"the summary cannot be written to '{folder}' ({error}): make room, and resume"
        ) from error
