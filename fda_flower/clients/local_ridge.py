"""What Ridge's clients compute of rows and labels, and a reply with it; with NumPy alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from fda_flower.aggregation import (
    Layers,
    Paths,
    RidgeFit,
    Sums,
    fit_ridge,
    fit_temperature,
    to_targets,
    with_head,
)
from fda_flower.aggregation.ridge import unpack
from fda_flower.metrics import measure
from fda_flower.wire.protocol import TrainReply, TrainRequest, read_request, to_layers

SUMS, SOURCES, PATHS = "sums", "sources", "paths"
SHARE, SOURCE_WEIGHT, WEIGHT, TEMPERATURE = "share", "source-weight", "weight", "temperature"
HELD_OUT, FEWEST = "held-out", "fewest-labels"
"""Names on the wire: the setting that asks for sums, and the record with them; the record in which the target
gets what they come to, and the setting that says what to average; metrics of the target's reply."""

TARGET_ALONE, SOURCES_ALONE = f"{HELD_OUT}-target", f"{HELD_OUT}-sources"
SOLUTION = "solution"

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TargetHead:
    """The head that a target has fitted, shape ``(d, C)``, and the metrics of its reply."""

    head: Array
    metrics: dict[str, float]

    def in_model(self, model: Layers) -> dict[str, NDArray[Any]]:
        """Return a model with this head as its linear layer."""
        return with_head(model, self.head[:-1].T, self.head[-1])


def fit_target(rows: NDArray[Any], labels: NDArray[Any], sent: Layers, paths: Paths) -> TargetHead:
    """Fit a target's head to its rows, shape ``(n, d)``, from what it was `sent` of the sources.

    `labels` are classes, integers of shape ``(n,)``, or numbers of shape ``(n, C)``. Outputs are in the unit
    of the labels; those of classes are scaled so that their softmax is calibrated.
    """
    solution, numbers = sent[SOLUTION], labels.dtype.kind == "f"
    targets = np.asarray(labels, np.float64) if numbers else to_targets(labels, solution.shape[1])
    mean, deviation = sent.get("mean", np.zeros(1)), sent.get("deviation", np.ones(1))
    others = {n.partition(".")[2]: a for n, a in sent.items() if n.startswith(f"{SOLUTION}.")}
    fitting = partial(fit_ridge, rows, (targets - mean) / deviation, solution)
    gram = unpack(sent["gram"]) if "gram" in sent else None
    fit, alone = fitting(gram, list(others.values()), paths), fitting(paths="target")
    outputs = {HELD_OUT: fit.held_out, TARGET_ALONE: alone.held_out, SOURCES_ALONE: rows @ solution}
    judged = {name: _figure(found * deviation + mean, labels) for name, found in outputs.items()}
    metrics = {name: figure for name, figure in judged.items() if np.isfinite(figure)}
    metrics |= {TEMPERATURE: 1.0, **_numbers(fit, list(others))}
    if not numbers:
        metrics[TEMPERATURE] = fit_temperature(fit.held_out, labels)
        metrics[FEWEST] = int(np.unique(labels, return_counts=True)[1].min())
    head = metrics[TEMPERATURE] * deviation * fit.head
    head[-1] += mean
    return TargetHead(head, metrics)


def _numbers(fit: RidgeFit, domains: Sequence[str]) -> dict[str, float]:
    """Return the weights of the heads, and what of the sources is in them."""
    heads = zip(fit.heads, fit.weights.tolist(), strict=True)
    numbers = {f"{WEIGHT}.{head.path}-{head.strength:g}": weight for head, weight in heads}
    if fit.shares.size:
        numbers[SHARE] = float(fit.shares[0])
        shares = zip(domains, fit.shares[1:].tolist(), strict=True)
        numbers |= {f"{SHARE}.{domain}": share for domain, share in shares}
    if fit.source_weight is not None:
        numbers[SOURCE_WEIGHT] = fit.source_weight
    return numbers


def _figure(outputs: Array, labels: NDArray[Any]) -> float:
    regression = labels.dtype.kind == "f"
    found = measure(outputs, labels, regression=regression)
    return found.get("r2" if regression else "accuracy", np.nan)


def ridge_reply(
    message: Message, rows: NDArray[Any], labels: NDArray[Any], classes: int | None = None
) -> Message:
    """Answer a train message of `fda_flower.strategies.Ridge`, in a project of your own.

    Parameters
    ----------
    message : Message
        Its model is the weights of a linear layer, shape ``(C, features)``, and its bias.
    rows : array
        Of the node's labelled samples, shape ``(n, features + 1)``; see `fda_flower.aggregation.to_rows`.
    labels : array
        Classes from 0 on, shape ``(n,)``, or numbers, shape ``(n,)`` or ``(n, C)``.
    classes : int, optional
        The number of classes. Default: the labels are numbers.

    Returns
    -------
    Message
        At a source the sums; at the target the layer that it has fitted.
    """
    request = read_request(message.content)
    if classes is None:
        labels = np.asarray(labels, np.float64).reshape(len(rows), -1)
    else:
        labels = np.asarray(labels, np.int64)
    return Message(_reply(request, rows, labels, classes).content(request.arrays), reply_to=message)


def _reply(
    request: TrainRequest, rows: NDArray[Any], labels: NDArray[Any], classes: int | None
) -> TrainReply:
    model = to_layers(request.arrays)
    if SOURCES not in request.records:
        sums = Sums.of(rows, labels if classes is None else to_targets(labels, classes))
        return TrainReply(model, len(rows), {}, {SUMS: sums.to_arrays()})
    sent = to_layers(request.records[SOURCES])  # type: ignore[arg-type]
    fitted = fit_target(rows, labels, sent, request.config[PATHS])
    return TrainReply(fitted.in_model(model), len(rows), fitted.metrics)
