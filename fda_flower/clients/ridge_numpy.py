"""The computations of Ridge's clients on rows and labels, and their replies, with NumPy only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
from numpy.typing import NDArray

from fda_flower.aggregation import (
    LEAST_LABELS,
    Columns,
    Layers,
    Paths,
    PrivateSums,
    RidgeFit,
    Sums,
    change_of_patient,
    fit_ridge,
    fit_temperature,
    move,
    to_targets,
    with_head,
)
from fda_flower.aggregation.ridge import paths_of, unpack
from fda_flower.clients.own_state import OwnState
from fda_flower.clients.secure_sums import SecureSums
from fda_flower.errors import ConfigError
from fda_flower.metrics import measure, paired_interval, paired_shares
from fda_flower.wire import methods as wire
from fda_flower.wire import protocol
from fda_flower.wire.protocol import TrainReply, TrainRequest, read_request, to_layers
from fda_flower.wire.secure_sums import SECURE

SMALLEST = 1e-6
"""Smallest sum of squared labels that fixed point represents well enough."""

Array = NDArray[np.float64]
Records = dict[str, Layers]
Samples = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]
"""Rows, labels, and the patient of each row; None if each row is another patient."""


@dataclass(frozen=True)
class TargetHead:
    """A target's fitted head, and the metrics of its reply.

    `head` and `alone` have shape ``(d, C)``: with the sources and, given enough labels, without them. Then
    `held_out` has the leave-one-out outputs of both for each row, shape ``(n, C)``.
    """

    head: Array
    metrics: dict[str, float]
    alone: Array | None = None
    held_out: Mapping[str, Array] = field(default_factory=dict)

    def moved(self, matrix: Array) -> "TargetHead":
        """Return the head for rows ``x``, if this one is for rows ``x T``."""
        alone = None if self.alone is None else matrix @ self.alone
        return replace(self, head=matrix @ self.head, alone=alone)

    def in_model(self, model: Layers) -> dict[str, NDArray[Any]]:
        """Return a model whose linear layer is this head."""
        return placed(model, self.head)


def placed(model: Layers, head: Array) -> dict[str, NDArray[Any]]:
    """Return a model whose linear layer is a head of shape ``(d, C)``."""
    return with_head(model, head[:-1].T, head[-1])


def fit_target(rows: NDArray[Any], labels: NDArray[Any], sent: Layers, paths: Paths) -> TargetHead:
    """Fit a target's head to its rows, shape ``(n, d)``, and to the arrays `sent` from the sources.

    `labels` are classes, integers of shape ``(n,)``, or numbers of shape ``(n, C)``. Outputs are in the unit
    of the labels; for classes they are scaled so that their softmax is calibrated.
    """
    solution, numbers = sent[wire.SOLUTION], labels.dtype.kind == "f"
    targets = np.asarray(labels, np.float64) if numbers else to_targets(labels, solution.shape[-1])
    mean, deviation = sent.get("mean", np.zeros(1)), sent.get("deviation", np.ones(1))
    others = {n.partition(".")[2]: a for n, a in sent.items() if n.startswith(f"{wire.SOLUTION}.")}
    fitting = partial(fit_ridge, rows, (targets - mean) / deviation, solution)
    gram = unpack(sent["gram"]) if "gram" in sent else None
    fit, alone = fitting(gram, list(others.values()), paths), fitting(paths="target")
    sources = rows @ fitting(paths="sources").head
    outputs = {wire.HELD_OUT: fit.held_out, wire.TARGET_ALONE: alone.held_out, wire.SOURCES_ALONE: sources}
    outputs = {name: found * deviation + mean for name, found in outputs.items()}
    judged = {name: _figure(found, labels) for name, found in outputs.items()}
    metrics = {name: figure for name, figure in judged.items() if np.isfinite(figure)}
    metrics |= {wire.TEMPERATURE: 1.0, **_numbers(fit, list(others))}
    if not numbers:
        metrics[wire.TEMPERATURE] = fit_temperature(fit.held_out, labels)
        metrics[wire.FEWEST] = int(np.unique(labels, return_counts=True)[1].min())
    heads = [metrics[wire.TEMPERATURE] * deviation * each.head for each in (fit, alone)]
    for head in heads:
        head[-1] += mean
    held_out = {wire.TOGETHER: outputs[wire.HELD_OUT], wire.ALONE: outputs[wire.TARGET_ALONE]}
    return TargetHead(heads[0], metrics, heads[1], held_out)


def fit_site(
    rows: NDArray[Any],
    labels: NDArray[Any],
    total: Sums,
    own: Sums,
    paths: Paths,
    columns: tuple[Columns, Columns] | None = None,
) -> TargetHead:
    """Fit a site's head, if every site is a target, from the total of all sites minus its own sums.

    With too few labels for leave-one-out, it is the others' head. `own` are the sums that this site has sent.
    `columns` are this site's own, which `rows` and `own` have, and the ones that `total` has; the head is
    fitted in the columns of the other sites.

    Raises a `ValueError` if `total` includes no other site, or the difference cannot come from rows.
    """
    others = total - (move(own, columns[0].into(columns[1])) if columns else own)
    if others.rows < 1:
        raise ValueError("the sums of all sites have no row of another site")
    if columns:
        rest = Columns.pooled([(columns[1], others)])
        matrix = columns[0].into(rest)
        return _fit_to(rows @ matrix, labels, move(others, columns[1].into(rest)), paths).moved(matrix)
    return _fit_to(rows, labels, others, paths)


def _fit_to(rows: NDArray[Any], labels: NDArray[Any], others: Sums, paths: Paths) -> TargetHead:
    scaled = labels.dtype.kind == "f"
    if len(rows) < LEAST_LABELS:
        return TargetHead(others.head(scaled), {wire.SHARE: 1.0})
    return fit_target(rows, labels, others.start("pooled" in paths_of(paths), scaled), paths)


def compare(alone: Array, together: Array, labels: NDArray[Any]) -> dict[str, float]:
    """Return the figures of two heads' outputs on some rows, and the 95% interval of the difference.

    These are accuracies or, for numbers, R²; with a single row or constant labels there is no interval.
    """
    numbers = labels.dtype.kind == "f"
    found = {name: _figure(each, labels) for name, each in ((wire.ALONE, alone), (wire.TOGETHER, together))}
    if numbers:
        spread = np.square(labels - labels.mean(axis=0)).sum() / len(labels)
        errors = [np.square(each - labels).sum(axis=1) for each in (alone, together)]
        ends = paired_interval((errors[0] - errors[1]) / spread) if spread > 0 else None
    else:
        right = [each.argmax(axis=1) == labels for each in (alone, together)]
        ends = paired_shares(right[0], right[1])
    found |= {} if ends is None else {wire.LOW: ends[0], wire.HIGH: ends[1]}
    return {name: value for name, value in found.items() if np.isfinite(value)}


def _numbers(fit: RidgeFit, domains: Sequence[str]) -> dict[str, float]:
    """Return the weights of the heads, and the share of the sources in them."""
    numbers = dict[str, float]()
    for head, weight in zip(fit.heads, fit.weights.tolist(), strict=True):
        name = f"{wire.WEIGHT}.{head.path}-{head.strength:g}"
        numbers[name] = numbers.get(name, 0.0) + weight
    if fit.shares.size:
        numbers[wire.SHARE] = float(fit.shares[0])
        shares = zip(domains, fit.shares[1:].tolist(), strict=True)
        numbers |= {f"{wire.SHARE}.{domain}": share for domain, share in shares}
    if fit.source_weight is not None:
        numbers[wire.SOURCE_WEIGHT] = fit.source_weight
    return numbers


def _figure(outputs: Array, labels: NDArray[Any]) -> float:
    regression = labels.dtype.kind == "f"
    found = measure(outputs, labels, regression=regression)
    return found.get("r2" if regression else "accuracy", np.nan)


def open_sums(rows: NDArray[Any], labels: NDArray[Any], classes: int | None) -> Sums:
    """Return the sums over rows; labels without `classes` are numbers."""
    return Sums.of(rows, np.asarray(labels, np.float64) if classes is None else to_targets(labels, classes))


def source_sums(request: TrainRequest, samples: Samples, classes: int | None) -> dict[str, NDArray[Any]]:
    """Return a source's record of sums; if its site protects patients, with one patient's largest change."""
    rows, labels, groups = samples
    given = request.records.get(protocol.MEAN_NOISE)
    if classes is None or not isinstance(given, ArrayRecord):
        return open_sums(rows, labels, classes).to_arrays()
    noise = to_layers(given)["noise"]
    sums = PrivateSums.of(rows, to_targets(labels, classes), groups, noise)
    return {**sums.to_arrays(np.float64), protocol.CHANGE: np.array(change_of_patient(classes))}


def ridge_reply(
    message: Message,
    rows: NDArray[Any],
    labels: NDArray[Any],
    classes: int | None = None,
    state: RecordDict | None = None,
    groups: NDArray[Any] | None = None,
) -> Message:
    """Answer a train message of `fda_flower.strategies.Ridge` in your own project.

    Parameters
    ----------
    message : Message
        Its model is the weights of a linear layer, shape ``(C, features)``, and its bias.
    rows : array
        The node's labelled samples, shape ``(n, features + 1)``; see `fda_flower.aggregation.to_rows`.
    labels : array
        Classes from 0 on, shape ``(n,)``, or numbers, shape ``(n,)`` or ``(n, C)``.
    classes : int, optional
        The number of classes. Default: the labels are numbers.
    state : RecordDict, optional
        The ``state`` of Flower's context, needed by ``Ridge(secure=True)``.
    groups : array, optional
        The patient of each row, shape ``(n,)``, for a site whose ``dp-unit`` is ``patient``. Default: every
        row is a different patient.

    Returns
    -------
    Message
        From a source the sums, masked on request; from the target its fitted layer.

    Raises
    ------
    ConfigError
        If the message requests masked sums, but there is no `state`; or if every site is a target
        (``RidgeEverySite``), which means that each keeps its own layer.
    """
    request = read_request(message.content)
    if wire.TOTAL in request.records:
        why = "every site is a target and keeps a layer of its own, which ridge_reply does not"
        remedy = "serve it with fda_flower.clients.RidgeSite, or name one target: Ridge(target=...)"
        raise ConfigError(why, thing="target", value="all", remedy=remedy)
    if classes is None:
        labels = np.asarray(labels, np.float64).reshape(len(rows), -1)
    else:
        labels = np.asarray(labels, np.int64)
    own_state = None if state is None else OwnState(state)
    reply = _reply(request, (rows, labels, groups), classes, own_state)
    return Message(reply.content(request.arrays), reply_to=message)


def source_records(
    request: TrainRequest, own_state: OwnState | None, samples: Callable[[], Samples], classes: int | None
) -> Records:
    """Return the records of a source's reply: its sums, open or masked as requested."""
    if SECURE not in request.config:
        return {protocol.SUMS: source_sums(request, samples(), classes)}
    if own_state is None:
        remedy = "give ridge_reply the context's state"
        raise ConfigError("the server asks for masked sums", thing="state", value=None, remedy=remedy)
    return SecureSums(own_state).answer(request, lambda: _to_mask(open_sums(*samples()[:2], classes)))


def _to_mask(sums: Sums) -> Array:
    """Return the numbers to mask; raise a `ConfigError` if labels are too small for fixed point."""
    smallest = float(sums.squares.min(initial=1.0, where=sums.squares > 0))
    if smallest < SMALLEST:
        why = f"the squares of its labels sum to {smallest:g}, but masked sums need at least {SMALLEST:g}"
        raise ConfigError(why, thing="labels", value=smallest, remedy="give labels in a smaller unit")
    return sums.vector


def _reply(
    request: TrainRequest,
    samples: Samples,
    classes: int | None,
    own_state: OwnState | None,
) -> TrainReply:
    model, (rows, labels, _) = to_layers(request.arrays), samples
    if wire.SOURCES not in request.records:
        records = source_records(request, own_state, lambda: samples, classes)
        return TrainReply(model, len(rows), {}, records)
    sent = to_layers(request.records[wire.SOURCES])  # type: ignore[arg-type]
    fitted = fit_target(rows, labels, sent, request.config[wire.PATHS])
    return TrainReply(fitted.in_model(model), len(rows), fitted.metrics)
