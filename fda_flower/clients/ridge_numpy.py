"""The computations of Ridge's clients on rows and labels, and their replies, with NumPy only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
from numpy.typing import NDArray

from fda_flower.aggregation import (
    LEAST_LABELS,
    Calibration,
    Columns,
    Kind,
    KindsFit,
    Layers,
    Paths,
    PrivateSums,
    Sums,
    by_kind,
    change_of_patient,
    fit_kinds,
    fit_temperature,
    joined_head,
    move,
    split_rows,
    to_targets,
    widths_of,
    with_head,
    with_kinds,
)
from fda_flower.aggregation.mixture import log_softmax
from fda_flower.aggregation.ridge import paths_of, temperatures_without, unpack
from fda_flower.aggregation.units import Units, without_name
from fda_flower.clients.own_state import OwnState
from fda_flower.clients.secure_sums import SecureSums
from fda_flower.errors import ConfigError
from fda_flower.metrics import measure, paired_interval, paired_shares
from fda_flower.wire import protocol
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.asked.ridge import FitHead, HeadFitted, Summed, SumRows
from fda_flower.wire.asked.secure_sums import Masked, MaskSums
from fda_flower.wire.protocol import TrainReply, TrainRequest, read_request, to_layers
from fda_flower.wire.secure_sums import decode, encode

SMALLEST = 1e-6
"""Smallest sum of squared labels that fixed point represents well enough."""

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
        Classes, integers of shape ``(n,)``, or numbers of shape ``(n, C)``.
    classes : int or None
        The number of classes; None for numbers.
    widths : sequence of int
        The number of features of each kind.
    groups : array, optional
        The patient of each row, shape ``(n,)``; by default, every row is a different patient.
    unlabelled : array, optional
        Rows of the samples without labels, shape ``(m, d)``.
    unlabelled_groups : array, optional
        The patient of each of these, as in `groups`, shape ``(m,)``.
    """

    rows: Array
    labels: NDArray[Any]
    classes: int | None
    widths: Sequence[int]
    groups: NDArray[Any] | None = None
    unlabelled: Array | None = None
    unlabelled_groups: NDArray[Any] | None = None

    @property
    def units(self) -> Units:
        """Which rows are of one patient."""
        return Units.of(len(self.rows), self.groups)

    @property
    def kinds(self) -> list[Array]:
        """The rows of each kind."""
        return split_rows(self.rows, self.widths)

    @property
    def targets(self) -> Array:
        """``Y``, shape ``(n, C)``: of classes see `fda_flower.aggregation.to_targets`; else the numbers."""
        if self.classes is None:
            return np.asarray(self.labels, np.float64)
        return to_targets(self.labels, self.classes)

    def sums(self) -> list[Sums]:
        """Return the sums over the rows of each kind."""
        return [Sums.of(rows, self.targets) for rows in self.kinds]

    def moved(self, matrix: Array) -> "Labelled":
        """Return the samples with rows ``x T``; they have one kind of rows."""
        rest = None if self.unlabelled is None else self.unlabelled @ matrix
        return replace(self, rows=self.rows @ matrix, unlabelled=rest)


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

    def moved(self, matrix: Array) -> "TargetHead":
        """Return the head for rows ``x``, if this one is for rows ``x T``."""
        alone = None if self.alone is None else matrix @ self.alone
        return replace(self, head=matrix @ self.head, alone=alone)

    def in_model(self, model: Layers) -> dict[str, NDArray[Any]]:
        """Return a model whose linear layer is this head."""
        return placed(model, self.head)

    def calibration(self, own: Labelled) -> Calibration | None:
        """Return the scores of the labels, by the outputs without each patient; None with too few labels."""
        if not self.held_out:
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
    return _fit(own, by_kind(question.start), question.paths, question.solutions or {})


def _fit(own: Labelled, starts: Sequence[Layers], paths: Paths, others: Layers) -> TargetHead:
    labels, regression, units = own.labels, own.classes is None, own.units
    mean, deviation = starts[0].get("mean", np.zeros(1)), starts[0].get("deviation", np.ones(1))
    targets, classes = (own.targets - mean) / deviation, None if regression else labels
    kinds = _kinds_of(own, starts, list(others.values()))
    patients = own.groups, own.unlabelled_groups
    fit = fit_kinds(kinds, targets, classes, paths, *patients)
    alone, sources = (
        fit_kinds([replace(kind, others=()) for kind in kinds], targets, classes, side, *patients)
        for side in ("target", "sources")
    )
    outputs = {
        "held_out": fit.held_out,
        "held_out_target": alone.held_out,
        "held_out_sources": sources.held_out,
    }
    outputs = {name: values * deviation + mean for name, values in outputs.items()}
    judged = {name: _figure(values, labels) for name, values in outputs.items()}
    numbers: dict[str, Any] = {name: figure for name, figure in judged.items() if np.isfinite(figure)}
    numbers |= {"temperature": 1.0, **_numbers(fit, list(others))}
    temperatures = None
    if not regression:
        numbers["temperature"] = fit_temperature(fit.held_out, labels, fit.usual, units)
        numbers["fewest_labels"] = int(units.of_class(labels)[np.unique(labels)].min())
        if not units.single:
            temperatures = temperatures_without(fit.held_out, labels, fit.usual, units)
    if fit.unlabelled is not None:
        numbers |= {"unlabelled": len(kinds[0].unlabelled), "unlabelled_share": fit.unlabelled}
    heads = [
        numbers["temperature"] * deviation * joined_head(each.heads, own.widths) for each in (fit, alone)
    ]
    for head in heads:
        head[-1] += mean
    held_out = {"alone": outputs["held_out_target"], "together": outputs["held_out"]}
    return TargetHead(heads[0], numbers, heads[1], held_out, temperatures)


