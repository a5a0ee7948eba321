"""What a site's resident worker and those that hand it messages agree on: a socket, frames, and an owner."""

import json
import os
import socket
from pathlib import Path
from typing import Any, NamedTuple

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
