"""Messages over a SuperLink with all their arrays in one.

Flower sends each array as two objects, and each object in a request of its own, three times. `join` makes one
array of all, and `split` makes them again, with the same bytes. `fda_flower.engines.PromptGrid` and
`fda_flower.clients.serve` do both, unseen: a client app says that it can in its answer to the role query.
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
"""Names of a bundle's record with the one array, and of its record that says what is in it."""
_Joined: TypeAlias = dict[tuple[bytes, ...], ArrayRecord]


def join(content: RecordDict, joined: _Joined | None = None) -> RecordDict:
    """Return the records of a message with all arrays in one; `joined` has the arrays of earlier messages."""
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
    """Name, type, shape, format and number of bytes of each array."""
    return [
        (key, array.dtype, list(array.shape), array.stype, len(array.data)) for key, array in record.items()
    ]


def split(content: RecordDict) -> RecordDict:
    """Undo `join`; records that are no bundle raise any error of Python's."""
    about = json.loads(str(content.config_records[CONTENT][CONTENT]))
    data = memoryview(content.array_records[BUNDLE][BUNDLE].data if BUNDLE in content else b"")
    # Before any bytes are copied: with lengths of its choice a sender could have them copied many times.
    lengths = [each[-1] for _, arrays in about if arrays is not None for each in arrays]
    if any(type(length) is not int or length < 0 for length in lengths) or sum(lengths) != len(data):
        raise ValueError(f"its arrays have {sum(lengths)} bytes, and it holds {len(data)}")
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
    """A Flower mod: take the arrays of a message apart if they came as one, and send the reply's as one then.

    It is for an app of your own whose server has a `PromptGrid`: ``ClientApp(mods=[bundled])``, as the first
    mod, so that the others see records as they are without it. Apps from `serve` have it.
    """
    if CONTENT not in message.content:
        return call_next(message, context)
    message.content = split(message.content)
    reply = call_next(message, context)
    if reply.has_content():
        reply.content = join(reply.content)
    return reply


class Bundles:
    """What a grid sends and gets: bundles, to and from the nodes that have answered one."""

    def __init__(self) -> None:
        self._nodes: set[int] = set()

    def outgoing(self, messages: Iterable[Message]) -> list[Message]:
        """Join the content of messages to nodes that can split it, and of role queries, without arrays."""
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
        """Split the content of a reply, if it is joined; one that cannot be split becomes an error reply."""
        if not reply.has_content() or CONTENT not in reply.content:
            return reply
        try:
            reply.content = split(reply.content)
        except Exception as error:  # A node may send anything, and must not end the run by it.
            return failed(reply.metadata, f"its bundle of arrays cannot be taken apart: {error!r}")
        self._nodes.add(reply.metadata.src_node_id)
        return reply
