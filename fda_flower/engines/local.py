"""Grids of simulated clients, and the one whose clients run in this process, one after the other."""

import gc
import os
import sys
import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fda_flower.errors import FdaError
from fda_flower.wire.arrays import copied
from fda_flower.wire.internals import Run, empty_run, error_reply, filled, numbered


class SimulatedGrid(Grid):
    """A Flower `Grid` of simulated nodes, which answer all messages before it returns.

    Each node has a ``partition-id`` and ``num-partitions``, as in Flower's simulation, and a state that lasts
    as long as the grid. The nodes keep files in `folder`, if there is one.
    """

    FIRST_NODE = 2
    """Id of the first node; Flower reserves 1 for the server."""

    seconds_to_connect: float = 0.0
    """Time that nodes may take to connect: all are there at once."""

    def __init__(self, num_clients: int, folder: Path | None = None) -> None:
        self._run = empty_run()
        self._replies: dict[str, Message] = {}
        self._contexts = {
            node_id: Context(
                run_id=1,
                node_id=node_id,
                node_config={"partition-id": i, "num-partitions": num_clients},
                state=RecordDict(),
                run_config={} if folder is None else {"output": str(folder)},
            )
            for i, node_id in enumerate(range(self.FIRST_NODE, self.FIRST_NODE + num_clients))
        }

    def set_run(self, run: Run) -> None:
        """Set the run that messages belong to."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Make a message, as in Flower's older API."""
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return list(self._contexts)

    @abstractmethod
    def answers(self, messages: Sequence[Message]) -> dict[str, Message]:
        """Return the nodes' replies by the ids of the messages; a failure is an error reply."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Run the nodes on the messages; an exception in a client becomes an error reply."""
        sent = numbered(messages)
        self._replies |= self.answers(sent)
        return [message.metadata.message_id for message in sent]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to these messages."""
        return [self._replies.pop(message_id) for message_id in message_ids]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return the replies; the timeout is ignored."""
        return self.pull_messages(self.push_messages(messages))

    def context(self, message: Message) -> Context:
        """Return the context of the node that a message is for; raise a `KeyError` if there is none."""
        return self._contexts[message.metadata.dst_node_id]


class LocalGrid(SimulatedGrid):
    """A grid whose nodes run a client app in this process, one after the other."""

    def __init__(self, client_app: ClientApp, num_clients: int, folder: Path | None = None) -> None:
        super().__init__(num_clients, folder)
        self._client_app = client_app

    def answers(self, messages: Sequence[Message]) -> dict[str, Message]:
        """Return the nodes' replies by the ids of the messages."""
        return {message.metadata.message_id: self.answer(message) for message in messages}

    def answer(self, message: Message) -> Message:
        """Return a node's reply to a message with an id; an exception becomes an error reply."""
        reply = reply_of(lambda: self._client_app(message, self.context(message)), message)
        if reply.has_content():
            # The client may keep a record it sends in its state; over a network they would be two objects.
            records = {
                name: copied(record) if isinstance(record, ArrayRecord) else record
                for name, record in reply.content.items()
            }
            reply.content = filled(RecordDict(), records)
        return reply


def reply_of(client: Callable[[], Message], message: Message) -> Message:
    """Return a client's reply to a message, or an error reply with the exception that it raises."""
    try:
        reply: object = client()
        if not isinstance(reply, Message):
            raise TypeError(f"the app returned {type(reply).__name__}, not a Message")
        return reply
    except Exception as error:
        reason = str(error) if isinstance(error, FdaError) else f"{error!r}\n{traceback.format_exc()}"
        return error_reply(message, reason)


@contextmanager
def set_up_process(threads: int) -> Iterator[None]:
    """Set torch's number of threads in the block, and exclude existing objects from garbage collection."""
    frozen = gc.get_freeze_count() > 0
    if not frozen:
        gc.freeze()
    try:
        with _threads_of_torch(threads):
            yield
    finally:
        if not frozen:
            gc.unfreeze()


@contextmanager
def _threads_of_torch(threads: int) -> Iterator[None]:
    """Set torch's number of threads in the block; if it is imported there first, it begins with them."""
    if (torch := sys.modules.get("torch")) is None:
        with _environment("OMP_NUM_THREADS", str(threads)):
            yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        os.environ |= {} if before is None else {name: before}
