"""The faults of a deployment on the in-process grid: who is away, late, silent or back, round by round."""

import pytest
from flwr.app import Error, Message
from handmade import A, B, HandMade, T, bits, initial
from naming import names

from fda_flower.engines import LocalGrid
from fda_flower.errors import RunError
from fda_flower.strategies import FedDA, RunFolder


class FaultyGrid(LocalGrid):
    """A grid whose nodes fail by a plan: ``(node's place, round): fault``.

    ``gone``: not connected. ``silent``: no reply to the train message. ``dead``: Flower's error reply for a
    SuperNode that is gone, which does not carry the node's id. ``fails``: an error in the client's app.
    """

    def __init__(self, app, clients, plan):
        super().__init__(app, clients)
        self.plan, self.round = plan, 0

    def get_node_ids(self):
        return [i for i in super().get_node_ids() if self.plan.get((i - 2, self.round + 1)) != "gone"]

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        training = bool(messages) and messages[0].metadata.message_type == "train"
        self.round += training
        replies = []
        for message in messages:
            fault = self.plan.get((message.metadata.dst_node_id - 2, self.round)) if training else None
            if fault == "silent":
                continue
            (reply,) = super().send_and_receive([message])
            if fault == "fails":
                reply = Message(Error(6, "no memory"), reply_to=message)
            if fault == "dead":
                reply = Message(Error(5, "Node Unavailable"), reply_to=message)
                reply.metadata.__dict__["_src_node_id"] = 1
            replies.append(reply)
        return replies


def run(plan, rounds=3, accuracy=0.5, **options):
    strategy = FedDA(**{"wait_seconds": 0.01, **options})
    grid = FaultyGrid(HandMade([A, B, T], accuracy=accuracy).app, 3, plan)
    return strategy.start(grid, initial(), rounds), strategy.history


@pytest.mark.parametrize(
    ("plan", "sources", "entry", "without"),
    [
        ({(1, 2): "silent"}, ["ab", "a", "ab"], "dropped", "b (no reply within the timeout)"),
        ({(1, 2): "dead"}, ["ab", "a", "ab"], "dropped", "b (no heartbeat)"),
        ({(1, 2): "fails"}, ["ab", "a", "ab"], "dropped", "b (error 6: no memory)"),
        ({(0, 2): "gone"}, ["ab", "b", "ab"], "missing", "a (no heartbeat)"),
        ({(0, 1): "gone", (0, 2): "gone"}, ["b", "b", "ab"], None, ""),  # nobody knows it yet
    ],
)
def test_a_source_that_fails_or_is_away_is_told_by_name_and_takes_part_again(
    plan, sources, entry, without, flower_log
):
    flower_log.set_level("INFO", "flwr")
    _, history = run(plan)
    assert ["".join(record["sources"]) for record in history] == sources
    assert [record["held"] for record in history] == [None] * 3
    told = {
        key: [f"{e['domain']} ({e['reason']})" for e in history[1][key]] for key in ("dropped", "missing")
    }
    assert told == {"dropped": [], "missing": []} | ({entry: [without]} if entry else {})
    lines = [line for line in flower_log.messages if line.startswith("round ")]
    assert [line.partition("; without ")[2].partition("; β")[0] for line in lines] == ["", without, ""]


def test_a_source_that_comes_late_without_a_beta_of_its_own_has_none():
    _, history = run({(0, 1): "gone"}, rounds=2, beta=[0.7])
    assert {name: entry["beta"] for name, entry in history[1]["sources"].items()} == {"a": 0.0, "b": 0.7}


@pytest.mark.parametrize("fault", ["silent", "dead", "gone"])
def test_without_the_target_the_model_holds_and_the_run_ends_with_a_checkpoint_to_go_on_from(fault, tmp_path):
    plan = {(2, server_round): fault for server_round in (2, 3, 4)}
    with pytest.raises(RunError, check=names("held rounds", 2)):
        run(plan, rounds=6, max_held_rounds=2, output=RunFolder(tmp_path))
    records = RunFolder(tmp_path).read_rounds()
    assert [record["held"] for record in records] == [None, *["no usable reply of the target"] * 2]
    checkpoint = RunFolder(tmp_path).load_checkpoint()
    assert checkpoint.round == 3
    assert bits(checkpoint.model) == bits(run({}, rounds=1)[0].arrays)
    resumed, history = run({}, rounds=4, output=RunFolder(tmp_path, resume=True))
    assert history[-1]["held"] is None
    assert bits(resumed.arrays) == bits(run({}, rounds=2)[0].arrays)
