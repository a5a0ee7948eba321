"""Ditto's target: its personal model, by hand and against plain training."""

import logging

import numpy as np
import pytest
import torch
from flwr.app import RecordDict

from fda_flower.clients import DittoTarget, LocalTraining, TargetClient
from fda_flower.clients.own_state import OwnState
from fda_flower.clients.training import plain_objective, proximal
from fda_flower.datasets import DataSpec, Domain, Samples, load_federation
from fda_flower.models import build_model
from fda_flower.wire.protocol import TrainRequest, to_record

SPEC = DataSpec("digits", "rotate", target_samples=50)


def make(state=None, kind=DittoTarget, optimizer="sgd", rate=0.05):
    data = load_federation(SPEC)
    model = build_model("mlp", data.shape, data.classes, seed=0)
    return kind(data.domains["target"], model, LocalTraining(rate, 11, optimizer=optimizer), state=state)


def ask(client, lam, server_round=1, model=None, **config):
    arrays = to_record(make().layers() if model is None else model)
    settings = {"server-round": server_round, **({} if lam is None else {"personal": lam}), **config}
    return client.local_train(TrainRequest(arrays, settings))


def personal(state):
    """The personal model that is kept in a context's state."""
    kept = OwnState(state).load("ditto")
    assert kept is not None
    return kept[0]


def same(one, other):
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


class Scalar(torch.nn.Module):
    """A model of one number ``v`` that predicts ``v``."""

    def __init__(self):
        super().__init__()
        self.v = torch.nn.Parameter(torch.zeros(1, 1))

    def forward(self, x):
        return x @ self.v


def scalar_target(state, rate, epochs=1):
    """``F(v) = (v − 2)²/2`` from ``(√½ v − √2)²``, the mean squared error of one sample."""
    samples = Samples(torch.tensor([[0.5**0.5]]), torch.tensor([[2.0**0.5]]))
    domain = Domain("t", samples, samples)
    return DittoTarget(domain, Scalar(), LocalTraining(rate, 1, epochs, "sgd"), state=state)


def test_one_step_by_hand_and_the_fixed_point():
    zero = {"v": np.zeros((1, 1), np.float32)}
    for epochs, v in ((1, 0.2), (200, 1.0)):
        state = RecordDict()
        ask(scalar_target(state, 0.1, epochs), 1.0, model=zero)
        np.testing.assert_allclose(personal(state)["v"], v, rtol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_without_a_penalty_the_personal_model_is_local_training_bit_for_bit(optimizer):
    state, plain = RecordDict(), make(kind=TargetClient, optimizer=optimizer).layers()
    for server_round in (1, 2):
        ask(make(state, optimizer=optimizer), 0.0, server_round)
        plain = ask(make(kind=TargetClient, optimizer=optimizer), None, server_round, plain).arrays
        assert same(personal(state), plain)


def test_the_global_branch_is_plain_training_whatever_the_penalty():
    state = RecordDict()
    for lam in (0.0, 5.0):
        expected = ask(make(kind=TargetClient), None).arrays
        assert same(ask(make(state), lam).arrays, expected)


def test_the_personal_model_stays_at_the_client_and_goes_on_from_there():
    state = RecordDict()
    first = ask(make(state), 1.0)
    assert (first.records, first.metrics["distance"], first.metrics["fresh-start"]) == ({}, 0.0, 1)
    before, anchor = personal(state), make().layers()
    second = ask(make(state), 1.0, server_round=2)
    squares = (((before[n].astype(np.float64) - anchor[n]) ** 2).sum() for n in anchor)
    assert second.metrics["distance"] == pytest.approx(sum(squares) ** 0.5)
    assert second.metrics["fresh-start"] == 0
    assert not same(personal(state), before)


def test_a_round_that_is_run_again_begins_from_the_state_before_it():
    state = RecordDict()
    for server_round in (1, 2):
        ask(make(state), 1.0, server_round)
    once = personal(state)
    ask(make(state), 1.0, server_round=2)
    assert same(personal(state), once)


def test_a_larger_penalty_keeps_it_nearer_to_the_global_model():
    def moved(lam):
        state, start = RecordDict(), make().layers()
        ask(make(state, rate=0.01), lam)
        return sum(float(((personal(state)[n] - start[n]) ** 2).sum()) for n in start)

    assert moved(50.0) < moved(5.0) < moved(0.0)


def test_the_evaluation_is_of_the_personal_model():
    state = RecordDict()
    reply = ask(make(state), 0.5, **{"evaluate-trained": True})
    _, _, metrics = make().evaluate(list(personal(state).values()), {"server-round": 1})
    assert reply.metrics["eval-accuracy"] == metrics["accuracy"]


def test_a_training_that_fails_keeps_the_model_as_it_was(monkeypatch):
    state = RecordDict()
    ask(make(state), 1.0)
    kept = personal(state)

    def fails(*args):
        raise MemoryError

    monkeypatch.setattr(TargetClient, "train_on", fails)
    with pytest.raises(MemoryError):
        ask(make(state), 1.0, server_round=2)
    assert same(personal(state), kept)


def test_a_rate_that_will_diverge_is_warned_of(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        ask(make(RecordDict(), rate=0.05), 10.0)
        assert "diverges" not in caplog.text
        ask(make(RecordDict(), rate=0.05), 20.0)
    assert "The learning rate times λ is 1" in caplog.text


def test_the_penalty_acts_on_parameters_by_the_definition():
    model = torch.nn.Linear(2, 1, bias=False)
    x, y = torch.ones(1, 2), torch.zeros(1, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -1.0]]))
        plain = plain_objective(y, LocalTraining(0.1, 4))
        objective = proximal(plain, model, 0.5)
        model.weight.copy_(torch.tensor([[3.0, 1.0]]))
        assert float(objective(model, x, y)) == pytest.approx(float(plain(model, x, y)) + 0.25 * 8)
