"""What a resident worker answers, and when it ends."""

import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from site_messages import REFERENCE, context, message, write_app

from fda_flower.site import worker
from fda_flower.site.resident import START
from fda_flower.site.worker import Owner, receive, send
from fda_flower.wire import internals
from fda_flower.wire.internals import task_identity

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a resident worker needs Linux")


@pytest.fixture(autouse=True)
def identity():
    """As in one of Flower's processes."""
    with task_identity():
        yield


def request(do="answer", kind="train", **node):
    header, parts = internals.message_to_parts(message(do, kind))
    return {**header, "task": internals.task()}, [internals.context_to_bytes(context(**node)), *parts]


@pytest.fixture
def load(tmp_path, monkeypatch):
    write_app(tmp_path, monkeypatch)

    def load():
        from handed_app import make  # type: ignore[import-not-found]

        return make()

    return load


@pytest.fixture
def watched(tmp_path):
    """A listener whose socket is in the folder of this process, and its watch, which is not started."""
    folder = tmp_path / str(Owner.of(os.getpid()))
    folder.mkdir()
    left = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket-1"))
        listener.listen()
        yield listener, worker.Watch(folder / "socket-1", left.append), left


def test_the_reply_has_the_same_arrays_and_answers_the_message_and_the_state_has_changed(load):
    asked = request()
    (header, (state, *parts)), went_well = worker.answer(asked, load)
    assert went_well
    reply = internals.message_from_parts(header, parts)
    assert reply.metadata.reply_to_message_id == asked[0]["message"]
    for name, array in message().content["arrays"].items():
        received = reply.content["arrays"][name].numpy()
        assert (received.dtype, received.tobytes()) == (array.numpy().dtype, array.numpy().tobytes())
    after = internals.context_from_bytes(state)
    assert dict(after.state["old"]) == {"a": 1.5}
    assert dict(after.state["count"]) == {"calls": 1}
    assert after.run_config == {"lr": 0.1}


def test_an_exception_becomes_its_name_text_and_trace_with_the_state_until_then(load):
    (header, (state,)), went_well = worker.answer(request("raise"), load)
    assert not went_well
    assert header["error"].pop("trace").startswith("Traceback")
    assert header == {"error": {"module": "builtins", "name": "OSError", "text": "the disk is full"}}
    assert "count" in internals.context_from_bytes(state).state


def test_a_node_that_cannot_take_part_has_a_fresh_process_next_time(load):
    (header, (_, *parts)), went_well = worker.answer(request("problem", "query.role"), load)
    assert not went_well
    assert internals.message_from_parts(header, parts).content["info"]["problem"] == "no data"


def test_an_app_that_cannot_be_loaded_is_the_messages_error():
    def load():
        raise ImportError("no such module")

    (header, _), went_well = worker.answer(request(), load)
    assert header["error"]["text"] == "no such module"
    assert not went_well


def ask(path, asked):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        assert receive(client)[0] == {"pid": os.getpid()}
        send(client, *asked)
        return receive(client)


def test_messages_are_answered_until_one_ends_in_an_error(load, watched):
    listener, watch, _ = watched
    path = listener.getsockname()
    serving = threading.Thread(target=worker.serve, args=(listener, watch, load))
    serving.start()
    first, second = ask(path, request()), ask(path, request())
    assert serving.is_alive()
    assert len(first[1]) == len(second[1]) > 1
    assert "error" in ask(path, request("raise"))[0]
    serving.join()
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(path)


def test_a_worker_whose_client_is_cut_off_ends(load, watched):
    listener, watch, _ = watched
    serving = threading.Thread(target=worker.serve, args=(listener, watch, load))
    serving.start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(listener.getsockname())
    serving.join()


def test_a_worker_without_messages_ends(load, watched, monkeypatch):
    monkeypatch.setattr(worker, "IDLE_SECONDS", 0.1)
    worker.serve(watched[0], watched[1], load)


def test_a_worker_is_over_when_its_socket_is_replaced_but_not_while_it_answers(watched, tmp_path):
    _, watch, _ = watched
    path = tmp_path / str(Owner.of(os.getpid())) / "socket-1"
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
    _, watch, _ = watched
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


def test_the_program_serves_the_app_that_it_is_told_on_its_standard_input(load, watched):
    listener, _, _ = watched
    path = listener.getsockname()
    command = [sys.executable, "-P", "-c", START, json.dumps(sys.path), REFERENCE, path]
    with subprocess.Popen(command, stdin=listener.fileno()) as process:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            assert receive(client)[0] == {"pid": process.pid}
            send(client, *request())
            header, (_, *parts) = receive(client)
        assert internals.message_from_parts(header, parts).content["numbers"]["pid"] == process.pid
        os.unlink(path)
        assert process.wait() == 0
