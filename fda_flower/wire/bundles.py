"""Send all arrays of a message over a SuperLink as one.

Flower sends each array as two objects, and each object in three requests. `join` concatenates all arrays into
one, and `split` restores them byte for byte. `fda_flower.engines.PollingGrid` and `fda_flower.clients.serve`
do both transparently: a client app announces its support in the answer to the role query.
"""

import json
from collections.abc import Iterable
from copy import copy
from typing import TypeAlias

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from fda_flower.wire.internals import failed, filled
from fda_flower.wire.protocol import ROLE_QUERY

BUNDLE, CONTENT = "bundle", "bundle-content"
"""Record names: the joined bytes, and their table of contents."""
_Joined: TypeAlias = dict[tuple[bytes, ...], ArrayRecord]


def join(content: RecordDict, joined: _Joined | None = None) -> RecordDict:
    """Return a message's records with all arrays joined; `joined` caches the arrays of earlier messages."""
    arrays = {name: record for name, record in content.items() if isinstance(record, ArrayRecord)}
    about = [(name, _about(arrays[name]) if name in arrays else None) for name in content]
    bundle = RecordDict({name: record for name, record in content.items() if name not in arrays})
    bundle[CONTENT] = ConfigRecord({CONTENT: json.dumps(about)})
    if any(arrays.values()):
        parts = tuple(array.data for record in arrays.values() for array in record.values())
        joined = {} if joined is None else joined
        if parts not in joined:
            data = b"".join(parts)
            joined[parts] = filled(ArrayRecord(), {BUNDLE: Array("uint8", (len(data),), BUNDLE, data)})
        bundle[BUNDLE] = joined[parts]
    return bundle


def _about(record: ArrayRecord) -> list[tuple[str, str, list[int], str, int]]:
    """Return name, type, shape, format and number of bytes of each array."""
    return [
        (key, array.dtype, list(array.shape), array.stype, len(array.data)) for key, array in record.items()
    ]


def split(content: RecordDict) -> RecordDict:
    """Undo `join`; malformed records raise an arbitrary Python exception."""
    about = json.loads(str(content.config_records[CONTENT][CONTENT]))
    data = memoryview(content.array_records[BUNDLE][BUNDLE].data if BUNDLE in content else b"")
    # Check before copying: a sender could otherwise declare lengths that copy the bytes many times.
    lengths = [each[-1] for _, arrays in about if arrays is not None for each in arrays]
    if any(type(length) is not int or length < 0 for length in lengths) or sum(lengths) != len(data):
        raise ValueError(f"its arrays have {sum(lengths)} bytes, but it holds {len(data)}")
    records = RecordDict()
    begin = 0
    for name, arrays in about:
        if arrays is None:
            records[name] = content[name]
            continue
        made: dict[str, Array] = {}
        for key, dtype, shape, stype, length in arrays:
            made[key] = Array(dtype, tuple(shape), stype, bytes(data[begin : begin + length]))
            begin += length
        records[name] = filled(ArrayRecord(), made)
    return records


def bundled(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Split a bundled message for the app, and join its reply (a Flower mod).

    For your own client app under a server with a `PollingGrid`: ``ClientApp(mods=[bundled])``. Make it the
    first mod, so that the others see plain records. Apps from `serve` include it.
    """
    if CONTENT not in message.content:
        return call_next(message, context)
    message.content = split(message.content)
    reply = call_next(message, context)
    if reply.has_content():
        reply.content = join(reply.content)
    return reply


class Bundles:
    """The bundling state of a grid: it remembers the nodes that have replied with a bundle."""

    def __init__(self) -> None:
        self._nodes: set[int] = set()

    def outgoing(self, messages: Iterable[Message]) -> list[Message]:
        """Join the content of role queries, which have no arrays, and of messages to nodes that can split."""
        joined: _Joined = {}
        sent = []
        for message in messages:
            about = message.metadata
            if about.message_type == ROLE_QUERY or about.dst_node_id in self._nodes:
                content, message = message.content, copy(message)
                message.content = join(content, joined)
            sent.append(message)
        return sent

    def incoming(self, reply: Message) -> Message:
        """Split a joined reply; a reply that cannot be split becomes an error reply."""
        if not reply.has_content() or CONTENT not in reply.content:
            return reply
        try:
            reply.content = split(reply.content)
        except Exception as error:  # a malformed reply must not end the run
            return failed(reply.metadata, f"its bundle of arrays cannot be split: {error!r}")
        self._nodes.add(reply.metadata.src_node_id)
        return reply
