"""Runs a framework in a process of its own, and samples the memory of all processes that it starts."""

import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from frameworks.pairing import STEADY, Measured
from frameworks.task import Task

LIMIT_S, SAMPLE_EVERY_S = 600, 0.25
MIB = 2**20


class FailedError(Exception):
    """A framework has not done its rounds."""


@dataclass(frozen=True)
class Outcome:
    """What a process has measured, with the memory in MiB if that was watched."""

    measured: Measured
    memory: float | None = None


def run(name: str, task: Task, watch_memory: bool = False) -> Outcome:
    """Run a framework on a task.

    Raises
    ------
    FailedError
        With the reason, such as the last lines that it wrote.
    """
    with tempfile.TemporaryDirectory() as place:
        folder, log = Path(place), Path(place) / "log"
        paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "frameworks", name, json.dumps(asdict(task))]
        with log.open("wb") as out:
            begun = time.monotonic()
            process = psutil.Popen([*command, str(begun), place], env=environment, stdout=out, stderr=out)
        memory = 0.0
        try:
            while process.poll() is None:
                if time.monotonic() > begun + LIMIT_S:
                    raise FailedError(f"no result within {LIMIT_S} s; its last words: {last_words(log)}")
                if watch_memory and not (folder / STEADY).exists():
                    memory = max(memory, memory_of(process))
                time.sleep(SAMPLE_EVERY_S)
        finally:
            end(process)
        result = folder / "result.json"
        if not result.exists():
            raise FailedError(last_words(log))
        found = json.loads(result.read_text())
        if "refused" in found:
            raise FailedError(found["refused"])
        return Outcome(Measured(**found), memory if watch_memory else None)


def last_words(log: Path) -> str:
    """Return the end of what a process has written."""
    return " ".join(log.read_text(errors="replace").split()[-60:])


def memory_of(process: psutil.Process) -> float:
    """Return the MiB that a process and all that it has started hold; what they share counts once."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        try:
            used = each.memory_full_info()
        except psutil.Error:
            continue
        total += getattr(used, "pss", used.uss)
    return total / MIB


def end(process: psutil.Popen) -> None:
    """End a process that is still running, with all that it has started."""
    if process.poll() is not None:
        return
    for each in [*process.children(recursive=True), process]:
        each.kill()
    process.wait()
