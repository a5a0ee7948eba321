"""Frames, owners, and sockets in folders with long paths."""

import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from fda_flower.site.worker import Folder, Owner, receive, send

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a resident worker needs Linux")


def test_a_frame_arrives_as_it_was_sent_however_large():
    here, there = socket.socketpair()
    header = {"id": "ä", "numbers": [1, None]}
    parts = [b"", b"x" * 3_000_000, b"y"]
    with here, there:
        sender = threading.Thread(target=send, args=(here, header, parts))
        sender.start()
        assert receive(there) == (header, parts)
        sender.join()


@pytest.mark.parametrize("sent", [b"", b"\0\0", (8).to_bytes(8, "big") + b'{"a'])
def test_a_frame_that_is_cut_off_is_an_error(sent):
    here, there = socket.socketpair()
    with there:
        with here:
            here.sendall(sent)
        with pytest.raises(EOFError, match="the other side is gone after"):
            receive(there)


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
