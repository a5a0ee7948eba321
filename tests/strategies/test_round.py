"""One round: what is held changes nothing, what is clipped is what is used, and replies are freed."""

import gc
import tracemalloc

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from handmade import HandMade, initial, moves, reply_of, weights
from naming import names

from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError
from fda_flower.strategies import FedAvg, FedDAF, FedDWA, SourceOnly, round
from fda_flower.strategies.replies import read_update

NODES = [
    ("source", "a", moves([0.5, 0.25], domain="a")),
    ("source", "b", moves([0.1, -0.7], domain="b")),
    ("target", "t", moves([0.25, 0.5], "target", "t")),
]


def failing_in(rounds, role, domain, delta):
    """A client that fails in some rounds, and moves the model in the others."""

    def answer(model, message):
        if message.content["config"]["server-round"] in rounds:
            raise OSError("off")
        return moves(delta, role, domain)(model, message)

    return role, domain, answer


@pytest.mark.parametrize("overflows", [False, True])
def test_a_held_round_leaves_every_model_as_it_was(overflows):
    def too_far(model, message):
        delta = np.float32(2e38) if overflows and message.content["config"]["server-round"] == 2 else 0.25
        moved = {"w": (model["w"] + delta).astype(np.float32)}
        return reply_of(moved, role="target", domain="t")

    target = ("target", "t", too_far) if overflows else failing_in((2,), "target", "t", [0.25, 0.5])
    seen = {}

    def watching(domain, delta):
        def answer(model, message):
            seen.setdefault(domain, []).append(model["w"].tolist())
            return moves(delta, domain=domain)(model, message)

        return "source", domain, answer

    strategy = FedDWA(top=2)
    roster = [watching("a", [0.5, 0.25]), watching("b", [0.1, -0.7]), target]
    strategy.start(HandMade(roster).grid(), initial(), 3)
    assert [record["held"] is None for record in strategy.history] == [True, False, True]
    for domain in "ab":
        assert seen[domain][1] == seen[domain][2]
        assert seen[domain][0] != seen[domain][1]


def test_a_loss_of_exactly_zero_is_a_loss():
    def perfect(model, message):
        return reply_of({"w": model["w"] + 1}, domain="a", **{"train-loss": 0.0})

    strategy = SourceOnly()
    strategy.start(HandMade([("source", "a", perfect), NODES[2]]).grid(), initial(), 1)
    assert strategy.history[0]["sources"]["a"]["train-loss"] == 0.0


def test_feddaf_refuses_a_limit_that_it_cannot_keep():
    with pytest.raises(ConfigError, check=names("max_update_norm", 1.0)):
        FedDAF(max_update_norm=1.0)


def test_a_clipped_clients_guidance_is_moved_towards_its_model_by_the_same_factor():
    def far(model, message):
        content = reply_of({"w": model["w"] + np.array([30, 40], np.float32)}, role="target", domain="t")
        content["guidance"] = ArrayRecord({"w": Array(model["w"] + np.array([60, 80], np.float32))})
        return content

    def near(model, message):
        content = reply_of({"w": model["w"] + np.array([3, 4], np.float32)}, role="target", domain="t")
        content["guidance"] = ArrayRecord({"w": Array(model["w"] + np.array([6, 8], np.float32))})
        return content

    results = []
    for answer in (far, near):
        strategy = FedDWA(max_update_norm=5.0)
        result = strategy.start(HandMade([*NODES[:2], ("target", "t", answer)]).grid(), initial(), 1)
        entry = strategy.history[0]["target"]
        results.append((weights(result), entry["weight"], entry.get("clipped")))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-6)
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-6)
    assert [clipped for *_, clipped in results] == [pytest.approx(0.1), None]


class Silent(LocalGrid):
    """A grid on which one node never answers its role query; it keeps the timeouts."""

    def __init__(self, app, silent):
        super().__init__(app.app, len(app.nodes))
        self.silent, self.timeouts = silent, []

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if messages and messages[0].metadata.message_type == "query.role":
            self.timeouts.append(timeout)
            messages = [m for m in messages if m.metadata.dst_node_id - 2 != self.silent]
        return super().send_and_receive(messages, timeout=timeout)


