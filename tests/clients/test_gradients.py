"""Gradients of the received model, and AdaBN's statistics: by hand, against torch, and in our clients."""

import contextlib
import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from digit_clients import SPEC, evaluated, kept, make, mixture_of, mlp, normalised, same, trained
from flwr.app import RecordDict
from naming import names
from torch import nn

from fda_flower.aggregation import CountSketch
from fda_flower.clients import (
    LocalTraining,
    MixturePlan,
    SourceClient,
    TargetClient,
    batch_gradients,
)
from fda_flower.clients.gradients import own_statistics
from fda_flower.datasets import Domain, Samples, load_federation
from fda_flower.errors import ConfigError
from fda_flower.models.parts import batch_norms
from fda_flower.wire.asked.personal import EvaluatePersonal, Personalise
from fda_flower.wire.numpy_client import unpack

SKETCH = {"gradients": "sketch", "sketch-size": 64, "sketch-seed": 5}


def batches(sizes=(11, 10, 12)):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.rand(n, 1, 8, 8, generator=generator), torch.randint(10, (n,), generator=generator))
        for n in sizes
    ]


def found(model, config, given=None, parameters=None):
    given = batches() if given is None else given
    return batch_gradients(model, given, nn.functional.cross_entropy, config, parameters)


def by_definition():
    """The gradient of each batch as a row, in float64 but for the backward pass."""
    model, rows = mlp().train(), []
    for x, y in batches():
        model.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        rows.append(np.concatenate([p.grad.double().numpy().reshape(-1) for p in model.parameters()]))
    return np.array(rows)


def test_mean_norm_variance_and_sketch_are_those_of_the_definition():
    rows, arrays = by_definition(), found(mlp(), SKETCH).arrays
    mean = rows.mean(axis=0)
    np.testing.assert_allclose(arrays["sketch"], CountSketch(64, 5)({"w": mean}), rtol=1e-9, atol=1e-12)
    assert [int(arrays[name]) for name in ("sketch-size", "sketch-seed", "batches")] == [64, 5, 3]
    assert arrays["norm"] == pytest.approx(mean @ mean, rel=1e-12)
    assert arrays["variance"] == pytest.approx(((rows - mean) ** 2).sum() / (3 * 2), rel=1e-9)


def test_the_model_is_left_as_it_was_but_in_training_mode_and_its_old_gradients_are_not_used():
    model, used = normalised(0.0).eval(), normalised(0.0)
    before = copy.deepcopy(model.state_dict())
    for parameter in used.parameters():
        parameter.grad = torch.ones_like(parameter)
    assert same(found(used, SKETCH).arrays, found(model, SKETCH).arrays)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert model.training


def test_they_go_into_a_reply_or_into_the_metrics_and_what_is_not_asked_for_costs_nothing():
    reply, metrics = RecordDict(), {"loss": 1.0}

    def no_batches():
        raise AssertionError("read all the same")
        yield

    nothing = found(mlp(), {"server-round": 1}, no_batches())
    nothing.add_to(reply)
    nothing.add_to(metrics)
    assert (nothing.arrays, len(reply), metrics) == ({}, 0, {"loss": 1.0})
    some = found(mlp(), SKETCH)
    some.add_to(reply)
    some.add_to(metrics)
    for name, array in some.arrays.items():
        assert reply["gradients"][name].numpy().tobytes() == array.tobytes()
        assert unpack(metrics)["gradients"][name].tobytes() == array.tobytes()
    with pytest.raises(ConfigError, check=names("encoding of gradients", "full")):
        found(mlp(), {**SKETCH, "gradients": "full"})


def test_frozen_parameters_count_as_zero_and_those_that_are_sent_can_be_named():
    model, mean = mlp(), by_definition().mean(axis=0)
    first = next(model.parameters())
    first.requires_grad_(False)
    mean[: first.numel()] = 0
    trained = [p for p in model.parameters() if p.requires_grad]
    for parameters, values in ((None, mean), (trained, mean[first.numel() :])):
        expected = CountSketch(64, 5)({"w": values})
        sketch = found(model, SKETCH, parameters=parameters).arrays["sketch"]
        np.testing.assert_allclose(sketch, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("sizes", [(), (5,)])
def test_fewer_than_two_batches_have_no_variance_and_say_so(sizes):
    arrays = found(mlp(), SKETCH, batches(sizes)).arrays
    assert (int(arrays["batches"]), float(arrays["variance"])) == (len(sizes), 0)


@pytest.mark.parametrize("kind", [SourceClient, TargetClient])
def test_every_client_sends_them_and_trains_with_the_same_bits(kind):
    one = make(kind, "batchnorm")
    plain, reply = trained(make(kind, "batchnorm")), trained(one, **SKETCH)
    assert same(plain.arrays, reply.arrays)
    sent = reply.records["gradients"]
    assert sent["batches"] == -(-len(one.domain.train) // 11), "batches of the client's own size"
    again, other = (trained(make(kind, "batchnorm"), n, **SKETCH).records["gradients"] for n in (1, 2))
    assert same(sent, again)
    assert sent["variance"] != other["variance"] > 0, "shuffled by the round"


# AdaBN's statistics


def statistics(model):
    return [(layer.running_mean.clone(), layer.running_var.clone()) for layer in batch_norms(model)]


def double():
    """Two BatchNorm layers, one of them behind a linear layer, and dropout."""
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), *list(normalised())[1:])


