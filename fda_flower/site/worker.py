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
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from flwr.clientapp import ClientApp

from fda_flower.wire import internals, protocol

Frame = tuple[dict[str, Any], list[bytes]]
"""A header of JSON values, and parts."""

PREFIX = "socket-"
LENGTH_BYTES = 8


def send(connection: socket.socket, header: dict[str, Any], parts: list[bytes]) -> None:
    """Send a frame.

    Parameters
    ----------
    connection : socket.socket
        A stream.
    header : dict
        JSON values; not the key ``sizes``.
    parts : list of bytes
        Of any size.

    Raises
    ------
    OSError
        If the other side is gone.
    """
    text = json.dumps({**header, "sizes": [len(part) for part in parts]}).encode()
    connection.sendall(len(text).to_bytes(LENGTH_BYTES, "big") + text)
    for part in parts:
        connection.sendall(part)


def receive(connection: socket.socket) -> Frame:
    """Receive a frame.

    Raises
    ------
    EOFError
        If the other side is gone before the frame is whole.
    OSError
        If the connection is broken.
    """
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

    Attributes
    ----------
    space : int
        The space of process numbers: a container has one of its own.
    pid : int
        Its number.
    started : int
        When it started, in the system's ticks since the machine did: numbers are used again, moments are not.
    """

    space: int
    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "Owner":
        """Return the process that has a number now.

        Raises
        ------
        OSError
            If no process has it.
        """
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
    """Ends this process as soon as nobody needs it.

    Parameters
    ----------
    path : Path
        The socket, in the folder that bears the name of its owner.
    leave : callable
        Ends the process, with an exit code.

    Attributes
    ----------
    client : socket.socket or None
        Who waits for an answer.
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
    """Answer a message.

    Parameters
    ----------
    request : Frame
        Of `fda_flower.site.resident`: the task, the context and the message.
    load : callable
        Returns the app.

    Returns
    -------
    tuple
        The reply, or the error that the app has raised, with the context as the app has left it; and whether
        all went well.
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
    """Answer messages one after another, until one of them ends in an error or none comes for an hour.

    Parameters
    ----------
    listener : socket.socket
        Where the messages come from; it is closed at the end.
    watch : Watch
        Told who waits.
    load : callable
        Returns the app.
    """
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
    """Serve the app of a reference on the open socket that is the standard input.

    Parameters
    ----------
    reference : str
        ``module:name`` of a function that makes the app.
    path : str
        The socket's.
    """
    listener = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    watch = Watch(Path(path), os._exit)
    watch.start()

    @cache
    def load() -> ClientApp:
        module, _, name = reference.partition(":")
        app: ClientApp = getattr(import_module(module), name)()
        return app

    serve(listener, watch, load)


def launched() -> None:
    """Be a worker in a fork of a launcher, with the path of imports of the process that asks for it."""
    os.setsid()
    sys.path[:] = json.loads(sys.argv[1])
    main(*sys.argv[2:])
