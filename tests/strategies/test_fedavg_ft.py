"""FedAvg FT: FedAvg, whose headline is the target's model after its training."""

import handmade
import numpy as np
import pytest
from flwr.app import ArrayRecord
from handmade import HandMade, initial, moves, weights
from naming import names

from fda_flower.errors import ConfigError
from fda_flower.strategies import FedAvg, FedAvgFT, TargetOnly
from fda_flower.strategies.replies import ClientUpdate
from fda_flower.strategies.round import Round

NODES = [
    ("source", "a", moves([0.5, 0.0], domain="a", examples=900)),
    ("target", "t", moves([0.0, 1.0], "target", "t", examples=100)),
]


def start(strategy, nodes=NODES, rounds=1):
    return strategy.start(HandMade(nodes, accuracy=0.25).grid(), initial(), rounds)


def test_the_model_is_fedavgs_with_uniform_weights():
    found, expected = start(FedAvgFT(), rounds=2), start(FedAvg(weights="uniform"), rounds=2)
    assert weights(found).tobytes() == weights(expected).tobytes()
    np.testing.assert_allclose(weights(found), [1.5, 3.0])


def test_fedavg_is_weighted_by_examples_unless_told_otherwise():
    np.testing.assert_allclose(weights(start(FedAvg())), [1.45, 2.1])
    np.testing.assert_allclose(weights(start(FedAvgFT(weights="examples"))), [1.45, 2.1])


def test_the_headline_is_the_trained_model_and_the_other_beside_it(monkeypatch):
    def trained(content, model, config, accuracy):
        if config.get("evaluate-trained"):
            content["metrics"].update({"eval-accuracy": 0.75, "eval-loss": 0.5, "eval-num-examples": 4})

    monkeypatch.setattr(handmade, "add_what_is_asked", trained)
    strategy = FedAvgFT(warmup_rounds=1)
    start(strategy, rounds=2)
    first, second = strategy.history
    assert first["accuracy"] == 0.25
    assert "accuracy-global" not in first
    assert {key: second[key] for key in ("accuracy", "loss", "accuracy-global", "loss-global")} == {
        "accuracy": 0.75,
        "loss": 0.5,
        "accuracy-global": 0.25,
        "loss-global": 1.0,
    }


def test_a_target_that_does_not_evaluate_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr(handmade, "add_what_is_asked", lambda *_: None)
    strategy = FedAvgFT()
    start(strategy)
    record = strategy.history[0]
    assert "'evaluate-trained'" in record["dropped"][0]["reason"]
    assert record["accuracy-global"] == 0.25
    assert record.get("accuracy") is None


def test_only_the_target_is_asked_to_evaluate():
    federation = HandMade(NODES)
    FedAvgFT().start(federation.grid(), initial(), 1)
    assert {domain: config.get("evaluate-trained") for domain, config in federation.configs} == {
        "a": None,
        "t": True,
    }


@pytest.mark.parametrize("seed", range(3))
def test_without_sources_it_is_target_only_bit_by_bit(seed):
    generator = np.random.default_rng(seed)
    target = ClientUpdate({"w": generator.normal(size=7).astype(np.float32)}, {}, 10)
    model = {"w": generator.normal(size=7).astype(np.float32)}
    now = Round(1, False, [], ArrayRecord(), {}, {}, list, model=model)
    models = [strategy.aggregate(now, target, {}).model for strategy in (FedAvgFT(), TargetOnly())]
    assert models[0]["w"].tobytes() == models[1]["w"].tobytes()


@pytest.mark.parametrize(("tune", "told"), [("all", None), ("head", "head")])
def test_the_target_is_told_to_tune_the_head_alone(tune, told):
    federation = HandMade(NODES)
    FedAvgFT(tune=tune).start(federation.grid(), initial(), 1)
    assert {domain: config.get("tune") for domain, config in federation.configs} == {"a": None, "t": told}


def test_an_unknown_part_to_tune_is_refused():
    with pytest.raises(ConfigError, check=names("tune", "body")):
        FedAvgFT(tune="body")  # type: ignore[arg-type]
