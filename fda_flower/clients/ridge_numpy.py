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
    Calibration,
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
from fda_flower.aggregation.mixture import log_softmax
from fda_flower.aggregation.ridge import paths_of, unpack
from fda_flower.clients.own_state import OwnState
from fda_flower.clients.secure_sums import SecureSums
from fda_flower.errors import ConfigError
from fda_flower.metrics import measure, paired_interval, paired_shares
from fda_flower.wire import protocol
from fda_flower.wire.protocol import TrainReply, TrainRequest, read_request, to_layers
from fda_flower.wire.questions import QUESTIONS, FitHead, HeadFitted, Masked, MaskSums, Summed, SumRows
from fda_flower.wire.secure_sums import decode, encode

SMALLEST = 1e-6
"""Smallest sum of squared labels that fixed point represents well enough."""

Array = NDArray[np.float64]
Samples = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]
"""Rows, labels, and the patient of each row; None if each row is another patient."""


@dataclass(frozen=True)
class TargetHead:
    """A target's fitted head, and the `numbers` of its answer.

    `head` and `alone` have shape ``(d, C)``: with the sources and, given enough labels, without them. Then
    `held_out` has the leave-one-out outputs for each row, shape ``(n, C)``: `together`, and `alone`.
    """

    head: Array
    numbers: dict[str, Any]
    alone: Array | None = None
    held_out: Mapping[str, Array] = field(default_factory=dict)

    def moved(self, matrix: Array) -> "TargetHead":
        """Return the head for rows ``x``, if this one is for rows ``x T``."""
        alone = None if self.alone is None else matrix @ self.alone
        return replace(self, head=matrix @ self.head, alone=alone)

    def in_model(self, model: Layers) -> dict[str, NDArray[Any]]:
        """Return a model whose linear layer is this head."""
        return placed(model, self.head)

    def calibration(self, labels: NDArray[Any]) -> Calibration | None:
        """Return the scores of the labels, by the leave-one-out outputs; None with too few labels."""
        if not self.held_out:
            return None
        outputs = self.held_out["together"]
        if labels.dtype.kind != "f":
            outputs = np.exp(log_softmax(outputs, 1 / self.numbers["temperature"]))
        return Calibration.of(outputs, labels)

    def answer(self) -> HeadFitted:
        """Return the answer to `FitHead`."""
        return HeadFitted(**self.numbers)


def placed(model: Layers, head: Array) -> dict[str, NDArray[Any]]:
    """Return a model whose linear layer is a head of shape ``(d, C)``."""
    return with_head(model, head[:-1].T, head[-1])


def fit_target(rows: NDArray[Any], labels: NDArray[Any], question: FitHead) -> TargetHead:
    """Fit a target's head to its rows, shape ``(n, d)``, starting from what the sources have.

    `labels` are classes, integers of shape ``(n,)``, or numbers of shape ``(n, C)``. Outputs are in the unit
    of the labels; for classes they are scaled so that their softmax is calibrated.
    """
    return _fit(rows, labels, question.start, question.paths, question.solutions or {})


def _fit(rows: NDArray[Any], labels: NDArray[Any], start: Layers, paths: Paths, others: Layers) -> TargetHead:
    solution, regression = start["solution"], labels.dtype.kind == "f"
    targets = np.asarray(labels, np.float64) if regression else to_targets(labels, solution.shape[-1])
    mean, deviation = start.get("mean", np.zeros(1)), start.get("deviation", np.ones(1))
    fitting = partial(fit_ridge, rows, (targets - mean) / deviation, solution)
    gram = unpack(start["gram"]) if "gram" in start else None
    fit, alone = fitting(gram, list(others.values()), paths), fitting(paths="target")
    sources = rows @ fitting(paths="sources").head
    outputs = {"held_out": fit.held_out, "held_out_target": alone.held_out, "held_out_sources": sources}
    outputs = {name: values * deviation + mean for name, values in outputs.items()}
    judged = {name: _figure(values, labels) for name, values in outputs.items()}
    numbers: dict[str, Any] = {name: figure for name, figure in judged.items() if np.isfinite(figure)}
    numbers |= {"temperature": 1.0, **_numbers(fit, list(others))}
    if not regression:
        numbers["temperature"] = fit_temperature(fit.held_out, labels)
        numbers["fewest_labels"] = int(np.unique(labels, return_counts=True)[1].min())
    heads = [numbers["temperature"] * deviation * each.head for each in (fit, alone)]
    for head in heads:
        head[-1] += mean
    held_out = {"alone": outputs["held_out_target"], "together": outputs["held_out"]}
    return TargetHead(heads[0], numbers, heads[1], held_out)


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
        return TargetHead(others.head(scaled), {"share": 1.0})
    return _fit(rows, labels, others.start("pooled" in paths_of(paths), scaled), paths, {})


def compare(alone: Array, together: Array, labels: NDArray[Any]) -> dict[str, float]:
    """Return the figures of two heads' outputs on some rows, and the 95% interval of the difference.

    These are accuracies or, for numbers, R²; with a single row or constant labels there is no interval.
    """
    figures = {"alone": _figure(alone, labels), "with_others": _figure(together, labels)}
    if labels.dtype.kind == "f":
        spread = np.square(labels - labels.mean(axis=0)).sum() / len(labels)
        errors = [np.square(each - labels).sum(axis=1) for each in (alone, together)]
        ends = paired_interval((errors[0] - errors[1]) / spread) if spread > 0 else None
    else:
        right = [each.argmax(axis=1) == labels for each in (alone, together)]
        ends = paired_shares(right[0], right[1])
    figures |= {} if ends is None else {"gain_low": ends[0], "gain_high": ends[1]}
    return {name: value for name, value in figures.items() if np.isfinite(value)}


