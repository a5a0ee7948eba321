"""Ditto on the server: FedAvg's model, and the target's personal one kept for a resume."""

import handmade
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from handmade import HandMade, initial, moves, reply_of, weights

from fda_flower.errors import ConfigError
from fda_flower.strategies import Ditto, FedAvg, RunFolder

SOURCES = [
    ("source", "a", moves([0.5, 0.0], domain="a", examples=30)),
    ("source", "b", moves([0.0, -1.0], domain="b", examples=10)),
]


def target(personal=(7.0, 8.0), given_back=None, **metrics):
    """A target whose personal model the test chooses; `given_back` collects the ones that it is sent."""

    def answer(model, message):
        if given_back is not None:
            records = message.content.array_records
            given_back.append(records["personal"]["w"].numpy().tolist() if "personal" in records else None)
        numbers = {"eval-accuracy": 0.75, "distance": 0.5, **metrics}
        content = reply_of({"w": model["w"] + 1}, role="target", domain="t", **numbers)
        content["personal"] = ArrayRecord({"w": Array(np.asarray(personal, np.float32))})
        return content

    return ("target", "t", answer)


@pytest.fixture(autouse=True)
def replies_as_they_are(monkeypatch):
    """Nothing is added to the replies of these tests' clients."""
    monkeypatch.setattr(handmade, "add_what_is_asked", lambda *_: None)


def start(nodes, rounds=1, **options):
    strategy = Ditto(**options)
    return strategy.start(HandMade(nodes).grid(), initial(), rounds), strategy


def test_the_model_is_fedavgs():
    found, _ = start([*SOURCES, target()], rounds=2)
    plain = FedAvg().start(HandMade([*SOURCES, target()]).grid(), initial(), 2)
    assert weights(found).tobytes() == weights(plain).tobytes()


def test_the_mean_of_all_clients_is_by_examples_or_uniform():
    # The source moves by (0.5, 0) with 30 examples, the target by (1, 1) with 10.
    by_examples, _ = start([SOURCES[0], target()])
    uniform, _ = start([SOURCES[0], target()], weights="uniform")
    np.testing.assert_allclose(weights(by_examples), [1.625, 2.25])
    np.testing.assert_allclose(weights(uniform), [1.75, 2.5])


def test_the_personal_model_is_kept_and_its_accuracy_is_the_headline():
    _, strategy = start([*SOURCES, target()])
    assert strategy.state_dict()["client/t/personal"]["w"].tolist() == [7, 8]
    (record,) = strategy.history
    assert (record["accuracy"], record["accuracy-global"]) == (0.75, 0.5)
    assert record["target"]["distance"] == 0.5


def test_the_target_alone_is_told_the_penalty():
    federation = HandMade([*SOURCES, target()])
    Ditto(lam=0.25).start(federation.grid(), initial(), 1)
    assert {domain: config.get("personal") for domain, config in federation.configs} == {
        "a": None,
        "b": None,
        "t": 0.25,
    }


def test_without_a_global_branch_all_clients_are_told_the_penalty():
    federation = HandMade([*SOURCES, target()])
    strategy = Ditto(lam=0.25, global_branch="none")
    strategy.start(federation.grid(), initial(), 1)
    asked = [(config.get("personal"), config["proximal"]) for _, config in federation.configs]
    assert asked == [(None, 0.25)] * 3
    assert strategy.state_dict() == {}


def test_the_personal_model_is_given_back_once_after_a_resume(tmp_path):
    given_back = []
    nodes = [*SOURCES, target(given_back=given_back)]
    start(nodes, rounds=2, output=RunFolder(tmp_path))
    assert given_back == [None, None]
    start(nodes, rounds=4, output=RunFolder(tmp_path, resume=True))
    assert given_back[2:] == [[7.0, 8.0], None]


def test_what_the_target_keeps_in_a_held_round_is_what_it_gets_back(tmp_path):
    given_back = []

    def answer(model, message):
        now = message.content["config"]["server-round"]
        return target((now, 0.0), given_back)[2](model, message)

    def fails_later(model, message):
        if message.content["config"]["server-round"] == 2:
            raise OSError("off")
        return moves([0.5, 0.0], domain="a")(model, message)

    nodes = [("source", "a", fails_later), ("target", "t", answer)]
    _, strategy = start(nodes, rounds=2, output=RunFolder(tmp_path))
    assert strategy.history[1]["held"] is not None
    assert strategy.state_dict()["client/t/personal"]["w"].tolist() == [2, 0]
    start(nodes, rounds=3, output=RunFolder(tmp_path, resume=True))
    assert given_back == [None, None, [2.0, 0.0]]


def test_a_target_that_lost_its_model_is_recorded():
    calls = []

    def forgets(model, message):
        calls.append(1)
        content = target()[2](model, message)
        if len(calls) != 2:
            del content["metrics"]["distance"]
        return content

    _, strategy = start([*SOURCES, ("target", "t", forgets)], rounds=3)
    told = [record["target"].get("fallback") for record in strategy.history]
    assert told[:2] == [None, None]
    assert "no personal model" in told[2]


def test_without_a_personal_model_the_reply_is_dropped_with_the_remedy():
    _, strategy = start([*SOURCES, ("target", "t", moves(1.0, "target", "t", **{"eval-accuracy": 0.5}))])
    (dropped,) = strategy.history[0]["dropped"]
    assert "no ArrayRecord 'personal'" in dropped["reason"]
    assert "DittoTarget" in dropped["reason"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lam": -0.1}, "lam is -0.1"),
        ({"lam": np.inf}, "lam is inf"),
        ({"global_branch": "both"}, "global_branch is 'both': choose fedavg or none"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Ditto(**options)
