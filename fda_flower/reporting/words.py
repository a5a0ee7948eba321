"""All that a run says in words: what it begins with, what a round costs, how it ends."""

import resource
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fda_flower.metrics import (
    CONFIDENCE,
    METRICS,
    ROUNDING,
    SETS,
    UNITS,
    Metric,
    few_cases,
    share_interval,
)
from fda_flower.models.structure import Structure
from fda_flower.models.tokens import describe_cut
from fda_flower.names.tasks import Task
from fda_flower.names.words import counted, of_units
from fda_flower.records.record import DESCRIBED, DRAWN, EVENTS, Record, has_stopped
from fda_flower.reporting.results import FEW
from fda_flower.reporting.summary import ACCURACY, EVENT, FAIR, Sampling, cases_of, is_uneven
from fda_flower.runs.config import RunConfig
from fda_flower.runs.methods import METHODS, SURVEYS

if TYPE_CHECKING:
    from fda_flower.datasets import FederatedDataset, Samples

MOST_SHOWN = 12
"""Classes that are listed; of more, only their number is told."""

STATISTICS = (
    "BatchNorm's statistics are the clients' mean; the target's own (--buffers adabn) are better where its "
    "samples look different"
)


def overview(config: RunConfig, data: "FederatedDataset", network: Structure) -> list[str]:
    """Return the overview of a run: domains, target, labels, classes, and the network with what it trains."""
    if config.method in SURVEYS:
        rows = {name: sum(map(len, each.parts.values())) for name, each in data.domains.items()}
        sizes = ", ".join(f"{name} {number:,}" for name, number in rows.items())
        return [f"All rows of {config.dataset} are described, whatever they are for: {sizes}"]
    moves = f"{network.trained:,} parameters"
    if config.trained.what != "all":
        sent = f"{4 * network.trained / 1000:,.0f} kB"
        moves = f"trains and sends {moves}, {sent} (--train {config.trained})"
    return [
        *_domains(config, data),
        _labels(config, data),
        *_texts(config, data),
        f"Network: {config.model}, {moves}, for {_inputs(config, data)} (another: --model NAME)",
        *([STATISTICS] if _has_mean_statistics(config, network) else []),
    ]


def _has_mean_statistics(config: RunConfig, network: Structure) -> bool:
    return network.batch_norms > 0 and config.buffers == "mean" and not config.entry.centralised


def _inputs(config: RunConfig, data: "FederatedDataset") -> str:
    if len(data.shape) > 1:
        return f"images of {'x'.join(map(str, data.shape[1:]))} in {counted(data.shape[0], 'channel')}"
    if not (column := dict(config.dataset_options).get("text")):
        return counted(data.shape[0], "feature")
    others = len(data.features) - 1
    beside = f"{counted(others, 'feature')} and " if others else ""
    return f"{beside}the text in column '{column}'"


def _texts(config: RunConfig, data: "FederatedDataset") -> list[str]:
    column = dict(config.dataset_options).get("text")
    cut = {name: domain.cut for name, domain in data.domains.items()}
    return [f"Text in column '{column}': {describe_cut(cut)}"] if column else []


def _domains(config: RunConfig, data: "FederatedDataset") -> list[str]:
    """Return lines with the domains, their roles and their samples."""
    domains, names = data.domains, config.data.source_names
    if config.every_site:
        sites = (f"{name} {_size(domains[name].train)} + {_size(domains[name].test)}" for name in names)
        return [f"Sites of {config.dataset}, labels + test samples, each a target: {', '.join(sites)}"]
    sources = (f"{name} {_size(domains[name].train)}" for name in names)
    target = domains[data.target]
    train, test, rest = target.train, target.test, target.unlabelled
    every = len(train) + (0 if rest is None else len(rest))
    who = of_units(len(train), train.units)
    labels = f"{len(train)} labels{who and f'{who},'} of {every} training samples"
    return [
        f"Sources: training samples of {config.dataset}: {', '.join(sources)}",
        f"Target: {data.target}, {labels} (--target-samples), "
        f"{len(test)} test samples{of_units(len(test), test.units)} (another target: --target NAME)",
    ]


def _size(samples: "Samples") -> str:
    return f"{len(samples):,}{of_units(len(samples), samples.units)}"


def cost_of_round(record: Record, rounds: int) -> str:
    """Return a line with the cost of a round, and an estimate for all rounds."""
    seconds = sum(record.get("seconds", {}).values())
    unit = 1 if sys.platform == "darwin" else 1024
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
    total = span(rounds * seconds)
    return f"A round: {seconds:.1f} s, so {rounds} take about {total}; memory: {memory:,.0f} MB"


