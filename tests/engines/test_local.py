import gc
from unittest.mock import Mock

import numpy as np
import pytest
from asking import app_of
from flwr.app import ArrayRecord, Message, RecordDict
from naming import names

from fda_flower.engines import LocalGrid, Resources
from fda_flower.engines.local import set_up_process
from fda_flower.errors import ConfigError, RunError


def ask(grid, node=LocalGrid.FIRST_NODE):
    (reply,) = grid.send_and_receive([Message(RecordDict(), node, "train")])
    return reply


def training(train):
    """A grid of two nodes with this train function."""
    return LocalGrid(app_of(train), 2)


@pytest.mark.parametrize(("error", "traced"), [(RunError, False), (OSError, True)])
def test_an_error_of_a_client_is_an_error_reply_with_a_traceback_if_it_is_a_bug(in_a_run, error, traced):
    fails = Mock(side_effect=error("lower the learning rate"))
    reason = ask(training(fails)).error.reason or ""
    assert ("Traceback" in reason) == traced
    assert "lower the learning rate" in reason
    assert ask(training(fails), 99).has_error(), "a node that is not there"


def test_client_state_lasts_between_messages_and_is_not_what_is_sent(in_a_run):
    def counts(message, context):
        before = context.state.get("seen", ArrayRecord([]))
        context.state["seen"] = ArrayRecord([*before.to_numpy_ndarrays(), np.ones(2)])
        return Message(RecordDict({"seen": context.state["seen"]}), reply_to=message)

    grid = training(counts)
    for expected in (1, 2):
        reply = ask(grid)
        assert len(reply.content["seen"]) == expected
        reply.content["seen"].clear()


@pytest.mark.parametrize(
    ("values", "thing", "value"),
    [
        ({"threads": 0}, "threads", 0),
        ({"gpus_per_client": -0.5}, "gpus-per-client", -0.5),
        ({"workers": 0}, "workers", 0),
    ],
)
def test_wrong_resources(values, thing, value):
    with pytest.raises(ConfigError, check=names(thing, value)):
        Resources(**values)


@pytest.mark.parametrize("before", [False, True])
def test_the_collector_leaves_alone_what_was_there_before_a_run(before):
    gc.unfreeze()  # what the tests' modules hold
    if before:
        gc.freeze()  # what a program has frozen itself stays frozen
    try:
        with set_up_process(1):
            with set_up_process(1):
                pass
            assert gc.get_freeze_count() > 0
        assert (gc.get_freeze_count() > 0) == before
    finally:
        gc.freeze()
