"""Runs a command, and ends it and its descendants when the process that started the guard dies.

This file is a program of its own. It imports nothing of the package, so it starts quickly.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import psutil

POLL_SECONDS = 0.1
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def guarded(command: Sequence[str], grace: float, remove: str = "") -> list[str]:
    """Return the command line that runs `command` for as long as this process lives.

    On SIGTERM, or when this process dies, the guard ends the command and every process that it started, by
    force after `grace` seconds. When this process dies it also removes the folder `remove`.
    """
    # -P keeps this file's folder off the path, where its neighbours would hide other modules.
    return [sys.executable, "-P", __file__, str(os.getpid()), str(grace), remove, *command]


def end_descendants(root: psutil.Process, grace: float) -> None:
    """Terminate all processes that `root` has started or is starting; kill them after `grace` seconds.

    A grace of 0 kills at once. A killed process that survives another `grace` seconds (at least one) is
    left alone.
    """
    known: set[psutil.Process] = set()
    told: set[tuple[psutil.Process, bool]] = set()
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < grace + max(grace, 1.0):
        with contextlib.suppress(psutil.NoSuchProcess):
            known |= set(root.children(recursive=True))
        known = {process for process in known if is_alive(process)}
        if not known:
            return
        kill = passed >= grace
        for process in known:
            if (process, kill) not in told:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill() if kill else process.terminate()
        told |= {(process, kill) for process in known}
        time.sleep(POLL_SECONDS)


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def main(parent: int, grace: float, remove: str, command: Sequence[str]) -> int:
    """Run the command until it ends, the parent dies, or SIGTERM arrives, and return its exit code.

    As in a shell, the exit code of a command that a signal ended is 128 plus the signal's number.
    """
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    # Orphans become children of the guard, so it finds all descendants.
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # If the guard itself is killed, the system still ends the command.
    process = subprocess.Popen(command, preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGTERM))
    # A changed parent means that the parent is dead. A closed pipe would not: forks of the parent, such as
    # those of multiprocessing, hold it open.
    while process.poll() is None and os.getppid() == parent and not signals:
        time.sleep(POLL_SECONDS)
    end_descendants(psutil.Process(), grace)
    if remove and os.getppid() != parent:
        shutil.rmtree(remove, ignore_errors=True)
    code = process.wait()
    return code if code >= 0 else 128 - code


def _prctl(option: int, value: int) -> None:
    """Set an attribute of this process, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]))
