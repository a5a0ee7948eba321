"""Run server and clients on this machine without Ray: in this process, or with clients in worker processes.

Arrays pass through anonymous shared memory, which cannot be left behind.
"""

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import recv_handle, send_handle
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any

from flwr.app import Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fda_flower.engines import Resources
from fda_flower.engines.folders import Folders
from fda_flower.engines.local import LocalGrid, SimulatedGrid, set_up_process
from fda_flower.engines.packing import pack, unpack
from fda_flower.errors import RunError, print_anything
from fda_flower.wire.internals import console_handler, error_reply, task_identity
from fda_flower.wire.protocol import INFO

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkContext, SpawnContext

    Connected = Connection[Any, Any]


def send(connection: "Connection[Any, Any]", thing: Any) -> None:
    """Send an object over a Unix socket; if it cannot be pickled, send nothing."""
    body, buffers = pack(thing)
    parts = [buffer.raw() for buffer in buffers]
    with _shared_memory() as file:
        for part in parts:
            file.write(part)
        file.flush()
        connection.send(([part.nbytes for part in parts], body))
        send_handle(connection, file.fileno(), 0)


def receive(connection: "Connection[Any, Any]") -> Any:
    """Receive the next object; its arrays are copies, because the number of open files is limited."""
    sizes, body = connection.recv()
    with os.fdopen(recv_handle(connection), "rb") as file:
        file.seek(0)
        return unpack((body, [file.read(size) for size in sizes]))


def _shared_memory() -> IO[bytes]:
    """Return an anonymous file, in memory on Linux."""
    return os.fdopen(os.memfd_create("fda"), "wb") if sys.platform == "linux" else tempfile.TemporaryFile()


SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE_SECONDS = 1.0
"""Time for a worker to finish writing when it is stopped."""


@dataclass(frozen=True)
class Worker:
    """A process that runs some of the clients, and its connection."""

    process: BaseProcess
    connection: "Connected"


class WorkersGrid(SimulatedGrid):
    """A grid whose nodes run a client app in worker processes; a node always uses the same worker.

    Its state is there.
    """

    def __init__(self, num_clients: int, workers: Sequence[Worker]) -> None:
        super().__init__(num_clients)
        self._workers = workers
        self._names = {node_id: f"client {i}" for i, node_id in enumerate(self.get_node_ids())}

    def answers(self, messages: Sequence[Message]) -> dict[str, Message]:
        """Return the nodes' replies by the ids of the messages; each worker answers its own in order.

        Raises
        ------
        RunError
            If a worker has exited.
        """
        replies: dict[str, Message] = {}
        batches: dict[int, list[Message]] = defaultdict(list)
        for message in messages:
            batches[self._place(message.metadata.dst_node_id)].append(message)
        for place, batch in batches.items():
            with self._connected(place) as connection:
                send(connection, batch)
        left = {place: len(batch) for place, batch in batches.items()}
        while left:
            ready = wait([self._workers[place].connection for place in left])
            for place in [place for place in left if self._workers[place].connection in ready]:
                with self._connected(place) as connection:
                    message_id, reply = receive(connection)
                replies[message_id] = reply
                self._learn_name(reply)
                left[place] -= 1
            left = {place: count for place, count in left.items() if count}
        return replies

    def _place(self, node_id: int) -> int:
        return (node_id - self.FIRST_NODE) % len(self._workers)

    def _learn_name(self, reply: Message) -> None:
        if reply.has_content() and INFO in reply.content.config_records:
            domain = str(reply.content.config_records[INFO].get("domain"))
            self._names[reply.metadata.src_node_id] = f"'{domain}'"

    @contextmanager
    def _connected(self, place: int) -> "Iterator[Connected]":
        """Yield the connection to a worker; raise a `RunError` if the worker has exited."""
        worker = self._workers[place]
        try:
            yield worker.connection
        except (EOFError, ConnectionError) as error:
            worker.process.join(GRACE_SECONDS)
            code = worker.process.exitcode
            killed = " (killed, perhaps because memory ran out: use fewer --workers)" if code == -9 else ""
            clients = ", ".join(name for node, name in self._names.items() if self._place(node) == place)
            raise RunError(
                f"worker {place + 1} of {len(self._workers)}, which runs {clients}, exited with code "
                f"{code}{killed}",
                thing=f"worker {place + 1}",
                value=code,
            ) from error


