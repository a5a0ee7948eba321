"""Messages as an older client's instructions, and its results as replies."""

from collections.abc import Mapping, Sequence

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.typing import MetricRecordValues
from flwr.common import EvaluateRes, FitRes, Parameters, Scalar

from fda_flower.errors import ConfigError

NUMPY = "numpy.ndarray"
"""Flower's word for bytes in NumPy's file format."""


def instruction(message: Message) -> tuple[Parameters, dict[str, Scalar]]:
    """What an older client gets of a message: arrays without names, and settings.

    Raises
    ------
    ConfigError
        If the message holds more than that.
    """
    content = message.content
    config = content.config_records.get("config", ConfigRecord())
    extra = [name for name in content if name not in ("arrays", "config")]
    extra += [key for key, value in config.items() if not isinstance(value, Scalar)]
    if extra:
        raise ConfigError(
            f"the method sends its clients '{extra[0]}', which Flower's older clients cannot take: use the "
            "Message API"
        )
    settings = {key: value for key, value in config.items() if isinstance(value, Scalar)}
    return parameters_of(content.array_records["arrays"]), settings


def parameters_of(arrays: ArrayRecord) -> Parameters:
    """The arrays without their names; the bytes are not copied."""
    return Parameters([array.data for array in arrays.values()], NUMPY)


def arrays_of(parameters: Parameters, names: Sequence[str] = ()) -> ArrayRecord:
    """The arrays by name, by ``"0"``, ``"1"``, ... where names are wanting; the bytes are not copied."""
    kind = parameters.tensor_type
    named = [*names, *(str(i) for i in range(len(names), len(parameters.tensors)))]
    return ArrayRecord(
        {
            name: Array(dtype="", shape=(), stype=kind, data=tensor)
            for name, tensor in zip(named, parameters.tensors, strict=False)
        }
    )


def fit_reply(message: Message, result: FitRes, names: Sequence[str]) -> Message:
    """A client's training as a reply.

    Metrics ``RECORD.NAME`` that are bytes, arrays in NumPy's file format, become records of arrays.
    """
    recorded: dict[str, dict[str, bytes]] = {}
    for key, value in result.metrics.items():
        record, _, name = key.partition(".")
        if isinstance(value, bytes) and name:
            recorded.setdefault(record, {})[name] = value
    content = RecordDict(
        {
            record: arrays_of(Parameters(list(arrays.values()), NUMPY), list(arrays))
            for record, arrays in recorded.items()
        }
    )
    content["arrays"] = arrays_of(result.parameters, names)
    content["metrics"] = MetricRecord({"num-examples": result.num_examples, **_numbers(result.metrics)})
    return Message(content, reply_to=message)


def evaluate_reply(message: Message, result: EvaluateRes) -> Message:
    """A client's evaluation as a reply."""
    numbers = {"loss": float(result.loss), "num-examples": result.num_examples, **_numbers(result.metrics)}
    return Message(RecordDict({"metrics": MetricRecord(numbers)}), reply_to=message)


def _numbers(metrics: Mapping[str, Scalar]) -> dict[str, MetricRecordValues]:
    return {
        name: value
        for name, value in metrics.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
