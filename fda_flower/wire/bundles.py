"""Send the records of a message over a SuperLink in few objects.

Flower sends each record as an object and each array as two more, and each object in three requests. A message
has one of the forms of `Form`, from which `split` restores its records byte for byte.
`fda_flower.engines.PollingGrid` and `fda_flower.clients.serve` use them transparently: a client app announces
in the answer to the role query which ones it reads.
"""

import json
from collections.abc import Iterable, Mapping
from copy import copy
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fda_flower.errors import ConfigError, printable
from fda_flower.wire.arrays import num_bytes
from fda_flower.wire.internals import ClientAppCallable, failed, filled
from fda_flower.wire.protocol import ROLE_QUERY

BUNDLE, CONTENT = "bundle", "bundle-content"
"""Names of records, and of their entries: the joined bytes, and the table of contents."""
READS, ONE_RECORD = "reads", "one-record"
"""An entry next to the table, with the further forms that the sender reads, and `Form.RECORD` there."""
LEAST = 10**6
"""Bytes of arrays from which a message is a bundle, which Flower sends in parts."""

_Joined: TypeAlias = dict[tuple[bytes, ...], ArrayRecord]
_Other: TypeAlias = ConfigRecord | MetricRecord


class Form(IntEnum):
    """How the records of a message travel, from the form that all programs read to the one that few do.

    ``PLAIN``: as Flower has them. ``BUNDLE``: all arrays are one, in the record `BUNDLE`; the table in the
    record `CONTENT` describes them, and names the other records. ``ANNOUNCED``: the same, from a program that
    also reads ``RECORD``; older ones read it as ``BUNDLE``. ``RECORD``: the record `CONTENT` is all there is:
    the table, the joined bytes as entry `BUNDLE`, and the entries of other records as ``PLACE/ENTRY``, by the
    record's place in the table.
    """

    PLAIN, BUNDLE, ANNOUNCED, RECORD = range(4)

    @classmethod
    def of(cls, content: RecordDict) -> "Form":
        """Return the form of a message's records; raise a `ConfigError` if it is none."""
        if CONTENT not in content:
            return cls.PLAIN
        head = _head(content)
        if BUNDLE in head:
            return cls.RECORD
        return cls.ANNOUNCED if ONE_RECORD in _further_forms(head) else cls.BUNDLE

    def write(self, content: RecordDict, joined: _Joined | None = None) -> RecordDict:
        """Return records in this form, or in ``ANNOUNCED`` if ``RECORD`` would have `LEAST` bytes or more.

        `joined` caches the arrays of earlier messages.
        """
        if self is Form.PLAIN:
            return content
        arrays = {name: record for name, record in content.items() if isinstance(record, ArrayRecord)}
        bundle = _joined(arrays, {} if joined is None else joined)
        if self is Form.RECORD and num_bytes(bundle[BUNDLE]) < LEAST:
            return _as_record(content, bundle[BUNDLE].data)
        rows = [(name, _rows_of(arrays[name]) if name in arrays else None) for name in content]
        further = {} if self is Form.BUNDLE else {READS: [ONE_RECORD]}
        records = RecordDict({name: record for name, record in content.items() if name not in arrays})
        records[CONTENT] = filled(ConfigRecord(), {CONTENT: json.dumps(rows), **further})
        if any(arrays.values()):
            records[BUNDLE] = bundle
        return records


def _joined(arrays: Mapping[str, ArrayRecord], joined: _Joined) -> ArrayRecord:
    parts = tuple(array.data for record in arrays.values() for array in record.values())
    if parts not in joined:
        data = b"".join(parts)
        joined[parts] = filled(ArrayRecord(), {BUNDLE: Array("uint8", (len(data),), BUNDLE, data)})
    return joined[parts]


