"""What a method asks of its clients and keeps: requests, states, and commits."""

import numpy as np
import pytest
from flwr.app import RecordDict
from handmade import HandMade, initial, moves, reply_of, weights

from fda_flower.engines import LocalGrid
from fda_flower.strategies import FedAvg, FedAvgFT, SourceOnly
from fda_flower.strategies.base import Aggregated, DomainAdaptationStrategy

A, B, T = (
    ("source", "a", moves([0.5, 0.25], domain="a", examples=30)),
    ("source", "b", moves([0.1, -0.7], domain="b", examples=10)),
    ("target", "t", moves([0.25, 0.5], "target", "t", examples=10)),
)


def layers(*values):
    return {"w": np.array(values, np.float32)}


class Given(DomainAdaptationStrategy):
    """A method whose rounds come to what the test says, and which asks the target for what it says."""

    def __init__(self, *rounds, asked=(), **common):
        super().__init__(**common)
        self.rounds, self.asked = rounds, dict(asked)

    def train_request(self, node, round):
        request = super().train_request(node, round)
        return request.adding(**self.asked) if node.is_target else request

    def aggregate(self, round, target, sources):
        return self.rounds[round.number - 1]


# Commits


@pytest.mark.parametrize("overflows", ["model", "state"])
def test_a_round_that_overflows_commits_neither_the_model_nor_a_state_of_the_method(overflows):
    second = Aggregated(
        layers(np.inf if overflows == "model" else 5, 6),
        {"one": layers(7, 8), "two": layers(np.nan if overflows == "state" else 9, 10)},
    )
    strategy = Given(Aggregated(layers(1, 2), {"one": layers(3, 4)}), second)
    result = strategy.start(HandMade([A, T]).grid(), initial(), 2)
    assert "would hold NaN or infinity" in strategy.history[1]["held"]
    assert weights(result).tolist() == strategy.model["w"].tolist() == [1, 2]
    assert {name: model["w"].tolist() for name, model in strategy.state_dict().items()} == {"one": [3, 4]}


def test_states_that_a_round_does_not_name_stay_as_they_are():
    strategy = Given(
        Aggregated(layers(1, 2), {"one": layers(3, 4), "two": layers(5, 6)}),
        Aggregated(layers(7, 8), {"two": layers(9, 10)}),
    )
    strategy.start(HandMade([A, T]).grid(), initial(), 2)
    assert {name: model["w"].tolist() for name, model in strategy.state_dict().items()} == {
        "one": [3, 4],
        "two": [9, 10],
    }


# Requests


def reply_with(reply, **asked):
    strategy = Given(Aggregated(layers(1, 2)), asked=asked)
    strategy.start(HandMade([A, ("target", "t", reply)]).grid(), initial(), 1)
    return strategy.history[0]


@pytest.mark.parametrize("wanted", ["a metric", "an entry of info", "a record of arrays"])
def test_a_reply_without_what_the_request_requires_is_dropped_with_the_remedy(wanted):
    def complete(model, message):
        content = reply_of(model, role="target", domain="t", extra={"w": model["w"]}, number=1.0)
        content["info"]["entry"] = "x"
        return content

    name = {"a metric": "number", "an entry of info": "entry", "a record of arrays": "batch-updates"}[wanted]
    asked = {"requires": {name: "buy one"}}
    if wanted == "a record of arrays":
        asked["expects"] = {name: "model"}
    assert reply_with(complete, **asked)["dropped"] == []
    record = reply_with(T[2], **asked)
    assert record["held"] == "no usable reply of the target"
    (dropped,) = record["dropped"]
    assert name in dropped["reason"]
    assert dropped["reason"].endswith(": buy one")


@pytest.mark.parametrize(("steps", "rate"), [(0, 0.5), (2, 0.0)])
def test_steps_and_rate_are_required_above_zero(steps, rate):
    answer = moves(1.0, "target", "t", steps=steps, rate=rate)
    for name in ("num-steps", "learning-rate"):
        (dropped,) = reply_with(answer, requires={name: "tell it"})["dropped"]
        assert dropped["reason"] == f"it has no '{name}': tell it"
    assert reply_with(answer)["dropped"] == []


def test_a_batch_size_is_required_above_zero():
    for told in ({}, {"batch-size": 0}):
        answer = moves(1.0, "target", "t", **told)
        (dropped,) = reply_with(answer, requires={"batch-size": "report it"})["dropped"]
        assert dropped["reason"] == "it has no 'batch-size': report it"
        assert reply_with(answer)["dropped"] == []
    enough = moves(1.0, "target", "t", **{"batch-size": 8})
    assert reply_with(enough, requires={"batch-size": "report it"})["dropped"] == []


@pytest.mark.parametrize("key", ["arrays", "model"])
def test_a_reply_without_its_model_is_dropped_and_the_round_goes_on(key):
    def empty(model, message):
        content = reply_of(model)
        del content["arrays"]
        return content

    def renamed(content):
        return RecordDict({{"arrays": key}.get(name, name): record for name, record in content.items()})

    class Renaming(LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            messages = list(messages)
            for message in messages:
                if "config" in message.content:
                    message.content["arrays"] = message.content.pop(key)
            replies = list(super().send_and_receive(messages, timeout=timeout))
            for reply in replies:
                reply.content = renamed(reply.content)
            return replies

    strategy = FedAvg(arrayrecord_key=key)
    app = HandMade([A, ("source", "b", empty), T])
    strategy.start(Renaming(app.app, 3), initial(), 1)
    (record,) = strategy.history
    assert list(record["sources"]) == ["a"]
    assert record["dropped"] == [{"domain": "b", "reason": "it has no ArrayRecord 'arrays'"}]
    assert record["held"] is None


def test_metrics_that_the_request_measures_are_recorded_under_their_own_names():
    asked = {"measures": {"their-name": "our-name", "absent": "absent"}}
    entry = reply_with(moves(1.0, "target", "t", **{"their-name": 0.25}), **asked)["target"]
    assert entry["our-name"] == 0.25
    assert not {"their-name", "absent"} & set(entry)
    record = reply_with(moves(1.0, "target", "t", **{"their-name": np.nan}), **asked)
    assert "'their-name' is nan" in record["dropped"][0]["reason"]


# The preview


@pytest.mark.parametrize(("warmup", "done", "number"), [(0, 0, 1), (2, 0, 3), (2, 1, 3), (2, 5, 6)])
def test_the_preview_is_of_the_first_round_that_is_the_methods(warmup, done, number):
    app = HandMade([A, T])
    strategy = FedAvgFT(warmup_rounds=warmup, learning_rate_factor=0.25)
    strategy.connect(app.grid())
    requests = strategy.preview(initial(), done, app.grid())
    told = [dict(request.config) for request in requests]
    shared = {"server-round": number, "rate-factor": 0.25}
    assert told == [shared, {**shared, "evaluate-trained": True}, shared]
    assert app.configs == []


def test_the_preview_leaves_out_what_is_not_asked():
    strategy = SourceOnly()
    app = HandMade([A, T])
    strategy.connect(app.grid())
    assert len(strategy.preview(initial(), 0, app.grid())) == 2
