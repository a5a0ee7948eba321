"""Run the server in this process and the clients in processes of Ray: of a cluster, or on this machine.

The client app with its data is in Ray's object store once, and each process fetches it once. The clients'
state and private files are here and travel with each message, so any process can answer for any client.
"""

import gc
import logging
import os
import shutil
import signal
import socket
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from logging import WARNING
from typing import Any

import ray
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.common import log
from flwr.serverapp import Grid
from ray._private.services import canonicalize_bootstrap_address
from ray.exceptions import RayError, RayTaskError

from fda_flower.engines import Resources
from fda_flower.engines.folders import Folders, copied_here
from fda_flower.engines.local import SimulatedGrid, reply_of, set_up_process
from fda_flower.engines.packing import Packed, pack, pack_app, unpack
from fda_flower.errors import ConfigError, RunError, invalid, printable
from fda_flower.files import release_memory, versions
from fda_flower.names.words import counted
from fda_flower.wire.internals import error_reply, task_identity

QUIET = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_USAGE_STATS_ENABLED": "0"}
ADDRESS = "RAY_ADDRESS"
"""Ray's environment variable with the address of a cluster; ``local`` starts Ray here."""

CONNECT_SECONDS = 5.0
"""Time for a cluster to accept a connection; Ray itself tries for minutes."""
PATIENCE = 30.0
"""Seconds without any process after which the log says so."""
ATTEMPTS = 3
"""Processes in a row that may fail to start."""

DIED = "its process has died, perhaps because memory ran out: use fewer --workers"


def run_ray(
    server: Callable[[Grid], None],
    make_app: Callable[[], ClientApp],
    num_clients: int,
    resources: Resources,
    folders: Folders | None = None,
) -> None:
    """Run the server in this process, and the clients in processes of Ray.

    Raises
    ------
    ConfigError
        If the cluster cannot be joined or has no room for the `resources`; raised before anything runs.
    RunError
        If the clients' processes cannot start.
    """
    with connected() as session, task_identity():
        clients = Counter(map(resources.gpus_of, range(num_clients)))
        counts = {share: min(count, clients[share]) for share, count in room_for(resources).items()}
        with Processes(resources, session) as processes:
            processes.start(counts, ray.put(pack_app(make_app())))
            gc.collect()
            release_memory()
            server(RayGrid(num_clients, processes, folders))


# The cluster


@contextmanager
def connected() -> Iterator[str | None]:
    """Join the cluster of ``RAY_ADDRESS`` or one that runs on this machine; else start Ray for the block.

    Yields the folder of Ray's files, which is removed at the end; None if Ray was not started here.
    """
    if ray.is_initialized():
        yield None
        return
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    address, session = find_cluster(), None
    try:
        with _own_signals():
            info = _init(address)
        session = None if address else str(info["session_dir"])
        yield session
    finally:
        ray.shutdown()
        if session is not None:
            shutil.rmtree(session, ignore_errors=True)


def find_cluster() -> str | None:
    """Return the address of the cluster to join, ``HOST:PORT``; None to start Ray on this machine.

    Raise a `ConfigError` if it does not answer.
    """
    given = os.environ.get(ADDRESS)
    if given and "://" in given:
        remedy = "give HOST:PORT, on a machine of the cluster"
        raise invalid(ADDRESS, given, remedy, "but only a machine of a cluster can join it")
    try:
        address: str | None = canonicalize_bootstrap_address(None)
    except (ConnectionError, ValueError) as error:
        raise _no_cluster(given, error) from error
    if address is None:
        return None
    host, _, port = address.rpartition(":")
    given = given or address
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS):
            return address
    except (OSError, ValueError) as error:
        raise _no_cluster(given, error) from error


def _no_cluster(address: str | None, error: Exception) -> ConfigError:
    remedy = f"start it with `ray start`, or set {ADDRESS}=local to use this machine alone"
    return invalid(ADDRESS, address, remedy, f"but no Ray cluster can be joined there ({_reason_in(error)})")


