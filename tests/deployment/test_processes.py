"""Processes are ended with all that they started."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from waiting import until

from fda_flower.deployment.guard import is_alive
from fda_flower.deployment.processes import Service, end, running, uninterrupted
from fda_flower.errors import RunError

CHILD = (
    "import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session={new})\n"
)
SLEEP = "import signal; print('ready', flush=True); signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


@pytest.fixture
def start(tmp_path):
    started = []

    def start(code, name="service"):
        service = Service(name, [sys.executable, "-c", code], tmp_path, os.environ)
        started.append(service)
        return service

    yield start
    end(started, kill=True)


@pytest.mark.parametrize("kill", [False, True])
def test_to_end_a_service_ends_its_children_in_sessions_of_their_own_too(start, kill):
    service = start(CHILD.format(child=SLEEP, new=True) + SLEEP)
    until(lambda: service.said().count("ready") == 2)
    tree = [psutil.Process(service.process.pid), *service.process.children(recursive=True)]
    assert len(tree) == 3, "its guard, itself and its child"
    end([service], kill)
    assert not any(map(is_alive, tree))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a session is not told")
def test_what_runs_on_after_its_guard_was_killed_is_ended_too(start):
    service = start(DEAF + CHILD.format(child=DEAF + SLEEP, new=True) + SLEEP)
    other = start(SLEEP, "other")
    until(lambda: service.said().count("ready") == 2 and "ready" in other.said())
    tree = service.process.children(recursive=True)
    service.process.kill()
    service.process.wait()
    with pytest.raises(RunError, match=f"service ended with exit code {-signal.SIGKILL}"):
        service.check()
    assert all(map(is_alive, tree))
    end([service])
    assert not any(map(is_alive, tree))
    other.check()


def test_a_service_that_ends_early_is_an_error_with_its_exit_code_and_log(start):
    service = start("print('out of luck'); raise SystemExit(3)", "superlink")
    with pytest.raises(RunError, match=r"superlink ended with exit code 3; its log says:\nout of luck"):
        service.wait_until_it_says("ready", 300)


def test_a_service_that_is_not_ready_in_time_is_an_error_with_its_log(start):
    service = start(SLEEP)
    service.wait_until_it_says("ready", 300)
    with pytest.raises(RunError, match=r"service is not ready after 0.2 s; its log says:\nready"):
        service.wait_until_it_says("more", 0.2)


def test_what_a_service_says_is_behind_what_it_said_before(start, tmp_path):
    start("print('first')").process.wait()
    second = start("print('second')")
    second.process.wait()
    assert second.said() == "second\n"
    assert second.log == tmp_path / "logs" / "service.log"
    assert second.log.read_text(encoding="utf-8") == "first\nsecond\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_a_process_is_known(number):
    came = list[int]()

    def handler(number, frame):
        came.append(number)

    before = signal.signal(number, handler)
    try:
        with uninterrupted():
            signal.raise_signal(number)
            assert came == []
        assert came == [number]
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


def test_an_interrupt_while_a_command_starts_ends_it(monkeypatch):
    started = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            started.append(psutil.Process(self.pid))
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with pytest.raises(KeyboardInterrupt), running([sys.executable, "-c", SLEEP], 1.0):
            pytest.fail("it goes on")
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(started) == 1
    assert not is_alive(started[0])