def span(seconds: float) -> str:
    """Return a time in words.

    Examples
    --------
    >>> span(90), span(300), span(1e5), span(1e6)
    ('90 s', '5 min', '28 h', '12 days')
    """
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _labels(config: RunConfig, data: "FederatedDataset") -> str:
    options = dict(config.data.dataset_options)
    column = f" in column '{options.get('label', 'label')}'" if config.dataset == "table" else ""
    if config.data.task == "regression":
        return f"Labels{column}: numbers, {data.classes} of each sample"
    if config.data.task == "survival":
        return _followed(options, data)
    column = "" if config.data.task == "multilabel" else column
    names = data.class_names or tuple(map(str, range(data.classes)))
    if len(names) > MOST_SHOWN:
        return f"Classes{column}: {len(names)}"
    target, sources = Counter[int](), Counter[int]()
    for name, domain in data.domains.items():
        y = domain.train.y
        held = y.nonzero()[1] if config.data.task == "multilabel" else y
        (target if name == data.target else sources).update(held.tolist())
    if config.every_site:
        return f"Labels{column}: {', '.join(f'{each}: {sources[i]:,}' for i, each in enumerate(names))}"
    counts = (f"{name}: {sources[i]:,} + {target[i]}" for i, name in enumerate(names))
    return f"Labels{column} (sources + target): {', '.join(counts)}"


def _followed(options: Mapping[str, Any], data: "FederatedDataset") -> str:
    """Return a line with the patients who have the event, by site, and the horizons."""
    trained = ((name, domain.train.outcomes) for name, domain in data.domains.items())
    events = ", ".join(f"{name} {each.count} of {len(each)}" for name, each in trained if each is not None)
    when = f"times in column '{options.get('label', 'label')}', events in '{options['event']}'"
    return f"Labels: {when}: {events}; survival at {options['horizons'].replace(',', ', ')} (horizons)"


def is_better(summary: Mapping[str, Any]) -> bool:
    """Return whether a run's ``last5`` is better than the baseline; True if unknown.

    Examples
    --------
    >>> is_better({"metric": "accuracy", "last5": 0.75, "baseline": {"accuracy": 0.75}})
    False
    """
    floor = summary.get("baseline", {}).get(summary.get("metric"))
    if floor is None or summary["last5"] is None:
        return True
    metric = METRICS[summary["metric"]]
    gain = (summary["last5"] - floor) * (1 if metric.higher_is_better else -1)
    return bool(gain > ROUNDING)


AGAINST = {
    "most frequent class": "naming the most frequent class, '{name}', for all {tests}",
    "mean of the labels": "predicting the mean of the labels for all {tests}",
    "the same shares for all": "giving all {tests} {shares}",
}
"""What a run is compared with, by `Metric.baseline`, as a sentence needs it; others are nouns."""

SHARES: Mapping[Task, str] = {
    "classes": "the classes' shares",
    "multilabel": "the labels' shares",
    "survival": "their own Kaplan-Meier curve",
}
"""The shares of the baseline, by task."""

MOST_LISTED = 6
"""Classes whose recall and precision are listed on the terminal."""


