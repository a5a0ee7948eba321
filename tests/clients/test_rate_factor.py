"""The learning rate of a round: the client's own, times the server's ``rate-factor``."""

from typing import Any

import numpy as np
import pytest

from fda_flower.clients import DomainClient, LocalTraining, SourceClient, TargetClient
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.models import build_model

CLIENTS: dict[str, tuple[type[DomainClient], str]] = {
    "source": (SourceClient, "source-1"),
    "target": (TargetClient, "target"),
}
SPEC = DataSpec("digits", "noise", (("std", 0.1),), target_samples=50)

every_client = pytest.mark.parametrize("role", list(CLIENTS))
every_optimizer = pytest.mark.parametrize("optimizer", ["adam", "sgd"])


def make(role: str, rate: float, optimizer: str = "adam") -> DomainClient:
    client, domain = CLIENTS[role]
    federation = load_federation(SPEC)
    model = build_model("mlp", federation.shape, federation.classes, seed=0)
    return client(federation.domains[domain], model, LocalTraining(rate, 16, optimizer=optimizer))


def fit(client: DomainClient, **config: Any) -> tuple[bytes, dict[str, Any]]:
    """The bits of the model after a round from the same start, and the metrics."""
    federation = load_federation(SPEC)
    start = build_model("mlp", federation.shape, federation.classes, seed=0).state_dict().values()
    arrays, _, metrics = client.fit(
        [tensor.numpy().copy() for tensor in start], {"server-round": 3, **config}
    )
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays), metrics


@every_client
@every_optimizer
@pytest.mark.parametrize("factor", [0.25, 2.0])
def test_a_factor_trains_as_a_client_of_the_scaled_rate(role: str, optimizer: str, factor: float) -> None:
    scaled, metrics = fit(make(role, 0.04, optimizer), **{"rate-factor": factor})
    expected, same = fit(make(role, 0.04 * factor, optimizer))
    assert scaled == expected
    assert metrics == same
    assert metrics["learning-rate"] == 0.04 * factor
    assert scaled != fit(make(role, 0.04, optimizer))[0]


@every_client
def test_without_a_factor_and_with_one_of_1_the_rate_is_the_clients_own(role: str) -> None:
    plain, metrics = fit(make(role, 0.04))
    assert metrics["learning-rate"] == 0.04
    assert fit(make(role, 0.04), **{"rate-factor": 1.0}) == (plain, metrics)


@every_client
def test_a_factor_is_for_its_round_alone(role: str) -> None:
    client = make(role, 0.04)
    fit(client, **{"rate-factor": 0.5})
    assert client.training.learning_rate == 0.04
    assert fit(client) == fit(make(role, 0.04))


def test_the_recorded_updates_are_those_of_the_scaled_rate() -> None:
    asked = {"batch-updates": "full"}
    _, scaled = fit(make("target", 0.04, "sgd"), **asked, **{"rate-factor": 0.25})
    _, expected = fit(make("target", 0.01, "sgd"), **asked)
    assert scaled["batch-updates.full"] == expected["batch-updates.full"]
    assert scaled["batch-updates.norms"] == expected["batch-updates.norms"]
