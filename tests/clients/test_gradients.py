"""Gradients of the received model, and AdaBN's statistics: by hand, against torch, and in our clients."""

import contextlib
import copy
import doctest
from dataclasses import replace

import numpy as np
import pytest
import torch
from digit_clients import SPEC, evaluated, kept, make, mlp, normalised, same, shifted, trained
from flwr.app import RecordDict
from naming import names
from torch import nn

from fda_flower.aggregation import CountSketch
from fda_flower.clients import (
    DittoTarget,
    FedDAFTarget,
    LocalTraining,
    MixturePlan,
    MixtureTarget,
    SourceClient,
    TargetClient,
    batch_gradients,
    gradients,
)
from fda_flower.clients.gradients import own_statistics
from fda_flower.clients.training import mean_gradient
from fda_flower.datasets import Domain, Samples, load_federation
from fda_flower.errors import ConfigError
from fda_flower.models.parts import batch_norms
from fda_flower.wire.numpy_client import unpack
from fda_flower.wire.protocol import EvaluateRequest, to_record

FULL = {"gradients": "full"}
SKETCH = {"gradients": "sketch", "sketch-size": 64, "sketch-seed": 5}


def test_the_examples_hold():
    assert doctest.testmod(gradients) == (0, 8)


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
    rows, full, sketch = by_definition(), found(mlp(), FULL).arrays, found(mlp(), SKETCH).arrays
    mean = rows.mean(axis=0)
    np.testing.assert_allclose(full["full"], mean, rtol=1e-6, atol=1e-9)
    assert full["full"].dtype == np.float32
    np.testing.assert_allclose(sketch["sketch"], CountSketch(64, 5)({"w": mean}), rtol=1e-9, atol=1e-12)
    assert [int(sketch[name]) for name in ("sketch-size", "sketch-seed")] == [64, 5]
    for arrays in (full, sketch):
        assert arrays["norm"] == pytest.approx(mean @ mean, rel=1e-12)
        assert arrays["variance"] == pytest.approx(((rows - mean) ** 2).sum() / (3 * 2), rel=1e-9)
        assert arrays["batches"] == 3


def test_the_model_is_left_as_it_was_but_in_training_mode():
    model = normalised().eval()
    before = copy.deepcopy(model.state_dict())
    found(model, FULL)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert model.training


def test_a_gradient_left_from_before_is_not_used():
    used = mlp()
    for parameter in used.parameters():
        parameter.grad = torch.ones_like(parameter)
    assert same(found(used, FULL).arrays, found(mlp(), FULL).arrays, ["full"])


def test_what_is_not_asked_for_costs_nothing():
    def no_batches():
        raise AssertionError("read all the same")
        yield

    nothing = found(mlp(), {"server-round": 1}, no_batches())
    reply, metrics = RecordDict(), {"loss": 1.0}
    nothing.add_to(reply)
    nothing.add_to(metrics)
    assert nothing.arrays == {}
    assert len(reply) == 0
    assert metrics == {"loss": 1.0}


def test_they_go_into_a_reply_or_into_the_metrics_of_a_numpy_client():
    some, reply, metrics = found(mlp(), SKETCH), RecordDict(), {}
    some.add_to(reply)
    some.add_to(metrics)
    for name, array in some.arrays.items():
        assert reply["gradients"][name].numpy().tobytes() == array.tobytes()
        assert unpack(metrics)["gradients"][name].tobytes() == array.tobytes()


def test_frozen_parameters_count_as_zero_and_those_that_are_sent_can_be_named():
    model = mlp()
    first = next(model.parameters())
    first.requires_grad_(False)
    whole = found(model, FULL).arrays["full"]
    assert not whole[: first.numel()].any()
    part = found(model, FULL, parameters=[p for p in model.parameters() if p.requires_grad]).arrays["full"]
    np.testing.assert_array_equal(part, whole[first.numel() :])


@pytest.mark.parametrize("sizes", [(), (5,)])
def test_fewer_than_two_batches_have_no_variance_and_say_so(sizes):
    arrays = found(mlp(), FULL, batches(sizes)).arrays
    assert (int(arrays["batches"]), float(arrays["variance"])) == (len(sizes), 0)


def test_another_encoding_is_refused():
    with pytest.raises(ConfigError, check=names("encoding of gradients", "norms")):
        found(mlp(), {"gradients": "norms"})


def test_feddafs_mean_gradient_is_the_same_mean():
    x, y = (torch.cat(parts) for parts in zip(*batches((10, 10, 10)), strict=True))
    mean = mean_gradient(mlp(), Samples(x, y), LocalTraining(0.1, 10), torch.Generator())
    full = found(mlp(), FULL, [(x[i : i + 10], y[i : i + 10]) for i in (0, 10, 20)]).arrays["full"]
    flat = np.concatenate([g.reshape(-1) for g in mean.values()])
    np.testing.assert_allclose(flat, full, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kind", [SourceClient, TargetClient, DittoTarget])
@pytest.mark.parametrize("asked", [FULL, SKETCH])
def test_every_client_sends_them_and_trains_with_the_same_bits(kind, asked):
    one, start = make(kind, "batchnorm"), normalised()
    size = 64 if asked is SKETCH else sum(p.numel() for p in start.parameters())
    plain, reply = trained(make(kind, "batchnorm")), trained(one, **asked)
    assert same(plain.arrays, reply.arrays)
    sent = reply.records["gradients"]
    assert sent[asked["gradients"]].shape == (size,)
    assert sent["batches"] == -(-len(one.domain.train) // 11), "batches of the client's own size"
    again, other = (trained(make(kind, "batchnorm"), n, **asked).records["gradients"] for n in (1, 2))
    assert same(sent, again)
    assert sent["variance"] != other["variance"] > 0, "shuffled by the round"


# AdaBN's statistics


def points(n=60, seed=1):
    return torch.randn(n, 64, generator=torch.Generator().manual_seed(seed)) * 3 + 1


def statistics(model):
    return [(layer.running_mean.clone(), layer.running_var.clone()) for layer in batch_norms(model)]


def double():
    """Two BatchNorm layers, one of them behind a linear layer, and dropout."""
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), *list(normalised())[1:])


