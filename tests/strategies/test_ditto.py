"""Ditto on the server: FedAvg's model, and what it reads of the target's personal one."""

import handmade
import numpy as np
import pytest
from handmade import HandMade, initial, moves, reply_of, weights

from fda_flower.errors import ConfigError
from fda_flower.strategies import Ditto, FedAvg

SOURCES = [
    ("source", "a", moves([0.5, 0.0], domain="a", examples=30)),
    ("source", "b", moves([0.0, -1.0], domain="b", examples=10)),
]


def target(anew=()):
    """A target that begins anew in some rounds."""

    def answer(model, message):
        begins = int(message.content["config"]["server-round"] in anew)
        numbers = {"eval-accuracy": 0.75, "distance": 0.5, "fresh-start": begins}
        return reply_of({"w": model["w"] + 1}, role="target", domain="t", **numbers)

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


def test_the_personal_models_accuracy_is_the_headline_and_the_server_keeps_no_model_of_it():
    _, strategy = start([*SOURCES, target()])
    (record,) = strategy.history
    assert (record["accuracy"], record["accuracy-global"]) == (0.75, 0.5)
    assert record["target"]["distance"] == 0.5
    assert strategy.state_dict() == {}


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


@pytest.mark.parametrize(("anew", "lost"), [((1,), []), ((1, 3), [3]), ((), [])])
def test_a_target_that_lost_its_model_is_recorded(anew, lost):
    _, strategy = start([*SOURCES, target(anew)], rounds=3)
    assert [record["round"] for record in strategy.history if "fallback" in record["target"]] == lost
    assert not any("fresh-start" in record["target"] for record in strategy.history)


def test_a_target_without_a_personal_model_is_dropped_with_the_remedy():
    _, strategy = start([*SOURCES, ("target", "t", moves(1.0, "target", "t", **{"eval-accuracy": 0.5}))])
    (dropped,) = strategy.history[0]["dropped"]
    assert "'distance'" in dropped["reason"]
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
