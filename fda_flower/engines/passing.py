"""Objects from process to process, their arrays through shared memory that has no name.

What has no name cannot be left behind: the system frees such memory once no process has it open, however the
processes end. The receiver copies the arrays out of it, since a process can have only so many files open.
"""

import io
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from copyreg import dispatch_table
from multiprocessing.reduction import recv_handle, send_handle
from pickle import PickleBuffer
from typing import IO, TYPE_CHECKING, Any, ClassVar

from flwr.app import Array

from fda_flower.arrays import LazyArray, as_array

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PROTOCOL = 5
"""The first one whose buffers can travel apart."""


def send(connection: "Connection[Any, Any]", thing: Any) -> None:
    """Send an object over a connection between processes, which is a Unix socket.

    Raises
    ------
    ConnectionError
        If the other end is closed.
    Exception
        If the object cannot be pickled, or memory is short; nothing has been sent.
    """
    body, buffers = io.BytesIO(), list[PickleBuffer]()
    _Pickler(body, PROTOCOL, buffer_callback=buffers.append).dump(thing)
    parts = [buffer.raw() for buffer in buffers]
    with _shared_memory() as file:
        for part in parts:
            file.write(part)
        file.flush()
        connection.send(([part.nbytes for part in parts], body.getvalue()))
        send_handle(connection, file.fileno(), 0)


def receive(connection: "Connection[Any, Any]") -> Any:
    """Return the next object that the other process has sent.

    Raises
    ------
    EOFError, ConnectionError
        If the other end is closed.
    """
    sizes, body = connection.recv()
    with os.fdopen(recv_handle(connection), "rb") as file:
        file.seek(0)
        return pickle.loads(body, buffers=[file.read(size) for size in sizes])


Reduced = tuple[Callable[..., Array], tuple[Any, ...]]


def _flowers(array: Array) -> Reduced:
    return Array, (array.dtype, array.shape, array.stype, PickleBuffer(array.data))


def _lazy(array: LazyArray) -> Reduced:
    # NumPy has its values travel apart, and once for all arrays that share them.
    return as_array, (array.to_read(),)


class _Pickler(pickle.Pickler):
    """A pickler that leaves the values of arrays out."""

    dispatch_table: ClassVar = {**dispatch_table, Array: _flowers, LazyArray: _lazy}  # type: ignore[misc]


def _shared_memory() -> IO[bytes]:
    """Return a file without a name, in memory where the system (Linux) has such files."""
    return os.fdopen(os.memfd_create("fda"), "wb") if sys.platform == "linux" else tempfile.TemporaryFile()
