"""The `NumPyClient` interface of this package's clients, for a plain ``ClientApp(client_fn=...)``."""

import io
import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from logging import WARNING
from typing import Any, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecordValues, RecordDict
from flwr.common import log
from numpy.typing import NDArray

from fda_flower.aggregation import Layers
from fda_flower.errors import ConfigError, unknown
from fda_flower.names.registry import resolve
from fda_flower.wire.arrays import to_layers, to_record
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.older import NumPyClient
from fda_flower.wire.protocol import (
    SETTINGS,
    EvaluateReply,
    EvaluateRequest,
    TrainReply,
    TrainRequest,
)
from fda_flower.wire.questions import Answer, Question, check_settings

Reply = TypeVar("Reply", TrainReply, EvaluateReply)

NDArrays = list[NDArray[Any]]


class NumPyFace(NumPyClient):
    """Adapter between `NumPyClient`, with lists of arrays, and this package's requests and replies.

    A subclass defines `local_train` and `local_evaluate`. `serve` calls these two, or the `fit` or `evaluate`
    that a subclass overrides.
    """

    @abstractmethod
    def layers(self) -> Layers:
        """Return copies of the model's arrays, in the order of its state dictionary."""

    @abstractmethod
    def local_train(self, request: TrainRequest) -> TrainReply:
        """Train as the request asks."""

    @abstractmethod
    def local_evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        """Evaluate as the request asks."""

    def train_reply(self, request: TrainRequest) -> TrainReply:
        """Return the reply to a train request, with the answer to its question, if it has one."""
        if request.question is None:
            return self.local_train(request)
        return _replied(self, request, request.question, TrainReply)

    def evaluate_reply(self, request: EvaluateRequest) -> EvaluateReply:
        """Return the reply to an evaluate request, with the answer to its question, if it has one."""
        if request.question is None:
            return self.local_evaluate(request)
        return _replied(self, request, request.question, EvaluateReply)

    def get_parameters(self, config: dict[str, Any]) -> NDArrays:
        """Return copies of the model's arrays, in the order of its state dictionary."""
        return list(self.layers().values())

    def fit(self, parameters: NDArrays, config: dict[str, Any]) -> tuple[NDArrays, int, dict[str, Any]]:
        """Train the server's model, with arrays in the order of the state dictionary, for one round.

        Returns
        -------
        tuple
            The trained model, the number of examples, and metrics. Metrics ``RECORD.NAME`` are other arrays,
            bytes in NumPy's file format.
        """
        question, settings = in_settings(config)
        check_settings(settings, SETTINGS)
        arrays = ArrayRecord(list(map(np.asarray, parameters)))
        reply = self.train_reply(TrainRequest(arrays, settings, question=question))
        numbers, records = in_metrics(reply.answer)
        metrics = {**reply.metrics, **numbers, **pack({**reply.records, **records})}
        return list(map(np.array, reply.arrays.values())), reply.examples, metrics

    def evaluate(self, parameters: NDArrays, config: dict[str, Any]) -> tuple[float, int, dict[str, Any]]:
        """Return loss, number of examples and ``accuracy`` of the server's model on the domain's test set.

        The loss is NaN if the reply has none.
        """
        question, settings = in_settings(config)
        check_settings(settings, SETTINGS)
        arrays = ArrayRecord(list(map(np.asarray, parameters)))
        reply = self.evaluate_reply(EvaluateRequest(arrays, settings, question=question))
        numbers, records = in_metrics(reply.answer)
        others = {name: value for name, value in reply.metrics.items() if name != "loss"}
        loss = reply.metrics.get("loss", math.nan)
        metrics = {**others, **numbers, **pack({**reply.records, **records})}
        return float(str(loss)), reply.examples, metrics


def check_count(returned: int, sent: int) -> None:
    """Raise a `ConfigError` unless a client returned as many arrays as it was sent: they have no names."""
    if returned != sent:
        why = f"its fit returned {returned} arrays, but {sent} were sent, and they have no names"
        remedy = "return all, or let the server send those that are trained"
        raise ConfigError(why, thing="arrays", value=returned, remedy=remedy)


