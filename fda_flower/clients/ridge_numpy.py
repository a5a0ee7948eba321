"""The computations of Ridge's clients on rows and labels, and their replies, with NumPy only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fda_flower.aggregation import (
    Calibration,
    CentredRows,
    Heads,
    Kind,
    KindsFit,
    Layers,
    Outcomes,
    Paths,
    PrivateSums,
    Sums,
    by_kind,
    change_of_patient,
    fit_kinds,
    fit_logistic,
    fit_temperature,
    joined_head,
    split_rows,
    to_targets,
    with_head,
    with_kinds,
)
from fda_flower.aggregation.halves import outputs_of_half, random_halves
from fda_flower.aggregation.labels import factor_for, targets_of_labels
from fda_flower.aggregation.mixture import log_softmax
from fda_flower.aggregation.ridge import temperatures_without
from fda_flower.aggregation.sums import unpack
from fda_flower.aggregation.units import Units
from fda_flower.clients.ridge_slopes import fit_from_slopes
from fda_flower.errors import invalid
from fda_flower.metrics import Judge, measure, metric_names
from fda_flower.names.tasks import TASKS, Task
from fda_flower.wire import protocol
from fda_flower.wire.asked.ridge import FitHead, HeadFitted
from fda_flower.wire.protocol import TrainRequest, to_layers

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Labelled:
    """A node's samples as Ridge reads them.

    Attributes
    ----------
    rows : array
        Shape ``(n, d)``; see `fda_flower.aggregation.to_rows`. With several kinds of rows they are one after
        the other, and the 1 is at the end.
    labels : array
        Classes, integers of shape ``(n,)``, or numbers or several labels, 0 or 1, ``(n, C)``.
    classes : int or None
        The number of classes; None for other labels.
    widths : sequence of int
        The number of features of each kind.
    groups : array, optional
        The patient of each row, shape ``(n,)``; by default, every row is a different patient.
    unlabelled : array, optional
        Rows of the samples without labels, shape ``(m, d)``.
    unlabelled_groups : array, optional
        The patient of each of these, as in `groups`, shape ``(m,)``.
    judge : callable, optional
        Returns the metrics of outputs for the rows; by default `fda_flower.metrics.measure`.
    what : str, optional
        The `task`; by default classes, or else a regression.
    outcomes : Outcomes, optional
        What happened to the patients, if these are followed; `labels` follow from it.
    seed : int
        Of the random halves of the labels.
    """

    rows: Array
    labels: NDArray[Any]
    classes: int | None
    widths: Sequence[int]
    groups: NDArray[Any] | None = None
    unlabelled: Array | None = None
    unlabelled_groups: NDArray[Any] | None = None
    judge: "Judge | None" = None
    what: Task | None = None
    outcomes: Outcomes | None = None
    seed: int = 0

    @property
    def task(self) -> Task:
        """What the labels are."""
        return self.what or ("regression" if self.classes is None else "classes")

    def score(self, outputs: Array, metric: str) -> float:
        """Return a metric of outputs for the rows; not finite where there is none."""
        measured = self.judge(outputs) if self.judge else measure(outputs, self.labels, self.task)
        return measured.get(metric, np.nan)

    @property
    def truth(self) -> Any:
        """What outputs are compared with: the outcomes if there are any, else the labels."""
        return self.labels if self.outcomes is None else self.outcomes

    @property
    def units(self) -> Units:
        """Which rows are of one patient."""
        return Units.of(len(self.rows), self.groups)

    @property
    def fewest_labels(self) -> int:
        """The number of patients of the rarest class that there is."""
        return int(self.units.of_class(self.labels)[np.unique(self.labels)].min())

    @property
    def kinds(self) -> list[Array]:
        """The rows of each kind."""
        return split_rows(self.rows, self.widths)

    @property
    def targets(self) -> Array:
        """``Y``, shape ``(n, C)``; see `to_targets` of classes, and `targets_of_labels` of several labels."""
        if self.task == "multilabel":
            return targets_of_labels(self.labels)
        if self.classes is None:
            return np.asarray(self.labels, np.float64)
        return to_targets(self.labels, self.classes)

    def sums(self, centred: bool = False) -> list[Sums]:
        """Return the sums over the rows of each kind, `centred` as `CentredRows` are or not."""
        kind = CentredRows if centred else Sums
        return [kind.of(rows, self.targets) for rows in self.kinds]


@dataclass(frozen=True)
class TargetHead:
    """A target's fitted head, and the `numbers` of its answer.

    `head` and `alone` have shape ``(d, C)``: with the sources and, given enough labels, without them. Then
    `held_out` has the outputs for each row without its patient, shape ``(n, C)``: `together`, and `alone`.
    With classes, and several rows of a patient, `temperatures` are those of the others, shape ``(n, 1)``.
    """

    head: Array
    numbers: dict[str, Any]
    alone: Array | None = None
    held_out: Mapping[str, Array] = field(default_factory=dict)
    temperatures: Array | None = None

    def in_model(self, model: Layers) -> dict[str, NDArray[Any]]:
        """Return a model whose linear layer is this head."""
        return placed(model, self.head)

    def calibration(self, own: Labelled) -> Calibration | None:
        """Return the scores of the labels, by the outputs without each patient.

        None with too few labels, for several labels of a row, or if patients are followed, of whom not all
        labels are known.
        """
        if not self.held_out or own.outcomes is not None or own.task == "multilabel":
            return None
        outputs = self.held_out["together"]
        if self.temperatures is not None:
            outputs = np.exp(log_softmax(self.temperatures * outputs))
        elif own.labels.dtype.kind != "f":
            outputs = np.exp(log_softmax(outputs, 1 / self.numbers["temperature"]))
        return Calibration.of(outputs, own.labels, own.groups)

    def answer(self) -> HeadFitted:
        """Return the answer to `FitHead`."""
        return HeadFitted(**self.numbers)


def placed(model: Layers, head: Array) -> dict[str, NDArray[Any]]:
    """Return a model whose linear layer is a head of shape ``(d, C)``."""
    return with_head(model, head[:-1].T, head[-1])


def fit_target(own: Labelled, question: FitHead) -> TargetHead:
    """Fit a target's head to its rows, starting from what the sources have.

    Outputs are in the unit of the labels; for classes they are scaled so that their softmax is calibrated.
    """
    if not question.unlabelled:
        own = replace(own, unlabelled=None)
    return fit_from(own, by_kind(question.start), question.paths, question.metric)


def fit_from(own: Labelled, starts: Sequence[Layers], paths: Heads, metric: str | None = None) -> TargetHead:
    """Fit a head from the `starts` of the sources' sums, of each kind of rows; see `Sums.start`.

    The numbers on held-out labels are the run's `metric`, by default the task's first.

    Raises a `ConfigError` if it would be logistic, but labels are numbers.
    """
    metric = metric or metric_names(own.task)[0]
    if paths == "logistic":
        return _logistic(own, starts, metric)
    if own.outcomes is None:
        return _squared(own, starts, paths, metric)
    return _sloped(own, own.outcomes, starts[0], paths, metric)


RANKS = ("auroc", "auprc")
"""Metrics that compare outputs of rows, each by a head without it: the heads' levels are taken out."""


