"""Reading clients' replies: every one is checked, and a bad one is refused with its reason."""

from collections.abc import Collection, Mapping

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fda_flower.aggregation import Layers, Update, is_finite

EVALUATION = ("accuracy", "loss", "accuracy-global", "loss-global")
"""Metrics of the target's evaluation that go into the round's record."""


class BadReplyError(Exception):
    """Why a reply cannot be used."""


def content_of(reply: Message) -> RecordDict:
    """The records of a reply; a `BadReplyError` if it is an error."""
    if reply.has_error():
        raise BadReplyError(f"error {reply.error.code}: {' '.join(str(reply.error.reason).split())}")
    return reply.content


def read_update(reply: Message, model: Layers, buffers: Collection[str], role: str) -> Update:
    """The update in a reply to a train message.

    Parameters
    ----------
    reply : Message
        With ``arrays`` (the client's model) and ``metrics`` (``num-examples`` and, if the method needs
        them, ``num-steps`` and ``learning-rate``); ``info`` may name the client's role.
    model : Layers
        The model that the client was sent.
    buffers : Collection[str]
        Names of the model's buffers.
    role : str
        The role that the client was asked in.

    Raises
    ------
    BadReplyError
        If the reply is an error, or its arrays differ from the model's in name, shape or type, or are
        not finite, or it has no examples, or it comes in another role.
    """
    content = content_of(reply)
    info = content.config_records.get("info")
    if info is not None and info.get("role", role) != role:
        raise BadReplyError(f"it replied as {info['role']!r}, but its role is '{role}'")
    after = read_arrays(content, "arrays")
    _check_like(after, model)
    examples = read_number(content, "num-examples")
    if examples <= 0:
        raise BadReplyError(f"num-examples is {examples:g}, it must be above 0")
    steps, rate = read_number(content, "num-steps", 0), read_number(content, "learning-rate", 0)
    if steps < 0 or rate < 0:
        raise BadReplyError(f"num-steps is {steps:g} and learning-rate {rate:g}, neither may be negative")
    with np.errstate(over="ignore"):
        update = Update.between(model, after, int(examples), int(steps), rate, buffers, overwrite=True)
    for name, layer in update.parameters.items():
        if not is_finite(layer):
            raise BadReplyError(f"array '{name}' is so far from the model's that the difference overflows")
    return update


def read_metrics(reply: Message | None) -> MetricRecord:
    """All of a reply's metrics, each a finite number; a `BadReplyError` if there is none, or one is not."""
    if reply is None:
        raise BadReplyError("no reply within the timeout")
    content = content_of(reply)
    return MetricRecord({key: read_number(content, key) for key in content.metric_records.get("metrics", {})})


def read_arrays(content: RecordDict, key: str) -> Mapping[str, NDArray[np.generic]]:
    """The arrays of a record, deserialised; pickled objects are never loaded."""
    if key not in content.array_records:
        raise BadReplyError(f"it has no ArrayRecord '{key}'")
    arrays = {}
    for name, array in content.array_records[key].items():
        try:
            arrays[name] = array.numpy()
        except Exception as error:
            raise BadReplyError(f"array '{name}' cannot be read: {error}") from error
    return arrays


def check_finite(model: Layers) -> None:
    """Raise a `BadReplyError` if what was made of replies is not finite."""
    for name, array in model.items():
        if not is_finite(array):
            raise BadReplyError(
                f"array '{name}' of the new model would hold NaN or infinity: a client's update, steps "
                "or learning rate are out of range; max_update_norm limits updates"
            )


def release(reply: Message | None) -> None:
    """Free a reply's arrays at once; a message is part of cycles, which Python frees when it comes to it."""
    if reply is not None and reply.has_content():
        for record in reply.content.array_records.values():
            record.clear()


def read_number(content: RecordDict, key: str, default: float | None = None) -> float:
    """A finite number of the record ``metrics``."""
    metrics = content.metric_records.get("metrics")
    value = default if metrics is None else metrics.get(key, default)
    if value is None:
        raise BadReplyError(f"its metrics have no '{key}'")
    if not isinstance(value, int | float) or not np.isfinite(value):
        raise BadReplyError(f"its metric '{key}' is {value!r}, expected a finite number")
    return float(value)


def _check_like(arrays: Layers, model: Layers) -> None:
    if missing := [name for name in model if name not in arrays]:
        raise BadReplyError(f"its arrays lack '{missing[0]}' ({len(missing)} of {len(model)} missing)")
    if extra := [name for name in arrays if name not in model]:
        raise BadReplyError(f"its arrays hold '{extra[0]}', which the model has not")
    for name, array in arrays.items():
        if array.shape != model[name].shape:
            raise BadReplyError(
                f"array '{name}' has shape {list(array.shape)}, expected {list(model[name].shape)}"
            )
        if array.dtype != model[name].dtype:
            raise BadReplyError(f"array '{name}' has type {array.dtype}, expected {model[name].dtype}")
        if not is_finite(array):
            raise BadReplyError(f"array '{name}' holds NaN or infinity")
