"""The light half of a site's client app: it hands each message to a persistent worker process.

Flower starts a process for every message. With ``resident = true`` in the node configuration this process
imports neither torch nor data. It hands the serialised message over a Unix socket to a worker of the same
node (`fda_flower.supernode.worker`), and returns the worker's reply and changed context to Flower.
"""

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from logging import INFO, WARNING
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.common import log

from fda_flower.errors import RunError
from fda_flower.files import make_private, version
from fda_flower.site.node import Site
from fda_flower.supernode.worker import PREFIX, Folder, Owner, receive_frame, send_frame
from fda_flower.wire import internals

WORKERS = "workers"
"""In a node's ``state-dir``: a folder for each SuperNode, with its worker's socket."""
START_SECONDS = 120.0
"""Time for a worker to take a message."""
START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from fda_flower.supernode.worker import main
main(*sys.argv[2:])
"""


class UnavailableError(Exception):
    """A message cannot have a resident worker; nothing has happened yet."""


class ResidentApp(ClientApp):
    """A client app whose messages a worker answers, at nodes configured for one.

    At other nodes, and if no worker is available, `app` answers in this process; `reference` is
    ``module:name`` of a function that makes the same app in the worker.
    """

    def __init__(self, app: ClientApp, reference: str) -> None:
        super().__init__()
        self._app = app
        self._reference = reference

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message; see `ask_worker` for the errors."""
        if not Site.of(context).resident:
            return self._app(message, context)
        kind = message.metadata.message_type
        try:
            folder = place(context)
            with held(folder):
                return ask_worker(message, context, folder, self._reference)
        except BlockingIOError:
            log(INFO, "The resident worker is busy: another process answers this message (%s)", kind)
        except (UnavailableError, OSError) as reason:
            # A run starts with the role query, so this is logged once a run.
            if kind.startswith("query"):
                log(WARNING, "This node has no resident worker (%s); it works without", reason)
        return self._app(message, context)


def place(context: Context) -> Path:
    """Return the folder of this SuperNode's worker, which only its account can enter; create it if needed.

    Raises an `UnavailableError` on systems other than Linux or without a ``state-dir``, and an `OSError` if
    it cannot be created.
    """
    if sys.platform != "linux":
        raise UnavailableError(f"it needs Linux, and this is {sys.platform}")
    state = Site.of(context).state_dir
    if state is None:
        raise UnavailableError("the node configuration has no state-dir")
    state = state.absolute()
    # The parent is the launcher, or else Flower's SuperExec: both end with their SuperNode.
    folder = state / WORKERS / str(Owner.of(os.getppid()))
    make_private(folder)
    for path in (folder.parent, folder):  # another version may have made them
        path.chmod(0o700)
    return folder


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock the worker until this process ends.

    Raises a `BlockingIOError` if another process holds it, or an `OSError` if files cannot be locked.
    """
    import fcntl

    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def ask_worker(message: Message, context: Context, folder: Path, reference: str) -> Message:
    """Return the worker's reply to a message, and update the context's state from the worker.

    Raises an `UnavailableError` or `OSError` if no worker can be started, and nothing has happened yet; a
    `RunError` if it exits before it answers; and exceptions of the app in the worker, with the name of their
    class and their text.
    """
    pid, connection = _connect(folder, _key(context.run_id, reference), reference)
    with connection:
        identity, parts = internals.message_to_parts(message)
        request = {**identity, "task": internals.task()}
        try:
            send_frame(connection, request, [internals.context_to_bytes(context), *parts])
            header, (changed, *answer) = receive_frame(connection)
        except (EOFError, OSError) as error:
            raise RunError(
                f"the resident worker of this node (process {pid}) ended while it answered a message "
                f"({message.metadata.message_type}): see the SuperNode's log; the next message starts another"
            ) from error
    context.state = internals.context_from_bytes(changed).state
    if "error" in header:
        raise _as_raised(**header["error"])
    return internals.message_from_parts(header, answer)


def _key(run: int, reference: str) -> str:
    """Return a digest of a worker's run and code; a worker with another digest is not used."""
    package = Path(__file__).parents[1]
    changed = max(path.stat().st_mtime_ns for path in package.rglob("*.py"))
    loaded = [run, reference, version(), str(package), changed, sys.path]
    return hashlib.sha256(json.dumps(loaded).encode()).hexdigest()[:12]


def _connect(folder: Path, key: str, reference: str) -> tuple[int, socket.socket]:
    """Return a worker's process id and a connection to it; start a worker if none answers."""
    with Folder(folder) as opened:
        for is_new in (False, True):
            if is_new:
                _start(opened, PREFIX + key, reference)
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(START_SECONDS)
            try:
                connection.connect(opened.address(PREFIX + key))
                header, _ = receive_frame(connection)
                connection.settimeout(None)
                return header["pid"], connection
            except (EOFError, OSError):
                connection.close()
    raise UnavailableError("it ended before it took the message: see what it says in this log")


def launched_worker() -> str:
    """Return the command by which a launcher starts a worker of this Python and package."""
    return f"fda-worker-{hashlib.sha256(f'{sys.executable} {__file__}'.encode()).hexdigest()[:12]}"


def _start(folder: Folder, name: str, reference: str) -> None:
    """Start a worker in place of one that has ended or serves something else."""
    for path in folder.path.glob(PREFIX + "*"):
        path.unlink()
    _clear(folder.path.parent)
    arguments = [json.dumps(sys.path), reference, str(folder.path / name)]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(folder.address(name))
        (folder.path / name).chmod(0o600)
        listener.listen()
        launched = shutil.which(launched_worker())
        if launched is None or subprocess.run([launched, *arguments], stdin=listener.fileno()).returncode:
            # It shares this process's output; in its own session it outlives this process.
            command = [sys.executable, "-P", "-c", START, *arguments]
            subprocess.Popen(command, stdin=listener.fileno(), start_new_session=True)


def _clear(workers: Path) -> None:
    """Remove the folders of SuperNodes that were killed together with their workers."""
    for path in workers.iterdir():
        with contextlib.suppress(ValueError):
            if not Owner.named(path.name).is_alive():
                shutil.rmtree(path, ignore_errors=True)


def _as_raised(module: str, name: str, text: str, trace: str) -> Exception:
    """Return an exception from which Flower makes the same error reply as from the worker's own."""
    kind = type(name.rpartition(".")[2], (Exception,), {"__module__": module, "__qualname__": name})
    error: Exception = kind(text)
    error.add_note(f"In the resident worker:\n{trace}")
    return error
