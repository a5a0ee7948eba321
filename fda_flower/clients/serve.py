"""Serve a `NumPyClient` from a Message-API `ClientApp`, and answer the strategies' role query."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from logging import ERROR
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.app.typing import MetricRecordValues
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.common import log

from fda_flower import protocol
from fda_flower.bundles import bundled
from fda_flower.clients.aggregation import aggregate_on_target
from fda_flower.clients.numpy_client import NumPyFace, unpack
from fda_flower.errors import FdaError
from fda_flower.flower_internals import filled
from fda_flower.protocol import EvaluateReply, EvaluateRequest, TrainReply, TrainRequest, read_request
from fda_flower.site.config import SiteConfig
from fda_flower.site.gate import SiteGate


def serve(
    client_fn: Callable[[Context], NumPyClient],
    mods: list[Mod] | None = None,
    app_mods: Sequence[Mod] = (),
    gate: SiteGate = SiteGate(),  # noqa: B008
) -> ClientApp:
    """A `ClientApp` that works with the strategies of this package.

    Parameters
    ----------
    client_fn : callable
        Makes the client of a node; it may return ``client.to_client()``. Role and domain are the client's
        attributes ``role`` and ``domain`` (or ``domain.name``) if it has them, else those of the node
        configuration.
    mods : list, optional
        Flower's mods around training, such as ``LocalDpMod``. They see each train reply, before it is
        aggregated with ``aggregate_on="target"``; they do not see evaluation and the role query, which they
        would refuse.
    app_mods : sequence, optional
        Mods around all of it, such as `fda_flower.privacy.DifferentialPrivacy`. They see each reply as it
        leaves, but train replies before they are aggregated with ``aggregate_on="target"``.
    gate : SiteGate, optional
        What a site decides by its node configuration, and notes of what leaves it.

    Examples
    --------
    >>> from flwr.client import NumPyClient
    >>> app = serve(lambda context: NumPyClient())
    """
    app = ClientApp(mods=[bundled, gate, return_errors, aggregate_on_target, *app_mods])

    def make(context: Context) -> Any:
        client = client_fn(context)
        return getattr(client, "numpy_client", client)

    @app.train(mods=mods)
    def train(message: Message, context: Context) -> Message:
        client, request = make(context), read_request(message.content)
        content = _answer(client, request).content()
        content[protocol.INFO] = _info(client, context)
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        client, request = make(context), read_request(message.content)
        reply = _evaluation(client, request)
        if protocol.GLOBAL in request.records:
            model = message.content.array_records[protocol.GLOBAL]
            second = replace(request, arrays=model, config={**request.config, protocol.BESIDE: True})
            reply = reply.beside(_evaluation(client, second))
        return Message(reply.content(), reply_to=message)

    answer_role_query(app, make)
    return app


def return_errors(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A Flower mod: make sure that errors reach the server.

    Flower's own mods address an error to the node itself, so that the server waits until its timeout.
    """
    reply = call_next(message, context)
    if reply.has_error() and reply.metadata.reply_to_message_id != message.metadata.message_id:
        return Message(reply.error, reply_to=message)
    return reply


def answer_role_query(app: ClientApp, client_fn: Callable[[Context], Any] | None = None) -> None:
    """Let an existing `ClientApp` answer the strategies' question for its role and domain.

    The answer comes from the node configuration (``--node-config 'role="target" domain="a"'``). In a
    simulation it holds only ``partition-id``, which is then the domain, and the strategy's
    ``target`` names the target. A node whose client cannot be made, for example because its data are missing,
    answers with the reason as ``problem``, and is left out.

    Parameters
    ----------
    app : ClientApp
        With a train function of its own.
    client_fn : callable, optional
        Makes a client whose attributes ``role`` and ``domain`` are sent instead, together with the properties
        of a `NumPyClient`.
    """

    @app.query("role")
    def role(message: Message, context: Context) -> Message:
        try:
            client = None if client_fn is None else client_fn(context)
            properties = client.get_properties({}) if isinstance(client, NumPyClient) else {}
            info = ConfigRecord({**properties, **_info(client, context)})
        except Exception as error:  # The server's operator has to read whatever keeps a site out.
            log(ERROR, "This node cannot take part", exc_info=error)
            info = _info(None, context)
            info[protocol.PROBLEM] = str(error) if isinstance(error, FdaError) else repr(error)
        return Message(RecordDict({protocol.INFO: info}), reply_to=message)


def _info(client: Any, context: Context) -> ConfigRecord:
    info = SiteConfig.of(context).about()
    if (domain := getattr(client, "domain", None)) is not None:
        info["domain"] = str(getattr(domain, "name", domain))
    if (role := getattr(client, "role", None)) is not None:
        info["role"] = str(role)
    return filled(ConfigRecord(), info)


def _answer(client: Any, request: TrainRequest) -> TrainReply:
    """Return a client's reply; another author's `NumPyClient` has further arrays in its metrics."""
    if isinstance(client, NumPyFace) and type(client).fit is NumPyFace.fit:
        reply = client.local_train(request)
        return replace(reply, arrays=dict(zip(request.arrays, reply.arrays.values(), strict=True)))
    parameters, examples, metrics = client.fit(request.arrays.to_numpy_ndarrays(), dict(request.config))
    arrays = dict(zip(request.arrays, map(np.asarray, parameters), strict=True))
    return TrainReply(arrays, int(examples), _numbers(metrics), unpack(metrics))


def _evaluation(client: Any, request: EvaluateRequest) -> EvaluateReply:
    if isinstance(client, NumPyFace) and type(client).evaluate is NumPyFace.evaluate:
        return client.judge(request)
    loss, examples, metrics = client.evaluate(request.arrays.to_numpy_ndarrays(), dict(request.config))
    numbers = _numbers({"loss": float(loss), **metrics})
    return EvaluateReply(int(examples), numbers, unpack(metrics))


def _numbers(metrics: Mapping[str, Any]) -> dict[str, MetricRecordValues]:
    """Return what Flower takes as metrics: Python's integers and floats; other values do not travel."""
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in metrics.items()}
    return {k: v for k, v in plain.items() if isinstance(v, int | float) and not isinstance(v, bool)}
