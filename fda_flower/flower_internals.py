"""All that this package uses of Flower's private parts; a new Flower breaks this module alone."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.proto.log_pb2 import PushLogsRequest
from flwr.proto.node_pb2 import Node
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fda_flower.errors import RunError

try:
    from flwr.supercore.task_identity import TaskIdentity
except ModuleNotFoundError:  # Flower 1.36 lets messages be made anywhere.
    TaskIdentity = None  # type: ignore[assignment,misc]

__all__ = ["Run", "empty_run", "error_reply", "filled", "log_writer", "numbered", "task_identity"]

_ids = count(1)

AnyRecord = TypeVar("AnyRecord", ArrayRecord, ConfigRecord, MetricRecord, RecordDict)


@contextmanager
def task_identity() -> Iterator[None]:
    """Allow messages to be made in this process, as Flower does only inside a run; in a run, do nothing."""
    if TaskIdentity is None or TaskIdentity._run_id is not None:
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


def log_writer(grid: Grid) -> Callable[[str], None]:
    """Return a function that appends text to the log of a run on a SuperLink.

    Flower uploads what a server app prints too, but late, cut off at the end, and on the SuperLink's
    console.

    Raises
    ------
    RunError
        If the grid is the grid of a simulation, which has no such log.
    """
    client: Any = getattr(grid, "_runtime_client", None)
    if client is None:
        raise RunError("this SuperLink simulates its nodes: choose the engine ray, or another connection")

    def write(text: str) -> None:
        client.PushLogs(PushLogsRequest(node=Node(node_id=0), run_id=grid.run.run_id, logs=[text]))

    return write
