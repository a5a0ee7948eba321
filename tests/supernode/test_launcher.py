"""A launcher and its forks, in real processes, for a command of a package that a test installs."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from waiting import children_with, until

from fda_flower.supernode.launcher import PROGRAM, Stage, launching
from fda_flower.supernode.worker import Folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a launcher needs Linux")

PROBE = """
import json, os, random, sys
import numpy as np

def prepare():
    os.environ["PREPARED"] = "in the launcher"
    np.random.seed(0)
    global loaded
    loaded = os.getpid()

def main():
    if sys.argv[1:] == ["fail"]:
        raise ValueError("as asked")
    told = {"arguments": sys.argv, "folder": os.getcwd(), "pid": os.getpid(), "parent": os.getppid()}
    told |= {"said": sys.stdin.read(), "color": os.environ.get("COLOR"), "path": os.environ["PATH"]}
    told |= {"prepared": os.environ.get("PREPARED"), "loaded": globals().get("loaded")}
    told |= {"name": open("/proc/self/comm").read()}
    told |= {"draws": [random.random(), np.random.rand()]}
    print(json.dumps(told))
    print("and this", file=sys.stderr)
"""
OWN = """#!{python}
import sys
sys.path.insert(0, {folder!r})
from probe import main
main()
"""
STAGE = Stage({"probe": "probe:main", "other": "probe:main"}, "probe:prepare")
HEAVY = Stage({"heavy": "probe:main"}, "probe:prepare")
PARENT = """
import sys
from fda_flower.supernode.launcher import Stage, launching
stages = [Stage({name: "probe:main"}, "probe:prepare") for name in ("probe", "heavy")]
with launching(*stages):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a package and its command ``probe``, as pip installs one."""
    (tmp_path / "probe.py").write_text(PROBE)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "probe").write_text(OWN.format(python=sys.executable, folder=str(tmp_path)))
    (tmp_path / "bin" / "probe").chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def probe(*arguments, command="probe", **how):
    done = subprocess.run([command, *arguments], capture_output=True, text=True, **how)
    return done.stdout, done.stderr


def told(*arguments, **how):
    return json.loads(probe(*arguments, **how)[0])


def launchers():
    return children_with("fda_flower.supernode.launcher")


def folders(here):
    return list(here.glob("fda-launcher-*"))


def path_of(here):
    (folder,) = folders(here)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_a_fork_is_as_if_it_had_been_started(here):
    (here / "elsewhere ö").mkdir()
    surroundings = {**os.environ, "COLOR": "blue\udcff"}
    with launching(STAGE):
        surroundings["PATH"] = os.environ["PATH"]
        found = told("a", "b c", cwd=here / "elsewhere ö", env=surroundings, input="something")
        (process,), (folder,) = launchers(), folders(here)
        assert folder.stat().st_mode & 0o777 == 0o700, "only its account can reach it"
        assert found["parent"] == found["loaded"] == process.pid
        assert found["arguments"] == ["probe", "a", "b c"]
        assert found["name"] == "probe\n"
        assert found["folder"] == str(here / "elsewhere ö")
        assert found["said"] == "something"
        assert found["color"] == "blue\udcff"
        assert found["prepared"] is None, "the environment is that of the caller"
        assert probe("fail")[1].endswith("ValueError: as asked\n")
        assert probe(input="")[1] == "and this\n"
    assert launchers() == folders(here) == []
    assert told(input="")["path"].startswith(str(here / "bin"))


def test_forks_are_there_at_the_same_time_and_draw_other_numbers(here):
    with launching(STAGE, HEAVY):
        processes = [*launchers(), *children(launchers()[0], 1)]
        both = [
            subprocess.Popen(["probe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in "ab"
        ]
        one, other = (json.loads(each.communicate("")[0]) for each in both)
    psutil.wait_procs(processes)
    assert one["pid"] != other["pid"]
    assert one["parent"] == other["parent"]
    assert not set(one["draws"]) & set(other["draws"])


def test_each_stage_has_a_launcher_that_is_a_fork_of_the_one_before(here):
    with launching(STAGE, HEAVY):
        (first,) = launchers()
        (second,) = children(first, 1)
        assert told(input="")["parent"] == told(command="other", input="")["parent"] == first.pid
        found = told(command="heavy", input="")
        assert found["arguments"] == ["heavy"]
        assert found["parent"] == found["loaded"] == second.pid
        second.kill()
        assert subprocess.run(["heavy"]).returncode == 127, "there is no other such command"
        assert told(input="")["parent"] == first.pid
    assert folders(here) == []


def children(process, number):
    until(lambda: len(process.children()) >= number)
    return process.children()


def test_without_a_launcher_the_command_runs_as_it_is(here):
    with launching(STAGE):
        (process,) = launchers()
        process.kill()
        process.wait()
        found = told("a", input="")
        assert found["arguments"][1:] == ["a"]
        assert found["loaded"] is None
        assert found["path"].startswith(str(here / "bin")), "nothing of the launcher is left on the path"
    assert folders(here) == []


def test_a_launcher_that_cannot_prepare_says_why_and_the_command_runs_as_it_is(here, capfd):
    with launching(Stage({"probe": "probe:main"}, "probe:missing")):
        assert told(input="")["loaded"] is None
    assert "AttributeError" in capfd.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_launcher_ends_with_its_process_however_that_ends(here, number):
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        assert told(input="", env={**os.environ, "PATH": path_of(here)})["arguments"] == ["probe"]
        (process,) = psutil.Process(parent.pid).children()
        both = [process, *children(process, 1)]
        for each in both:
            with suppress(psutil.NoSuchProcess):  # the first ends the second
                each.terminate()  # like ending a SuperNode and all that it started
        parent.send_signal(number)
        parent.wait()
    psutil.wait_procs(both)
    until(lambda: folders(here) == [])


fails = Mock(side_effect=OSError("no sockets here"))


@pytest.mark.parametrize(
    ("place", "name", "value", "why"),
    [
        (sys, "platform", "darwin", "it needs Linux, and this is darwin"),
        (tempfile, "tempdir", "/nowhere", "[Errno 2] No such file or directory"),
        (Folder, "__enter__", fails, "no sockets here"),
    ],
    ids=["another system", "no folder", "no sockets"],
)
def test_where_there_can_be_none_the_log_says_why_and_the_command_runs_as_it_is(
    place, name, value, why, here, monkeypatch, flower_log
):
    monkeypatch.setattr(place, name, value)
    with launching(STAGE):
        assert launchers() == folders(here) == []
        assert told(input="")["loaded"] is None
    assert [text.startswith(f"This node has no launcher ({why}") for text in flower_log.messages] == [True]


def test_the_program_that_hands_over_imports_nothing_of_the_package():
    done = subprocess.run([sys.executable, "-I", "-S", "-X", "importtime", PROGRAM], capture_output=True)
    assert b"fda_flower" not in done.stderr.replace(os.fsencode(Path(PROGRAM).parent), b"")
    assert b"site" not in [line.split(b"|")[-1].strip() for line in done.stderr.splitlines()]
