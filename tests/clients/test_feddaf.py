"""FedDAF's target: its gradients, its blend and what it keeps, against the definitions."""

import io

import numpy as np
import pytest
import torch
from flwr.app import RecordDict

from fda_flower.aggregation import blend, functional_distance
from fda_flower.clients import FedDAFTarget, LocalTraining, TargetClient
from fda_flower.clients.own_state import OwnState
from fda_flower.clients.training import mean_gradient, repeatable
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.models import build_model

SPEC = DataSpec("digits", "rotate", target_samples=50)
TRAINING = LocalTraining(0.05, 11, optimizer="sgd")


def network(name="mlp"):
    data = load_federation(SPEC)
    if name == "mlp":
        return build_model("mlp", data.shape, data.classes, seed=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.5),
            torch.nn.ReLU(), torch.nn.Linear(16, 10),
        )  # fmt: skip


def make(state=None, model="mlp", kind=FedDAFTarget):
    return kind(load_federation(SPEC).domains["target"], network(model), TRAINING, state=state)


def start(model="mlp", shift=0.0):
    return [(value + shift).numpy().copy() if value.is_floating_point() else value.numpy().copy()
            for value in network(model).state_dict().values()]  # fmt: skip


def adapted(metrics, model="mlp"):
    names = network(model).state_dict()
    return [np.load(io.BytesIO(metrics[f"adapted.{name}"]), allow_pickle=False) for name in names]


def own(state):
    """The arrays of the model that is kept in a context's state."""
    kept = OwnState(state).load("feddaf")
    assert kept is not None
    return list(kept[0].values())


def same(ours, theirs):
    return all(a.tobytes() == b.tobytes() for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("model", ["mlp", "batchnorm"])
def test_in_the_first_round_it_takes_the_sources_model_as_it_is(model):
    state = RecordDict()
    trained, examples, metrics = make(state, model).fit(start(model), {"server-round": 1, "mu": 5.0})
    assert same(adapted(metrics, model), start(model))
    assert "alpha" not in metrics
    assert examples == 50
    expected, _, _ = make(None, model, TargetClient).fit(start(model), {"server-round": 1})
    assert same(trained, expected)
    assert metrics["fresh-start"] == 1
    assert same(own(state), trained)


@pytest.mark.parametrize("model", ["mlp", "batchnorm"])
@pytest.mark.parametrize("mu", [5.0, 0.0, -3.0])
def test_in_the_second_it_blends_and_trains_from_the_blend(model, mu):
    state = RecordDict()
    first, _, _ = make(state, model).fit(start(model), {"server-round": 1, "mu": mu})
    first = [array.copy() for array in first]
    received = start(model, shift=0.01)
    trained, _, metrics = make(state, model).fit(received, {"server-round": 2, "mu": mu})
    theta, alpha = functional_distance(metrics["sim"], mu)
    assert (metrics["theta"], metrics["alpha"]) == (theta, alpha)
    names = list(network(model).state_dict())
    buffers = set(names) - dict(network(model).named_parameters()).keys()
    models = dict(zip(names, received, strict=True)), dict(zip(names, first, strict=True))
    expected = list(blend(*models, alpha, buffers).values())
    assert same(adapted(metrics, model), expected)
    from_there, _, _ = make(None, model, TargetClient).fit(expected, {"server-round": 2})
    assert same(trained, from_there)
    assert metrics["fresh-start"] == 0
    assert same(own(state), trained)


def test_a_round_that_is_run_again_begins_from_the_state_before_it():
    state = RecordDict()
    make(state).fit(start(), {"server-round": 1, "mu": 5.0})
    once, again = (make(state).fit(start(shift=0.01), {"server-round": 2, "mu": 5.0})[0] for _ in range(2))
    assert same(once, again)


def test_the_similarity_is_of_the_two_mean_gradients():
    state = RecordDict()
    own, _, _ = make(state).fit(start(), {"server-round": 1, "mu": 5.0})
    own = [array.copy() for array in own]
    _, _, metrics = make(state).fit(start(shift=0.01), {"server-round": 2, "mu": 5.0})
    samples, gradients = load_federation(SPEC).domains["target"].train, []
    for parameters in (start(shift=0.01), own):
        model = network()
        arrays = (torch.from_numpy(array) for array in parameters)
        model.load_state_dict(dict(zip(model.state_dict(), arrays, strict=True)))
        batches = []
        for first in range(0, 50, 10):
            model.zero_grad()
            x, y = samples.x[first : first + 10], samples.y[first : first + 10]
            torch.nn.functional.cross_entropy(model(x), y).backward()
            batches.append(torch.cat([p.grad.flatten() for p in model.parameters()]).double())
        gradients.append(torch.stack(batches).mean(dim=0))
    cosine = torch.nn.functional.cosine_similarity(*gradients, dim=0)  # type: ignore[arg-type, misc]
    assert metrics["sim"] == pytest.approx(float(cosine), abs=1e-5)


def test_the_gradient_is_of_training_and_leaves_the_model_as_it_is():
    model, samples = network("batchnorm"), load_federation(SPEC).domains["target"].train
    before = {name: value.clone() for name, value in model.state_dict().items()}
    results = []
    for seed in (1, 1, 2):
        with repeatable(seed, 1):
            results.append(
                mean_gradient(model, samples, LocalTraining(0.1, 11), torch.Generator().manual_seed(0))
            )
    assert results[0].keys() == dict(model.named_parameters()).keys()
    assert same(results[0].values(), results[1].values()), "dropout follows the seed"
    assert not same(results[0].values(), results[2].values())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_where_no_mu_is_told_it_is_a_plain_target_and_keeps_nothing():
    state = RecordDict()
    trained, _, metrics = make(state).fit(start(), {"server-round": 1})
    expected, _, _ = make(None, kind=TargetClient).fit(start(), {"server-round": 1})
    assert same(trained, expected)
    assert not state
    assert not any(name.startswith("adapted") for name in metrics)


def test_a_training_that_fails_keeps_the_own_model_as_it_was(monkeypatch):
    state = RecordDict()
    make(state).fit(start(), {"server-round": 1, "mu": 5.0})
    kept = own(state)

    def fails(*args):
        raise MemoryError

    monkeypatch.setattr(TargetClient, "train_from", fails)
    with pytest.raises(MemoryError):
        make(state).fit(start(shift=0.01), {"server-round": 2, "mu": 5.0})
    assert same(own(state), kept)
