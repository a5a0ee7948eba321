"""Read clients' replies into updates and metrics; reject unusable ones with a reason."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from logging import WARNING
from statistics import median_low
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, MetricRecordValues, RecordDict
from flwr.common import log
from numpy.typing import NDArray

from fda_flower.aggregation import Layers, Update, is_finite
from fda_flower.errors import ConfigError, printable
from fda_flower.records.record import OF_UNITS, Record
from fda_flower.strategies.nodes import Node
from fda_flower.wire import protocol
from fda_flower.wire.arrays import to_read
from fda_flower.wire.internals import NO_HEARTBEAT, WITHOUT_EVALUATION, entries_of, reason_of
from fda_flower.wire.protocol import TrainRequest
from fda_flower.wire.questions import Answer


def read_sizes(nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
    """Return each domain's numbers of samples to train, labelled, to validate and to test, if reported."""
    keys = {
        "labelled": protocol.LABELLED,
        "unlabelled": protocol.UNLABELLED,
        "validation": protocol.VALIDATION_EXAMPLES,
        "test": protocol.TEST,
        f"labelled{OF_UNITS}": protocol.GROUPS,
        f"validation{OF_UNITS}": protocol.VALIDATION_GROUPS,
        f"test{OF_UNITS}": protocol.TEST_GROUPS,
    }
    sizes = {
        node.domain: {name: n for name, key in keys.items() if isinstance(n := node.info.get(key), int)}
        for node in nodes
    }
    for numbers in sizes.values():
        if "labelled" in numbers:
            numbers["train"] = numbers["labelled"] + numbers.get("unlabelled", 0)
    return {domain: numbers for domain, numbers in sizes.items() if numbers}


MOST_EXAMPLES = 2**53
"""Upper bound on samples at a site; larger numbers could turn all sites' weights into 0 or NaN."""

MOST_METRICS, LONGEST_NAME = 1000, 200
"""Limits on the metrics of a reply: their number, and the length of a name."""

KNOWN = {
    *(protocol.NUM_EXAMPLES, protocol.NUM_STEPS, protocol.LEARNING_RATE, protocol.BATCH_SIZE),
    protocol.TRAIN_LOSS,
}
"""Metrics of a train reply that the strategies read; others are the project's own."""


class BadReplyError(Exception):
    """A reply, or all replies of a round, cannot be used. The reason is printable and short."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason))


class NotFiniteError(BadReplyError):
    """The result of a round's replies is not finite."""


class LackingError(BadReplyError):
    """A reply lacks arrays of the model."""


NO_EVALUATION = "its app has no evaluate function, so it is not asked"


class NoEvaluationError(BadReplyError):
    """A node's app has no evaluation function."""


@dataclass(frozen=True)
class ClientUpdate(Update):
    """A client's update, with the answer that the request asks for.

    Attributes
    ----------
    domain : str
        The client's domain.
    factor : float
        Factor that scaled the update down to the norm limit; 1 within the limit.
    answer : Answer, str or None
        The answer, of the request's class of answers; of one that is not needed, perhaps the reason why it
        cannot be used.
    model : Layers
        The reply's model itself; empty unless the request asks `with_model`.
    """

    domain: str = ""
    factor: float = 1.0
    answer: Any = None
    model: Layers = field(default_factory=dict)


def read_update(
    reply: Message | None,
    node: Node,
    request: TrainRequest,
    model: Layers,
    buffers: Collection[str],
    max_norm: float | None = None,
    schedule: Any = None,
    info: Mapping[str, Any] | None = None,
) -> tuple[ClientUpdate, Record]:
    """Return the update in a reply to a train message, and its entry in the round's record.

    The node received `request` and `model`; `buffers` names the model's buffers. An update longer than
    `max_norm` is scaled down. `schedule` is the node's training schedule, if the server knows it. `info` is
    the record of this name in the reply (`info_of`).

    Raises
    ------
    BadReplyError
        If the reply is missing or an error; if its arrays differ from the model's in name, shape or type, or
        are not finite; if it has no examples, comes in another role, or lacks a requirement of the request;
        or if it claims more examples than the node reported, a higher learning rate or more steps than
        requested, since each would increase its weight.
    """
    content = content_of(reply)
    info = info_of(reply) if info is None else info
    role = info.get("role", node.role)
    if role != node.role:
        raise BadReplyError(f"it replied as {role!r}, but its role is '{node.role}'")
    after = read_arrays(content, protocol.ARRAYS)
    _check_model(after, model)
    examples = read_examples(content)
    if examples > (most := _reported_examples(node)):
        raise BadReplyError(f"num-examples is {examples}, but the node reported {most}")
    names = (protocol.NUM_STEPS, protocol.LEARNING_RATE, protocol.BATCH_SIZE)
    steps, rate, batch_size = (read_number(content, name, 0) for name in names)
    for name, number in zip(names, (steps, rate, batch_size), strict=True):
        if number < 0:
            raise BadReplyError(f"{name} is {number:g}, but must not be negative")
    if schedule is not None and not node.is_target:
        _check_schedule(schedule, request.config, examples, steps, rate)
    with np.errstate(over="ignore"):
        update = ClientUpdate.between(
            model, after, examples, int(steps), rate, buffers, overwrite=True, batch_size=int(batch_size)
        )
    for name, layer in {**update.parameters, **update.buffers}.items():
        if not is_finite(layer):
            raise _not_finite(name, read_arrays(content, protocol.ARRAYS)[name])
    factor = 1.0 if max_norm is None or update.norm <= max_norm else max_norm / update.norm
    _check_required(content, info, request, update)
    answer = read_answer(content, request.answer, model, update.parameters)
    entry: dict[str, Any] = {
        "domain": node.domain,
        "examples": update.examples,
        "steps": update.steps,
        "train-loss": _train_loss(content, request),
    }
    if own := _own_metrics(content, request):
        entry["metrics"] = own
    if factor != 1:
        entry["clipped"] = factor
        log(WARNING, "The update of %s is clipped to %.3g of its norm", node.domain, factor)
        update = update.scaled(factor)
    if request.with_model:
        itself = read_arrays(content, protocol.ARRAYS)  # the arrays read before now hold the differences
        update = replace(update, model={name: itself[name] for name in model})
    return replace(update, domain=node.domain, factor=factor, answer=answer), entry


