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
from fda_flower.experiments.cells import run_all


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


def lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def most_at_a_time(spans):
    return max(sum(begin <= moment < end for begin, end in spans) for moment, _ in spans)


def test_all_tasks_run_in_processes_of_their_own(tmp_path):
    tasks = {f"task {i}": str(tmp_path / f"{i}") for i in range(3)}
    assert run_all(write, tasks, jobs=2) == {}
    pids = {int(Path(path).read_text(encoding="utf-8")) for path in tasks.values()}
    assert len(pids - {os.getpid()}) == 3
    assert run_all(write, {}, jobs=2) == {}


@pytest.mark.parametrize("jobs", [1, 2])
def test_at_most_jobs_tasks_run_at_a_time(tmp_path, jobs):
    paths = [tmp_path / f"{i}.txt" for i in range(4)]
    tasks = {path.stem: (path, jobs) for path in paths}
    seen = []
    assert run_all(span, tasks, jobs, lambda state: seen.append(len(state.running))) == {}
    spans = [tuple(map(float, path.read_text(encoding="utf-8").split())) for path in paths]
    assert most_at_a_time(spans) == jobs
    assert max(seen) <= jobs


def test_each_failure_is_reported_with_its_reason_and_stops_no_other(tmp_path):
    """One after the other, so that each that fails has others after it."""
    tasks = {name: name for name in ("mistake", "fault", "killed", "exits", "long")}
    tasks["good"] = "nothing"
    failures = run_all(do, tasks, jobs=1)
    assert failures.pop("long").startswith("ValueError('xxx"), "a reason longer than a pipe holds"
    assert "exit code -9" in failures.pop("killed")
    assert failures == {
        "mistake": "the reason, and the remedy",
        "fault": "ZeroDivisionError('a fault')",
        "exits": "its process ended with exit code 3",
    }


def test_a_process_that_is_killed_does_not_stop_those_beside_it():
    tasks, done = {"killed": "killed", "good": "nothing", "another": "nothing"}, []
    failures = run_all(do, tasks, jobs=3, on_poll=lambda state: done.append(len(state.done)))
    assert list(failures) == ["killed"]
    assert done[-1] == 2


def test_on_poll_sees_what_runs_what_is_done_and_what_failed(tmp_path):
    seen = []

    def on_poll(state):
        seen.append((tuple(state.running), len(state.done), dict(state.failures)))

    failures = run_all(do, {"first": "nothing", "bad": "mistake", "last": "nothing"}, 1, on_poll)
    reason = {"bad": "the reason, and the remedy"}
    assert failures == reason
    assert seen[-1] == ((), 2, reason)
    assert {running for running, _, _ in seen} <= {(), ("first",), ("bad",), ("last",)}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert {done for _, done, _ in seen} >= {1, 2}
    assert all(failed == (reason if done == 2 else {}) or done == 1 for _, done, failed in seen)


def test_an_interruption_while_they_run_ends_them_and_is_passed_on(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]

    def interrupt(state):
        if all(path.exists() and path.read_text(encoding="utf-8") for path in paths):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(do, {path.name: f"stay {path}" for path in paths}, 2, interrupt)
    pids = [int(path.read_text(encoding="utf-8")) for path in paths]
    until(lambda: not any(map(lives, pids)))


def test_tasks_that_wait_are_not_begun_after_an_interruption(tmp_path):
    def interrupt(state):
        raise KeyboardInterrupt

    first, second = tmp_path / "first", tmp_path / "second"
    with pytest.raises(KeyboardInterrupt):
        run_all(do, {"first": f"stay {first}", "second": f"stay {second}"}, 1, interrupt)
    time.sleep(0.3)
    assert not second.exists()


TESTS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
PARENT = """
import sys
sys.path[:0] = {tests!r}
from test_processes import do
from fda_flower.experiments.cells import run_all

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
