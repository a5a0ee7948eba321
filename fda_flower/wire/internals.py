"""All that this package uses of Flower's private parts; a new Flower breaks this module alone."""

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.secure_aggregation.crypto.shamir import combine_shares as combine_shares
from flwr.common.secure_aggregation.crypto.shamir import create_shares as create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt as decrypt
from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt as encrypt
from flwr.common.secure_aggregation.crypto.symmetric_encryption import (
    generate_shared_key as generate_shared_key,
)
from flwr.proto.log_pb2 import PushLogsRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.logger import console_handler as console_handler
from flwr.supercore.run import Run as Run
from flwr.supercore.task_identity import TaskIdentity

from fda_flower.errors import RunError

if TYPE_CHECKING:
    from flwr.serverapp import Grid

_ids = count(1)

INFLATE = "inflate_object_from_contents"
"""Flower's function that puts a message together from its parts."""

MOST_COPIES = 64
"""By what factor the arrays of a message may be larger than its parts: one part may be used many times."""

WITHOUT_EVALUATION = ("No evaluate function registered", "does not implement `evaluate`")
"""What Flower's errors say of a client app, or an older client, that has no function for evaluations."""

AnyRecord = TypeVar("AnyRecord", ArrayRecord, ConfigRecord, MetricRecord, RecordDict)


@contextmanager
def task_identity() -> Iterator[None]:
    """Allow messages to be made in this process, as Flower does only inside a run; in a run, do nothing."""
    if TaskIdentity._run_id is not None:
        yield
        return
    fields = ("_task_id", "_run_id", "_node_id")
    before = {field: getattr(TaskIdentity, field) for field in fields}
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    try:
        yield
    finally:
        for field, value in before.items():
            setattr(TaskIdentity, field, value)


def filled(record: AnyRecord, entries: Mapping[str, Any]) -> AnyRecord:
    """Add entries to a record that has just been made, checked as Flower does, in a tenth of the time."""
    inside: dict[str, Any] = record.__dict__
    check_key, check_value = inside["_check_key_fn"], inside["_check_value_fn"]
    for key, value in entries.items():
        check_key(key)
        check_value(value)
        inside["_data"][key] = value
    return record


def empty_run() -> Run:
    """Return the run of a grid that has none of Flower's."""
    return Run.create_empty(run_id=1)


def numbered(messages: Iterable[Message]) -> list[Message]:
    """Give each message an id, as a SuperLink does."""
    sent = list(messages)
    for message in sent:
        message.metadata.__dict__["_message_id"] = str(next(_ids))
    return sent


def error_reply(message: Message, reason: str) -> Message:
    """Return the reply of a client that raised an exception."""
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def failed(metadata: Any, reason: str) -> Message:
    """Return an error in the place of a reply that has come with this metadata."""
    make: Any = Message
    error: Message = make(metadata=metadata, error=Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason))
    return error


