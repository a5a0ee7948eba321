"""Tasks in real processes: small functions, so that it takes seconds."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from waiting import until

from fda_flower.errors import ConfigError
from fda_flower.running.processes import run_all


def write(path):
    Path(path).write_text(f"{os.getpid()}", encoding="utf-8")


def span(task):
    """Write when it began and ended, which is when enough have begun."""
    path, enough = task
    begin = time.time()
    path.with_suffix(".begun").touch()
    until(lambda: len(list(path.parent.glob("*.begun"))) >= enough)
    path.write_text(f"{begin} {time.time()}", encoding="utf-8")


def do(what):
    if what == "mistake":
        raise ConfigError("the reason, and the remedy")
    if what == "fault":
        raise ZeroDivisionError("a fault")
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "exits":
        os._exit(3)
    if what == "long":
        raise ValueError("x" * 1_000_000)
    if what.startswith("stay"):
        _, path = what.split(" ")
        write(path)
        threading.Event().wait()


def test_all_tasks_run_in_processes_of_their_own(tmp_path):
    tasks = {f"task {i}": str(tmp_path / f"{i}") for i in range(3)}
    assert run_all(write, tasks, jobs=2) == {}
    pids = {int(Path(path).read_text(encoding="utf-8")) for path in tasks.values()}
    assert len(pids - {os.getpid()}) == 3
    assert run_all(write, {}, jobs=2) == {}


@pytest.mark.parametrize("jobs", [1, 2])
def test_at_most_jobs_tasks_run_at_a_time(tmp_path, jobs):
    paths = [tmp_path / f"{i}.txt" for i in range(4)]
    assert run_all(span, {path.stem: (path, jobs) for path in paths}, jobs) == {}
    spans = [tuple(map(float, path.read_text(encoding="utf-8").split())) for path in paths]
    assert max(sum(begin <= moment < end for begin, end in spans) for moment, _ in spans) == jobs


@pytest.mark.parametrize("jobs", [1, 6])
def test_each_failure_is_reported_with_its_reason_and_stops_no_other(jobs):
    """One after the other, so that each that fails has others after it, and all beside each other."""
    tasks = {name: name for name in ("mistake", "fault", "killed", "exits", "long")}
    seen = []

    def on_poll(state):
        seen.append((len(state.running), len(state.done), len(state.failures)))

    failures = run_all(do, {**tasks, "good": "nothing"}, jobs, on_poll)
    assert failures.pop("long").startswith("ValueError('xxx"), "a reason longer than a pipe holds"
    assert "exit code -9" in failures.pop("killed")
    assert failures == {
        "mistake": "the reason, and the remedy",
        "fault": "ZeroDivisionError('a fault')",
        "exits": "its process ended with exit code 3",
    }
    assert seen[-1] == (0, 1, 5)
    running, done, failed = zip(*seen, strict=True)
    assert max(running) <= jobs
    assert (list(done), list(failed)) == (sorted(done), sorted(failed))
    assert jobs > 1 or {*failed} >= {1, 2, 3, 4, 5}


def test_an_interruption_while_they_run_ends_them_begins_none_and_is_passed_on(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    *begun, waits = paths

    def interrupt(state):
        if all(path.exists() and path.read_text(encoding="utf-8") for path in begun):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(do, {path.name: f"stay {path}" for path in paths}, 2, interrupt)
    pids = [int(path.read_text(encoding="utf-8")) for path in begun]
    until(lambda: not any(map(psutil.pid_exists, pids)))
    assert not waits.exists()


TESTS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
PARENT = """
import sys
sys.path[:0] = {tests!r}
from test_processes import do
from fda_flower.running.processes import run_all

if __name__ == "__main__":
    run_all(do, {{"a": "stay " + sys.argv[1]}}, 1)
"""


def test_a_task_does_not_outlive_a_parent_that_is_killed(tmp_path):
    script, told = tmp_path / "parent.py", tmp_path / "pid"
    script.write_text(PARENT.format(tests=TESTS), encoding="utf-8")
    paths = os.pathsep.join([*TESTS, *filter(None, sys.path)])
    parent = subprocess.Popen([sys.executable, script, told], env={**os.environ, "PYTHONPATH": paths})
    try:
        task = psutil.Process(int(until(lambda: told.exists() and told.read_text())))
        assert task.is_running()
        parent.kill()
        parent.wait()
        until(lambda: not task.is_running() or task.status() == psutil.STATUS_ZOMBIE)
    finally:
        parent.kill()
        parent.wait()
