"""The penalty of a run: every local training is drawn to the model that it begins with."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fda_flower.clients import DittoTarget, LocalTraining, SourceClient, TargetClient
from fda_flower.clients.training import plain_objective, train
from fda_flower.datasets import DataSpec, Domain, Samples, load_federation
from fda_flower.models import build_model
from fda_flower.wire.protocol import TrainRequest, to_record

SPEC = DataSpec("digits", "rotate", target_samples=50)


class Scalar(torch.nn.Module):
    """A model of one number ``v`` that predicts ``v x``."""

    def __init__(self) -> None:
        super().__init__()
        self.v = torch.nn.Parameter(torch.zeros(1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.v


def trained(mu: float, epochs: int, begin: float = 0.0) -> float:
    """``v`` after steps of 0.1 on ``(v − 2)²/2``, the mean squared error of one sample."""
    samples = Samples(torch.tensor([[0.5**0.5]]), torch.tensor([[2.0**0.5]]))
    model = Scalar()
    with torch.no_grad():
        model.v.fill_(begin)
    train(model, samples, LocalTraining(0.1, 1, epochs, "sgd", proximal=mu), torch.Generator())
    return float(model.v.detach())


def test_steps_by_hand_and_the_fixed_point() -> None:
    assert trained(3.0, 1) == pytest.approx(0.2, rel=1e-6)  # at the anchor the penalty has no gradient
    assert trained(3.0, 2) == pytest.approx(0.2 + 0.1 * (1.8 - 3 * 0.2), rel=1e-6)
    assert trained(3.0, 200) == pytest.approx(2 / 4, rel=1e-6)  # (2 + μ·0)/(1 + μ)
    assert trained(3.0, 200, begin=1.0) == pytest.approx((2 + 3) / 4, rel=1e-6)


def test_an_objective_of_a_clients_own_has_the_penalty_too() -> None:
    """With the plain loss as its objective, a client trains as without one."""
    samples, ends = Samples(torch.tensor([[0.5**0.5]]), torch.tensor([[2.0**0.5]])), []
    for objective in (None, plain_objective(samples.y, LocalTraining(0.1, 4))):
        model = Scalar()
        how = LocalTraining(0.1, 1, 5, "sgd", proximal=3.0)
        train(model, samples, how, torch.Generator(), objective)
        ends.append(float(model.v.detach()))
    assert ends[0] == ends[1] != trained(0.0, 5)


def client(mu: float, kind: Any = TargetClient, **training: Any) -> Any:
    data = load_federation(SPEC)
    settings = LocalTraining(**{"learning_rate": 0.05, "batch_size": 11, "optimizer": "sgd", **training})
    model = build_model("mlp", data.shape, data.classes, seed=0)
    name = "source-1" if kind is SourceClient else "target"
    return kind(data.domains[name], model, replace(settings, proximal=mu))


def ask(one: Any, **config: Any) -> Any:
    return one.local_train(TrainRequest(to_record(client(0).layers()), {"server-round": 1, **config}))


def same(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> bool:
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


def distance(reply: Any) -> float:
    start = client(0).layers()
    return sum(float(np.square(array - start[name]).sum()) for name, array in reply.arrays.items())


@pytest.mark.parametrize("kind", [SourceClient, TargetClient, DittoTarget])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_without_a_penalty_training_has_the_same_bits(kind: Any, optimizer: str) -> None:
    plain = ask(client(0.0, kind, optimizer=optimizer))
    assert same(ask(client(0.0, kind, optimizer=optimizer), proximal=0.0).arrays, plain.arrays)


@pytest.mark.parametrize("kind", [SourceClient, TargetClient])
def test_a_larger_penalty_keeps_a_client_nearer(kind: Any) -> None:
    assert (
        distance(ask(client(10.0, kind)))
        < distance(ask(client(1.0, kind)))
        < distance(ask(client(0.0, kind)))
    )


def test_the_servers_penalty_replaces_the_clients() -> None:
    expected = ask(client(1.0)).arrays
    assert same(ask(client(0.0), proximal=1.0).arrays, expected)
    assert same(ask(client(7.0), proximal=1.0).arrays, expected)
    assert same(ask(client(7.0), proximal=0.0).arrays, ask(client(0.0)).arrays)


def test_dittos_personal_model_has_its_own_penalty_alone() -> None:
    clients = [client(mu, DittoTarget) for mu in (0.0, 5.0)]
    one, other = (ask(each, personal=0.5) for each in clients)
    personal = [each.own_state.load("ditto")[0] for each in clients]
    assert same(*personal)
    assert not same(one.arrays, other.arrays)


def test_the_guidance_is_drawn_to_the_trained_model() -> None:
    near, free = (ask(client(mu), guidance=True) for mu in (10.0, 0.0))

    def further(reply: Any) -> float:
        guidance = reply.records["guidance"]
        return sum(float(np.square(g - reply.arrays[name]).sum()) for name, g in guidance.items())

    assert 0 < further(near) < further(free)


def test_the_buffers_have_no_penalty() -> None:
    data = load_federation(SPEC).domains["target"]

    def moved(mu: float) -> NDArray[Any]:
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10))
        one = TargetClient(Domain("t", data.train, data.test), model, LocalTraining(0.01, 50, proximal=mu))
        return one.train_from(one.layers(), {"server-round": 1}).arrays["1.running_mean"].copy()

    assert moved(0.0).tobytes() == moved(100.0).tobytes()  # one step, from the same batch


def test_a_rate_that_will_diverge_is_warned_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        trained(9.9, 1)
        ask(client(20.0, optimizer="adam"))
        assert "diverges" not in caplog.text
        trained(10.0, 1)
    assert "The learning rate times μ is 1" in caplog.text