def judge(summary: Mapping[str, Any]) -> list[str]:
    """Return sentences that compare a run with the baseline, and on its classes; none if it is unknown.

    Examples
    --------
    >>> baseline = {"class": "well", "accuracy": 0.965, "balanced-accuracy": 0.5, "auroc": 0.5}
    >>> told = {"interval": [0.62, 0.87], "test-samples": 400, "baseline": baseline}
    >>> told["classes"] = {"ill": {"support": 14, "recall": 0.0, "precision": 0.0}}
    >>> judge({"metric": "auroc", "last5": 0.75, "figures": {"auroc": 0.75}, **told})[0]
    'Better than chance on 400 test samples, 14 of 400 ill: AUROC 50.0%'
    >>> judge({"metric": "accuracy", "last5": 0.96, "figures": {}, **told, "classes": {}})[0]
    "Not better than naming the most frequent class, 'well', for all 400 test samples: accuracy 96.5%"
    >>> judge({"metric": "auroc", "last5": None, "classes": {"ill": {"support": 0}}})[0]
    'AUROC is unknown, as no test sample is of ill'
    """
    baseline = summary.get("baseline", {})
    floor = baseline.get(summary.get("metric"))
    samples, units = summary.get("test-samples", 0), summary.get(UNITS)
    more = [*describe_classes(summary), *describe_sets(summary.get(SETS, {}), samples, units)]
    if summary["last5"] is None and (why := _unknown(summary)):
        return [f"{METRICS[summary['metric']].title} is unknown, as {why}", *more]
    if floor is None or summary["last5"] is None:
        return more
    metric = METRICS[summary["metric"]]
    tests = f"{samples or ''} test samples{of_units(samples, units)}".lstrip()
    what = f"{metric.baseline} on {tests}{support_of(summary, ', ')}"
    if metric.baseline in AGAINST:
        shares = SHARES.get(task_of(summary), "")
        what = AGAINST[metric.baseline].format(name=baseline.get("class"), tests=tests, shares=shares)
    if not is_better(summary):
        better, end = "Not better", ""
    elif "interval" not in summary:
        why = ", as one patient says nothing of others" if units == 1 else ", so a small gain may be chance"
        better, end = "Better", f"; it has no interval{why}"
    elif summary["interval"][0] <= floor <= summary["interval"][1]:
        better, end = "Perhaps not better", ", which is in the interval"
    else:
        better, end = "Better", ""
    return [f"{better} than {what}: {metric.title} {metric.show(floor)}{end}", *more]


def _unknown(summary: Mapping[str, Any]) -> str:
    """Return why a test set has no headline, as far as its cases say."""
    if EVENTS in summary:
        return f"no two of the test samples can be compared, {summary[EVENTS]} with the event"
    absent = [name for name, number in cases_of(summary).items() if not number]
    return f"no test sample is of {_listed(absent)}" if absent else ""


def support_of(summary: Mapping[str, Any], before: str = "") -> str:
    """Return the test samples of the rarest class or label in words, after `before`; empty if they are many.

    In a survival they are the patients with the event, always.

    Examples
    --------
    >>> classes = {"well": {"support": 386}, "ill": {"support": 14}}
    >>> support_of({"classes": classes, "baseline": {"accuracy": 0.965, "balanced-accuracy": 0.5}})
    '14 of 400 ill'
    """
    counts = {name: number for name, number in cases_of(summary).items() if number}
    few = few_cases(counts) and METRICS[summary.get("metric", ACCURACY)].over_classes
    if not counts or not (EVENT in counts or few or is_uneven(summary.get("baseline", {}))):
        return ""
    rarest = min(counts, key=counts.__getitem__)
    each_of = {**summary.get("classes", {}), **summary.get("labels", {})}
    by_unit = any("units" in each for each in each_of.values())
    total = summary.get(UNITS if by_unit else "test-samples") or sum(counts.values())
    return f"{before}{counts[rarest]:,} of {total:,} {'patients ' * by_unit}{rarest}"


def describe_classes(summary: Mapping[str, Any]) -> list[str]:
    """Return lines on classes of unequal size, and on few or no test cases of a class or a label."""
    baseline, classes = summary.get("baseline", {}), summary.get("classes", {})
    lines, own = describe_missing(summary), summary.get("metric", ACCURACY)
    if is_uneven(baseline):
        fair = {METRICS[n]: (summary["figures"].get(n), baseline.get(n)) for n in FAIR if n != own}
        metrics = [f"{m.title} {m.show(a)} ({m.show(b)})" for m, (a, b) in fair.items() if None not in (a, b)]
        if metrics:
            when = "; last round" if "rounds" in summary else ""
            lines.append(f"Classes are uneven{when} (most frequent class): {', '.join(metrics)}")
        if len(classes) <= MOST_LISTED:
            lines += [_of_class(name, each, summary) for name, each in classes.items()]
    few, always = few_cases(cases_of(summary)), is_uneven(baseline) or EVENTS in summary
    return lines + ([say_few(summary)] if few and (always or METRICS[own].over_classes) else [])


def say_few(summary: Mapping[str, Any]) -> str:
    """Return `describe_few` with the names of an evaluation's figures; empty where no cases are few."""
    few, names = few_cases(cases_of(summary)), summary.get("figures", {})
    hang = [METRICS[name].title for name in names if METRICS[name].over_classes or EVENTS in summary]
    return describe_few(few, f"{', '.join(hang)} hang on them") if few and hang else ""