def _held_out(own: Labelled, metric: str, **outputs: Array) -> dict[str, Any]:
    """Return the metric of each outputs for held-out labels, as far as there is one."""
    scores = {name: own.score(values, metric) for name, values in outputs.items()}
    return {name: value for name, value in scores.items() if np.isfinite(value)}


def _half(
    own: Labelled, metric: str, kinds: Sequence[Kind], heads: Heads, mean: Array, deviation: Array
) -> dict[str, float]:
    """Return the metric of what halves of the labels predict for the others; empty if it is unknown.

    `mean` and `deviation` are the ones by which a regression's labels are scaled.
    """
    halves = random_halves(own.units, heads, own.seed)
    if not halves or own.task not in ("classes", "regression"):
        return {}
    labels = None if own.classes is None else own.labels
    targets = (own.targets - mean) / deviation
    outputs = [
        outputs_of_half(half, kinds, targets, labels, heads, own.groups) * deviation + mean for half in halves
    ]
    left_out = [own.labels[~half] for half in halves]
    if metric not in RANKS:
        outputs, left_out = [np.concatenate(outputs)], [np.concatenate(left_out)]
    pairs = zip(outputs, left_out, strict=True)
    values = [measure(*pair, own.task).get(metric, np.nan) for pair in pairs]
    finite = [value for value in values if np.isfinite(value)]
    return {"held_out_half": float(np.mean(finite))} if finite else {}