def test_each_batch_counts_by_its_samples():
    layer = nn.BatchNorm1d(1)
    layer.running_mean.fill_(7.0)
    parts = [torch.tensor(part)[:, None] for part in ([1.0, 3.0], [2.0, 4.0, 6.0], [9.0])]
    with own_statistics(layer, parts):
        # Means 2 and 4, unbiased variances 2 and 4; one sample is no batch.
        ((mean, variance),) = statistics(layer)
        assert (mean.item(), variance.item()) == pytest.approx(((2 * 2 + 3 * 4) / 5,) * 2)
    ((mean, variance),) = statistics(layer)
    assert (mean.item(), variance.item()) == (7, 1)


@pytest.mark.parametrize(("width", "error"), [(64, None), (64, KeyError), (63, None)])
def test_all_is_as_it_was_at_the_end_and_after_an_error(width, error):
    model = double()
    before, momenta = copy.deepcopy(model.state_dict()), [m.momentum for m in batch_norms(model)]
    with contextlib.suppress(KeyError, RuntimeError), own_statistics(model, [torch.randn(8, width)]):
        assert not torch.equal(model.state_dict()["1.running_mean"], before["1.running_mean"])
        assert not any(module.training for module in model.modules())
        if error:
            raise error
    assert [m.momentum for m in batch_norms(model)] == momenta
    assert all(torch.equal(array, before[name]) for name, array in model.state_dict().items())


# AdaBN in our clients


def domain(unlabelled=50, **changes):
    whole = load_federation(SPEC).domains["target"]
    rest = whole.unlabelled.take(np.arange(unlabelled)) if unlabelled else None
    parts = {name: replace(getattr(whole, name), **values) for name, values in changes.items()}
    return replace(whole, unlabelled=rest, **parts)


def target(data=None, model=None, kind=TargetClient):
    model = double() if model is None else model
    return make(kind, model, training=LocalTraining(0.01, 11), domain=domain() if data is None else data)


def scored(client, round=1, adabn=True, **config):
    """The metrics of the client's model as it is."""
    return evaluated(client, round, adabn=adabn, **config).metrics


@pytest.mark.parametrize("unlabelled", [50, 0])
def test_an_evaluation_is_with_the_statistics_of_all_training_samples(unlabelled):
    data, model = domain(unlabelled), double().eval()
    parts = [data.train.x, data.unlabelled.x] if unlabelled else [data.train.x]
    for layer in batch_norms(model):
        layer.momentum = None
        layer.train()
    with torch.no_grad():
        for x in parts:  # as many labelled as unlabelled samples
            inputs = torch.from_numpy(x)
            model(inputs.float() / 255 if x.dtype == np.uint8 else inputs)
    expected, client = scored(target(data, model), adabn=False), target(data)
    before = client.layers()
    first = scored(client)
    assert first["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert first["accuracy"] == expected["accuracy"]
    assert first != scored(target(data), adabn=False)
    assert same(client.layers(), before)
    assert scored(client) == first, "it repeats itself"
    other = domain(unlabelled, train={"y": data.train.y[::-1].copy()})
    assert scored(target(other)) == first, "no label is used"
    noisy = target(domain(unlabelled, train={"noise": 0.5}))
    assert scored(noisy) == scored(noisy) != scored(noisy, 2), "the round draws the noise"


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_without_running_statistics_or_with_one_sample_nothing_changes(noise):
    data = domain(test={"noise": noise})
    bare = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64, track_running_stats=False), nn.Linear(64, 10))
    single = Domain("t", Samples(data.train.x[:1], data.train.y[:1]), data.test)
    for given, model in ((data, mlp()), (data, bare), (single, double())):
        assert scored(target(given, model)) == scored(target(given, model), adabn=False)


def test_a_personal_model_is_evaluated_with_them_and_kept_without():
    one = target()
    trained(one, question=Personalise(penalty=0.5))
    own = kept(one, "personal")
    found = evaluated(one, question=EvaluatePersonal(), adabn=True)
    client = target()
    client.load(own)
    assert found.metrics["loss"] == scored(client)["loss"]
    assert same(kept(one, "personal"), own)


def test_all_members_of_a_mixture_predict_with_them():
    plan = MixturePlan(epochs=(1,), members=("sources", "target", "tuned"))

    def mixed(**config):
        client = target()
        return evaluated(client, question=mixture_of(plan, client.layers()), **config).answer.test

    members, without = mixed(adabn=True), mixed()
    assert members["sources"] == scored(target())["accuracy"]
    assert without["sources"] == scored(target(), adabn=False)["accuracy"]
    client = target()
    trained(client)
    assert members["target"] == scored(client)["accuracy"]
