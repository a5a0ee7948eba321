"""Run tasks in parallel, each in its own process."""

import multiprocessing
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from fda_flower.errors import FdaError

POLL_SECONDS = 0.3
PRELOADED = ["fda_flower.experiments.run", "torch._dynamo"]
"""Modules that every process needs; torch's first optimizer imports the second, in 2 seconds."""
LONGEST = 4000
"""The most characters of a reason: a process that sends more than a pipe holds would never end."""
Argument = TypeVar("Argument")


@dataclass
class State:
    """The progress of the tasks: names of those that are running, and reasons of failures by name."""

    running: list[str]
    done: int
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
    state = State([], 0, {})
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name, argument = waiting.pop(0)
                receiver, sender = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(
                    target=_call, args=(function, argument, sender), daemon=False
                )
                process.start()
                sender.close()
                running[name] = process, receiver
            wait([process.sentinel for process, _ in running.values()], POLL_SECONDS)
            for name in [name for name, (process, _) in running.items() if not process.is_alive()]:
                reason = _reason(*running.pop(name))
                state.done += reason is None
                if reason is not None:
                    state.failures[name] = reason
            state.running = list(running)
            if on_poll is not None:
                on_poll(state)
    finally:
        for process, _ in running.values():
            process.terminate()
    return state.failures


def _context() -> ForkServerContext | SpawnContext:
    """Return a fork server that has imported the package, if possible, so that a process imports nothing."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _call(function: Callable[[Any], None], argument: Any, sender: Connection) -> None:
    """Call a function and send the reason if it fails; a user's mistake is sent without a traceback."""
    import logging

    # The parent handles an interrupt: it terminates its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.getLogger("flwr").setLevel(logging.WARNING)
    try:
        function(argument)
    except Exception as error:
        reason = str(error) if isinstance(error, FdaError) else repr(error)
        sender.send(reason[:LONGEST])


def _end_with_parent() -> None:
    """End this process when its parent has ended, however that happened."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        signal.raise_signal(signal.SIGTERM)


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