def is_simulated_by_flower() -> bool:
    """Return whether this process is a Ray actor, which nothing that a server sends can make it."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None


def run_supernode(least: float, share: float) -> None:
    """Run ``flower-supernode``, which then waits between two looks for a share of the time since the first.

    It waits at least `least` seconds, and at most as many as Flower's own: 3 for a message, half a second for
    the reply of its own process. A Flower whose SuperNode works otherwise is left unchanged.
    """
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    parts = vars(start_client_internal)
    if parts.get("time") is time:
        parts["time"] = SimpleNamespace(**vars(time) | {"sleep": _Waits(least, share).sleep})
    flower_supernode()


def node_config(text: str | None) -> dict[str, Any]:
    """Return the node configuration that a SuperNode reads from ``--node-config``."""
    from flwr.common.config import parse_config_args

    return parse_config_args(None if text is None else [text])


class _Waits:
    """Sleeps ever longer, until it is asked for another number of seconds, as another wait begins."""

    def __init__(self, least: float, share: float) -> None:
        self._least, self._share = least, share
        self._asked, self._begun = math.nan, 0.0

    def sleep(self, asked: float) -> None:
        now = time.monotonic()
        if asked != self._asked:
            self._asked, self._begun = asked, now
        time.sleep(min(asked, max(self._least, self._share * (now - self._begun))))


def pull_sooner() -> None:
    """Have this process ask again for a part that is not there yet after 0.01 seconds, then later, up to 1.

    Flower does it after 1 second, then later, up to 10. A Flower that works otherwise is left unchanged.
    """
    from flwr.supercore.inflatable import inflatable_utils

    sooner = {"initial_backoff": 0.01, "backoff_cap": 1.0}
    for name in ("pull_objects", "pull_and_inflate_object_from_tree"):
        given = getattr(getattr(inflatable_utils, name, None), "__kwdefaults__", None) or {}
        given |= {key: seconds for key, seconds in sooner.items() if key in given}


def survive_bad_replies(grid: "Grid") -> None:
    """Have a grid over a SuperLink return an error in the place of a reply that cannot be put together.

    Flower's grid raises it, so that one node would end the run. A grid that works otherwise is left alone.
    """
    parts = vars(sys.modules[type(grid).__module__])
    theirs = parts.get(INFLATE)
    if theirs is None or getattr(theirs, "survives", False):
        return

    def inflated(object_id: str, contents: dict[str, bytes], **options: Any) -> Any:
        head = contents.get(object_id, b"")
        try:
            _check_copies(contents)
            message = theirs(object_id, contents, **options)
            if message.has_error() or isinstance(message.content, RecordDict):
                return message
            reason = f"its content is {type(message.content).__name__}, expected records"
        except Exception as error:  # A node may send anything, and must not end the run by it.
            reason = f"it cannot be put together: {error!r}"
        return failed(_metadata_in(head), reason)

    inflated.survives = True  # type: ignore[attr-defined]
    parts[INFLATE] = inflated


def _check_copies(contents: Mapping[str, bytes]) -> None:
    """Raise a `ValueError` if arrays made of these parts would take far more memory than they do."""
    from flwr.supercore.inflatable import inflatable_object as flower

    copied = 0
    for part in contents.values():
        kind, children, _ = flower.get_object_head_values_from_object_content(part)
        if kind == Array.__qualname__:
            places = json.loads(flower.get_object_body(part, Array)).get("arraychunk_ids", [])
            copied += sum(len(contents[children[place]]) for place in places)
    sent = sum(map(len, contents.values()))
    if copied > MOST_COPIES * sent:
        raise ValueError(f"its arrays have {copied} bytes, of {sent} that were sent")


def _metadata_in(head: bytes) -> Any:
    """Return what the first part of a message says of it; nothing if that cannot be read either."""
    from flwr.common.serde import metadata_from_proto  # type: ignore[attr-defined]
    from flwr.proto.message_pb2 import Message as MessageProto
    from flwr.proto.message_pb2 import Metadata
    from flwr.supercore.inflatable.inflatable_object import get_object_body

    try:
        return metadata_from_proto(MessageProto.FromString(get_object_body(head, Message)).metadata)
    except Exception:
        return metadata_from_proto(Metadata(message_type="query"))


def is_deployed(grid: "Grid") -> bool:
    """Return whether the nodes of a grid are SuperNodes, and not simulated."""
    return getattr(grid, "_runtime_client", None) is not None


def log_writer(grid: "Grid") -> Callable[[str], None]:
    """Return a function that appends text to the log of a run on a SuperLink, at once and whole.

    Raises
    ------
    RunError
        If the grid is a simulation's, which has no such log.
    """
    client: Any = getattr(grid, "_runtime_client", None)
    if client is None:
        raise RunError(
            "this SuperLink simulates its nodes: choose the engine ray, or another connection",
            thing="SuperLink",
        )

    def write(text: str) -> None:
        client.PushLogs(PushLogsRequest(node=Node(node_id=0), run_id=grid.run.run_id, logs=[text]))

    return write


def task() -> dict[str, int]:
    """Return the task, run and node that this process works for."""
    return {name: getattr(TaskIdentity, name) for name in ("task_id", "run_id", "node_id")}


def set_task(numbers: dict[str, int]) -> None:
    """Let this process work for the task, run and node that `task` has returned in another process."""
    for name, number in numbers.items():
        setattr(TaskIdentity, name, number)


def message_to_parts(message: Message) -> tuple[dict[str, Any], list[bytes]]:
    """Return what identifies a message and its parts, in JSON values, and the parts as Flower sends them."""
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, no_object_id_recompute

    with no_object_id_recompute():
        objects = get_all_nested_objects(message)
        parts = [each.deflate() for each in objects.values()]
    return {"message": message.metadata.message_id, "objects": list(objects)}, parts


def message_from_parts(header: dict[str, Any], parts: Sequence[bytes]) -> Message:
    """Return the message of which `message_to_parts` has made parts."""
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    contents = dict(zip(header["objects"], parts, strict=True))
    # A message comes after all that it contains.
    message = cast(Message, inflate_object_from_contents(header["objects"][-1], contents))
    message.metadata.__dict__["_message_id"] = header["message"]
    return message


def context_to_bytes(context: Context) -> bytes:
    """Return a context as Flower sends it."""
    from flwr.common.serde import context_to_proto

    data: bytes = context_to_proto(context).SerializeToString()
    return data


def context_from_bytes(data: bytes) -> Context:
    """Return the context of which `context_to_bytes` has made bytes."""
    from flwr.common.serde import context_from_proto
    from flwr.proto.message_pb2 import Context as ContextProto

    return context_from_proto(ContextProto.FromString(data))
