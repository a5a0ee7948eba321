"""Gradients of the received model: against their definition, in our clients and in others' loops."""

import doctest

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from naming import names
from torch import nn

from fda_flower.aggregation import CountSketch
from fda_flower.clients import (
    DittoTarget,
    LocalTraining,
    SourceClient,
    TargetClient,
    batch_gradients,
    gradients,
)
from fda_flower.clients.training import mean_gradient
from fda_flower.datasets import DataSpec, Samples, load_federation
from fda_flower.errors import ConfigError
from fda_flower.models import build_model
from fda_flower.wire.numpy_client import unpack

SPEC = DataSpec("digits", "rotate", target_samples=50)
FULL = {"gradients": "full"}
SKETCH = {"gradients": "sketch", "sketch-size": 64, "sketch-seed": 5}


def network(name="batchnorm"):
    data = load_federation(SPEC)
    if name == "mlp":
        return build_model("mlp", data.shape, data.classes, seed=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 10)
        )  # fmt: skip


def batches(sizes=(11, 10, 12)):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.rand(n, 1, 8, 8, generator=generator), torch.randint(10, (n,), generator=generator))
        for n in sizes
    ]


def by_definition(model, given):
    """The gradient of each batch as a row, in float64 but for the backward pass."""
    rows = []
    for x, y in given:
        model.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        rows.append(np.concatenate([p.grad.double().numpy().reshape(-1) for p in model.parameters()]))
    return np.array(rows)


def test_the_examples_hold():
    assert doctest.testmod(gradients) == (0, 8)


def test_mean_norm_and_variance_are_those_of_the_definition():
    rows = by_definition(network("mlp").train(), batches())
    found = batch_gradients(network("mlp"), batches(), nn.functional.cross_entropy, FULL).arrays
    mean = rows.mean(axis=0)
    np.testing.assert_allclose(found["full"], mean, rtol=1e-6, atol=1e-9)
    assert found["full"].dtype == np.float32
    assert found["norm"] == pytest.approx(mean @ mean, rel=1e-12)
    assert found["variance"] == pytest.approx(((rows - mean) ** 2).sum() / (3 * 2), rel=1e-9)
    assert found["batches"] == 3


def test_the_sketch_is_that_of_the_mean():
    rows = by_definition(network("mlp").train(), batches())
    found = batch_gradients(network("mlp"), batches(), nn.functional.cross_entropy, SKETCH).arrays
    assert set(found) == {"sketch", "sketch-size", "sketch-seed", "norm", "variance", "batches"}
    expected = CountSketch(64, 5)({"w": rows.mean(axis=0)})
    np.testing.assert_allclose(found["sketch"], expected, rtol=1e-9, atol=1e-12)
    assert [int(found[name]) for name in ("sketch-size", "sketch-seed")] == [64, 5]


def test_the_model_is_left_as_it_was_but_in_training_mode():
    model = network().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch_gradients(model, batches(), nn.functional.cross_entropy, FULL)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert model.training


def test_a_gradient_left_from_before_is_not_used():
    fresh = batch_gradients(network("mlp"), batches(), nn.functional.cross_entropy, FULL).arrays
    used = network("mlp")
    for parameter in used.parameters():
        parameter.grad = torch.ones_like(parameter)
    again = batch_gradients(used, batches(), nn.functional.cross_entropy, FULL).arrays
    assert again["full"].tobytes() == fresh["full"].tobytes()


def test_what_is_not_asked_for_costs_nothing():
    def no_batches():
        raise AssertionError("read all the same")
        yield

    found = batch_gradients(network(), no_batches(), nn.functional.cross_entropy, {"server-round": 1})
    reply, metrics = RecordDict(), {"loss": 1.0}
    found.add_to(reply)
    found.add_to(metrics)
    assert found.arrays == {}
    assert len(reply) == 0
    assert metrics == {"loss": 1.0}