def test_each_batch_counts_by_its_samples():
    layer = nn.BatchNorm1d(1)
    with own_statistics(layer, [torch.tensor([[1.0], [3.0]]), torch.tensor([[2.0], [4.0], [6.0]])]):
        # Means 2 and 4, unbiased variances 2 and 4.
        ((mean, variance),) = statistics(layer)
        assert (mean.item(), variance.item()) == pytest.approx(((2 * 2 + 3 * 4) / 5,) * 2)
    ((mean, variance),) = statistics(layer)
    assert (mean.item(), variance.item()) == (0, 1)


def test_one_batch_of_all_samples_is_the_direct_computation():
    x = torch.randn(50, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    layer = nn.BatchNorm2d(3)
    with own_statistics(layer, [x]):
        torch.testing.assert_close(layer.running_mean, x.mean(dim=(0, 2, 3)))
        torch.testing.assert_close(layer.running_var, x.transpose(0, 1).flatten(1).var(dim=1))


@pytest.mark.parametrize("before", [0.0, 7.0])
def test_batches_of_one_size_give_what_momentum_none_gives_whatever_was_before(before):
    model, reference = double(), double().eval()
    for layer in batch_norms(model):
        layer.running_mean.fill_(before)
    for layer in batch_norms(reference):
        layer.momentum = None
        layer.train()
    with torch.no_grad():
        for part in points().split(20):
            reference(part)
    with own_statistics(model, [*points().split(20), points(1)]):  # one sample is no batch
        torch.testing.assert_close(statistics(model), statistics(reference))
    with own_statistics(model, [points(1)]):
        assert statistics(model)[0][0].tolist() == [before] * 64


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
    rest = whole.unlabelled.take(torch.arange(unlabelled)) if unlabelled else None
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
            model(x.float() / 255 if x.dtype == torch.uint8 else x)
    expected, client = scored(target(data, model), adabn=False), target(data)
    before = client.layers()
    first = scored(client)
    assert first["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert first["accuracy"] == expected["accuracy"]
    assert first != scored(target(data), adabn=False)
    assert same(client.layers(), before)
    assert scored(client) == first, "it repeats itself"
    other = domain(unlabelled, train={"y": data.train.y.flip(0)})
    assert scored(target(other)) == first, "no label is used"


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_without_running_statistics_or_with_one_sample_nothing_changes(noise):
    data = domain(test={"noise": noise})
    bare = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64, track_running_stats=False), nn.Linear(64, 10))
    single = Domain("t", Samples(data.train.x[:1], data.train.y[:1]), data.test)
    for given, model in ((data, mlp()), (data, bare), (single, double())):
        assert scored(target(given, model)) == scored(target(given, model), adabn=False)


def test_the_noise_of_the_domain_is_drawn_by_the_round():
    data = domain(train={"noise": 0.5})
    first = scored(target(data))
    assert scored(target(data)) == first
    assert scored(target(data), 2) != first


def asked(client, **config):
    return trained(client, **{"evaluate-trained": True, **config})


@pytest.mark.parametrize("more", [{}, {"guidance": True}])
def test_a_model_that_is_evaluated_after_training_is_replied_as_it_was_trained(more):
    one, without, client = asked(target(), adabn=True, **more), asked(target(), **more), target()
    client.load(one.arrays)
    assert one.metrics["eval-loss"] == scored(client)["loss"] != without.metrics["eval-loss"]
    assert same(one.arrays, without.arrays)
    assert all(same(record, without.records[name]) for name, record in one.records.items())


def test_dittos_personal_model_is_evaluated_with_them_and_kept_without():
    clients = [target(kind=DittoTarget) for _ in range(2)]
    reply, _ = (asked(each, personal=0.5, adabn=on) for each, on in zip(clients, (True, False), strict=True))
    own = kept(clients[0], "ditto")
    assert same(own, kept(clients[1], "ditto"))
    client = target()
    client.load(own)
    assert reply.metrics["eval-loss"] == scored(client)["loss"]


def test_feddafs_adapted_model_is_trained_from_as_without():
    replies = []
    for more in ({"adabn": True}, {}):
        client = target(kind=FedDAFTarget)
        start = client.layers()
        asked(client, mu=5.0, **more)
        replies.append(trained(client, 2, shifted(start, 0.01), mu=5.0, **more).records["adapted"])
    assert same(*replies)


def test_all_members_of_a_mixture_predict_with_them():
    plan = MixturePlan(epochs=(1,), members=("sources", "target", "tuned")).to_text()

    def mixed(**config):
        client = target(kind=MixtureTarget)
        first = to_record(client.layers())
        settings = {"server-round": 1, "first-round": 1, "report": "full", "mixture": plan, **config}
        return client.local_evaluate(EvaluateRequest(first, settings, {"first": first})).metrics

    members, without = mixed(adabn=True), mixed()
    assert members["test.sources"] == scored(target())["accuracy"]
    assert without["test.sources"] == scored(target(), adabn=False)["accuracy"]
    client = target()
    trained(client)
    assert members["test.target"] == scored(client)["accuracy"]