def describe_missing(summary: Mapping[str, Any]) -> list[str]:
    """Return a line on classes and labels without figures, since no test sample has them, or each; else none.

    Examples
    --------
    >>> labels = {"mass": {"support": 9, "auroc": 0.8}, "edema": {"support": 0, "auroc": None}}
    >>> describe_missing({"labels": labels})
    ['Means are over 1 of 2 labels: no test sample has edema']
    >>> describe_missing({"classes": {"ill": {"support": 0}, "well": {"support": 9}}})
    ['Means are over 1 of 2 classes: no test sample is of ill']
    """
    labels, classes = summary.get("labels", {}), summary.get("classes", {})
    sides = {
        "no test sample is of": [name for name, each in classes.items() if not each["support"]],
        "no test sample has": [name for name, each in labels.items() if not each["support"]],
        "each test sample has": [
            n for n, each in labels.items() if each["support"] and each["auroc"] is None
        ],
    }
    said = "; ".join(f"{side} {_listed(names)}" for side, names in sides.items() if names)
    every, missing = len(labels) + len(classes), sum(map(len, sides.values()))
    what = "labels" if labels else "classes"
    return [f"Means are over {every - missing} of {every} {what}: {said}"] if said else []


def _listed(names: Sequence[str]) -> str:
    return ", ".join([*names[:MOST_SHOWN], *(["..."] if len(names) > MOST_SHOWN else [])])


def task_of(summary: Mapping[str, Any]) -> Task:
    """Return what a run predicts, by the entries of its summary and its metric."""
    by_entry: dict[str, Task] = {"labels": "multilabel", EVENTS: "survival"}
    known = (task for entry, task in by_entry.items() if entry in summary)
    judged: tuple[Task, ...] = METRICS[summary.get("metric", ACCURACY)].tasks or ("classes",)
    return next(known, judged[0])


