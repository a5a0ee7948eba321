"""Serve a `NumPyClient` from a Message-API `ClientApp`, and answer the strategies' role query."""

import io
from collections.abc import Callable
from logging import ERROR
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.app.typing import MetricRecordValues
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.common.logger import log
from numpy.typing import NDArray

from fda_flower.clients.aggregation import aggregate_on_target
from fda_flower.clients.client import PERSONAL
from fda_flower.errors import FdaError

RECORDS = ("batch-updates", "guidance", "adapted")
"""Records of arrays in a reply: a client's metrics ``RECORD.NAME``, bytes in NumPy's file format."""


def serve(client_fn: Callable[[Context], NumPyClient], mods: list[Mod] | None = None) -> ClientApp:
    """A `ClientApp` that works with the strategies of this package.

    Parameters
    ----------
    client_fn : callable
        Makes the client of a node, which may be one that ``to_client()`` returns. Its role and domain are
        its attributes ``role`` and ``domain`` (or ``domain.name``) if it has them, else the node
        configuration's.
    mods : list, optional
        Flower's mods around training, such as ``LocalDpMod``: they see what the client sends, before it
        is combined with ``aggregate_on="target"``, and neither evaluation nor the role query, which
        they would refuse.

    Examples
    --------
    >>> from flwr.client import NumPyClient
    >>> app = serve(lambda context: NumPyClient())
    """
    app = ClientApp(mods=[return_errors, aggregate_on_target])

    def make(context: Context) -> Any:
        client = client_fn(context)
        return getattr(client, "numpy_client", client)

    @app.train(mods=mods)
    def train(message: Message, context: Context) -> Message:
        if PERSONAL in message.content.array_records:
            context.state[PERSONAL] = message.content.array_records[PERSONAL]
        client = make(context)
        arrays = message.content.array_records["arrays"]
        parameters, examples, metrics = client.fit(arrays.to_numpy_ndarrays(), _config(message))
        content = RecordDict(
            {
                "arrays": _named(parameters, list(arrays)),
                "metrics": MetricRecord(_numbers({"num-examples": examples, **metrics})),
                "info": _info(client, context),
            }
        )
        for record in RECORDS:
            if found := _arrays_of(record, metrics):
                content[record] = found
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        client = make(context)
        records, config = message.content.array_records, _config(message)
        loss, examples, metrics = client.evaluate(records["arrays"].to_numpy_ndarrays(), config)
        numbers = _numbers({"loss": float(loss), "num-examples": examples, **metrics})
        if "global" in records:
            loss, _, metrics = client.evaluate(records["global"].to_numpy_ndarrays(), config)
            numbers |= {
                f"{key}-global": value for key, value in _numbers({"loss": float(loss), **metrics}).items()
            }
        return Message(RecordDict({"metrics": MetricRecord(numbers)}), reply_to=message)

    answer_role_query(app, make)
    return app


def return_errors(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A Flower mod: see that errors reach the server.

    Flower's own mods address an error to the node itself, and the server waits for the reply to the end.
    """
    reply = call_next(message, context)
    if reply.has_error() and reply.metadata.reply_to_message_id != message.metadata.message_id:
        return Message(reply.error, reply_to=message)
    return reply


def answer_role_query(app: ClientApp, client_fn: Callable[[Context], Any] | None = None) -> None:
    """Let an existing `ClientApp` tell its role and domain.

    They come from the node configuration (``--node-config 'role="target" domain="a"'``). In a
    simulation, where it holds only ``partition-id``, that is the domain, and the strategy's ``target``
    says which one is the target. A node whose client cannot be made, since its data are missing for
    example, tells why in ``problem``, and is left out.

    Parameters
    ----------
    app : ClientApp
        With a train function of its own.
    client_fn : callable, optional
        Makes a client whose attributes ``role`` and ``domain`` are told instead, and the properties of a
        `NumPyClient` beside them.
    """

    @app.query("role")
    def role(message: Message, context: Context) -> Message:
        try:
            client = None if client_fn is None else client_fn(context)
            properties = client.get_properties({}) if isinstance(client, NumPyClient) else {}
            info = ConfigRecord({**properties, **_info(client, context)})
        except Exception as error:  # Whatever keeps a site out, the server's operator has to read.
            log(ERROR, "This node cannot take part", exc_info=error)
            info = _info(None, context)
            info["problem"] = str(error) if isinstance(error, FdaError) else repr(error)
        return Message(RecordDict({"info": info}), reply_to=message)


def _info(client: Any, context: Context) -> ConfigRecord:
    node = context.node_config
    domain = getattr(client, "domain", node.get("domain", node.get("partition-id", context.node_id)))
    info = ConfigRecord({"domain": str(getattr(domain, "name", domain))})
    role = getattr(client, "role", node.get("role"))
    if role is not None:
        info["role"] = str(role)
    return info


def _config(message: Message) -> dict[str, Any]:
    return dict(message.content.config_records.get("config", {}))


def _named(parameters: list[NDArray[Any]], names: list[str]) -> ArrayRecord:
    return ArrayRecord(
        {name: Array(np.asarray(parameter)) for name, parameter in zip(names, parameters, strict=True)}
    )


def _numbers(metrics: dict[str, Any]) -> dict[str, MetricRecordValues]:
    """What Flower takes as metrics: Python's integers and floats; text, truth values and bytes stay here."""
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in metrics.items()}
    return {k: v for k, v in plain.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _arrays_of(record: str, metrics: dict[str, Any]) -> ArrayRecord:
    prefix = f"{record}."
    return ArrayRecord(
        {
            name.removeprefix(prefix): Array(np.load(io.BytesIO(value), allow_pickle=False))
            for name, value in metrics.items()
            if name.startswith(prefix) and isinstance(value, bytes)
        }
    )