def test_a_node_that_never_answers_costs_the_query_timeout_and_not_every_round(monkeypatch):
    from fda_flower.strategies import roster

    clock = [0.0]
    monkeypatch.setattr(roster.time, "monotonic", lambda: clock[0])  # type: ignore[attr-defined]

    class Slow(Silent):
        def send_and_receive(self, messages, *, timeout=None):
            replies = super().send_and_receive(messages, timeout=timeout)
            if len(self.timeouts) > asked[0]:
                asked[0], clock[0] = len(self.timeouts), clock[0] + timeout
            return replies

    asked = [0]
    grid = Slow(HandMade(NODES), silent=1)
    strategy = FedAvg(wait_seconds=5.0, query_timeout=70.0)
    strategy.start(grid, initial(), 4, timeout=3600)
    assert grid.timeouts == [70.0] * 3
    assert [m["reason"] for m in strategy.history[0]["missing"]] == ["it does not answer within 70 s"]
    clock[0] += 61.0
    strategy.start(grid, initial(), 1, timeout=3600)
    assert grid.timeouts == [70.0] * 4


def test_a_node_that_answers_late_takes_part_from_the_first_round():
    class Late(Silent):
        def send_and_receive(self, messages, *, timeout=None):
            if len(self.timeouts) == 2:
                self.silent = None
            return super().send_and_receive(messages, timeout=timeout)

    grid = Late(HandMade(NODES), silent=2)
    strategy = FedAvg(wait_seconds=5.0)
    strategy.start(grid, initial(), 1)
    assert grid.timeouts == [30.0] * 3
    assert strategy.history[0]["held"] is None
    assert strategy.history[0]["missing"] == []


@pytest.mark.parametrize(
    ("options", "seconds"),
    [({"wait_seconds": 0.0}, [30.0]), ({"wait_seconds": 90.0, "query_timeout": 70.0}, [90.0] * 3)],
)
def test_at_the_start_nodes_have_the_query_timeout_or_the_patience_if_it_is_more(options, seconds):
    grid = Silent(HandMade(NODES), silent=1)
    FedAvg(**options).connect(grid)
    assert grid.timeouts == seconds


def test_the_replies_are_freed_one_by_one_as_their_updates_are_made():
    size, clients = 250_000, 8
    model = {"w": np.zeros(size, np.float32)}

    def answer(domain, role="source"):
        return role, domain, lambda model, message: reply_of({"w": model["w"] + 1}, role=role, domain=domain)

    federation = HandMade([*(answer(f"s{i}") for i in range(clients - 1)), answer("t", "target")])
    peaks = []

    class Measuring(FedAvg):
        def aggregate_train(self, server_round, replies):
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            result = super().aggregate_train(server_round, replies)
            peaks.append((tracemalloc.get_traced_memory()[1] - before) / (4 * size))
            return result

    tracemalloc.start()
    try:
        Measuring().start(federation.grid(), ArrayRecord({"w": Array(model["w"])}), 1)
    finally:
        tracemalloc.stop()
    # The replies hold 8 models. Each becomes an update in turn, and its reply is freed; the new model,
    # its record and the model itself come on top. Without the freeing it is 8 models more.
    assert peaks[0] < 6


def test_whatever_goes_wrong_while_a_reply_is_read_costs_its_node_the_round_not_the_run(monkeypatch):
    def odd(reply, node, *others):
        if node.domain == "a":
            raise LookupError("nothing here\nat all")
        return read_update(reply, node, *others)

    monkeypatch.setattr(round, "read_update", odd)
    strategy = FedAvg()
    strategy.start(HandMade(NODES).grid(), initial(), 1)
    (record,) = strategy.history
    (drop,) = record["dropped"]
    assert (drop["domain"], r"LookupError('nothing here\nat all')" in drop["reason"]) == ("a", True)
    assert (record["held"], list(record["sources"])) == (None, ["b"])