def _logistic(own: Labelled, starts: Sequence[Layers], metric: str) -> TargetHead:
    """Return the average of logistic heads, whose softmax needs no scale."""
    if own.classes is None:
        why = f"but this target's labels are {TASKS[own.task]}, not classes"
        raise invalid("paths", "logistic", "leave it out", why)
    kinds, labels = _kinds_of(own, starts), own.labels
    fit = fit_logistic(kinds, labels, own.groups)
    sources = np.sum([kind.rows @ kind.solution for kind in kinds], axis=0)
    left_out = (fit.ranked, fit.ranked_alone) if metric in RANKS else (fit.held_out, fit.held_out_alone)
    outputs = {"held_out": left_out[0], "held_out_target": left_out[1], "held_out_sources": sources}
    numbers: dict[str, Any] = {
        **_held_out(own, metric, **outputs),
        **_half(own, metric, kinds, "logistic", np.zeros(1), np.ones(1)),
        "fewest_labels": own.fewest_labels,
        "temperature": 1.0,
        "share": fit.share,
        "weights": fit.weights,
    }
    if len(kinds) > 1:
        numbers["kinds"] = tuple(fit.shares.sum(axis=1).tolist())
    head, alone = (joined_head(each, own.widths) for each in (fit.heads, fit.alone))
    return TargetHead(head, numbers, alone, {"alone": fit.held_out_alone, "together": fit.held_out})


def _squared(own: Labelled, starts: Sequence[Layers], paths: Paths, metric: str) -> TargetHead:
    """Return the average of ridge regressions, in the labels' unit or with a temperature."""
    labels, regression, units = own.labels, own.task == "regression", own.units
    mean, deviation = starts[0].get("mean", np.zeros(1)), starts[0].get("deviation", np.ones(1))
    targets, classes = (own.targets - mean) / deviation, None if regression else labels
    kinds = _kinds_of(own, starts)
    patients = own.groups, own.unlabelled_groups
    fit = fit_kinds(kinds, targets, classes, paths, *patients)
    alone, sources = (fit_kinds(kinds, targets, classes, side, *patients) for side in ("target", "sources"))
    several = own.task == "multilabel"
    fits = {"held_out": fit, "held_out_target": alone, "held_out_sources": sources}
    outputs = {name: each.held_out * deviation + mean for name, each in fits.items()}
    ranks = metric in RANKS and fit.unlabelled is None
    judged = {name: each.ranked(kinds, units) for name, each in fits.items()} if ranks else outputs
    factors = {
        name: 1.0 if regression else fit_temperature(each.held_out, labels, each.usual, units)
        for name, each in fits.items()
    }
    logits = factor_for(several)
    calibrated = {name: logits * factors[name] * values for name, values in judged.items()}
    numbers = _held_out(own, metric, **calibrated) | _half(own, metric, kinds, paths, mean, deviation)
    numbers |= {"temperature": 1.0, **_numbers(fit)}
    temperatures = None
    if not regression:
        numbers["temperature"] = factors["held_out"]
        numbers |= {} if several else {"fewest_labels": own.fewest_labels}
        if not units.single:
            temperatures = temperatures_without(fit.held_out, labels, fit.usual, units)
    if fit.unlabelled is not None:
        numbers |= {"unlabelled": len(kinds[0].unlabelled), "unlabelled_share": fit.unlabelled}
    scale = numbers["temperature"] * logits * deviation
    heads = [scale * joined_head(each.heads, own.widths) for each in (fit, alone)]
    for head in heads:
        head[-1] += mean
    known = judged if several else outputs  # of classes they are probabilities, from which sets follow
    held_out = {"alone": known["held_out_target"], "together": known["held_out"]}
    return TargetHead(heads[0], numbers, heads[1], held_out, temperatures)