def _as_record(content: RecordDict, data: bytes) -> RecordDict:
    rows = list[tuple[str, Any]]()
    entries: dict[str, Any] = {CONTENT: "", BUNDLE: data}
    for place, (name, record) in enumerate(content.items()):
        if isinstance(record, ArrayRecord):
            rows.append((name, _rows_of(record)))
            continue
        rows.append((name, "metrics" if isinstance(record, MetricRecord) else "config"))
        entries |= {f"{place}/{entry}": value for entry, value in record.items()}
    entries[CONTENT] = json.dumps(rows)
    return filled(RecordDict(), {CONTENT: filled(ConfigRecord(), entries)})


def _rows_of(record: ArrayRecord) -> list[tuple[str, str, list[int], str, int]]:
    """Return name, type, shape, format and number of bytes of each array."""
    return [
        (key, array.dtype, list(array.shape), array.stype, len(array.data)) for key, array in record.items()
    ]


class _Array(NamedTuple):
    """What the table says of an array."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    stype: str
    length: int


_Table: TypeAlias = dict[str, list[_Array] | str | None]
"""By name of a record its arrays, its kind if its entries are apart, or None if it is there itself."""


def split(content: RecordDict) -> RecordDict:
    """Return the records of a message of any form.

    Raises a `ConfigError` unless the table names all that the message holds, once, and each value has its
    type.
    """
    if CONTENT not in content:
        return content
    head = _head(content)
    table = _table(head[CONTENT])
    data, others = (_of_record if BUNDLE in head else _of_bundle)(content, head, table)
    if not isinstance(data, bytes):
        raise _malformed(f"its '{BUNDLE}' is no bytes")
    # Check before copying: a sender could otherwise declare lengths that copy the bytes many times.
    declared = sum(array.length for arrays in table.values() if isinstance(arrays, list) for array in arrays)
    if declared != len(data):
        raise _malformed(f"its arrays have {declared} bytes, but it holds {len(data)}")
    records, view, begin = RecordDict(), memoryview(data), 0
    for name, arrays in table.items():
        if not isinstance(arrays, list):
            records[name] = others[name]
            continue
        values: dict[str, Array] = {}
        for key, dtype, shape, stype, length in arrays:
            values[key] = Array(dtype, shape, stype, bytes(view[begin : begin + length]))
            begin += length
        records[name] = filled(ArrayRecord(), values)
    return records


def _of_record(content: RecordDict, head: ConfigRecord, table: _Table) -> tuple[object, dict[str, _Other]]:
    """Return the joined bytes, and the records without arrays, of a message that is one record."""
    _check_known("record", content, {CONTENT})
    kinds = enumerate(table.values())
    entries = {str(place): dict[str, Any]() for place, kind in kinds if isinstance(kind, str)}
    for entry, value in head.items():
        place, slash, key = entry.partition("/")
        if slash and place in entries:
            entries[place][key] = value
        else:
            _check_known("entry", [entry], {CONTENT, BUNDLE})
    others: dict[str, _Other] = {}
    for number, (name, kind) in enumerate(table.items()):
        if kind is None:
            raise _malformed(f"the kind of its record {_shown(name)} is missing")
        if isinstance(kind, str):
            others[name] = _filled(name, kind, entries[str(number)])
    return head[BUNDLE], others


def _filled(name: str, kind: str, entries: Mapping[str, Any]) -> _Other:
    try:
        return filled(MetricRecord(), entries) if kind == "metrics" else filled(ConfigRecord(), entries)
    except TypeError as error:
        raise _malformed(f"an entry of its record {_shown(name)} is none of {kind}") from error


def _of_bundle(content: RecordDict, head: ConfigRecord, table: _Table) -> tuple[object, dict[str, _Other]]:
    """Return the joined bytes, and the records without arrays, of a message whose arrays are one."""
    _check_known("entry", head, {CONTENT, READS})
    _further_forms(head)
    others: dict[str, _Other] = {}
    for name, kind in table.items():
        record = content.get(name)
        if kind is None and isinstance(record, _Other) and name not in (CONTENT, BUNDLE):
            others[name] = record
        elif not isinstance(kind, list):
            raise _malformed(f"its record {_shown(name)} is missing")
    _check_known("record", content, {CONTENT, BUNDLE, *others})
    if BUNDLE not in content:
        return b"", others
    bundle = content[BUNDLE]
    if not isinstance(bundle, ArrayRecord) or list(bundle) != [BUNDLE]:
        raise _malformed(f"its record '{BUNDLE}' is no array '{BUNDLE}'")
    return bundle[BUNDLE].data, others


def _head(content: RecordDict) -> ConfigRecord:
    head = content[CONTENT]
    if not isinstance(head, ConfigRecord) or CONTENT not in head:
        raise _malformed(f"its record '{CONTENT}' has no table of contents")
    return head


def _further_forms(head: ConfigRecord) -> list[Any]:
    """Return the names of forms, known or not, that the sender reads beyond a bundle."""
    forms = head.get(READS, [])
    if not isinstance(forms, list) or not all(isinstance(form, str) for form in forms):
        raise _malformed(f"its entry '{READS}' is no list of texts")
    return forms


def _table(text: object) -> _Table:
    try:
        rows = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError) as error:
        raise _malformed(f"its table of contents cannot be read, {type(error).__name__}") from error
    table: _Table = {}
    for row in rows if isinstance(rows, list) else [rows]:
        match row:
            case [str(name), (None | "config" | "metrics") as kind]:
                about: list[_Array] | str | None = kind
            case [str(name), [*arrays]]:
                about = [_array(array) for array in arrays]
                if len({array.name for array in about}) < len(about):
                    raise _malformed(f"its record {_shown(name)} has an array twice")
            case _:
                raise _malformed("a row of its table of contents is no name with what it names")
        if name in table:
            raise _malformed(f"it has the record {_shown(name)} twice")
        table[name] = about
    return table


def _array(about: Any) -> _Array:
    match about:
        case [str(name), str(dtype), [*shape], str(stype), length]:
            if all(type(number) is int and number >= 0 for number in (*shape, length)):
                return _Array(name, dtype, tuple(shape), stype, length)
    raise _malformed("an array of its table of contents is no name, type, shape, format and number of bytes")


def _check_known(what: str, names: Iterable[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise _malformed(f"it holds the unknown {what} {_shown(name)}")


def _shown(name: str) -> str:
    return repr(printable(name, 100))


def _malformed(why: str) -> ConfigError:
    return ConfigError(
        f"a bundle of records cannot be split: {why}",
        thing=BUNDLE,
        remedy="send what fda_flower.wire.bundles writes",
    )


def bundled(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Split a message in another form than Flower's for the app, and reply in the same form (a Flower mod).

    For your own client app under a server with a `PollingGrid`: ``ClientApp(mods=[bundled])``. Make it the
    first mod, so that the others see plain records. Apps from `serve` include it.
    """
    form = Form.of(message.content)
    message.content = split(message.content)
    reply = call_next(message, context)
    if reply.has_content():
        reply.content = form.write(reply.content)
    return reply


class Bundles:
    """The bundling state of a grid: it remembers the form that each node reads."""

    def __init__(self) -> None:
        self._forms: dict[int, Form] = {}

    def outgoing(self, messages: Iterable[Message]) -> list[Message]:
        """Write role queries, which have no arrays and announce, and messages to nodes that can split."""
        joined: _Joined = {}
        sent = []
        for message in messages:
            about = message.metadata
            form = self._forms.get(about.dst_node_id, Form.PLAIN)
            if about.message_type == ROLE_QUERY:
                form = Form.ANNOUNCED
            if form is not Form.PLAIN:
                content, message = message.content, copy(message)
                message.content = form.write(content, joined)
            sent.append(message)
        return sent

    def incoming(self, reply: Message) -> Message:
        """Split a reply; one that cannot be split becomes an error reply."""
        if not reply.has_content():
            return reply
        node = reply.metadata.src_node_id
        try:
            form = Form.of(reply.content)
            reply.content = split(reply.content)
        except Exception as error:  # a malformed reply must not end the run
            return failed(reply.metadata, str(error))
        read = Form.RECORD if form is Form.ANNOUNCED else form
        self._forms[node] = max(read, self._forms.get(node, Form.PLAIN))
        return reply
