"""Translate messages into an older client's instructions, and its results into replies."""

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.app.typing import MetricRecordValues
from flwr.common import (
    EvaluateRes,
    FitRes,
    NDArrays,
    Parameters,
    Scalar,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)

from fda_flower.errors import ConfigError
from fda_flower.wire.numpy_client import packed_in
from fda_flower.wire.protocol import ARRAYS, METRICS, NUM_EXAMPLES, EvaluateRequest, read_request

NUMPY = "numpy.ndarray"
"""Flower's name for NumPy's file format."""


def instruction(message: Message) -> tuple[Parameters, dict[str, Scalar]]:
    """Return an older client's view of a message: arrays without names, and settings."""
    request = read_request(message.content)
    check_request(request)
    settings = {key: value for key, value in request.config.items() if isinstance(value, Scalar)}
    return parameters_of(request.arrays), settings


def check_request(request: EvaluateRequest) -> None:
    """Raise a `ConfigError` if a request holds more than arrays and scalars, all an older client accepts."""
    extra = [*request.records, *(k for k, value in request.config.items() if not isinstance(value, Scalar))]
    if extra:
        why = f"the method sends its clients '{extra[0]}', which Flower's older clients cannot receive"
        raise ConfigError(why, thing=extra[0], remedy="use the Message API")


def parameters_of(arrays: ArrayRecord) -> Parameters:
    """Return the arrays without their names or copies."""
    return Parameters([array.data for array in arrays.values()], NUMPY)


def arrays_of(parameters: Parameters, names: Sequence[str] = ()) -> ArrayRecord:
    """Return the arrays by name without copies; those without a name get their number, as in ``"0"``."""
    tensors, kind = parameters.tensors, parameters.tensor_type
    named = [*names, *map(str, range(len(names), len(tensors)))]
    arrays = {name: Array("", (), kind, tensor) for name, tensor in zip(named, tensors, strict=False)}
    return ArrayRecord(arrays)


def as_types_of(like: NDArrays, parameters: Parameters) -> Parameters:
    """Cast arrays to the types of others; integers are rounded."""
    pairs = zip(parameters_to_ndarrays(parameters), like, strict=True)
    return ndarrays_to_parameters(
        [(np.rint(a) if other.dtype.kind in "iu" else a).astype(other.dtype) for a, other in pairs]
    )


def fit_reply(message: Message, result: FitRes, names: Sequence[str]) -> Message:
    """Return a client's training result as a reply; metrics ``RECORD.NAME`` of bytes become arrays."""
    content = RecordDict()
    for record, arrays in packed_in(result.metrics).items():
        content[record] = arrays_of(Parameters(list(arrays.values()), NUMPY), list(arrays))
    content[ARRAYS] = arrays_of(result.parameters, names)
    content[METRICS] = MetricRecord({NUM_EXAMPLES: result.num_examples, **_numbers(result.metrics)})
    return Message(content, reply_to=message)


def evaluate_reply(message: Message, result: EvaluateRes) -> Message:
    """Return a client's evaluation result as a reply."""
    numbers = {"loss": float(result.loss), NUM_EXAMPLES: result.num_examples, **_numbers(result.metrics)}
    return Message(RecordDict({METRICS: MetricRecord(numbers)}), reply_to=message)


def _numbers(metrics: Mapping[str, Scalar]) -> dict[str, MetricRecordValues]:
    return {
        name: value
        for name, value in metrics.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