def _sloped(own: Labelled, outcomes: Outcomes, start: Layers, paths: Paths, metric: str) -> TargetHead:
    """Return the average of heads near the sources, for patients who are followed."""
    fits, numbers = fit_from_slopes(own.rows, own.targets, outcomes, start, paths)
    held_out = {name: fit.held_out for name, fit in fits.items()}
    numbers |= _held_out(own, metric, **held_out)
    head, alone = fits["held_out"].head, fits.get("held_out_target")
    if alone is None:
        return TargetHead(head, numbers)
    sides = {"alone": alone.held_out, "together": held_out["held_out"]}
    return TargetHead(head, numbers, alone.head, sides)


def _kinds_of(own: Labelled, starts: Sequence[Layers]) -> list[Kind]:
    """Return the kinds of rows that the sources have sums of."""
    rest = np.zeros((0, own.rows.shape[1])) if own.unlabelled is None else own.unlabelled
    rows = zip(own.kinds, split_rows(rest, own.widths), strict=True)
    return [
        Kind(
            labelled,
            start["solution"],
            unpack(start["gram"]) if "gram" in start else None,
            unlabelled,
        )
        for (labelled, unlabelled), start in zip(rows, starts, strict=False)
    ]


def _numbers(fit: KindsFit) -> dict[str, Any]:
    """Return the weights of the heads, and the share of the sources in them: means over kinds of rows."""
    weights, numbers = dict[str, float](), dict[str, Any]()
    pairs = list(zip(fit.shares.tolist(), fit.fits, strict=True))
    for kind, each in pairs:
        for head, weight in zip(each.heads, each.weights.tolist(), strict=True):
            weights[head.name] = weights.get(head.name, 0.0) + kind * weight
    shares = [kind * each.share for kind, each in pairs if each.share is not None]
    numbers |= {"share": float(sum(shares))} if shares else {}
    weighed = [(kind, each.source_weight) for kind, each in pairs if each.source_weight is not None]
    if weighed:
        logarithms = [kind * np.log(weight) for kind, weight in weighed]
        numbers["source_weight"] = float(np.exp(sum(logarithms)))
    if len(pairs) > 1:
        numbers["kinds"] = tuple(fit.shares.tolist())
    return {**numbers, "weights": weights}


def source_sums(request: TrainRequest, own: Labelled, centred: bool = False) -> dict[str, NDArray[Any]]:
    """Return a source's sums to send; if its site protects patients, with one patient's largest change.

    They are `centred` as `CentredRows` are, or not.
    Such a site sends the sums over the first kind of rows alone: two releases would need more noise.
    """
    given = request.records.get(protocol.MEAN_NOISE)
    if own.classes is None or not isinstance(given, ArrayRecord):
        return with_kinds([sums.to_arrays() for sums in own.sums(centred)])
    noise = to_layers(given)["noise"]
    sums = PrivateSums.of(own.kinds[0], own.targets, own.groups, noise)
    return {**sums.to_arrays(np.float64), protocol.CHANGE: np.array(change_of_patient(own.classes))}