def _kinds_of(own: Labelled, starts: Sequence[Layers], others: Sequence[Array]) -> list[Kind]:
    """Return the kinds of rows that the sources have sums of."""
    rest = np.zeros((0, own.rows.shape[1])) if own.unlabelled is None else own.unlabelled
    rows = zip(own.kinds, split_rows(rest, own.widths), strict=True)
    return [
        Kind(
            labelled,
            start["solution"],
            unpack(start["gram"]) if "gram" in start else None,
            unlabelled,
            others,
        )
        for (labelled, unlabelled), start in zip(rows, starts, strict=False)
    ]


def fit_site(
    own: Labelled,
    totals: Sequence[Sums],
    sent: Sequence[Sums],
    paths: Paths,
    columns: tuple[Columns, Columns] | None = None,
) -> TargetHead:
    """Fit a site's head, if every site is a target, from the total of all sites minus its own sums.

    With labels of too few patients to leave one out, it is the others' head. `totals` and `sent`, the sums
    that this site has sent, have an entry for each kind of rows. `columns` are this site's own, as in `own`
    and `sent`, and the ones in `totals`; the head is fitted in the columns of the other sites.

    Raises a `ValueError` if `totals` include no other site, or the difference cannot come from rows.
    """
    if columns:
        sent = [move(each, columns[0].into(columns[1])) for each in sent]
    others = [total - each for total, each in zip(totals, sent, strict=True)]
    if others[0].rows < 1:
        raise ValueError("the sums of all sites have no row of another site")
    if columns:
        rest = Columns.pooled([(columns[1], others[0])])
        matrix = columns[0].into(rest)
        moved = [move(others[0], columns[1].into(rest))]
        return _fit_to(own.moved(matrix), moved, paths).moved(matrix)
    return _fit_to(own, others, paths)


def _fit_to(own: Labelled, others: Sequence[Sums], paths: Paths) -> TargetHead:
    scaled = own.classes is None
    if own.units.count < LEAST_LABELS:
        heads = [each.head(scaled) / len(others) for each in others]
        return TargetHead(joined_head(heads, own.widths), {"share": 1.0})
    starts = [each.start("pooled" in paths_of(paths), scaled) for each in others]
    return _fit(own, starts, paths, {})


def compare(
    alone: Array, together: Array, labels: NDArray[Any], groups: NDArray[Any] | None = None
) -> dict[str, float]:
    """Return the figures of two heads' outputs on some rows, and the 95% interval of the difference.

    These are accuracies or, for numbers, R²; with a single patient, of `groups` or else the rows, or constant
    labels there is no interval.
    """
    figures = {"alone": _figure(alone, labels), "with_others": _figure(together, labels)}
    if labels.dtype.kind == "f":
        spread = np.square(labels - labels.mean(axis=0)).sum() / len(labels)
        errors = [np.square(each - labels).sum(axis=1) for each in (alone, together)]
        ends = paired_interval((errors[0] - errors[1]) / spread, groups) if spread > 0 else None
    else:
        right = [each.argmax(axis=1) == labels for each in (alone, together)]
        ends = paired_shares(right[0], right[1], groups)
    figures |= {} if ends is None else {"gain_low": ends[0], "gain_high": ends[1]}
    return {name: value for name, value in figures.items() if np.isfinite(value)}


def _numbers(fit: KindsFit, domains: Sequence[str]) -> dict[str, Any]:
    """Return the weights of the heads, and the share of the sources in them: means over kinds of rows."""
    weights, numbers = dict[str, float](), dict[str, Any]()
    pairs = list(zip(fit.shares.tolist(), fit.fits, strict=True))
    for kind, each in pairs:
        for head, weight in zip(each.heads, each.weights.tolist(), strict=True):
            name = f"{head.path}-{head.strength:g}"
            weights[name] = weights.get(name, 0.0) + kind * weight
    if fit.fits[0].shares.size:
        numbers["share"] = float(sum(kind * each.shares[0] for kind, each in pairs))
        shares = dict(zip(domains, fit.fits[0].shares[1:].tolist(), strict=True))
        numbers |= {"shares": shares} if shares else {}
    weighed = [(kind, each.source_weight) for kind, each in pairs if each.source_weight is not None]
    if weighed:
        logarithms = [kind * np.log(weight) for kind, weight in weighed]
        numbers["source_weight"] = float(np.exp(sum(logarithms)))
    if len(pairs) > 1:
        numbers["kinds"] = tuple(fit.shares.tolist())
    return {**numbers, "weights": weights}


