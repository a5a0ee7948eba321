"""FedAvg, FedProx and FedAvg FT on the server: the mean, what clients are told, and the headline."""

from typing import Any

import handmade
import numpy as np
import pytest
from flwr.app import ArrayRecord
from handmade import HandMade, bits, initial, moves, weights

from fda_flower import run
from fda_flower.strategies import FedAvg, FedAvgFT, FedProx, TargetOnly
from fda_flower.strategies.replies import ClientUpdate
from fda_flower.strategies.round import Round

NODES = [
    ("source", "a", moves([0.5, 0.0], domain="a", examples=900)),
    ("target", "t", moves([0.0, 1.0], "target", "t", examples=100)),
]


def start(strategy, rounds=1):
    federation = HandMade(NODES, accuracy=0.25)
    return strategy.start(federation.grid(), initial(), rounds), federation


@pytest.mark.parametrize("kind", [FedAvg, FedProx, FedAvgFT])
def test_the_mean_is_by_examples_or_uniform(kind):
    np.testing.assert_allclose(weights(start(kind(weights="examples"))[0]), [1.45, 2.1])
    np.testing.assert_allclose(weights(start(kind(weights="uniform"), rounds=2)[0]), [1.5, 3.0])
    assert (kind().weights == "uniform") == (kind is FedAvgFT)


@pytest.mark.parametrize("seed", range(3))
def test_without_sources_it_is_target_only_bit_by_bit(seed):
    generator = np.random.default_rng(seed)
    target = ClientUpdate({"w": generator.normal(size=7).astype(np.float32)}, {}, 10)
    model = {"w": generator.normal(size=7).astype(np.float32)}
    now = Round(1, False, [], ArrayRecord(), {}, {}, list, model=model)
    models = [strategy.aggregate(now, target, {}).model for strategy in (FedAvgFT(), TargetOnly())]
    assert bits(models[0]) == bits(models[1])


def test_the_headline_is_the_trained_model_and_the_other_beside_it(monkeypatch):
    def trained(content, model, config, accuracy):
        if config.get("evaluate-trained"):
            content["metrics"].update({"eval-accuracy": 0.75, "eval-loss": 0.5, "eval-num-examples": 4})

    monkeypatch.setattr(handmade, "add_what_is_asked", trained)
    strategy = FedAvgFT(warmup_rounds=1)
    _, federation = start(strategy, rounds=2)
    first, second = strategy.history
    assert (first["accuracy"], "accuracy-global" in first) == (0.25, False)
    figures = ("accuracy", "loss", "accuracy-global", "loss-global")
    assert [second[name] for name in figures] == [0.75, 0.5, 0.25, 1.0]
    assert federation.told("evaluate-trained") == {"a": None, "t": True}


@pytest.mark.usefixtures("bare_replies")
def test_a_target_that_does_not_evaluate_has_no_headline():
    strategy = FedAvgFT()
    start(strategy)
    (record,) = strategy.history
    assert record["accuracy-global"] == 0.25
    assert record.get("accuracy") is None


@pytest.mark.parametrize(("tune", "told"), [("all", None), ("head", "head")])
def test_the_target_is_told_to_tune_the_head_alone(tune, told):
    assert start(FedAvgFT(tune=tune))[1].told("tune") == {"a": None, "t": told}


def test_every_client_is_told_the_penalty_after_the_warm_up():
    _, federation = start(FedProx(mu=0.25, warmup_rounds=1), rounds=2)
    assert federation.told("proximal", "a") == [None, 0.25]
    assert federation.told("proximal", "t") == [0.25]


def test_fedprox_without_a_penalty_is_fedavg_and_with_one_ditto_without_a_global_branch():
    settings: dict[str, Any] = {"rounds": 2, "model": "mlp", "device": "cpu", "target_samples": 20}
    plain = run(method="fedavg", **settings)
    none = run(method="fedprox", method_options={"mu": 0}, **settings)
    some = run(method="fedprox", method_options={"mu": 0.5}, **settings)
    ditto = run(method="ditto", method_options={"lam": 0.5, "global_branch": "none"}, **settings)
    assert bits(none.model) == bits(plain.model) != bits(some.model) == bits(ditto.model)
    assert [r["accuracy"] for r in none.history] == [r["accuracy"] for r in plain.history]
