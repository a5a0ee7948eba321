"""Clients in worker processes: the same bits as in one, and nothing left however it ends."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from asking import app_of, asked, counting, echoing, send_arrays
from engine_settings import FROZEN, with_batch_norm
from flwr.app import ConfigRecord, Message, RecordDict
from handmade import B, HandMade, T, initial, moves
from naming import names
from whole_runs import check_same

from fda_flower import run
from fda_flower.engines import Resources, run_local, workers
from fda_flower.errors import RunError
from fda_flower.strategies import FedAvg

SMALL: dict[str, Any] = {"rounds": 2, "seed": 3, "device": "cpu", "model": "mlp", "source_samples": 40}
SHM = Path("/dev/shm")
FAST = {"frozen, fedbn", "frozen, with adapters"}


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = set(SHM.iterdir()) if SHM.exists() else set()
    yield
    assert multiprocessing.active_children() == []
    assert (set(SHM.iterdir()) if SHM.exists() else set()) == before


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)


# The same bits


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.parametrize(
    ("method", "count"), [("fedgp-auto", 2), ("ditto", 2), ("apfl", 3), ("fedbn", 2), ("mixture", 9)]
)
def test_the_same_bits_as_in_one_process_whatever_the_number_of_workers(method, count, tmp_path):
    settings = {**SMALL, "method": method}
    settings |= with_batch_norm(tmp_path / "data") if method == "fedbn" else {}
    settings |= {"method_options": {"every": 2}} if method == "mixture" else {}
    one = run(output=tmp_path / "one", **settings)
    several = run(output=tmp_path / "several", workers=count, **settings)
    check_same(several, one)
    # The target's worker writes the model that it predicts with.
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "several")]
    assert models[0] == models[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.smoke) if each in FAST else each for each in FROZEN]
)
def test_the_same_bits_with_a_frozen_body(name, tmp_path, monkeypatch):
    monkeypatch.setenv("FDA_CACHE_DIR", str(tmp_path / "cache"))
    settings = {"rounds": 2, "seed": 3, "device": "cpu", **FROZEN[name]}
    check_same(run(workers=2, **settings), run(**settings))


def test_a_run_goes_on_with_another_number_of_workers_and_the_same_bits(tmp_path):
    settings = {**SMALL, "method": "ditto"}
    whole = run(**{**settings, "rounds": 3})
    for rounds, count in ((1, 2), (2, None), (3, 3)):
        part = run(**{**settings, "rounds": rounds}, output=tmp_path, resume=True, workers=count)
    assert part.accuracies == whole.accuracies
    check_same(part, whole, last=1)


@pytest.mark.slow
def test_workers_that_begin_anew_have_the_same_bits(monkeypatch):
    """As where there is a GPU."""
    monkeypatch.setattr(workers, "_can_be_copied", lambda: False)
    settings = {**SMALL, "method": "apfl"}
    check_same(run(workers=2, **settings), run(**settings))


def test_threads_of_a_worker_live_though_those_of_this_process_were_not_copied():
    """Had it the thread that used OpenMP here, a worker would wait for its helpers for ever."""
    torch.ones(2_000, 2_000).sum()

    @app_of
    def app(message, context):
        total = float(torch.ones(2_000, 2_000).sum())
        seen: dict[str, Any] = {"sum": total, "threads": torch.get_num_threads()}
        return Message(RecordDict({"seen": ConfigRecord(seen)}), reply_to=message)

    def server(grid):
        replies = asked(grid, list(grid.get_node_ids()))
        assert [dict(reply.content["seen"]) for reply in replies] == [{"sum": 4e6, "threads": 2}] * 2

    run_local(server, lambda: app, 2, Resources(threads=2, workers=2))


# The grid


def in_grid(server, clients=5, count=2, app=None):
    run_local(server, lambda: app or counting(), clients, Resources(workers=count))


@pytest.mark.parametrize(("clients", "count", "processes"), [(3, 7, 3), (5, 1, 1), (1, 2, 1)])
def test_there_are_no_more_workers_than_clients_and_one_is_this_process(clients, count, processes):
    def server(grid):
        seen = {reply.content["seen"]["process"] for reply in asked(grid, list(grid.get_node_ids()))}
        assert len(seen) == processes
        assert (os.getpid() in seen) == (processes == 1)

    in_grid(server, clients, count)


def test_a_client_is_always_at_the_same_worker_and_its_replies_are_in_the_order_of_messages():
    def server(grid):
        nodes = list(grid.get_node_ids())
        order = [*reversed(nodes), *nodes]
        replies = asked(grid, order)
        assert [reply.metadata.src_node_id for reply in replies] == order
        seen = [dict(reply.content["seen"]) for reply in replies]
        assert [each["n"] for each in seen] == [1] * 5 + [2] * 5
        homes = {node: each["process"] for node, each in zip(order, seen, strict=True)}
        assert [homes[node] for node in nodes[::2]] == [homes[nodes[0]]] * 3
        assert [homes[node] for node in nodes[1::2]] == [homes[nodes[1]]] * 2
        assert len({os.getpid(), *homes.values()}) == 3

    in_grid(server)


@pytest.mark.parametrize(
    ("node", "what", "says"),
    [
        (2, {"fail": True}, "my data are gone"),
        (3, {"strange": True}, "its reply cannot be sent"),
        (99, {}, "KeyError"),
    ],
)
def test_what_fails_is_an_error_reply_and_the_worker_goes_on(node, what, says):
    def server(grid):
        (reply,) = asked(grid, [node], **what)
        assert says in reply.error.reason
        (reply,) = asked(grid, [4])
        assert reply.content["seen"]["n"] == 1

    in_grid(server)


def test_arrays_of_any_kind_arrive_as_they_are():
    in_grid(send_arrays, app=echoing())


# How it ends


@pytest.mark.parametrize(
    ("die", "code"),
    [(lambda: os.kill(os.getpid(), signal.SIGKILL), -9), (lambda: os._exit(3), 3)],
    ids=["killed", "exits"],
)
def test_a_worker_that_dies_ends_the_run_with_its_number_and_its_clients(die, code):
    def dies(model, message):
        die()

    nodes = [T, ("source", "a", dies), B, ("source", "c", moves(1.0, domain="c"))]
    with pytest.raises(RunError, match="'a', 'c'", check=names("worker 2", code)):
        in_grid(lambda grid: FedAvg().start(grid, initial(), 2), 4, app=HandMade(nodes).app)


class Unreadable:
    def __reduce__(self):
        return int, ("not a number",)


@pytest.mark.parametrize("dies", [True, False], ids=["dead since the last round", "cannot read"])
def test_a_worker_that_dies_between_rounds_or_cannot_read_ends_the_run(dies, capfd):
    def server(grid):
        if dies:
            for child in multiprocessing.active_children():
                child.kill()
                child.join()
        message = Message(RecordDict({"what": ConfigRecord()}), 2, "train")
        message.metadata.__dict__["strange"] = Unreadable()
        grid.send_and_receive([message])

    with pytest.raises(RunError, match="client 0, client 2, client 4", check=names("worker 1")):
        in_grid(server)
    said = "invalid literal for int() with base 10: 'not a number'" in capfd.readouterr().err
    assert said != dies


def test_an_interrupt_ends_workers_in_the_middle_of_their_work():
    @app_of
    def app(message, context):
        if context.node_config["partition-id"] == 1:
            os.kill(os.getppid(), signal.SIGALRM)
        threading.Event().wait()

    def server(grid):
        asked(grid, list(grid.get_node_ids()))

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            in_grid(server, app=app)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_workers_leave_signals_to_this_process():
    def server(grid):
        for child in multiprocessing.active_children():
            for number in (signal.SIGINT, signal.SIGTERM):
                psutil.Process(child.pid).send_signal(number)
        assert len(asked(grid, list(grid.get_node_ids()))) == 5

    in_grid(server)


@pytest.mark.slow
def test_workers_end_with_a_process_that_is_killed():
    code = """
import multiprocessing, threading
from flwr.clientapp import ClientApp
from flwr.app import Message, RecordDict
from fda_flower.engines import Resources, run_local, workers
app = ClientApp()

@app.train()
def train(message, context):
    print("trains", flush=True)
    threading.Event().wait()

def server(grid):
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    grid.send_and_receive([Message(RecordDict(), node, "train") for node in grid.get_node_ids()])

run_local(server, lambda: app, 3, Resources(workers=3))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        assert [process.stdout.readline() for _ in found] == ["trains\n"] * 3
        process.kill()
    psutil.wait_procs(found)