def test_they_go_into_a_reply_or_into_the_metrics_of_a_numpy_client():
    found = batch_gradients(network(), batches(), nn.functional.cross_entropy, SKETCH)
    reply, metrics = RecordDict(), {}
    found.add_to(reply)
    found.add_to(metrics)
    for name, array in found.arrays.items():
        assert reply["gradients"][name].numpy().tobytes() == array.tobytes()
        assert unpack(metrics)["gradients"][name].tobytes() == array.tobytes()


def test_frozen_parameters_count_as_zero_and_those_that_are_sent_can_be_named():
    model = network("mlp")
    first = next(model.parameters())
    first.requires_grad_(False)
    whole = batch_gradients(model, batches(), nn.functional.cross_entropy, FULL).arrays["full"]
    assert not whole[: first.numel()].any()
    trained = [p for p in model.parameters() if p.requires_grad]
    part = batch_gradients(model, batches(), nn.functional.cross_entropy, FULL, trained).arrays["full"]
    np.testing.assert_array_equal(part, whole[first.numel() :])


@pytest.mark.parametrize("sizes", [(), (5,)])
def test_fewer_than_two_batches_have_no_variance_and_say_so(sizes):
    found = batch_gradients(network("mlp"), batches(sizes), nn.functional.cross_entropy, FULL).arrays
    assert int(found["batches"]) == len(sizes)
    assert float(found["variance"]) == 0


def test_another_encoding_is_refused():
    with pytest.raises(ConfigError, check=names("encoding of gradients", "norms")):
        batch_gradients(network(), batches(), nn.functional.cross_entropy, {"gradients": "norms"})


def test_feddafs_mean_gradient_is_the_same_mean():
    x, y = (torch.cat(parts) for parts in zip(*batches((10, 10, 10)), strict=True))
    mean = mean_gradient(network("mlp"), Samples(x, y), LocalTraining(0.1, 10), torch.Generator())
    given = [(x[i : i + 10], y[i : i + 10]) for i in (0, 10, 20)]
    found = batch_gradients(network("mlp"), given, nn.functional.cross_entropy, FULL).arrays["full"]
    np.testing.assert_allclose(
        np.concatenate([g.reshape(-1) for g in mean.values()]), found, rtol=1e-5, atol=1e-8
    )


# Our clients


def make(kind, model="batchnorm", **training):
    domain = "source-1" if kind is SourceClient else "target"
    settings = LocalTraining(**{"learning_rate": 0.01, "batch_size": 11, **training})
    return kind(load_federation(SPEC).domains[domain], network(model), settings, seed=1)


def fit(client, **config):
    arrays = [value.numpy().copy() for value in network().state_dict().values()]
    trained, _, metrics = client.fit(arrays, {"server-round": 1, **config})
    return [array.copy() for array in trained], metrics


@pytest.mark.parametrize("kind", [SourceClient, TargetClient, DittoTarget])
@pytest.mark.parametrize("asked", [FULL, SKETCH])
def test_every_client_sends_them_and_trains_with_the_same_bits(kind, asked):
    plain, _ = fit(make(kind))
    trained, metrics = fit(make(kind), **asked)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(plain, trained, strict=True))
    sent = unpack(metrics)["gradients"]
    size = 64 if asked is SKETCH else sum(p.numel() for p in network().parameters())
    assert sent[asked["gradients"]].shape == (size,)
    assert sent["batches"] == -(-len(make(kind).domain.train) // 11)
    assert sent["variance"] > 0
    again = unpack(fit(make(kind), **asked)[1])["gradients"]
    assert all(sent[name].tobytes() == again[name].tobytes() for name in sent)


def test_they_are_of_shuffled_batches_of_the_clients_own_size():
    other_round = {"server-round": 2, **FULL}
    first, second = (
        unpack(fit(make(TargetClient, batch_size=5), **config)[1])["gradients"]
        for config in (FULL, other_round)
    )
    assert first["batches"] == 10
    assert first["variance"] != second["variance"]