def _of_class(name: str, entry: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Return the recall and the precision of a class, with intervals unless a patient has several samples."""
    counts = summary.get("confusion", {})
    predicted = None
    if name in counts.get("classes", ()):
        place = counts["classes"].index(name)
        predicted = sum(row[place] for row in counts["counts"])
    recall = _share("recall", entry["recall"], entry["support"], summary)
    if predicted is None:
        return f"{name}: {recall}"
    precision = _share("precision", entry["precision"], predicted, summary)
    return f"{name}: {recall}; {precision if predicted else 'never predicted'}"


def _share(what: str, value: float | None, of: int, summary: Mapping[str, Any]) -> str:
    if not of or value is None:
        return f"no {what}, as it has no test samples"
    ends = None if UNITS in summary else share_interval(value, of)
    between = f" (95% interval {ends[0]:.1%} to {ends[1]:.1%})" if ends else ""
    return f"{what} {value:.1%} of {of:,}{between}"


def describe_few(few: Mapping[str, int], hang: str = "") -> str:
    """Return a sentence on classes with few test cases, given their numbers, and what hangs on them.

    By default it is what a table marks with `FEW`.

    Examples
    --------
    >>> describe_few({"ill": 6})
    'Few test cases (ill 6): metrics in which each counts alike (*) hang on them; rank nothing by these'
    """
    counts = _listed([f"{name} {number}" for name, number in few.items()])
    hang = hang or f"metrics in which each counts alike ({FEW}) hang on them"
    return f"Few test cases ({counts}): {hang}; rank nothing by these"


def describe_theory(summary: Mapping[str, Any]) -> list[str]:
    """Return sentences on the Delta errors of a run, and on the sources' worth; none without estimates.

    Examples
    --------
    >>> errors = {"source-only": 8.0, "target-only": 4.0, "fedda": 2.0, "gradient": 6.0}
    >>> errors |= {"rounds": 5, "helps": 4}
    >>> for line in describe_theory({"delta-errors": errors, "labels-worth": {"a": 25.2, "b": None}}):
    ...     print(line)
    Delta errors in the last rounds: FedDA 2, Target Only 4, Source Only 8; the smallest names the best rule
    By the theory 4 of 5 rounds have helped: the error is below the squared gradient, 6 on average
    A source alone serves like this number of the target's labels: a 25, b more than the estimate can tell
    """
    errors = dict(summary.get("delta-errors", {}))
    if not errors:
        return []
    rounds, helps, gradient = errors.pop("rounds"), errors.pop("helps"), errors.pop("gradient")
    ranked = ", ".join(
        f"{METHODS[name].label} {_amount(errors[name])}" for name in sorted(errors, key=errors.__getitem__)
    )
    worth = (
        f"{domain} {'more than the estimate can tell' if number is None else format(number, ',.0f')}"
        for domain, number in summary.get("labels-worth", {}).items()
    )
    return [
        f"Delta errors in the last rounds: {ranked}; the smallest names the best rule",
        f"By the theory {helps} of {rounds} rounds have helped: the error is below the squared gradient, "
        f"{_amount(gradient)} on average",
        f"A source alone serves like this number of the target's labels: {', '.join(worth)}",
    ]


def _amount(value: float) -> str:
    """Return three digits of a number, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def describe_sets(metrics: Mapping[str, float], samples: int, units: int | None = None) -> list[str]:
    """Return sentences on sets, by their metrics in a record; none without metrics.

    `units` is the number of units, such as patients, if some have several of the `samples`.

    Examples
    --------
    >>> sets = {"asked": 0.9, "coverage": 0.92, "size": 1.5, "single": 0.6, "single-right": 0.95}
    >>> for line in describe_sets(sets, 100):
    ...     print(line)
    Sets for 90%: 92.0% hold the label (95% interval 85.0% to 95.9%); mean size 1.50
    Sets of one class: 60.0%, 95.0% of them right
    The 90% are promised only for samples that come as the labelled ones did
    """
    if not {"asked", "coverage"} <= metrics.keys():
        return []
    asked, what = f"{100 * metrics['asked']:g}%", "Intervals" if "width" in metrics else "Sets"
    ends = share_interval(metrics["coverage"], samples if units is None else metrics.get("effective"))
    between = f" (95% interval {ends[0]:.1%} to {ends[1]:.1%})" if ends else ""
    size = f"mean width {metrics['width']:.4g}" if "width" in metrics else f"mean size {metrics['size']:.2f}"
    lines = [f"{what} for {asked}: {metrics['coverage']:.1%} hold the label{between}; {size}"]
    if "single-right" in metrics:
        one, right = metrics["single"], metrics["single-right"]
        lines.append(f"Sets of one class: {one:.1%}, {right:.1%} of them right")
    of = "samples" if units is None else "samples of new patients"
    return [*lines, f"The {asked} are promised only for {of} that come as the labelled ones did"]


def outcome(config: RunConfig, history: Sequence[Record], summary: Mapping[str, Any]) -> str:
    """Return a run's metrics as text."""
    if history and (described := history[-1].get(DESCRIBED)):
        return f"{counted(described['said'], 'site')} said what they have"
    metric = METRICS[summary.get("metric", config.headline)]
    text = f"{metric.title} {_shown(summary, metric)}"
    if "average" in summary:
        text += f"; the averaged model: {_shown(summary['average'], metric)}"
    if "selected-round" in summary:
        text += f" (round {summary['selected-round']}, chosen by held-out labels)"
    if has_stopped(history, config.patience):
        text += f"; stopped after {counted(len(history), 'round')}"
    if size := describe_sampling(summary, metric, Sampling.of(history)):
        text += f" ({size})"
    return text


def describe_sampling(summary: Mapping[str, Any], metric: Metric, tests: Sampling) -> str:
    """Return the interval of a run's headline, its test samples, and the rarest class in words."""
    ends = summary.get("interval")
    if ends is None:
        size = str(tests) if tests.samples else ""
    elif metric.share:
        size = f"±{50 * (ends[1] - ends[0]):.1f} points for {tests} at {CONFIDENCE:.0%}"
    else:
        size = f"{CONFIDENCE:.0%} interval {' to '.join(map(metric.show, ends))} for {tests}"
    return f"{size}{support_of(summary, ', ' if size else '')}"


def missing_replies(config: RunConfig, history: Sequence[Record]) -> str:
    """Return the counts of held rounds and missing or dropped replies as text; empty if there are none."""
    every = config.data.source_names
    asked = [len(record.get(DRAWN, every)) for record in history]
    without = (0 < len(record["sources"]) < most for record, most in zip(history, asked, strict=True))
    counts = {
        "rounds without a new model": sum(record["held"] is not None for record in history),
        "rounds without all sources": sum(without),
        "dropped replies": sum(len(record["dropped"]) for record in history),
    }
    return ", ".join(f"{what}: {number}" for what, number in counts.items() if number)


def _shown(scores: Mapping[str, Any], metric: Metric) -> str:
    """Return ``last5 73.4%, best 75.0%``."""
    values = {key: scores[key] for key in ("last5", "best", "selected") if key in scores}
    return ", ".join(f"{k} {'unknown' if v is None else metric.show(v)}" for k, v in values.items())
