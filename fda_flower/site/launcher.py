"""A site's launcher: a process with Flower's imports ready, of which each message gets a fork.

Flower runs the command ``flwr-clientapp`` for every message, which imports Flower for a second or more before
it does anything. `launching` puts a command of the same name first on the path: it hands its arguments,
environment and streams to the launcher (`launch.py`), which forks, and the fork does what the command does.
"""

import gc
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from logging import WARNING
from pathlib import Path
from typing import Any

from flwr.common.logger import log

from fda_flower.site.channel import Folder

SOCKET = "socket"
PROGRAM = Path(__file__).with_name("launch.py")
HAND_OVER_SECONDS = 10.0
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)


@contextmanager
def launching(command: str, prepare: str) -> Iterator[None]:
    """Inside, have programs that run a command get a fork of a process that has imported it.

    The launcher ends with this process, however that ends. Where there can be none (a system other than
    Linux, no folder for temporary files), which the log says, and should it end before, the command runs as
    it does without.

    Parameters
    ----------
    command : str
        The name of a Python package's console script, such as ``flwr-clientapp``.
    prepare : str
        ``module:function``, which the launcher calls once, for imports that the command will need.
    """
    path = os.environ.get("PATH", os.defpath)
    folder: Path | None = None
    try:
        if sys.platform != "linux":
            raise OSError(f"it needs Linux, and this is {sys.platform}")
        folder = Path(tempfile.mkdtemp(prefix="fda-launcher-"))
        launcher = _start(folder, command, prepare)
    except OSError as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        log(WARNING, "This node has no launcher (%s); it works without", error)
        yield
        return
    os.environ["PATH"] = f"{folder}{os.pathsep}{path}"
    try:
        yield
    finally:
        os.environ["PATH"] = path
        launcher.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, command: str, prepare: str) -> "subprocess.Popen[bytes]":
    """Put the command that hands over into the folder, and return the launcher."""
    program = [sys.executable, "-I", "-S", str(PROGRAM), str(folder), command]
    (folder / command).write_text(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n')
    (folder / command).chmod(0o700)
    with socket.socket(socket.AF_UNIX) as listener, Folder(folder) as opened:
        listener.bind(opened.address(SOCKET))
        listener.listen()
        arguments = [str(listener.fileno()), str(folder), command, prepare]
        return subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, *arguments],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        )


def main(descriptor: str, folder: str, command: str, prepare: str) -> None:
    """Serve as a launcher until the standard input ends; in each fork, run the command."""
    # Signals to all processes of a SuperNode end it, and so the launcher, which removes its folder; nobody
    # waits for forks.
    for ignored in IGNORED:
        signal.signal(ignored, signal.SIG_IGN)
    listener = socket.socket(fileno=int(descriptor))
    (script,) = entry_points(group="console_scripts", name=command)
    run: Callable[[], int | None] = script.load()
    EntryPoint("", prepare, "").load()()
    gc.freeze()
    task = _next_task(listener)
    if task is None:
        shutil.rmtree(folder, ignore_errors=True)
        return
    take_place(**task)
    sys.argv = [command, *task["arguments"]]
    sys.exit(run())


def _next_task(listener: socket.socket) -> dict[str, Any] | None:
    """Fork for each task: return the task in the fork, and nothing in the launcher, at its end."""
    with listener:
        while True:
            if 0 in select.select([0, listener.fileno()], [], [])[0]:
                return None
            with listener.accept()[0] as connection:
                connection.settimeout(HAND_OVER_SECONDS)
                try:
                    task = _receive(connection)
                    connection.sendall(b"taken")
                except (OSError, ValueError):
                    continue
                if os.fork() == 0:
                    return task
                for stream in task["streams"]:
                    os.close(stream)


def _receive(connection: socket.socket) -> dict[str, Any]:
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as file:
        return {**json.load(file), "streams": streams}


def take_place(streams: Sequence[int], folder: str, environment: dict[str, str], **_: object) -> None:
    """Have this process, a fork, be as if it had been started with these.

    What was random at its start is random again: forks would all draw the same from NumPy's global state.
    """
    for ignored in IGNORED:
        signal.signal(ignored, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


if __name__ == "__main__":
    main(*sys.argv[1:])
