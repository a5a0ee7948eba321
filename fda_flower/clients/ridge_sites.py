"""Ridge where every site is a target: fit a head to the others' sums and the own rows, and keep it."""

import math
from collections.abc import Callable, Mapping, Sequence
from logging import ERROR
from typing import Any

import numpy as np
from flwr.common import log
from numpy.typing import NDArray

from fda_flower.aggregation import (
    LEAST_EVENTS,
    LEAST_LABELS,
    Heads,
    Sums,
    by_kind,
    joined_head,
    shape_of_head,
    usual_factor,
)
from fda_flower.aggregation.labels import factor_for
from fda_flower.aggregation.ridge import paths_of
from fda_flower.aggregation.units import Units
from fda_flower.clients.client import DomainClient
from fda_flower.clients.ridge import rows_of, unchanged
from fda_flower.clients.ridge_numpy import Array, Labelled, TargetHead, fit_from, placed
from fda_flower.clients.secure_sums import as_masked
from fda_flower.datasets import Samples
from fda_flower.metrics import (
    METRICS,
    Judge,
    metric_names,
    paired_aurocs,
    paired_interval,
    paired_shares,
)
from fda_flower.metrics.classes import probabilities_of
from fda_flower.metrics.survival import gain_of_c
from fda_flower.names.tasks import NUMBERS
from fda_flower.prediction.predictors import Single
from fda_flower.wire.asked.ridge import FitSiteHead, SiteFitted
from fda_flower.wire.protocol import TrainReply, TrainRequest


def fit_site(
    own: Labelled,
    totals: Sequence[Sums],
    sent: Sequence[Sums],
    paths: Heads,
    metric: str | None = None,
) -> TargetHead:
    """Fit a site's head, if every site is a target, from the total of all sites minus its own sums.

    With labels of too few patients to leave one out, or too few events, it is the others' head. `totals` and
    `sent`, the sums that this site has sent, have an entry for each kind of rows. For `metric` see
    `fit_from`.

    Raises a `ValueError` if `totals` include no other site, or the difference cannot come from rows.
    """
    others = [total - each for total, each in zip(totals, sent, strict=True)]
    if others[0].rows < 1:
        raise ValueError("the sums of all sites have no row of another site")
    return _fit_to(own, others, paths, metric)


def _fit_to(own: Labelled, others: Sequence[Sums], paths: Heads, metric: str | None) -> TargetHead:
    scaled, outcomes = own.task in NUMBERS, own.outcomes
    few_events = outcomes is not None and outcomes.count < LEAST_EVENTS and paths != "sources"
    if own.units.count < LEAST_LABELS or few_events:
        usual = usual_factor(paths) * factor_for(own.task == "multilabel")
        heads = [each.head(scaled, usual) / len(others) for each in others]
        return TargetHead(joined_head(heads, own.widths), {"share": 1.0})
    starts = [each.start("pooled" in paths_of(paths), scaled) for each in others]
    return fit_from(own, starts, paths, metric)


def compare(
    judge: Judge,
    metric: str,
    alone: Array,
    together: Array,
    labels: Any,
    groups: NDArray[Any] | None = None,
) -> dict[str, float]:
    """Return the metrics of two heads' outputs on some rows, and the 95% interval of the difference.

    The `judge` measures them. There is no interval for a metric that `GAINS` lacks, for a single patient, of
    `groups` or else the rows, or for constant labels.
    """
    answer = {"alone": judge(alone).get(metric), "with_others": judge(together).get(metric)}
    ends = GAINS[metric](alone, together, labels, groups) if metric in GAINS else None
    answer |= {} if ends is None else {"gain_low": ends[0], "gain_high": ends[1]}
    return {name: value for name, value in answer.items() if value is not None and np.isfinite(value)}


def _gain_of_accuracy(
    alone: Array, together: Array, labels: NDArray[Any], groups: NDArray[Any] | None
) -> tuple[float, float] | None:
    right = [each.argmax(axis=1) == labels for each in (alone, together)]
    return paired_shares(right[0], right[1], groups)


def _gain_of_auroc(
    alone: Array, together: Array, labels: NDArray[Any], groups: NDArray[Any] | None
) -> tuple[float, float] | None:
    scores = [probabilities_of(each) for each in (alone, together)]
    if labels.ndim > 1 or scores[0] is None or scores[1] is None:
        return None
    return paired_aurocs(scores[0], scores[1], labels, groups)


