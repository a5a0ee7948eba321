"""A site's launcher: a process that has imported Flower and forks once per message.

Flower runs the command ``flwr-clientapp`` for every message, which spends a second or more on importing
Flower. `launching` puts a command of the same name first on the path. It hands its arguments, environment and
streams to the launcher (`launch.py`), which forks, and the fork does the command's work.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from logging import WARNING
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from flwr.common import log

from fda_flower.supernode.worker import Folder

PROGRAM = Path(__file__).with_name("launch.py")
HAND_OVER_SECONDS = 10.0
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)


class Stage(NamedTuple):
    """A launcher's commands, each with ``module:function``, and a function that it calls once before."""

    commands: Mapping[str, str]
    prepare: str


@contextmanager
def launching(*stages: Stage) -> Iterator[None]:
    """Replace commands by forks of a process that has imported them, within the block.

    The launcher ends with this process, however that ends. If there can be none (a system other than Linux,
    no folder for temporary files), a warning is logged; then, and if it ends early, the next command on the
    path runs as usual.

    Each stage has its own launcher, a fork of the previous stage's. It keeps everything already imported, and
    commands of an early stage neither wait for nor hold later imports.
    """
    path = os.environ.get("PATH", os.defpath)
    folder: Path | None = None
    try:
        if sys.platform != "linux":
            raise OSError(f"it needs Linux, and this is {sys.platform}")
        folder = Path(tempfile.mkdtemp(prefix="fda-launcher-"))
        launcher = _start(folder, stages)
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


def _start(folder: Path, stages: Sequence[Stage]) -> "subprocess.Popen[bytes]":
    """Put the forwarding commands into the folder, and return the first launcher."""
    with ExitStack() as stack:
        opened = stack.enter_context(Folder(folder))
        descriptors = []
        for number, stage in enumerate(stages):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(opened.address(str(number)))
            listener.listen()
            descriptors.append(listener.fileno())
            for command in stage.commands:
                program = [sys.executable, "-I", "-S", str(PROGRAM), str(folder), str(number), command]
                (folder / command).write_bytes(os.fsencode(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n'))
                (folder / command).chmod(0o700)
        given = [(*stage, descriptor) for stage, descriptor in zip(stages, descriptors, strict=True)]
        return subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(folder), json.dumps(given)],
            stdin=subprocess.PIPE,
            pass_fds=descriptors,
        )


def main(folder: str, stages: Sequence[tuple[dict[str, str], str, int]]) -> None:
    """Serve as a launcher until standard input ends; in each fork, run the command."""
    # Signals to all processes of a SuperNode end it, and thus the launcher, which removes its folder.
    # Nobody waits for forks.
    for ignored in IGNORED:
        signal.signal(ignored, signal.SIG_IGN)
    (references, prepare, descriptor), *later = stages
    commands = {name: resolve_name(given) for name, given in references.items()}
    resolve_name(prepare)()
    gc.freeze()
    if later and os.fork() == 0:
        os.close(descriptor)
        main(folder, later)
        return
    for *_, other in later:
        os.close(other)
    task = _next_task(socket.socket(fileno=descriptor))
    if task is None:
        shutil.rmtree(folder, ignore_errors=True)
        return
    take_place(**task)
    sys.exit(commands[sys.argv[0]]())


def _next_task(listener: socket.socket) -> dict[str, Any] | None:
    """Fork for each task; return the task in the fork, or None in the launcher when it ends."""
    with listener:
        while True:
            if 0 in select.select([0, listener.fileno()], [], [])[0]:
                return None
            with listener.accept()[0] as connection:
                connection.settimeout(HAND_OVER_SECONDS)
                try:
                    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
                    with connection.makefile("rb") as file:
                        task = {**json.load(file), "streams": streams}
                    connection.sendall(b"taken")
                except (OSError, ValueError):
                    continue
                if os.fork() == 0:
                    return task
                for stream in streams:
                    os.close(stream)


def take_place(
    arguments: Sequence[str], streams: Sequence[int], folder: str, environment: dict[str, str]
) -> None:
    """Make this process, a fork, behave as if started with these arguments, environment and streams.

    Random state from the start is renewed: otherwise all forks would draw the same from NumPy's global state.
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
    sys.argv = list(arguments)
    # The name that ``ps`` and ``top`` show.
    Path("/proc/self/comm").write_text(arguments[0])


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