def _train_loss(content: RecordDict, request: TrainRequest) -> float | None:
    """Return the training loss; it may be no finite number unless the request requires it."""
    if protocol.TRAIN_LOSS in request.requires:
        return optional_number(content, protocol.TRAIN_LOSS)
    return finite(metrics_in(content).get(protocol.TRAIN_LOSS))


def _own_metrics(content: RecordDict, request: TrainRequest) -> dict[str, float]:
    """Return a project's own finite numbers in a train reply, such as ``train_loss``."""
    own, known = {}, {*KNOWN, *request.requires}
    for name, value in sorted(metrics_in(content).items())[:MOST_METRICS]:
        if name not in known and (number := finite(value)) is not None:
            own[printable(name, LONGEST_NAME)] = number
    return own


def content_of(reply: Message | None) -> RecordDict:
    """Return the records of a reply; raise a `BadReplyError` if it is missing or an error."""
    if reply is None:
        raise BadReplyError("no reply within the timeout")
    if reply.has_error():
        reason = " ".join(reason_of(reply.error).split())
        if any(text in reason for text in WITHOUT_EVALUATION):
            raise NoEvaluationError(NO_EVALUATION)
        raise BadReplyError(reason if reason == NO_HEARTBEAT else f"error {reply.error.code}: {reason}")
    return reply.content


def info_of(reply: Message | None) -> Mapping[str, Any]:
    """Return the record ``info`` of a reply; empty if there is none, or no reply."""
    return {} if reply is None or reply.has_error() else protocol.settings_in(reply.content, protocol.INFO)


