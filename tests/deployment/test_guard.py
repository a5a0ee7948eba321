"""What a guard runs ends with the process that asked for it, however that process ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from waiting import running_in, until

from fda_flower.deployment import guard
from fda_flower.deployment.guard import guarded

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
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("sleep", "grace", "number"),
    [(SLEEP, 5.0, signal.SIGTERM), (DEAF, 0.5, signal.SIGTERM), (SLEEP, 5.0, signal.SIGKILL)],
    ids=["it listens", "it is deaf", "its command is killed"],
)
def test_a_guard_ends_all_that_its_command_has_started(start, here, sleep, grace, number):
    process = start(family(sleep), grace)
    until_ready(here, 4)
    if number == signal.SIGTERM:
        process.terminate()
    else:
        psutil.Process(process.pid).children()[0].kill()
    assert process.wait() == 128 + number
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
    said = subprocess.check_output([sys.executable, "-c", code, Path(guard.__file__).parent], text=True)
    loaded = {name.split(".")[0] for name in said.split()}
    assert not loaded & {"fda_flower", "flwr", "numpy", "torch"}