def _replied(client: Any, request: Any, question: Question, kind: type[Reply]) -> Reply:
    """Return the reply of the function that answers a question."""
    reply = resolve(question.answered_by)(client, request, question)
    if not isinstance(reply, kind):
        what = f"'{question.answered_by}' returned {type(reply).__name__}, not a {kind.__name__}"
        raise TypeError(what)
    return reply


def pack(records: Mapping[str, Layers]) -> dict[str, bytes]:
    """Return arrays as metrics ``RECORD.NAME``, bytes in NumPy's file format."""
    metrics = {}
    for record, arrays in records.items():
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=False)
            metrics[f"{record}.{name}"] = buffer.getvalue()
    return metrics


def add_arrays(reply: RecordDict | dict[str, Any], record: str, arrays: Layers) -> None:
    """Add a record of arrays to a reply, or to the metrics of a `NumPyClient`; without arrays, do nothing."""
    if isinstance(reply, dict):
        reply |= pack({record: arrays})
    elif arrays:
        reply[record] = to_record(arrays)


def packed_in(metrics: Mapping[str, Any]) -> dict[str, dict[str, bytes]]:
    """Return the bytes in metrics ``RECORD.NAME``, by record and name."""
    records: dict[str, dict[str, bytes]] = {}
    for key, value in metrics.items():
        record, _, name = key.partition(".")
        if isinstance(value, bytes) and name:
            records.setdefault(record, {})[name] = value
    return records


def numbers_in(metrics: Mapping[str, Any]) -> dict[str, MetricRecordValues]:
    """Return the metrics that Flower accepts, Python's integers and floats; log others, except arrays."""
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in metrics.items()}
    numbers: dict[str, MetricRecordValues] = {
        k: v for k, v in plain.items() if isinstance(v, int | float) and not isinstance(v, bool)
    }
    arrays = {f"{record}.{name}" for record, entries in packed_in(metrics).items() for name in entries}
    for name in plain.keys() - numbers.keys() - arrays:
        _log_left_out(name, type(metrics[name]).__name__)
    return numbers


@lru_cache(maxsize=1000)
def _log_left_out(name: str, kind: str) -> None:
    """Log once that a metric is left out."""
    log(WARNING, "The metric '%s' is a %s and is left out: return a number, as by float()", name, kind)


def unpack(metrics: Mapping[str, Any]) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the arrays that `pack` put into metrics, by record and name."""
    return {
        record: {name: np.load(io.BytesIO(data), allow_pickle=False) for name, data in arrays.items()}
        for record, arrays in packed_in(metrics).items()
    }


def in_settings(settings: Mapping[str, Any]) -> tuple[Question | None, dict[str, Any]]:
    """Return the question in settings, if there is one (see `Question.settings`), and the other settings."""
    if (kind := settings.get(Question.record_name)) is None:
        return None, dict(settings)
    if kind not in QUESTIONS:
        raise unknown("question", str(kind), QUESTIONS)
    prefix = f"{Question.record_name}."
    fields = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    others = {name: settings[name] for name in settings if name.partition(".")[0] != Question.record_name}
    return QUESTIONS[kind].read(RecordDict({Question.record_name: ConfigRecord(fields)})), others


def in_metrics(answer: Answer | None) -> tuple[dict[str, Any], dict[str, Layers]]:
    """Return an answer for `NumPyClient`: numbers as metrics ``RECORD.NAME``, and arrays by record."""
    numbers, arrays = dict[str, Any](), dict[str, Layers]()
    for name, record in ({} if answer is None else answer.records()).items():
        if isinstance(record, ArrayRecord):
            arrays[name] = to_layers(record)
        else:
            numbers |= {f"{name}.{key}": value for key, value in record.items()}
    return numbers, arrays


def answer_in(metrics: Mapping[str, Any]) -> tuple[dict[str, ConfigRecord], dict[str, Any]]:
    """Return the records with the numbers of an answer in metrics (see `in_metrics`), and the others."""
    records, others = dict[str, ConfigRecord](), dict[str, Any]()
    for name, value in metrics.items():
        record, _, key = name.partition(".")
        if key and record.partition("/")[0] == Answer.record_name and not isinstance(value, bytes):
            records.setdefault(record, ConfigRecord())[key] = value
        else:
            others[name] = value
    return records, others
