"""What a guard runs ends with the process that asked for it, however that process ends."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from waiting import until

from fda_flower.deployment import guard
from fda_flower.deployment.guard import guarded, is_alive

READY = "open('ready', 'w').close()"
SLEEP = "import signal; signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
FAMILY = f"""
import signal, subprocess, sys
sleep = [sys.executable, "-c", sys.argv[1]]
subprocess.Popen(sleep, start_new_session=True)
orphan = f"import subprocess; subprocess.Popen({{sleep!r}}, start_new_session=True)"
subprocess.run([sys.executable, "-c", orphan], start_new_session=True)
{READY}
signal.pause()
"""
"""Has a child in a session of its own, and an orphan in another one."""
PARENT = """
import os, signal, subprocess, sys
sys.path.insert(0, {folder!r})
from guard import guarded
subprocess.Popen(guarded({command!r}, 1.0, {remove!r}), cwd={here!r}, start_new_session=True)
os.fork()
signal.pause()
"""
"""Has a fork that lives on without it, as a notebook's may."""


def family(sleep=SLEEP):
    return [sys.executable, "-c", FAMILY, sleep]


@pytest.fixture
def here(tmp_path):
    """A folder to run in; who still runs there after the test is killed."""
    folder = tmp_path / "here"
    folder.mkdir()
    yield folder
    for process in running_in(folder):
        process.kill()


def running_in(folder):
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd() == str(folder) and is_alive(process):
                found.append(process)
    return found


def until_ready(folder, number):
    """Wait for a guard and its command with what that has started."""
    until((folder / "ready").exists)
    assert len(running_in(folder)) == number


@pytest.fixture
def keys(tmp_path):
    """A folder that a guard is to remove if its parent is gone."""
    folder = tmp_path / "federation" / "keys"
    folder.mkdir(parents=True)
    (folder / "ca.key").write_text("secret", encoding="utf-8")
    return folder


@pytest.fixture
def parent(here, keys):
    """Start a process that has a guarded command; it is a group of its own with its fork."""
    folder, remove = str(Path(guard.__file__).parent), str(keys.parent)
    code = PARENT.format(folder=folder, command=family(), here=str(here), remove=remove)
    parent = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    yield parent
    os.killpg(parent.pid, signal.SIGKILL)
    parent.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_parent_that_a_signal_ends(parent, here, keys, number):
    until_ready(here, 4)
    assert keys.exists()
    parent.send_signal(number)
    parent.wait()
    until(lambda: running_in(here) == [])
    assert not keys.parent.exists()
    assert here.exists()


@pytest.fixture
def start(here):
    started = []

    def start(command, grace=5.0, remove=""):
        process = subprocess.Popen(
            guarded(command, grace, remove),
            cwd=here,
            start_new_session=True,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize("sleep", [SLEEP, DEAF], ids=["listens", "is deaf"])
def test_a_guard_that_is_terminated_ends_all_that_listens_or_is_deaf(start, here, sleep):
    process = start(family(sleep), grace=5.0 if sleep == SLEEP else 0.5)
    until_ready(here, 4)
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    assert running_in(here) == []


@pytest.mark.parametrize("terminate", [False, True])
def test_a_guard_removes_nothing_while_its_parent_lives(start, here, keys, terminate):
    process = start(
        [sys.executable, "-c", f"{READY}; {SLEEP}" if terminate else "pass"], remove=str(keys.parent)
    )
    if terminate:
        until_ready(here, 2)
        process.terminate()
    process.wait()
    assert (keys / "ca.key").exists()


def test_what_a_command_leaves_behind_ends_with_it(start, here):
    process = start(family())
    until_ready(here, 4)
    (command,) = psutil.Process(process.pid).children()[:1]
    command.kill()
    assert process.wait() == 128 + signal.SIGKILL
    assert running_in(here) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_command_ends_with_a_guard_that_is_killed(start, here):
    process = start([sys.executable, "-c", f"{READY}; {SLEEP}"])
    until_ready(here, 2)
    process.kill()
    until(lambda: running_in(here) == [])


def test_a_command_of_a_process_that_is_gone_already_ends_at_once(start, here, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 2**22 + 1)
    assert start([sys.executable, "-c", SLEEP]).wait() != 0
    assert running_in(here) == []


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_the_commands(start, code):
    assert start([sys.executable, "-c", f"raise SystemExit({code})"]).wait() == code


def test_a_command_that_is_not_there_is_an_error_that_names_it(start):
    process = start(["/nowhere/flower-superlink"])
    assert "'/nowhere/flower-superlink'" in process.communicate()[1]
    assert process.returncode == 1


AGAIN = f"""
import signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: subprocess.Popen([sys.executable, "-c", {SLEEP!r}]))
{READY}
while True:
    signal.pause()
"""
"""Answers SIGTERM by one more process."""


def test_what_is_started_while_all_is_ended_is_ended_too(start, here):
    process = start([sys.executable, "-c", AGAIN], grace=1.0)
    until_ready(here, 2)
    process.terminate()
    process.wait()
    assert running_in(here) == []


def test_the_guard_imports_nothing_of_the_package():
    code = "import sys; sys.path.insert(0, sys.argv[1]); import guard; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(guard.__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & {"fda_flower", "flwr", "numpy", "torch"}
