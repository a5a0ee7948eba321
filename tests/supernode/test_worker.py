"""What a resident worker receives and answers, and when it ends."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from site_messages import context, message, write_app

from fda_flower.supernode import worker
from fda_flower.supernode.worker import Folder, Owner, receive_frame, send_frame
from fda_flower.wire import internals

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a resident worker needs Linux")


def test_a_frame_arrives_as_it_was_sent_however_large():
    here, there = socket.socketpair()
    header = {"id": "ä", "numbers": [1, None]}
    parts = [b"", b"x" * 3_000_000, b"y"]
    with here, there:
        sender = threading.Thread(target=send_frame, args=(here, header, parts))
        sender.start()
        assert receive_frame(there) == (header, parts)
        sender.join()


@pytest.mark.parametrize("sent", [b"", b"\0\0", (8).to_bytes(8, "big") + b'{"a'])
def test_a_frame_that_is_cut_off_is_an_error(sent):
    here, there = socket.socketpair()
    with there:
        with here:
            here.sendall(sent)
        with pytest.raises(EOFError, match="the peer disconnected after"):
            receive_frame(there)


def test_an_owner_is_a_process_and_no_later_one_with_its_number():
    me = Owner.of(os.getpid())
    assert me.is_alive()
    assert Owner.named(str(me)) == me
    assert not me._replace(started=me.started - 1).is_alive()
    assert me._replace(space=1, pid=2**22 + 1).is_alive(), "another container's process cannot be seen"
    with pytest.raises(OSError, match="No such file"):
        Owner.of(2**22 + 1)


def test_an_owner_that_is_killed_has_ended_before_anybody_waits_for_it():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = Owner.of(process.pid)
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not owner.is_alive()
    process.communicate()


def test_a_socket_may_be_in_a_folder_whose_path_is_longer_than_a_sockets(tmp_path):
    path = tmp_path / ("a" * 100) / ("b" * 100)
    path.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        with pytest.raises(OSError, match="too long"):
            listener.bind(str(path / "socket"))
        with Folder(path) as folder:
            listener.bind(folder.address("socket"))
            listener.listen()
            client.connect(folder.address("socket"))
        assert (path / "socket").is_socket()


@pytest.fixture
def watched(tmp_path):
    """A listener whose socket is in the folder of this process, and its watch, which is not started."""
    folder = tmp_path / str(Owner.of(os.getpid()))
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket-1"))
        listener.listen()
        yield listener, worker.Watch(folder / "socket-1", lambda code: pytest.fail("it leaves"))


def answered(load, *asked):
    header, parts = internals.message_to_parts(message(*asked))
    request = {**header, "task": internals.task()}, [internals.context_to_bytes(context()), *parts]
    return worker.answer(request, load)


def test_a_node_that_cannot_take_part_has_a_fresh_process_next_time(tmp_path, monkeypatch, in_a_run):
    write_app(tmp_path, monkeypatch)
    from handed_app import make  # type: ignore[import-not-found]

    (header, (_, *parts)), went_well = answered(make, "problem", "query.role")
    assert not went_well
    assert internals.message_from_parts(header, parts).content["info"]["problem"] == "no data"


def test_an_app_that_cannot_be_loaded_is_the_messages_error(in_a_run):
    (header, _), went_well = answered(lambda: 1 / 0)
    assert (header["error"]["name"], header["error"]["text"]) == ("ZeroDivisionError", "division by zero")
    assert not went_well


@pytest.mark.parametrize("comes", [True, False], ids=["a client that is cut off", "no message"])
def test_a_worker_ends_with(comes, watched, monkeypatch):
    monkeypatch.setattr(worker, "IDLE_SECONDS", 3600.0 if comes else 0.1)
    serving = threading.Thread(target=worker.serve_node, args=(*watched, pytest.fail))
    serving.start()
    if comes:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(watched[0].getsockname())
    serving.join()


def test_a_worker_is_over_when_its_socket_is_replaced_but_not_while_it_answers(watched):
    listener, watch = watched
    path = Path(listener.getsockname())
    here, there = socket.socketpair()
    assert not watch.is_over()
    path.unlink()
    assert watch.is_over()
    path.touch()
    assert watch.is_over()
    with here:
        watch.client = here
        with there:
            assert not watch.is_over()
            there.sendall(b"x")
            assert not watch.is_over()
            here.recv(1)
        assert watch.is_over()
    assert watch.is_over(), "a closed connection is one whose other side is gone"


def test_a_client_that_has_left_with_its_answer_ends_nothing(watched, monkeypatch):
    _, watch = watched
    here, there = socket.socketpair()
    with here, there:
        watch.client = here

        def answered(client):
            watch.client = None
            return True

        monkeypatch.setattr(worker, "has_left", answered)
        assert not watch.is_over()


def test_a_worker_ends_with_its_owner_and_removes_the_folder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    folder = tmp_path / str(Owner.of(process.pid))
    folder.mkdir()
    (folder / "socket-1").touch()
    left: list[int] = []
    watch = worker.Watch(folder / "socket-1", left.append)
    watch.start()
    time.sleep(2 * worker.POLL_SECONDS)
    assert left == []
    process.kill()
    process.communicate()
    watch.join()
    assert left == [0]
    assert not folder.exists()
