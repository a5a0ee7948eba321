"""Run server and clients in this process: no Ray, no start-up, the same strategy and client app."""

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count

import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fda_flower.engines.resources import Resources


class LocalGrid(Grid):
    """A Flower `Grid` whose nodes are a client app called in turn.

    Parameters
    ----------
    client_app : ClientApp
        What every node runs.
    num_clients : int
        Nodes; each has its ``partition-id`` and ``num-partitions`` as in Flower's simulation, and state
        of its own that lasts as long as the grid.
    """

    def __init__(self, client_app: ClientApp, num_clients: int) -> None:
        self._client_app = client_app
        self._run = Run.create_empty(run_id=1)
        self._ids = count(1)
        self._replies: dict[str, Message] = {}
        self._contexts = {
            node_id: Context(
                run_id=1,
                node_id=node_id,
                node_config={"partition-id": node_id - 2, "num-partitions": num_clients},
                state=RecordDict(),
                run_config={},
            )
            # Flower keeps node id 1 for the server.
            for node_id in range(2, num_clients + 2)
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
        """Make a message, as Flower's older API does."""
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        """The nodes."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Have the nodes answer at once; an error of a client becomes an error reply."""
        pushed = []
        for message in messages:
            message_id = str(next(self._ids))
            message.metadata.__dict__["_message_id"] = message_id
            self._replies[message_id] = self._answer(message)
            pushed.append(message_id)
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies to these messages."""
        return [self._replies.pop(message_id) for message_id in message_ids]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return the replies; a client in this process cannot be timed out."""
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message: Message) -> Message:
        try:
            context = self._contexts[message.metadata.dst_node_id]
            return self._client_app(message, context)
        except Exception as error:
            reason = f"{error!r}\n{traceback.format_exc()}"
            code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
            return Message(Error(code, reason), reply_to=message)


@contextmanager
def task_identity() -> Iterator[None]:
    """Let messages be made in this process, which Flower allows inside a run only; in one it does nothing."""
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


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Torch's number of threads for a whole run: changing it for each client would take time."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_local(
    server: Callable[[Grid], None], client_app: ClientApp, num_clients: int, resources: Resources
) -> None:
    """In this process, one client after the other: no start-up."""
    with task_identity(), torch_threads(resources.cpus_per_client):
        server(LocalGrid(client_app, num_clients))