def _numbers(fit: RidgeFit, domains: Sequence[str]) -> dict[str, Any]:
    """Return the weights of the heads, and the share of the sources in them."""
    weights, numbers = dict[str, float](), dict[str, Any]()
    for head, weight in zip(fit.heads, fit.weights.tolist(), strict=True):
        name = f"{head.path}-{head.strength:g}"
        weights[name] = weights.get(name, 0.0) + weight
    if fit.shares.size:
        numbers["share"] = float(fit.shares[0])
        shares = dict(zip(domains, fit.shares[1:].tolist(), strict=True))
        numbers |= {"shares": shares} if shares else {}
    if fit.source_weight is not None:
        numbers["source_weight"] = fit.source_weight
    return {**numbers, "weights": weights}


def _figure(outputs: Array, labels: NDArray[Any]) -> float:
    regression = labels.dtype.kind == "f"
    metrics = measure(outputs, labels, regression=regression)
    return metrics.get("r2" if regression else "accuracy", np.nan)


def open_sums(rows: NDArray[Any], labels: NDArray[Any], classes: int | None) -> Sums:
    """Return the sums over rows; labels without `classes` are numbers."""
    return Sums.of(rows, np.asarray(labels, np.float64) if classes is None else to_targets(labels, classes))


def source_sums(request: TrainRequest, samples: Samples, classes: int | None) -> dict[str, NDArray[Any]]:
    """Return a source's sums to send; if its site protects patients, with one patient's largest change."""
    rows, labels, groups = samples
    given = request.records.get(protocol.MEAN_NOISE)
    if classes is None or not isinstance(given, ArrayRecord):
        return open_sums(rows, labels, classes).to_arrays()
    noise = to_layers(given)["noise"]
    sums = PrivateSums.of(rows, to_targets(labels, classes), groups, noise)
    return {**sums.to_arrays(np.float64), protocol.CHANGE: np.array(change_of_patient(classes))}


def masked_sums(
    request: TrainRequest, question: MaskSums, own_state: OwnState | None, sums: Callable[[], Sums]
) -> Masked:
    """Answer a stage of masked sums; `sums` are computed when needed."""
    if own_state is None:
        remedy = "give ridge_reply the context's state"
        raise ConfigError("the server asks for masked sums", thing="state", value=None, remedy=remedy)
    server_round = int(request.config[protocol.SERVER_ROUND])
    return SecureSums(own_state).answer(question, server_round, lambda: _to_mask(sums()))


def _to_mask(sums: Sums) -> Array:
    """Return the numbers to mask; raise a `ConfigError` if labels are too small for fixed point."""
    smallest = float(sums.squares.min(initial=1.0, where=sums.squares > 0))
    if smallest < SMALLEST:
        why = f"the squares of its labels sum to {smallest:g}, but masked sums need at least {SMALLEST:g}"
        raise ConfigError(why, thing="labels", value=smallest, remedy="give labels in a smaller unit")
    return sums.vector


def as_masked(sums: Sums) -> Sums:
    """Return the sums that a site adds to a masked total, which are in fixed point."""
    words = encode(_to_mask(sums))
    return Sums.from_vector(decode(words), *sums.products.shape)


def ridge_reply(
    message: Message,
    rows: NDArray[Any],
    labels: NDArray[Any],
    classes: int | None = None,
    state: RecordDict | None = None,
    groups: NDArray[Any] | None = None,
) -> Message:
    """Answer a question of `fda_flower.strategies.Ridge` in your own project.

    Register your function for ``@app.train("sum_rows")`` and ``@app.train("fit_head")``; for
    ``Ridge(secure=True)`` also for ``@app.train("mask_sums")``.

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
        If the message is another one, such as ``train.fit_site_head``, for a layer that a site keeps; or if
        it requests masked sums, but there is no `state`.
    """
    kind = message.metadata.message_type
    question = QUESTIONS.get(kind)
    if question is None or not issubclass(question, SumRows | MaskSums | FitHead):
        remedy = 'register it for the actions "sum_rows", "fit_head" and "mask_sums" alone'
        raise ConfigError(
            f"ridge_reply has no answer to '{kind}'", thing="message", value=kind, remedy=remedy
        )
    request = read_request(message.content, question)
    if classes is None:
        labels = np.asarray(labels, np.float64).reshape(len(rows), -1)
    else:
        labels = np.asarray(labels, np.int64)
    own_state = None if state is None else OwnState(state)
    reply = _reply(request, (rows, labels, groups), classes, own_state)
    return Message(reply.content(request.arrays), reply_to=message)


def _reply(
    request: TrainRequest, samples: Samples, classes: int | None, own_state: OwnState | None
) -> TrainReply:
    model, (rows, labels, _), question = to_layers(request.arrays), samples, request.question
    if isinstance(question, FitHead):
        if question.columns is not None:
            why = "the sources' rows are columns of tables, which a project of its own does not standardise"
            raise ConfigError(why, thing="columns", remedy="let all sites run fda-flower, or none")
        fitted = fit_target(rows, labels, question)
        return TrainReply(fitted.in_model(model), len(rows), answer=fitted.answer())
    if isinstance(question, MaskSums):
        masked = masked_sums(request, question, own_state, lambda: open_sums(rows, labels, classes))
        return TrainReply(model, len(rows), answer=masked)
    return TrainReply(model, len(rows), answer=Summed(sums=source_sums(request, samples, classes)))