def read_arrays(content: RecordDict, key: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a record, deserialised for reading; never load pickled objects."""
    record = content.get(key)
    if not isinstance(record, ArrayRecord):
        raise BadReplyError(f"it has no ArrayRecord '{key}'")
    arrays = {}
    for name, array in record.items():
        try:
            arrays[name] = to_read(array)
        except Exception as error:
            raise BadReplyError(f"array '{name}' cannot be read: {error}") from error
    return arrays


def read_number(content: RecordDict, key: str, default: float | None = None) -> float:
    """Return a number of the record ``metrics``; raise a `BadReplyError` if it is missing or not finite."""
    number = optional_number(content, key)
    value = default if number is None else number
    if value is None:
        raise BadReplyError(f"its metrics have no '{key}'")
    return value


def read_examples(content: RecordDict, least: int = 1) -> int:
    """Return the number of examples of a reply; raise a `BadReplyError` unless it is whole and plausible."""
    examples = read_number(content, protocol.NUM_EXAMPLES)
    if not (least <= examples <= MOST_EXAMPLES and examples == int(examples)):
        raise BadReplyError(f"num-examples is {examples:g}, it must be a whole number of at least {least}")
    return int(examples)


def optional_number(content: RecordDict, key: str) -> float | None:
    """Return a finite number of the record ``metrics``, or None if absent."""
    value = metrics_in(content).get(key)
    if value is None:
        return None
    if (number := finite(value)) is None:
        raise BadReplyError(f"its metric '{key}' is {value!r}, expected a finite number")
    return number


def finite(value: object) -> float | None:
    """Return a number as a float; None if it is none, or is not finite."""
    try:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:  # an integer beyond all floats
        return None


def metrics_in(content: RecordDict) -> Mapping[str, MetricRecordValues]:
    """Return the record ``metrics``, empty if absent; unlike Flower's own view, this copies no records."""
    metrics = entries_of(content).get(protocol.METRICS)
    return entries_of(metrics) if isinstance(metrics, MetricRecord) else {}


def _reported_examples(node: Node) -> int:
    """Return the number of training samples that a node reported with its role."""
    numbers = [node.info.get(name) for name in (protocol.LABELLED, protocol.UNLABELLED)]
    if type(numbers[0]) is not int:
        return MOST_EXAMPLES
    return numbers[0] + (numbers[1] if type(numbers[1]) is int else 0)


def _check_schedule(schedule: Any, config: protocol.Config, examples: int, steps: float, rate: float) -> None:
    """Raise a `BadReplyError` if a source claims a higher rate or more steps than requested."""

    def asked(name: str, default: float) -> float:
        return float(str(config.get(name, default)))

    most_rate = schedule.learning_rate * asked(protocol.LEARNING_RATE_FACTOR, 1)
    if rate > most_rate and not math.isclose(rate, most_rate):
        raise BadReplyError(f"learning-rate is {rate:g}, but {most_rate:g} was requested")
    most_steps = asked(protocol.EPOCHS, schedule.epochs) * math.ceil(examples / schedule.batch_size)
    if steps > most_steps:
        raise BadReplyError(
            f"num-steps is {steps:g}, but for {examples} examples {most_steps:g} were requested"
        )


MOST_RATE, MOST_STEPS = 2, 10
"""Multiples of the sources' lower median above which a claimed rate or number of steps is not believed. Sites
may differ more in steps, by their batch sizes."""


def out_of_line(sources: Mapping[str, ClientUpdate]) -> dict[str, str]:
    """Return the sources that claim a far higher rate than most, or far more steps, with the reason.

    Steps are compared as they are and by example: sites with more samples take more, and those with few take
    more by example.
    """
    items = sources.items()
    steps = _above(MOST_STEPS, {domain: update.steps for domain, update in items})
    by_example = _above(MOST_STEPS, {domain: update.steps / update.examples for domain, update in items})
    rates = _above(MOST_RATE, {domain: update.learning_rate for domain, update in items})
    reasons = {domain: f"num-steps is {steps[domain]}" for domain in steps.keys() & by_example.keys()}
    return reasons | {domain: f"learning-rate is {rates[domain]}" for domain in rates}


def _above(most: float, numbers: Mapping[str, float]) -> dict[str, str]:
    """Return the sources whose number is more than `most` times the lower median, with words on it."""
    claimed = [number for number in numbers.values() if number > 0]
    usual = median_low(claimed) if claimed else 0.0
    words = "{:g}, more than {:g} times the sources' lower median of {:g}"
    above = {domain: number for domain, number in numbers.items() if number > most * usual}
    return {domain: words.format(number, most, usual) for domain, number in above.items()}


def read_answer(
    content: RecordDict, kind: type[Answer] | None, model: Layers, parameters: Layers
) -> Answer | str | None:
    """Return the answer in a reply, or the reason why one that is not needed cannot be used.

    `kind` is the class of answers; without one there is none. Raises a `BadReplyError` if it is needed, and
    not whole.
    """
    if kind is None:
        return None
    try:
        return kind.read(content).in_form(model, parameters)
    except ConfigError as error:
        if kind.needed:
            raise BadReplyError(str(error)) from error
        return printable(str(error))


def _check_required(
    content: RecordDict, info: Mapping[str, Any], request: TrainRequest, update: Update
) -> None:
    positive = {
        protocol.NUM_STEPS: update.scale > 0,
        protocol.LEARNING_RATE: update.scale > 0,
        protocol.BATCH_SIZE: update.batch_size > 0,
    }
    for name, remedy in request.requires.items():
        if not positive.get(name, name in metrics_in(content) or name in info):
            raise BadReplyError(f"it has no '{name}': {remedy}")


def _check_model(arrays: Layers, model: Layers) -> None:
    if missing := [name for name in model if name not in arrays]:
        raise LackingError(f"its arrays lack '{missing[0]}' ({len(missing)} of {len(model)} missing)")
    if extra := [name for name in arrays if name not in model]:
        raise BadReplyError(f"the reply contains an array '{extra[0]}' that the model does not have")
    for name, array in arrays.items():
        like = model[name]
        if array.shape != like.shape:
            raise BadReplyError(f"array '{name}' has shape {list(array.shape)}, expected {list(like.shape)}")
        if array.dtype != like.dtype:
            raise BadReplyError(f"array '{name}' has type {array.dtype}, expected {like.dtype}")


def _not_finite(name: str, array: NDArray[Any]) -> BadReplyError:
    """Return why an array cannot be used whose difference from the model's is not finite."""
    if is_finite(array):
        return BadReplyError(f"array '{name}' is so far from the model's that the difference overflows")
    return BadReplyError(f"array '{name}' holds NaN or infinity")
