"""Processes that are ended with all that they started, at the latest when this process ends."""

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
TAIL = 2000
"""Characters of a log that an error shows."""


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Answer signals at the end of the block: an interrupted `Popen` leaves a process that nobody knows."""
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
    """Run a guarded command until the end of the block at the latest, in a session that Ctrl-C spares."""
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
    """A process that runs in a folder until it is ended or this process is gone, and its output.

    The folder's ``logs/NAME.log`` gets what it says, behind what an earlier process of this name said. A
    temporary folder is removed if this process is gone.
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
            # A session of its own, so that an interrupt from the keyboard reaches this process alone.
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
        """Wait for a text in the log; raise a `RunError` if the process ends or the seconds are over."""
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
        """What runs on although the process that guards it was killed: all in the session that it began."""
        session = self.process.pid
        # A process of this number would be another one.
        if self.process.poll() is None or psutil.pid_exists(session):
            return []
        found = set[psutil.Process]()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if os.getsid(process.pid) == session:
                    found |= {process, *process.children(recursive=True)}
        return [process for process in found if is_alive(process)]

    def said(self) -> str:
        """What this process has said so far."""
        with self.log.open("rb") as file:
            file.seek(self._said_before)
            return file.read().decode(errors="replace")


def end(services: Iterable[Service], kill: bool = False) -> None:
    """End services, at the same time, and all that they started; kill what does not end within 10 s.

    Of those that have ended already, what they left behind is killed. With `kill` all is killed at once, as
    by a machine that loses its power.
    """
    services = list(services)
    roots = [service.process for service in services if service.process.poll() is None]
    orphans = [orphan for service in services for orphan in service.orphans()]
    try:
        if not kill:
            _signal(roots, psutil.Process.terminate)
            # A guard needs up to twice the grace period, and a moment to start.
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
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _signal(processes: Iterable[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            send(process)