def _figure(outputs: Array, labels: NDArray[Any]) -> float:
    regression = labels.dtype.kind == "f"
    metrics = measure(outputs, labels, regression=regression)
    return metrics.get("r2" if regression else "accuracy", np.nan)


def source_sums(request: TrainRequest, own: Labelled) -> dict[str, NDArray[Any]]:
    """Return a source's sums to send; if its site protects patients, with one patient's largest change.

    Such a site sends the sums over the first kind of rows alone: two releases would need more noise.
    """
    given = request.records.get(protocol.MEAN_NOISE)
    if own.classes is None or not isinstance(given, ArrayRecord):
        return with_kinds([sums.to_arrays() for sums in own.sums()])
    noise = to_layers(given)["noise"]
    sums = PrivateSums.of(own.kinds[0], own.targets, own.groups, noise)
    return {**sums.to_arrays(np.float64), protocol.CHANGE: np.array(change_of_patient(own.classes))}


def masked_sums(
    request: TrainRequest, question: MaskSums, own_state: OwnState | None, sums: Callable[[], Sequence[Sums]]
) -> Masked:
    """Answer a stage of masked sums; `sums`, of each kind of rows, are computed when needed."""
    if own_state is None:
        remedy = "give ridge_reply the context's state"
        raise ConfigError("the server asks for masked sums", thing="state", value=None, remedy=remedy)
    server_round = int(request.config[protocol.SERVER_ROUND])

    def to_mask() -> Array:
        return np.concatenate([_to_mask(each) for each in sums()])

    return SecureSums(own_state).answer(question, server_round, to_mask)


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
    unlabelled: NDArray[Any] | None = None,
    unlabelled_groups: NDArray[Any] | None = None,
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
        The patient of each row, shape ``(n,)``: what the target leaves out at a time, and what a site whose
        ``dp-unit`` is ``patient`` protects. Default: every row is a different patient.
    unlabelled : array, optional
        Rows of the target's samples without labels, shape ``(m, features + 1)``.
    unlabelled_groups : array, optional
        The patient of each of these, named as in `groups`, shape ``(m,)``; needed with `groups`.

    Returns
    -------
    Message
        From a source the sums, masked on request; from the target its fitted layer.

    Raises
    ------
    ConfigError
        If the message is another one, such as ``train.fit_site_head``, for a layer that a site keeps; if it
        requests masked sums, but there is no `state`; or if a row has no patient with a name.
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
    own_state, widths = None if state is None else OwnState(state), widths_of(to_layers(request.arrays))
    for name, given, of in (("groups", groups, rows), ("unlabelled_groups", unlabelled_groups, unlabelled)):
        _check_groups(name, given, of, needed=groups is not None)
    own = Labelled(
        np.asarray(rows, np.float64), labels, classes, widths, groups, unlabelled, unlabelled_groups
    )
    reply = _reply(request, own, own_state)
    return Message(reply.content(request.arrays), reply_to=message)


def _check_groups(name: str, groups: NDArray[Any] | None, rows: NDArray[Any] | None, needed: bool) -> None:
    """Raise a `ConfigError` unless there is one patient for each row, or none for any."""
    count = 0 if rows is None else len(rows)
    given = None if groups is None else len(groups)
    if given != count and (given is not None or (needed and count)):
        what = f"{name} has the patients of {given or 0} of {count} rows"
        raise ConfigError(what, thing=name, value=given, remedy="give one for each row, in their order")
    if groups is not None and (lacking := without_name(groups)):
        what = f"{name} has no patient for {lacking} of {count} rows"
        raise ConfigError(what, thing=name, value=lacking, remedy="name each, or leave these rows out")


def _reply(request: TrainRequest, own: Labelled, own_state: OwnState | None) -> TrainReply:
    model, question = to_layers(request.arrays), request.question
    if isinstance(question, FitHead):
        if question.columns is not None:
            why = "the sources' rows are columns of tables, which a project of its own does not standardise"
            raise ConfigError(why, thing="columns", remedy="let all sites run fda-flower, or none")
        fitted = fit_target(own, question)
        return TrainReply(fitted.in_model(model), len(own.rows), answer=fitted.answer())
    if isinstance(question, MaskSums):
        masked = masked_sums(request, question, own_state, own.sums)
        return TrainReply(model, len(own.rows), answer=masked)
    return TrainReply(model, len(own.rows), answer=Summed(sums=source_sums(request, own)))
