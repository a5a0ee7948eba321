"""The runs of a table, each in its own process and folder."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from fda_flower.errors import FdaError, RefusedError
from fda_flower.files import BODY, file_hash
from fda_flower.models import is_pretrained, reads_text
from fda_flower.models.own import LIBRARIES
from fda_flower.names.notes import logged, once
from fda_flower.records.folder import CHOSEN_MODEL
from fda_flower.reporting.results import Place, file_name
from fda_flower.reporting.summary import REFUSED, summarise_run, write_summary
from fda_flower.running.run import Execution, make_run_folder, run_config
from fda_flower.runs.config import RunConfig


@dataclass(frozen=True)
class Task:
    """One run of a table of runs, in its own folder below `runs`."""

    place: Place
    config: RunConfig
    runs: Path
    how: Execution

    @property
    def name(self) -> str:
        """Its name, in messages and in names of files."""
        return f"{file_name(self.place)}-seed{self.config.seed}"

    @property
    def run_folder(self) -> Path:
        """The folder of the run."""
        return self.runs / self.name

    def rounds_done(self) -> int:
        """Return the number of rounds written so far."""
        path = self.run_folder / "rounds.jsonl"
        return min(path.read_bytes().count(b"\n"), self.config.all_rounds) if path.exists() else 0


@dataclass(frozen=True)
class Progress:
    """The progress of a table's cells; its rounds exclude earlier and failed cells.

    `finished` lists the cells that this call has finished, in order; `done` also counts earlier ones.
    """

    cells: int
    done: int
    running: Sequence[str]
    finished: Sequence[str]
    failures: Mapping[str, str]
    rounds: int
    rounds_done: int


def run_tasks(
    tasks: Sequence[Task], jobs: int, on_progress: Callable[[Progress], None] | None, done: int = 0
) -> dict[str, str]:
    """Run tasks, each in its own process, `jobs` at a time, and return the failures as `run_all` does.

    `done` runs of the table are done already.
    """

    def on_poll(state: TaskProgress) -> None:
        if on_progress is not None:
            left = [task for task in tasks if task.name not in state.failures]
            rounds = sum(task.config.all_rounds for task in left), sum(task.rounds_done() for task in left)
            counts = done + len(tasks), done + len(state.done)
            on_progress(Progress(*counts, state.running, state.done, state.failures, *rounds))

    models = {task.config.model: dict(task.config.model_options) for task in tasks}
    pretrained = [model for model, options in models.items() if is_pretrained(model, options)]
    libraries = sorted({*map(_library, pretrained)})
    return run_all(run_task, {task.name: task for task in tasks}, jobs, on_poll, libraries)


def _library(model: str) -> str:
    """Return the module with the pretrained network of a name."""
    if reads_text(model):
        return "transformers.models.bert.modeling_bert"
    library = model.partition(":")[0]
    return library if library in LIBRARIES else "fda_flower.models.pretrained"


def run_task(task: Task) -> None:
    """Run a task; a method's refusal of the federation is a result, and goes into the summary.

    Unless asked otherwise it is evaluated in each round, for the tables' best rounds and curves. Its records
    have the test samples that are right, so that methods can be compared sample by sample.
    """
    task = replace(task, config=replace(task.config, evaluate_every=task.config.evaluate_every or 1))
    how = replace(task.how, output=task.run_folder, outcomes=True)
    try:
        run_config(task.config, how)
        for folder in (task.run_folder, task.run_folder / CHOSEN_MODEL):
            share(folder / BODY, task.runs / BODIES)
    except RefusedError as error:
        task.run_folder.mkdir(parents=True, exist_ok=True)
        make_run_folder(task.config, replace(how, resume=False)).begin(0)
        write_summary(task.run_folder, task.config, summarise_run(task.config, []) | {REFUSED: str(error)})


BODIES = "bodies"
"""The folder, next to the runs of a table, with what makes their features: each file once."""


def share(path: Path, folder: Path) -> None:
    """Replace an existing file by a hard link to the same file in a folder, if possible."""
    if not path.exists():
        return
    first, link = folder / file_hash(path), path.with_suffix(".link")
    with suppress(OSError):  # no links on this file system: each run keeps its own copy
        folder.mkdir(exist_ok=True)
        with suppress(FileExistsError):
            os.link(path, first)
        if not path.samefile(first) and file_hash(first) == first.name:
            link.unlink(missing_ok=True)
            os.link(first, link)
            link.replace(path)


POLL_SECONDS = 0.3
GRACE_SECONDS = 15.0
"""In which a process that is terminated summarises what it has done, and ends what it has started."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
PRELOADED = ["fda_flower.running.run"]
"""Modules that every process needs and that take seconds to import."""
LONGEST = 4000
"""The most characters of a reason: a process that sends more than a pipe holds would never end."""
Argument = TypeVar("Argument")


@dataclass
class TaskProgress:
    """The progress of the tasks: names of those that are running or done, reasons of failures by name."""

    running: list[str]
    done: list[str]
    failures: dict[str, str]


def run_all(
    function: Callable[[Argument], None],
    tasks: Mapping[str, Argument],
    jobs: int,
    on_poll: Callable[[TaskProgress], None] | None = None,
    libraries: Sequence[str] = (),
) -> dict[str, str]:
    """Call a function for each task, `jobs` at a time; return the reason of each failure by the task's name.

    A failed task does not stop the others. `function` must be importable; `tasks` are its arguments by name.
    `on_poll` is called a few times a second, and at the end. `libraries` are imported once for all processes.
    """
    context = _context(libraries)
    waiting = list(tasks.items())
    running: dict[str, tuple[BaseProcess, Connection]] = {}
    state = TaskProgress([], [], {})
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name, argument = waiting.pop(0)
                receiver, sender = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(
                    target=_call, args=(function, argument, sender, logged())
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


def _context(libraries: Sequence[str]) -> ForkServerContext | SpawnContext:
    """Return a fork server that has imported these and the package, if possible, for all processes."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, *libraries])
    return context


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Block signals, also in processes started inside, which then show no traceback during imports."""
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


def _call(
    function: Callable[[Any], None], argument: Any, sender: Connection, notes: Collection[str] = ()
) -> None:
    """Call a function and send the reason if it fails; a user's mistake is sent without a traceback.

    The sentences `notes` on data are not logged again.
    """
    import logging

    # The parent handles an interrupt: it terminates its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.getLogger("flwr").setLevel(logging.WARNING)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        try:
            with once(notes):
                function(argument)
        except Exception as error:
            reason = str(error) if isinstance(error, FdaError) else repr(error)
            sender.send(reason[:LONGEST])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except KeyboardInterrupt:
        # The threads of a simulation would wait for ever.
        os._exit(128 + signal.SIGTERM)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt the task once; its clean-up is not interrupted."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """End this process when its parent has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
        os._exit(128 + signal.SIGTERM)


def _reason(process: BaseProcess, receiver: Connection) -> str | None:
    process.join()
    with suppress(EOFError):
        if receiver.poll():
            return str(receiver.recv())
    code = process.exitcode
    if code == 0:
        return None
    killed = " (killed, perhaps because memory ran out: use fewer --jobs)" if code == -9 else ""
    return f"its process ended with exit code {code}{killed}"
