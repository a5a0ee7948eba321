"""Runs a command, and ends it with all that it started as soon as the process that asked for it is gone.

This file is a program of its own, which starts in an instant: it imports nothing of the package.
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
    """Return the command that runs a command for as long as this process lives.

    Whoever starts it ends it by SIGTERM. The guard then does what it does when this process is gone,
    however it ended: it ends the command, and every process that the command started, by force those that
    run after a grace in seconds; and it removes a folder.
    """
    # -P: the folder of this file is not on the path, where its neighbours would hide other modules.
    return [sys.executable, "-P", __file__, str(os.getpid()), str(grace), remove, *command]


def end_descendants(root: psutil.Process, grace: float) -> None:
    """Terminate all processes that a process started, also meanwhile; kill those that run after the grace.

    A grace of 0 seconds kills at once. After as many seconds again (at least one), a killed process that
    the system does not let go is given up.
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
    """Return whether a process runs; a zombie, which nobody has waited for yet, does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def main(parent: int, grace: float, remove: str, command: Sequence[str]) -> int:
    """Run the command until it ends, the parent is gone, or SIGTERM comes, and return its exit code.

    A command that a signal ended has the exit code that a shell gives it: 128 and the signal's number.
    """
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    # Processes whose parent has ended become children of the guard, which so finds all of them.
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Should the guard itself be killed, the system ends at least the command.
    process = subprocess.Popen(command, preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGTERM))
    # A process whose parent is gone gets another one. The end of a pipe from the parent would not tell as
    # much: a fork of the parent, as multiprocessing makes them, holds the pipe open.
    while process.poll() is None and os.getppid() == parent and not signals:
        time.sleep(POLL_SECONDS)
    end_descendants(psutil.Process(), grace)
    if remove and os.getppid() != parent:
        shutil.rmtree(remove, ignore_errors=True)
    code = process.wait()
    return code if code >= 0 else 128 - code


def _prctl(option: int, value: int) -> None:
    """Set an attribute of this process, where the system (Linux) has it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]))
