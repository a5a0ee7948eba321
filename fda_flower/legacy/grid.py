"""Clients of Flower's older API as nodes of a grid, their instructions, and their results as replies."""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError
from fda_flower.wire import protocol
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.internals import EXPIRED, SIMULATED_SECONDS, error_reply, is_simulated, numbered
from fda_flower.wire.numpy_client import answer_in, check_count, numbers_in, packed_in
from fda_flower.wire.older import (
    ClientManager,
    ClientProxy,
    Code,
    EvaluateIns,
    EvaluateRes,
    FitRes,
    GetPropertiesIns,
    Parameters,
    Scalar,
)
from fda_flower.wire.protocol import EvaluateRequest, read_request


class ClientError(Exception):
    """A client's exception together with the client's id, which Flower's older server drops."""

    def __init__(self, cid: str, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.cid = cid


def _passed_on(method: str) -> Callable[..., Any]:
    """Make a method that calls the method of this name on the wrapped proxy."""

    def call(self: "NamedProxy", *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(self._proxy, method)(*args, **kwargs)
        except Exception as error:
            raise ClientError(self.cid, error) from error

    return call


class NamedProxy(ClientProxy):
    """A client proxy whose exceptions carry the client's id."""

    def __init__(self, proxy: ClientProxy) -> None:
        self.__dict__.update(proxy.__dict__)
        self._proxy = proxy

    get_properties = _passed_on("get_properties")
    get_parameters = _passed_on("get_parameters")
    fit = _passed_on("fit")
    evaluate = _passed_on("evaluate")
    reconnect = _passed_on("reconnect")


class ManagerGrid(LocalGrid):
    """A grid over a `ClientManager`, sufficient for `Nodes`.

    A role query becomes a call of ``get_properties``, an evaluation one of ``evaluate``. The older server
    itself runs training and the evaluation of the headline.
    """

    def __init__(self, manager: ClientManager) -> None:
        super().__init__(ClientApp(), 0)
        self._manager = manager
        self._node_ids: dict[str, int] = {}
        self._proxies: dict[int, ClientProxy] = {}

    @property
    def seconds_to_connect(self) -> float:  # type: ignore[override]
        """Time that nodes may take to connect: for ever, unless those that are here are simulated."""
        return SIMULATED_SECONDS if any(map(is_simulated, dict(self._manager.all()).values())) else math.inf

    def proxy(self, node_id: int) -> NamedProxy:
        """Return the client of a node."""
        return NamedProxy(self._proxies[node_id])

    def get_node_ids(self) -> Iterable[int]:
        """Return a number for each connected client, which is stable for the life of the grid."""
        connected = dict(self._manager.all())
        for cid, proxy in connected.items():
            self._proxies[self._node_ids.setdefault(cid, len(self._node_ids) + self.FIRST_NODE)] = proxy
        return [self._node_ids[cid] for cid in connected]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Return the replies to role queries and evaluations that come in time.

        Raise a `ConfigError` for a train message.
        """
        sent = numbered(messages)
        if any(message.metadata.message_type.partition(".")[0] == protocol.TRAIN for message in sent):
            why = "the method sends several requests a round, which Flower's older server cannot"
            raise ConfigError(why, thing="method", remedy="use the Message API")
        with ThreadPoolExecutor() as pool:
            replies = pool.map(lambda message: self.answer_within(timeout, message), sent)
            return [reply for reply in replies if reply is not None]

    def answer_within(self, timeout: float | None, message: Message) -> Message | None:
        """Return the reply to a role query or an evaluation, None if it comes too late."""
        proxy = self.proxy(message.metadata.dst_node_id)
        try:
            if message.metadata.message_type != protocol.ROLE_QUERY:
                evaluation = proxy.evaluate(EvaluateIns(*instruction(message)), timeout, None)
                if evaluation.status.code != Code.OK:
                    return error_reply(message, f"client {proxy.cid}: {evaluation.status.message}")
                return evaluate_reply(message, evaluation)
            answer = proxy.get_properties(GetPropertiesIns(config={}), timeout, None)
        except ClientError as failure:
            if EXPIRED in str(failure):
                return None
            return error_reply(message, f"client {proxy.cid}: {failure}")
        if answer.status.code != Code.OK or "domain" not in answer.properties:
            remedy = 'let its get_properties return {"domain": ..., "role": "source" or "target"}'
            return error_reply(message, f"client {proxy.cid} does not report its domain: {remedy}")
        return Message(RecordDict({protocol.INFO: ConfigRecord(dict(answer.properties))}), reply_to=message)


NUMPY = "numpy.ndarray"
"""Flower's name for NumPy's file format."""


def instruction(message: Message) -> tuple[Parameters, dict[str, Scalar]]:
    """Return an older client's view of a message: arrays without names, and settings."""
    request = read_request(message.content, QUESTIONS.get(message.metadata.message_type))
    check_request(request)
    asked = {} if request.question is None else request.question.settings()
    settings = {key: value for key, value in request.config.items() if isinstance(value, Scalar)}
    return parameters_of(request.arrays), {**settings, **asked}


def check_request(request: EvaluateRequest) -> None:
    """Raise a `ConfigError` if a request holds more than arrays and scalars, all an older client accepts."""
    if request.question is not None:
        request.question.settings()
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


def fit_reply(message: Message, result: FitRes, names: Sequence[str]) -> Message:
    """Return a client's training result as a reply; metrics ``RECORD.NAME`` of bytes become arrays."""
    try:
        check_count(len(result.parameters.tensors), len(message.content[protocol.ARRAYS]))
    except ConfigError as error:
        return error_reply(message, str(error))
    content = RecordDict()
    for record, arrays in packed_in(result.metrics).items():
        content[record] = arrays_of(Parameters(list(arrays.values()), NUMPY), list(arrays))
    answer, metrics = answer_in(result.metrics)
    content.update(answer)
    content[protocol.ARRAYS] = arrays_of(result.parameters, names)
    content[protocol.METRICS] = MetricRecord(
        {protocol.NUM_EXAMPLES: result.num_examples, **numbers_in(metrics)}
    )
    return Message(content, reply_to=message)


def evaluate_reply(message: Message, result: EvaluateRes) -> Message:
    """Return a client's evaluation result as a reply."""
    answer, metrics = answer_in(result.metrics)
    numbers = {
        "loss": float(result.loss),
        protocol.NUM_EXAMPLES: result.num_examples,
        **numbers_in(metrics),
    }
    return Message(RecordDict({protocol.METRICS: MetricRecord(numbers), **answer}), reply_to=message)