def _gain_of_r2(
    alone: Array, together: Array, labels: NDArray[Any], groups: NDArray[Any] | None
) -> tuple[float, float] | None:
    spread = np.square(labels - labels.mean(axis=0)).sum() / len(labels)
    errors = [np.square(each - labels).sum(axis=1) for each in (alone, together)]
    return paired_interval((errors[0] - errors[1]) / spread, groups) if spread > 0 else None


GAINS: Mapping[str, Callable[[Array, Array, Any, NDArray[Any] | None], tuple[float, float] | None]] = {
    "accuracy": _gain_of_accuracy,
    "auroc": _gain_of_auroc,
    "r2": _gain_of_r2,
    "c-index": gain_of_c,
}
"""By metric, the 95% interval of its difference on the same rows; None if there is none."""


def fit_site_head(client: DomainClient, request: TrainRequest, question: FitSiteHead) -> TrainReply:
    """Fit a linear layer for this site alone, and keep it; the reply has the received model.

    The site subtracts its own sums, as sent, from the total. Metrics are on its own test set or, without
    one, by leave-one-out on its labels. A client that `hides` them has the same answer if it has no head.
    """
    answer: dict[str, Any] = {}
    try:
        answer = _kept_head(client, request, question)
    except Exception as error:  # of any kind
        if not client.hides:
            raise
        log(ERROR, "'%s' keeps no head", client.domain.name, exc_info=error)
    numbers = {} if client.hides else answer
    return unchanged(client, request, SiteFitted(kept=client.publish is not None, **numbers))


def _kept_head(client: DomainClient, request: TrainRequest, question: FitSiteHead) -> dict[str, Any]:
    """Fit a site's head and keep it; return the metrics that the server asks for."""
    model = client.received(request)
    own = rows_of(client, request, question.unlabelled)
    open_sums = own.sums(own.outcomes is not None)
    sent = [as_masked(sums) if question.masked else sums.rounded() for sums in open_sums]
    totals = [
        type(sent[0]).from_arrays(total, width + 1, shape_of_head(model)[0])
        for total, width in zip(by_kind(question.total), own.widths, strict=True)
    ]
    metric = question.metric or metric_names(client.domain.train.task)[0]
    fitted = fit_site(own, totals, sent, question.paths, metric)
    model_of_site = Single(fitted.in_model(model))
    client.announce(model_of_site, request.config, fitted.calibration(own))
    if question.report == "none":
        return {}
    return _metrics_at_site(client, request, model_of_site, fitted, own, metric)


def _fewest_cases(samples: Samples, metric: str) -> dict[str, int]:
    """Return the number of samples, or patients, of the rarest class, if each counts alike in the metric."""
    if samples.task != "classes" or not METRICS[metric].over_classes:
        return {}
    y = samples.y
    cases = Units.of(len(y), samples.groups).of_class(y)
    return {"fewest_cases": int(cases[cases > 0].min())}


def _metrics_at_site(
    client: DomainClient, request: TrainRequest, whole: Single, fitted: TargetHead, own: Labelled, metric: str
) -> dict[str, Any]:
    """Return the metrics of a site's answer."""
    names = ("share", "held_out", "held_out_half") if "held_out_half" in fitted.numbers else ("share",)
    test, known = client.domain.test, {name: fitted.numbers.get(name) for name in names}
    known |= _fewest_cases(test if len(test) else client.domain.train, metric)
    if not len(test):
        held_out, judge = fitted.held_out, client.judge_of(client.domain.train)
        judged = compare(judge, metric, **held_out, labels=own.truth, groups=own.groups) if held_out else {}
        return {**known, **judged}
    passes = client.passes(request.config)
    outputs = whole.outputs(passes)
    metrics = {
        name: value for name, value in client.metrics_of(outputs, test).items() if math.isfinite(value)
    }
    answer = {**known, "test": metrics, "test_examples": len(test)}
    if fitted.alone is None:
        return {**answer, "with_others": metrics.get(metric)}
    alone = Single(placed(client.received(request), fitted.alone)).outputs(passes)
    without, together = (each.astype(np.float64) for each in (alone, outputs))
    return {
        **answer,
        **compare(client.judge_of(test), metric, without, together, test.truth, test.groups),
    }
