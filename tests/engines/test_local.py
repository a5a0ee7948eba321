import gc
import logging

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from handmade import HandMade, initial, moves

from fda_flower.engines import ENGINES, LocalGrid, Resources, run_local
from fda_flower.engines.local import set_up_process
from fda_flower.errors import ConfigError, RunError
from fda_flower.strategies import FedAvg
from fda_flower.wire.internals import task_identity


def app():
    return HandMade([("target", "t", moves(1.0, "target", "t")), ("source", "a", moves(2.0, domain="a"))])


def test_a_server_function_runs_over_the_grid():
    results = []

    def server(grid):
        results.append(FedAvg().start(grid, initial(), 2))

    run_local(server, app().app, 2, Resources())
    np.testing.assert_allclose(results[0].arrays["w"].numpy(), [4.0, 5.0])


def test_errors_of_the_server_reach_the_caller():
    def server(grid):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        run_local(server, app().app, 2, Resources())


def test_an_error_of_a_client_is_an_error_reply_with_its_reason():
    def fails(model, message):
        raise ValueError("my data are gone")

    federation = HandMade([("source", "a", fails)])
    with task_identity():
        grid = federation.grid()
        (node,) = grid.get_node_ids()
        (reply,) = grid.send_and_receive([Message(RecordDict({"arrays": initial()}), node, "train")])
    assert reply.has_error()
    assert "my data are gone" in reply.error.reason or "config" in reply.error.reason


@pytest.mark.parametrize(("error", "traced"), [(RunError, False), (OSError, True)])
def test_an_error_that_a_person_can_correct_has_no_traceback(error, traced):
    client = ClientApp()

    @client.train()
    def fails(message, context):
        raise error("lower the learning rate")

    with task_identity():
        grid = LocalGrid(client, 1)
        (node,) = grid.get_node_ids()
        (reply,) = grid.send_and_receive([Message(RecordDict(), node, "train")])
    reason = reply.error.reason or ""
    assert ("Traceback" in reason) == traced
    assert "lower the learning rate" in reason


def test_a_message_to_a_node_that_is_not_there_is_an_error_reply():
    with task_identity():
        grid = app().grid()
        (reply,) = grid.send_and_receive([Message(RecordDict(), 99, "train")])
    assert reply.has_error()


def test_client_state_lasts_between_messages():
    from flwr.app import ConfigRecord
    from flwr.clientapp import ClientApp

    from fda_flower.engines import LocalGrid

    counting = ClientApp()

    @counting.train()
    def train(message, context):
        before = context.state.config_records.get("seen", ConfigRecord({"n": 0}))
        context.state["seen"] = ConfigRecord({"n": before["n"] + 1})
        return Message(RecordDict({"seen": context.state["seen"]}), reply_to=message)

    with task_identity():
        grid = LocalGrid(counting, 2)
        first, _ = grid.get_node_ids()
        for expected in (1, 2):
            (reply,) = grid.send_and_receive([Message(RecordDict(), first, "train")])
            assert reply.content["seen"]["n"] == expected


def test_replies_can_be_pulled_later_as_flower_does():
    with task_identity():
        grid = app().grid()
        node, _ = grid.get_node_ids()
        message = grid.create_message(RecordDict(), "query.role", node, "1")
        (pushed,) = grid.push_messages([message])
        (reply,) = grid.pull_messages([pushed])
    assert reply.metadata.reply_to_message_id == pushed
    assert reply.metadata.src_node_id == node


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"cpus_per_client": 0}, "cpus-per-client is 0"),
        ({"gpus_per_client": -0.5}, "gpus-per-client is -0.5"),
        ({"workers": 0}, "workers is 0: at least 1"),
    ],
)
def test_wrong_resources(values, says):
    with pytest.raises(ConfigError, match=says):
        Resources(**values)


@pytest.mark.parametrize(
    ("workers", "threads", "cores"), [(99, 1, 4), (3, 2, 4), (1, 8, 8), (2, 1, 2), (None, 2, None)]
)
def test_workers_take_no_more_cores_than_there_are_and_fewer_are_said(
    workers, threads, cores, caplog, monkeypatch
):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.WARNING, logger="flwr.engines")
    assert Resources(cpus_per_client=threads, workers=workers).cores(4) == cores
    said = [record.getMessage() for record in caplog.records]
    assert [f"workers is {workers}" in text for text in said] == ([True] if workers in (99, 3) else [])


def test_the_registry():
    assert set(ENGINES) == {"local", "ray"}


def test_a_record_that_a_client_sends_and_keeps_is_two_records():
    app = ClientApp()

    @app.train()
    def train(message, context):
        record = ArrayRecord([np.ones(2)])
        context.state["own"] = record
        return Message(RecordDict({"arrays": record}), reply_to=message)

    with task_identity():
        grid = LocalGrid(app, 1)
        (node,) = grid.get_node_ids()
        (reply,) = grid.send_and_receive([Message(RecordDict(), node, "train")])
    reply.content["arrays"].clear()
    assert list(grid._contexts[node].state["own"]) == ["0"]


def test_the_collector_leaves_alone_what_was_there_before_a_run():
    assert gc.get_freeze_count() == 0
    with set_up_process(1):
        assert gc.get_freeze_count() > 0
        with set_up_process(1):
            pass
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_what_a_program_has_frozen_itself_stays_frozen():
    gc.freeze()
    try:
        with set_up_process(1):
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
