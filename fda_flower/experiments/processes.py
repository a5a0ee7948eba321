"""Run tasks in parallel, each in its own process."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, TypeVar

from fda_flower.errors import FdaError

POLL_SECONDS = 0.3
GRACE_SECONDS = 15.0
"""In which a process that is terminated summarises what it has done, and ends what it has started."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
PRELOADED = ["fda_flower.experiments.run", "fda_flower.reporting.plots"]
"""Modules that every process needs, and that take seconds to import."""
LONGEST = 4000
"""The most characters of a reason: a process that sends more than a pipe holds would never end."""
Argument = TypeVar("Argument")


@dataclass
class State:
    """The progress of the tasks: names of those that are running or done, reasons of failures by name."""

    running: list[str]
    done: list[str]
    failures: dict[str, str]


def run_all(
    function: Callable[[Argument], None],
    tasks: Mapping[str, Argument],
    jobs: int,
    on_poll: Callable[[State], None] | None = None,
) -> dict[str, str]:
    """Call a function for each task, `jobs` at a time; a task that fails does not stop the others.

    Parameters
    ----------
    function : callable
        A function of a module, so that a new process can import it.
    tasks : Mapping
        The function's argument, by the name of the task.
    jobs : int
        Processes to run at a time.
    on_poll : callable, optional
        Called a few times a second, and at the end.

    Returns
    -------
    dict[str, str]
        The reason for each failure, by the name of the task.
    """
    context = _context()
    waiting = list(tasks.items())
    running: dict[str, tuple[BaseProcess, Connection]] = {}
    state = State([], [], {})
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name, argument = waiting.pop(0)
                receiver, sender = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(
                    target=_call, args=(function, argument, sender), daemon=False
                )
                with _uninterrupted():
                    process.start()
                sender.close()
                running[name] = process, receiver
            wait([process.sentinel for process, _ in running.values()], POLL_SECONDS)
            for name in [name for name, (process, _) in running.items() if not process.is_alive()]:
                reason = _reason(*running.pop(name))
                if reason is None:
                    state.done.append(name)
                else:
                    state.failures[name] = reason
            state.running = list(running)
            if on_poll is not None:
                on_poll(state)
    finally:
        _end([process for process, _ in running.values()])
    return state.failures


def _context() -> ForkServerContext | SpawnContext:
    """Return a fork server that has imported the package, if possible, so that a process imports nothing."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Have signals wait: what starts here inherits that, and shows no traceback while it imports."""
    # Started within, it would have signals come again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(processes: Collection[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(GRACE_SECONDS)
        process.kill()
        process.join()


def _call(function: Callable[[Any], None], argument: Any, sender: Connection) -> None:
    """Call a function and send the reason if it fails; a user's mistake is sent without a traceback."""
    import logging

    # The parent handles an interrupt: it terminates its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.getLogger("flwr").setLevel(logging.WARNING)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        try:
            function(argument)
        except Exception as error:
            reason = str(error) if isinstance(error, FdaError) else repr(error)
            sender.send(reason[:LONGEST])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except KeyboardInterrupt:
        # The threads of a simulation would wait for ever.
        os._exit(128 + signal.SIGTERM)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt the task, once: what it does then is not interrupted."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """End this process when its parent has ended, however that happened."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
        os._exit(128 + signal.SIGTERM)


def _reason(process: BaseProcess, receiver: Connection) -> str | None:
    process.join()
    try:
        return str(receiver.recv()) if receiver.poll() else _exit_reason(process.exitcode)
    except EOFError:
        return _exit_reason(process.exitcode)


def _exit_reason(code: int | None) -> str | None:
    if code == 0:
        return None
    killed = " (killed, perhaps because memory ran out: use fewer --jobs)" if code == -9 else ""
    return f"its process ended with exit code {code}{killed}"
