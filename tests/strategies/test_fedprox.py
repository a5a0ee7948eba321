"""FedProx on the server: FedAvg's mean, and a penalty that every client is told."""

import math
from typing import Any

import numpy as np
import pytest
from handmade import HandMade, initial, moves, weights

from fda_flower import ConfigError, run
from fda_flower.strategies import FedAvg, FedProx

NODES = [
    ("source", "a", moves([0.5, 0.0], domain="a", examples=30)),
    ("target", "t", moves([0.0, 1.0], "target", "t", examples=10)),
]
RUN: dict[str, Any] = {"rounds": 2, "model": "mlp", "device": "cpu", "target_samples": 20}


def test_every_client_is_told_the_penalty_and_the_mean_is_fedavgs() -> None:
    federation = HandMade(NODES)
    found = FedProx(mu=0.25).start(federation.grid(), initial(), 2)
    assert [config["proximal"] for _, config in federation.configs] == [0.25] * 4
    plain = FedAvg().start(HandMade(NODES).grid(), initial(), 2)
    assert weights(found).tobytes() == weights(plain).tobytes()


def test_the_clients_of_the_warm_up_have_no_penalty() -> None:
    federation = HandMade(NODES)
    FedProx(warmup_rounds=1).start(federation.grid(), initial(), 2)
    told = [(domain, config.get("proximal")) for domain, config in federation.configs]
    assert told == [("a", None), ("a", 0.01), ("t", 0.01)]


def test_the_weights_are_an_option() -> None:
    found = FedProx(weights="uniform").start(HandMade(NODES).grid(), initial(), 1)
    np.testing.assert_allclose(weights(found), [1.25, 2.5])


def test_what_defines_it() -> None:
    assert FedProx().settings() == {**FedAvg().settings(), "mu": 0.01}


@pytest.mark.parametrize("mu", [-0.1, math.inf, math.nan])
def test_a_penalty_that_cannot_work_is_refused(mu: float) -> None:
    with pytest.raises(ConfigError, match=f"mu is {mu}: it must be a number of at least 0"):
        FedProx(mu=mu)


def test_without_a_penalty_a_run_is_fedavgs_bit_for_bit() -> None:
    found = run(method="fedprox", method_options={"mu": 0}, **RUN)
    plain = run(method="fedavg", **RUN)
    assert [record["accuracy"] for record in found.history] == [r["accuracy"] for r in plain.history]
    for name, array in plain.model.items():
        assert found.model[name].tobytes() == array.tobytes()


def test_fedprox_is_ditto_without_a_global_branch() -> None:
    first = run(method="fedprox", method_options={"mu": 0.5}, **RUN)
    other = run(method="ditto", method_options={"lam": 0.5, "global_branch": "none"}, **RUN)
    for name, array in other.model.items():
        assert first.model[name].tobytes() == array.tobytes()
    plain = run(method="fedavg", **RUN)
    assert any(first.model[name].tobytes() != array.tobytes() for name, array in plain.model.items())