def run_local(
    server: Callable[[Grid], None],
    make_app: Callable[[], ClientApp],
    num_clients: int,
    resources: Resources,
    folders: Folders | None = None,
) -> None:
    """Run the server in this process, and the clients one after the other or in parallel workers."""
    workers, threads = min(resources.workers or 1, num_clients), resources.threads
    folder = None if folders is None else folders.run
    with task_identity(), set_up_process(threads):
        grid = LocalGrid(make_app(), num_clients, folder)
        if workers == 1:
            server(grid)
            return
        with workers_grid(grid, num_clients, workers, threads) as divided:
            server(divided)


@contextmanager
def workers_grid(grid: LocalGrid, num_clients: int, count: int, threads: int) -> Iterator[WorkersGrid]:
    """Yield a grid whose nodes run in worker processes, which end with the block or with this process.

    On Linux a worker is a fork of this process, which starts instantly. Elsewhere, and if torch sees a GPU,
    which a fork cannot use, it is spawned. `ProcessPoolExecutor` is unsuitable: its workers outlive a parent
    that is killed.
    """
    workers: list[Worker] = []
    try:
        for _ in range(count):
            workers.append(_started(grid, threads, workers))
        yield WorkersGrid(num_clients, workers)
    finally:
        for worker in workers:
            worker.connection.close()
        for worker in workers:
            worker.process.join(2 * GRACE_SECONDS)
            worker.process.kill()
            worker.process.join()


def _started(grid: LocalGrid, threads: int, others: Sequence[Worker]) -> Worker:
    copied = _can_be_copied()
    context: ForkContext | SpawnContext = (
        multiprocessing.get_context("fork") if copied else multiprocessing.get_context("spawn")
    )
    ours, theirs = context.Pipe()
    # A fork inherits this process's ends of the connections and would keep them open.
    inherited = [ours, *(worker.connection for worker in others)] if copied else []
    given = grid if copied else _picklable(grid)
    if not copied:
        # If it starts below instead, it lets signals through.
        resource_tracker.ensure_running()
    process = context.Process(target=_work, args=(theirs, inherited, given, threads), daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        with warnings.catch_warnings():
            # Python warns about a fork with threads; this one uses nothing that they may have locked.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return Worker(process, ours)


def _can_be_copied() -> bool:
    torch = sys.modules.get("torch")  # if nobody has imported it, no GPU is in use
    return sys.platform == "linux" and (torch is None or not torch.accelerator.is_available())


def _picklable(grid: LocalGrid) -> LocalGrid:
    from joblib import wrap_non_picklable_objects

    wrapped: LocalGrid = wrap_non_picklable_objects(grid, keep_wrapper=False)
    return wrapped


def _work(connection: "Connected", inherited: "Sequence[Connected]", grid: LocalGrid, threads: int) -> None:
    """Answer messages in a worker until the connection closes."""
    for other in inherited:
        other.close()
    # The parent handles signals, including those that a terminal sends to the whole group.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    # A thread of the parent may have held the locks of these streams at the fork.
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, closefd=False) for number in (1, 2))
    print_anything()
    console_handler.setStream(sys.stderr)
    messages: SimpleQueue[Message | None] = SimpleQueue()
    # OpenMP's threads do not survive a fork, so a thread that used them before would wait forever.
    answering = threading.Thread(target=_answer, args=(connection, messages, grid, threads), daemon=True)
    answering.start()
    try:
        while True:  # take messages in as they arrive, so that the sender never blocks
            for message in receive(connection):
                messages.put(message)
    except (EOFError, ConnectionError):
        pass
    except Exception:
        traceback.print_exc()
    messages.put(None)
    answering.join(GRACE_SECONDS)
    if answering.is_alive():
        os._exit(1)


def _answer(
    connection: "Connected", messages: SimpleQueue[Message | None], grid: LocalGrid, threads: int
) -> None:
    with task_identity(), set_up_process(threads):
        while (message := messages.get()) is not None:
            reply, message_id = grid.answer(message), message.metadata.message_id
            try:
                send(connection, (message_id, reply))
            except ConnectionError:
                return
            except Exception as error:
                send(connection, (message_id, error_reply(message, f"its reply cannot be sent: {error!r}")))
