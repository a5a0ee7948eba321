"""A site's resident worker: it keeps torch, data and model, and answers the messages of one run.

It ends with its SuperNode, when its socket is gone (another worker has taken its place), when the process
that waits for its answer is gone (Flower has given the message up), after an error (the next message finds a
fresh process, as without a worker), and after an hour without a message.
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
"""A header of JSON values, and parts."""

PREFIX = "socket-"
LENGTH_BYTES = 8


def send(connection: socket.socket, header: dict[str, Any], parts: list[bytes]) -> None:
    """Send a frame, whose header has no key ``sizes``; raise an `OSError` if the other side is gone."""
    text = json.dumps({**header, "sizes": [len(part) for part in parts]}).encode()
    connection.sendall(len(text).to_bytes(LENGTH_BYTES, "big") + text)
    for part in parts:
        connection.sendall(part)


def receive(connection: socket.socket) -> Frame:
    """Receive a frame; raise an `EOFError` or `OSError` if the other side is gone before it is whole."""
    size = int.from_bytes(_exactly(connection, LENGTH_BYTES), "big")
    header = json.loads(_exactly(connection, size))
    return header, [_exactly(connection, length) for length in header.pop("sizes")]


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        count = connection.recv_into(view[done:])
        if not count:
            raise EOFError(f"the other side is gone after {done} of {size} bytes")
        done += count
    return bytes(data)


class Owner(NamedTuple):
    """The process that a worker works for, and ends with.

    Its number is one of a space, since a container has its own, and used again: so `started` says when it
    started, in the system's ticks since the machine did.
    """

    space: int
    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "Owner":
        """Return the process that has a number now; raise an `OSError` if none has it."""
        # The name of the program, in brackets, may have spaces and brackets of its own.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        if fields[0] in "ZX":
            raise ProcessLookupError(f"process {pid} has ended")
        return cls(_space(), pid, int(fields[19]))

    @classmethod
    def named(cls, text: str) -> "Owner":
        """Return the owner that `str` has turned into text; raise a `ValueError` if it is none."""
        space, pid, started = map(int, text.split("-"))
        return cls(space, pid, started)

    def __str__(self) -> str:
        return "-".join(map(str, self))

    def is_alive(self) -> bool:
        """Return whether the process still runs; assume it of another container's, which cannot be seen."""
        if self.space != _space():
            return True
        try:
            return Owner.of(self.pid) == self
        except OSError:
            return False


def _space() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


class Folder:
    """A folder of sockets, open for as long as this object is used in ``with``.

    A path of a socket has at most 107 bytes. The path by the folder's descriptor, which only Linux has, is
    short wherever the folder is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> "Folder":
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)

    def address(self, name: str) -> str:
        """Return the short path of a file of the folder."""
        return f"/proc/self/fd/{self._descriptor}/{name}"


IDLE_SECONDS = 3600.0
POLL_SECONDS = 0.2


class Watch(threading.Thread):
    """Ends this process by `leave`, with an exit code, as soon as nobody needs it.

    The socket's folder bears the name of its owner; `client` waits for an answer.
    """

    def __init__(self, path: Path, leave: Callable[[int], object]) -> None:
        super().__init__(daemon=True)
        self.client: socket.socket | None = None
        self._path = path
        self._inode = path.stat().st_ino
        self._owner = Owner.named(path.parent.name)
        self._leave = leave

    def run(self) -> None:
        """Look five times a second whether somebody needs this process."""
        pause = threading.Event()
        while not self.is_over():
            pause.wait(POLL_SECONDS)
        self._leave(0)

    def is_over(self) -> bool:
        """Return whether nobody needs this process any more; remove the folder of an owner that is gone."""
        client = self.client
        if not self._owner.is_alive():
            shutil.rmtree(self._path.parent, ignore_errors=True)
            return True
        if client is None:
            return self._is_replaced()
        # A client that has its answer leaves too: by then it is no longer the one who waits.
        return has_left(client) and self.client is client

    def _is_replaced(self) -> bool:
        try:
            return self._path.stat().st_ino != self._inode
        except OSError:
            return True


def has_left(client: socket.socket) -> bool:
    """Return whether the other side of a connection is gone."""
    try:
        return client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def answer(request: Frame, load: Callable[[], ClientApp]) -> tuple[Frame, bool]:
    """Have an app answer a message, whose request has the task and the context too.

    Returns the reply, or the error that the app has raised, with the context as the app has left it; and
    whether all went well.
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


def serve(listener: socket.socket, watch: Watch, load: Callable[[], ClientApp]) -> None:
    """Answer messages one after another, until one of them ends in an error or none comes for an hour."""
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
                    send(connection, {"pid": os.getpid()}, [])
                    (header, parts), went_well = answer(receive(connection), load)
                    watch.client = None
                    if not went_well:
                        listener.close()
                    send(connection, header, parts)
                except (EOFError, OSError):
                    return
            if not went_well:
                return


def main(reference: str, path: str) -> None:
    """Serve the app that a function makes (``module:name``) on the socket that is the standard input."""
    listener = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    watch = Watch(Path(path), os._exit)
    watch.start()

    serve(listener, watch, cache(lambda: resolve_name(reference)()))


def launched() -> None:
    """Be a worker in a fork of a launcher, with the path of imports of the process that asks for it."""
    os.setsid()
    sys.path[:] = json.loads(sys.argv[1])
    main(*sys.argv[2:])
