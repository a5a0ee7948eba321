"""Handing messages to a resident worker, in real processes whose app is loaded in an instant."""

import os
import subprocess
import sys

import psutil
import pytest
from site_messages import REFERENCE, context, message, write_app
from waiting import children_with, until

from fda_flower.errors import RunError
from fda_flower.supernode import resident
from fda_flower.supernode.launcher import Stage, launching
from fda_flower.supernode.resident import WORKERS, ResidentApp, held, launched_worker
from fda_flower.supernode.worker import PREFIX, Owner
from fda_flower.wire.internals import task_identity

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a resident worker needs Linux")


@pytest.fixture
def supernode():
    """A process in the place of a SuperNode."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def app(tmp_path, monkeypatch, supernode):
    """The app at a node of the SuperNode; without a worker, this process answers."""
    write_app(tmp_path, monkeypatch)
    monkeypatch.setattr(resident.os, "getppid", lambda: supernode.pid)  # type: ignore[attr-defined]
    from handed_app import make  # type: ignore[import-not-found]

    with task_identity():
        yield ResidentApp(make(), REFERENCE)


@pytest.fixture
def state_dir(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def asked(app, state_dir):
    """Ask the node to do something; the process that did it."""

    def ask(do="answer", run=1, kind="train", **node):
        given = context(run, **({"resident": True, "state-dir": str(state_dir)} | node))
        given.node_config = {name: value for name, value in given.node_config.items() if value is not None}
        sent = message(do, kind)
        reply = app(sent, given)
        assert (dict(given.state["count"]), dict(given.state["old"])) == ({"calls": 1}, {"a": 1.5})
        assert reply.content["arrays"] == sent.content["arrays"]
        assert reply.metadata.reply_to_message_id == sent.metadata.message_id
        return reply.content["numbers"]["pid"]

    return ask


def has_ended(pid):
    """Whether a process has ended; nobody may have waited for it."""
    try:
        return not Owner.of(pid).is_alive()
    except OSError:
        return True


def test_one_worker_answers_until_an_error_or_a_crash_and_ends_with_its_supernode(
    asked, state_dir, supernode, capfd
):
    first = asked()
    assert first != os.getpid()
    assert asked() == first
    assert capfd.readouterr().out == "worker says answer\n" * 2

    folder = state_dir / WORKERS / str(Owner.of(supernode.pid))
    [path] = folder.glob(PREFIX + "*")
    assert [oct(each.stat().st_mode & 0o777) for each in (folder, path)] == ["0o700", "0o600"]

    # The error is the one of the app: Flower tells the server its class and its text.
    with pytest.raises(Exception, match="the disk is full") as raised:
        asked("raise")
    assert (str(raised.type), str(raised.value)) == ("<class 'OSError'>", "the disk is full")
    assert "In the resident worker:\nTraceback" in raised.value.__notes__[0]
    second = asked()
    assert second != first
    until(lambda: has_ended(first))

    with pytest.raises(
        RunError, match=rf"resident worker of this node \(process {second}\) ended .*\(train\).*another"
    ):
        asked("crash")
    third = asked()
    assert third not in (first, second)

    # What another run has loaded is not used.
    fourth = asked(run=2)
    assert fourth != third
    until(lambda: has_ended(third))

    supernode.kill()
    supernode.wait()
    until(lambda: has_ended(fourth))
    until(lambda: not folder.exists())


def test_a_worker_that_is_killed_is_replaced_as_are_those_of_supernodes_that_are_gone(
    asked, state_dir, supernode
):
    gone = state_dir / WORKERS / str(Owner.of(os.getpid())._replace(started=1))
    gone.mkdir(parents=True)
    (state_dir / WORKERS / "a note").touch()
    first = asked()
    os.kill(first, 9)
    assert asked() != first
    assert not gone.exists()
    assert (state_dir / WORKERS / "a note").exists()


def test_a_message_that_comes_while_the_worker_is_busy_is_answered_as_without_one(
    asked, state_dir, supernode, flower_log
):
    folder = state_dir / WORKERS / str(Owner.of(supernode.pid))
    folder.mkdir(parents=True)
    flower_log.set_level("INFO", "flwr")
    with held(folder):
        assert asked() == os.getpid()
    (said,) = flower_log.messages
    assert said == "The resident worker is busy: another process answers this message (train)"


@pytest.mark.parametrize(
    ("place", "name", "value", "why"),
    [
        (
            resident,
            "START",
            "raise SystemExit('out of luck')",
            "it ended before it took the message: see what",
        ),
        (sys, "executable", "/nowhere/python", "[Errno 2] No such file or directory: '/nowhere/python'"),
        (None, "state-dir", __file__, "[Errno 20] Not a directory"),
        (None, "state-dir", None, "the node configuration has no state-dir"),
        (sys, "platform", "darwin", "it needs Linux, and this is darwin"),
    ],
    ids=lambda given: str(given)[:20],
)
def test_where_there_can_be_no_worker_this_process_answers_and_the_log_says_why_once_a_run(
    place, name, value, why, asked, flower_log, monkeypatch
):
    node = {name: value} if place is None else {}
    if place is not None:
        monkeypatch.setattr(place, name, value)
    for kind in ("query.role", "train", "train"):
        assert asked(kind=kind, **node) == os.getpid()
    (said,) = flower_log.messages
    assert said.startswith(f"This node has no resident worker ({why}")


@pytest.mark.parametrize("node", [{}, {"resident": False}, {"resident": "yes"}])
def test_a_node_that_is_not_configured_to_have_one_has_none(app, flower_log, node, state_dir):
    reply = app(message(), context(**{"state-dir": str(state_dir), **node}))
    assert reply.content["numbers"]["pid"] == os.getpid()
    assert flower_log.messages == []
    assert not state_dir.exists()


def test_a_worker_is_a_fork_of_the_supernodes_launcher_while_that_is_there(asked, state_dir):
    worker = {launched_worker(): "fda_flower.supernode.worker:launched"}
    with launching(Stage(worker, "fda_flower.client_app:prepare")):
        (launcher,) = children_with(launched_worker())
        first = psutil.Process(asked())
        assert first.parent() == launcher
        assert os.getsid(first.pid) == first.pid, "an interrupt from the keyboard is not for it"
        assert asked() == first.pid
        with pytest.raises(Exception, match="the disk is full"):
            asked("raise")
        assert psutil.Process(asked()).parent() == launcher

        launcher.kill()
        launcher.wait()
        with pytest.raises(Exception, match="the disk is full"):
            asked("raise")
        assert launched_worker() not in str(psutil.Process(asked()).cmdline())


def test_the_command_is_for_the_same_python_only(monkeypatch):
    name = launched_worker()
    monkeypatch.setattr(sys, "executable", "/elsewhere/python")
    assert launched_worker() != name
