"""Processes that end, with their descendants, no later than this process."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from fda_flower.deployment.guard import end_descendants, guarded, is_alive
from fda_flower.errors import RunError

POLL_SECONDS = 0.1
GRACE_SECONDS = 10.0
IN_UTF8 = {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8"}
"""Makes Flower's commands write what is read here, whatever this process's terminal can show."""
TAIL = 2000
"""Characters of a log that an error shows."""


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay signals until the end of the block: an interrupted `Popen` would leak its process."""
    came = list[tuple[int, Any]]()
    handlers = dict[int, Callable[[int, Any], Any]]()
    if threading.current_thread() is threading.main_thread():
        for number in map(int, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
                signal.signal(number, lambda *given: came.append(given))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number, frame in came:
        handlers[number](number, frame)


@contextlib.contextmanager
def running(command: Sequence[str], grace: float, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a guarded command, at most until the end of the block, in a session that Ctrl-C does not reach."""
    process = None
    try:
        with uninterrupted():
            process = subprocess.Popen(
                guarded(command, grace), stdin=subprocess.DEVNULL, start_new_session=True, **options
            )
        yield process
    finally:
        if process is not None:
            process.terminate()
            process.wait()


class Service:
    """A guarded process that runs in a folder and appends its output to ``logs/NAME.log``.

    A temporary folder is removed if this process dies.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        temporary: bool = False,
    ) -> None:
        self.name = name
        self.log = folder / "logs" / f"{name}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as file:
            self._said_before = file.tell()
            # In a session of its own, which Ctrl-C does not reach.
            self.process = psutil.Popen(
                guarded(command, GRACE_SECONDS, str(folder) if temporary else ""),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
            )

    def wait_until_it_says(self, text: str, timeout: float) -> None:
        """Wait for a text in the log; raise a `RunError` if the process ends, or after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while text not in (said := self.said()):
            if self.process.poll() is not None and text not in self.said():
                self.check()
            if time.monotonic() > deadline:
                raise RunError(f"{self.name} is not ready after {timeout:g} s; its log says:\n{said[-TAIL:]}")
            time.sleep(POLL_SECONDS)

    def check(self) -> None:
        """Raise a `RunError` if the process has ended."""
        code = self.process.poll()
        if code is not None:
            raise RunError(f"{self.name} ended with exit code {code}; its log says:\n{self.said()[-TAIL:]}")

    def orphans(self) -> list[psutil.Process]:
        """Return the processes that outlived a killed guard: all of the guard's session."""
        session = self.process.pid
        # A process with this number is a new one.
        if self.process.poll() is None or psutil.pid_exists(session):
            return []
        found = set[psutil.Process]()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if os.getsid(process.pid) == session:
                    found |= {process, *process.children(recursive=True)}
        return [process for process in found if is_alive(process)]

    def said(self) -> str:
        """Return the output of this process so far."""
        with self.log.open("rb") as file:
            file.seek(self._said_before)
            return file.read().decode(errors="replace")


def end(services: Iterable[Service], kill: bool = False) -> None:
    """End services and their descendants together; kill those that run after 10 s.

    Processes that an ended service left behind are killed too. With `kill`, all are killed at once, as in a
    power failure.
    """
    services = list(services)
    roots = [service.process for service in services if service.process.poll() is None]
    orphans = [orphan for service in services for orphan in service.orphans()]
    try:
        if not kill:
            _signal(roots, psutil.Process.terminate)
            # A guard needs up to twice the grace period, plus its start.
            psutil.wait_procs(roots, 2 * GRACE_SECONDS + 5)
    finally:
        for root in [*roots, *orphans]:
            end_descendants(root, grace=0)
            _signal([root], psutil.Process.kill)
        for root in roots:
            root.wait()
        deadline = time.monotonic() + GRACE_SECONDS
        while any(map(is_alive, orphans)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _signal(processes: Iterable[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            send(process)