def _init(address: str | None) -> Mapping[str, Any]:
    try:
        context = ray.init(address or "local", include_dashboard=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        if address is None:
            raise RunError(
                f"Ray cannot be started on this machine ({_reason_in(error)})", thing="ray"
            ) from error
        raise _no_cluster(address, error) from error
    info: Mapping[str, Any] = context.address_info
    return info


@contextmanager
def _own_signals() -> Iterator[None]:
    """Restore the handler of SIGTERM, which Ray replaces in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def room_for(resources: Resources) -> dict[float, int]:
    """Return the numbers of processes by the GPU share of their clients, the target's first.

    Raise a `ConfigError` if the cluster has no room.
    """
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cores, gpus = ([machine.get(kind, 0.0) for machine in machines] for kind in ("CPU", "GPU"))
    threads, share, own = resources.threads, resources.gpus_per_client, resources.own_share
    has = f"{counted(len(machines), 'machine')} of Ray with {sum(cores):g} cores and {sum(gpus):g} GPUs"
    if threads > (most := max(cores, default=0)):
        remedy = f"give {most:g} at most" if most else "start Ray on a machine with cores for clients"
        raise invalid("threads", threads, remedy, f"which is too many for {has}")
    _check_share("gpus-per-client", share, max(gpus, default=0), has)
    _check_share("gpus-for-target", own or 0.0, max(gpus, default=0), has)
    room = most_processes([*zip(cores, gpus, strict=True)], threads, share, own)
    targets = int(own is not None)
    if room <= targets:
        name, value = ("gpus-per-client", share) if own is None else ("gpus-for-target", own)
        why = f"and threads {threads}, for which no machine has room ({has})"
        if own is not None:
            why = (
                f"with threads {threads} and gpus-per-client {share}, which leaves no source any room ({has})"
            )
        raise invalid(name, value, "give less of one", why)
    count = resources.workers or room
    if count > room:
        raise invalid("workers", count, f"give {room} at most", f"which is too many for {has}")
    if count <= targets:
        why = "but the target's share of a GPU needs a process of its own"
        raise invalid("workers", count, f"give {targets + 1} at least", why)
    return {share: count} if own is None else {own: 1, share: count - 1}


def _check_share(name: str, share: float, most: float, has: str) -> None:
    if share > 1 and not float(share).is_integer():
        raise invalid(name, share, "give a share below 1, or a whole number")
    if share > most:
        remedy = "leave it out, or tell Ray of GPUs (ray start --num-gpus)"
        raise invalid(name, share, remedy, f"which is too many for {has}")


def most_processes(
    machines: Sequence[tuple[float, float]], threads: int, share: float, own: float | None
) -> int:
    """Return how many processes have room on machines with these cores and GPUs.

    Each takes `threads` cores and a `share` of a GPU, the first `own` instead; 0 if that one has no room.
    """

    def fitting(cores: float, gpus: float, each: float) -> int:
        return max(0, min(int(cores / threads), int(gpus / each) if each else sys.maxsize))

    rooms = [fitting(*machine, share) for machine in machines]
    if own is None:
        return sum(rooms)
    with_target = (
        1 + sum(rooms) - room + fitting(cores - threads, gpus - own, share)
        for (cores, gpus), room in zip(machines, rooms, strict=True)
        if fitting(cores, gpus, own)
    )
    return max(with_target, default=0)


# The processes


class ClientProcess:
    """Runs clients in a process of Ray.

    `paths` is where the server's process finds modules, `level` its log's level, and `inside` the folder for
    temporary files, if it is not the system's.
    """

    def __init__(self, threads: int, paths: Sequence[str], level: int, inside: str | None) -> None:
        sys.path += [path for path in paths if path not in sys.path]
        logging.getLogger("flwr").setLevel(level)
        self._inside = inside
        self._opened = ExitStack()
        self._opened.enter_context(task_identity())
        self._opened.enter_context(set_up_process(threads))

    def load(self, app: Packed) -> dict[str, str]:
        """Load the client app, and return the versions that decide its numbers."""
        self._app: ClientApp = unpack(app)
        return versions()

    def answer(self, task: Packed, *shared: Packed) -> Packed:
        """Return the reply to a message, the client's state and what it has changed in the run's folder.

        A task is a message, its context, and the files that its client needs; `shared` are records of the
        message that others share.
        """
        message, context, parcel = unpack(task, [unpack(record) for record in shared])
        with nullcontext() if parcel is None else copied_here(parcel, self._inside) as copy:
            if copy is not None:
                context.run_config = {"output": str(copy.path)}
            reply = reply_of(lambda: self._app(message, context), message)
            changes = None if copy is None else copy.changes()
        try:
            return pack((reply, context.state, changes))
        except Exception as error:
            reply = error_reply(message, f"its reply cannot be sent: {error!r}")
            return pack((reply, context.state, changes))


class Processes:
    """The processes of Ray that run clients. One that dies is replaced; all end with the block.

    A process runs the clients that have its share of a GPU.
    """

    def __init__(self, resources: Resources, inside: str | None = None) -> None:
        level = logging.getLogger("flwr").level
        self._resources = resources
        self._arguments = resources.threads, [*sys.path], level, inside
        self._shares, self._starting = dict[Any, float](), dict[Any, Any]()
        self._failures = 0
        self._idle = defaultdict[float, list[Any]](list)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._shares:
            with suppress(RayError):
                ray.kill(process)

    def start(self, counts: Mapping[float, int], app: Any) -> None:
        """Start processes, whose numbers are given by share, that load a packed client app of Ray's store."""
        self._app = app
        for share, count in counts.items():
            for _ in range(count):
                self._add(share)

    def _add(self, share: float) -> None:
        remote = ray.remote(num_cpus=self._resources.threads, num_gpus=share)(ClientProcess)
        process = remote.remote(*self._arguments)
        self._shares[process] = share
        self._starting[process.load.remote(self._app)] = process

    @property
    def any_idle(self) -> bool:
        """Whether a process waits for a message."""
        return any(self._idle.values())

    def idle_for(self, client: int) -> list[Any]:
        """Return the processes that wait for a message and can run a client, by its number."""
        return self._idle[self._resources.gpus_of(client)]

    def free(self, process: Any) -> None:
        """Let a process wait for a message."""
        self._idle[self._shares[process]].append(process)

    def replace(self, process: Any) -> None:
        """Start another process in the place of one that has died."""
        share = self._shares.pop(process)
        ray.kill(process)
        self._add(share)

    def wait(self, busy: Collection[Any]) -> list[Any]:
        """Return the references of `busy` that are there, once a message is answered or a process starts.

        Raise a `RunError` if there is neither, and the cluster has lost the machines for it.
        """
        while True:
            done, _ = ray.wait([*busy, *self._starting], timeout=PATIENCE)
            if done:
                break
            if not busy:
                try:
                    room_for(replace(self._resources, workers=None))
                except ConfigError as error:
                    raise RunError(str(error), thing=error.thing, value=error.value) from error
                free = ray.available_resources().get("CPU", 0)
                waiting = "No process for clients has started for %d seconds: Ray has %g free cores"
                log(WARNING, waiting, PATIENCE, free)
        for reference in done:
            if reference in self._starting:
                self._check_start(reference, self._starting.pop(reference))
        return [reference for reference in done if reference in busy]

    def _check_start(self, loaded: Any, process: Any) -> None:
        try:
            theirs = ray.get(loaded)
        except RayError as error:
            self._failures += 1
            if self._failures == ATTEMPTS:
                remedy = "install the same packages on each machine of the cluster"
                why = f"a process for clients cannot start on Ray ({_reason_in(error)})"
                raise RunError(why, thing="ray", remedy=remedy) from error
            self.replace(process)
            return
        self._failures = 0
        if different := {
            name: theirs.get(name) for name, own in versions().items() if theirs.get(name) != own
        }:
            name, version = next(iter(different.items()))
            why = f"a machine of the Ray cluster has {name} {version}, this one {versions()[name]}"
            raise RunError(why, thing=name, value=version, remedy="install the same versions on each")
        self.free(process)


def _reason_in(error: Exception) -> str:
    """Return the line of Ray's text that names the cause; the rest are traces of its own processes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    return printable(next((line for line in reversed(lines) if "Error: " in line), lines[0]))


# The grid


class RayGrid(SimulatedGrid):
    """A grid whose nodes run a client app in processes of Ray, any in any.

    A node's messages are answered in order. If a process dies, its message has an error reply.
    """

    def __init__(self, num_clients: int, processes: Processes, folders: Folders | None = None) -> None:
        super().__init__(num_clients)
        self._processes = processes
        self._folders = folders

    def answers(self, messages: Sequence[Message]) -> dict[str, Message]:
        """Return the nodes' replies by the ids of the messages."""
        shared, waiting = _Shared(messages), list[Message]()
        busy: dict[Any, tuple[Message, Any]] = {}
        replies: dict[str, Message] = {}
        for message in messages:
            if message.metadata.dst_node_id in self.get_node_ids():
                waiting.append(message)
            else:
                replies[message.metadata.message_id] = error_reply(message, "there is no such node")
        while waiting or busy:
            self._send(waiting, busy, shared)
            for reference in self._processes.wait(busy):
                message, process = busy.pop(reference)
                replies[message.metadata.message_id] = self._received(reference, message, process)
        return replies

    def _send(self, waiting: list[Message], busy: dict[Any, tuple[Message, Any]], shared: "_Shared") -> None:
        """Give each idle process the next message whose node is not at work."""
        at_work = {message.metadata.dst_node_id for message, _ in busy.values()}
        for message in [*waiting]:
            if not self._processes.any_idle:
                return
            context = self.context(message)
            idle = self._processes.idle_for(_number(context))
            if not idle or message.metadata.dst_node_id in at_work:
                continue
            waiting.remove(message)
            process = idle.pop()
            at_work.add(message.metadata.dst_node_id)
            parcel = None if self._folders is None else self._folders.outgoing(_number(context))
            places, references = shared.records_of(message)
            task = pack((message, context, parcel), places)
            busy[process.answer.remote(task, *references)] = message, process

    def _received(self, reference: Any, message: Message, process: Any) -> Message:
        """Return a reply that is there; keep the state and the files that it brings."""
        try:
            reply, state, parcel = unpack(ray.get(reference))
        except RayTaskError as error:
            self._processes.free(process)
            return error_reply(message, _reason_in(error))
        except RayError:
            self._processes.replace(process)
            return error_reply(message, DIED)
        self._processes.free(process)
        context = self.context(message)
        context.state = state
        if self._folders is not None:
            try:
                self._folders.take(parcel)
            except OSError as error:
                where = f"the client's files cannot be written to '{self._folders.run}'"
                return error_reply(message, f"{where} ({error}): make room, or make the folder writable")
        answer: Message = reply
        return answer


def _number(context: Context) -> int:
    return int(context.node_config["partition-id"])


class _Shared:
    """The records that several messages hold, such as the model: each is in Ray's store once."""

    def __init__(self, messages: Sequence[Message]) -> None:
        counts = Counter(
            id(record) for message in messages for record in message.content.array_records.values()
        )
        self._several = {key for key, count in counts.items() if count > 1}
        self._references: dict[int, Any] = {}

    def records_of(self, message: Message) -> tuple[dict[int, int], list[Any]]:
        """Return the places of a message's shared records by their ``id``, and the references in order."""
        found = {
            id(record): record
            for record in message.content.array_records.values()
            if id(record) in self._several
        }
        for key, record in found.items():
            if key not in self._references:
                self._references[key] = ray.put(pack(record))
        return {key: i for i, key in enumerate(found)}, [self._references[key] for key in found]
