"""A site's resident worker: it keeps torch, data and model, and answers the messages of one run.

It ends with its SuperNode; when its socket is gone (another worker has replaced it); when the process waiting
for its answer is gone (Flower has given up on the message); after an error (the next message gets a fresh
process, as without a worker); and after an hour without a message.
"""

import json
import os
import shutil
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from flwr.clientapp import ClientApp

from fda_flower.wire import internals, protocol

Frame = tuple[dict[str, Any], list[bytes]]
"""A header of JSON values, and byte strings."""

PREFIX = "socket-"
LENGTH_BYTES = 8


def send_frame(connection: socket.socket, header: dict[str, Any], parts: list[bytes]) -> None:
    """Send a frame, whose header has no key ``sizes``; raise an `OSError` if the peer is gone."""
    text = json.dumps({**header, "sizes": [len(part) for part in parts]}).encode()
    connection.sendall(len(text).to_bytes(LENGTH_BYTES, "big") + text)
    for part in parts:
        connection.sendall(part)


def receive_frame(connection: socket.socket) -> Frame:
    """Receive a frame; raise an `EOFError` or `OSError` if the peer disconnects before its end."""
    size = int.from_bytes(_exactly(connection, LENGTH_BYTES), "big")
    header = json.loads(_exactly(connection, size))
    return header, [_exactly(connection, length) for length in header.pop("sizes")]


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        count = connection.recv_into(view[done:])
        if not count:
            raise EOFError(f"the peer disconnected after {done} of {size} bytes")
        done += count
    return bytes(data)


class Owner(NamedTuple):
    """The process that a worker belongs to and ends with.

    Process ids are local to a namespace, such as a container, and are reused. `started` is the process's
    start in the system's ticks since boot.
    """

    space: int
    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "Owner":
        """Return the process with this id; raise an `OSError` if there is none."""
        # The program's name, in brackets, may itself contain spaces and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        if fields[0] in "ZX":
            raise ProcessLookupError(f"process {pid} has ended")
        return cls(_space(), pid, int(fields[19]))

    @classmethod
    def named(cls, text: str) -> "Owner":
        """Parse an owner from its text; raise a `ValueError` if invalid."""
        space, pid, started = map(int, text.split("-"))
        return cls(space, pid, started)

    def __str__(self) -> str:
        return "-".join(map(str, self))

    def is_alive(self) -> bool:
        """Return whether the process still runs; assume so in another container, where it is invisible."""
        if self.space != _space():
            return True
        try:
            return Owner.of(self.pid) == self
        except OSError:
            return False


def _space() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


class Folder:
    """A folder of sockets that stays open within ``with``.

    A socket's path is limited to 107 bytes. The path by the folder's descriptor, a feature of Linux, is
    always short.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> "Folder":
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)

    def address(self, name: str) -> str:
        """Return the short path of a file in the folder."""
        return f"/proc/self/fd/{self._descriptor}/{name}"


IDLE_SECONDS = 3600.0
POLL_SECONDS = 0.2


class Watch(threading.Thread):
    """Ends this process through `leave`, with an exit code, as soon as it is no longer needed.

    The socket's folder is named after its owner; `client` waits for an answer.
    """

    def __init__(self, path: Path, leave: Callable[[int], object]) -> None:
        super().__init__(daemon=True)
        self.client: socket.socket | None = None
        self._path = path
        self._inode = path.stat().st_ino
        self._owner = Owner.named(path.parent.name)
        self._leave = leave

    def run(self) -> None:
        """Check five times a second whether this process is still needed."""
        pause = threading.Event()
        while not self.is_over():
            pause.wait(POLL_SECONDS)
        self._leave(0)

    def is_over(self) -> bool:
        """Return whether this process is no longer needed; remove the folder if its owner is gone."""
        client = self.client
        if not self._owner.is_alive():
            shutil.rmtree(self._path.parent, ignore_errors=True)
            return True
        if client is None:
            return self._is_replaced()
        # A client that has its answer also leaves, but is no longer waiting by then.
        return has_left(client) and self.client is client

    def _is_replaced(self) -> bool:
        try:
            return self._path.stat().st_ino != self._inode
        except OSError:
            return True


def has_left(client: socket.socket) -> bool:
    """Return whether the peer of a connection is gone."""
    try:
        return client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def answer(request: Frame, load: Callable[[], ClientApp]) -> tuple[Frame, bool]:
    """Let an app answer a request, which holds a message with its task and context.

    Returns the reply or the app's exception, with the changed context; and whether all went well.
    """
    header, (given, *parts) = request
    internals.set_task(header["task"])
    context = internals.context_from_bytes(given)
    try:
        reply = load()(internals.message_from_parts(header, parts), context)
        identity, parts = internals.message_to_parts(reply)
        went_well = not reply.has_error() and "problem" not in reply.content.get(protocol.INFO, {})
    except Exception as error:
        kind = type(error)
        told = {"module": kind.__module__, "name": kind.__qualname__, "text": str(error)}
        identity, parts = {"error": {**told, "trace": traceback.format_exc()}}, []
        went_well = False
    return (identity, [internals.context_to_bytes(context), *parts]), went_well


def serve_node(listener: socket.socket, watch: Watch, load: Callable[[], ClientApp]) -> None:
    """Answer messages one after another until one fails or none arrives for an hour."""
    listener.settimeout(IDLE_SECONDS)
    with listener:
        while True:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                return
            with connection:
                connection.setblocking(True)
                watch.client = connection
                try:
                    send_frame(connection, {"pid": os.getpid()}, [])
                    (header, parts), went_well = answer(receive_frame(connection), load)
                    watch.client = None
                    if not went_well:
                        listener.close()
                    send_frame(connection, header, parts)
                except (EOFError, OSError):
                    return
            if not went_well:
                return


def main(reference: str, path: str) -> None:
    """Serve the app that a function makes (``module:name``) on the socket at standard input."""
    listener = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    watch = Watch(Path(path), os._exit)
    watch.start()

    serve_node(listener, watch, cache(lambda: resolve_name(reference)()))


def launched() -> None:
    """Act as a worker in a fork of a launcher, with the import path of the requesting process."""
    os.setsid()
    sys.path[:] = json.loads(sys.argv[1])
    main(*sys.argv[2:])
