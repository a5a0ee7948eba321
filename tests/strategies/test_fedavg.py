"""FedAvg, and the methods that train its model."""

from typing import Any

import numpy as np
import pytest
from handmade import HandMade, bits, initial, moves, weights

from fda_flower import run
from fda_flower.strategies import APFL, Ditto, FedAvg, FedAvgFT, FedBN, FedPer, FedProx, FedRep, KNNPer

NODES = [
    ("source", "a", moves([0.5, 0.0], domain="a", examples=900)),
    ("target", "t", moves([0.0, 1.0], "target", "t", examples=100)),
]


@pytest.mark.parametrize("kind", [FedAvg, FedProx, FedAvgFT, APFL, Ditto, KNNPer, FedPer, FedRep, FedBN])
@pytest.mark.parametrize(("mean", "expected"), [("examples", [1.9, 2.2]), ("uniform", [1.5, 3.0])])
def test_the_mean_is_by_examples_or_uniform(kind, mean, expected):
    strategy = kind(weights=mean)
    result = strategy.start(HandMade(NODES).grid(), initial(), 2)
    np.testing.assert_allclose(weights(result), expected)
    plain = FedAvg(weights=mean).start(HandMade(NODES).grid(), initial(), 2)
    assert bits(result.arrays) == bits(plain.arrays)
    assert strategy.state_dict() == {}


def test_fedprox_without_a_penalty_is_fedavg_and_with_one_ditto_without_a_global_branch():
    settings: dict[str, Any] = {"rounds": 2, "model": "mlp", "device": "cpu", "target_samples": 20}
    plain = run(method="fedavg", **settings)
    none = run(method="fedprox", method_options={"mu": 0}, **settings)
    some = run(method="fedprox", method_options={"mu": 0.5}, **settings)
    ditto = run(method="ditto", method_options={"lam": 0.5, "global_branch": "none"}, **settings)
    assert bits(none.model) == bits(plain.model) != bits(some.model) == bits(ditto.model)
    assert [r["accuracy"] for r in none.history] == [r["accuracy"] for r in plain.history]
