"""AdaBN on the client: running statistics of its own samples, by hand and against torch."""

import copy
import doctest
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fda_flower.clients import (
    DittoTarget,
    DomainClient,
    FedDAFTarget,
    LocalTraining,
    MixturePlan,
    MixtureTarget,
    TargetClient,
    gradients,
)
from fda_flower.clients.gradients import own_statistics
from fda_flower.datasets import DataSpec, Domain, Samples, load_federation
from fda_flower.models import build_model
from fda_flower.models.parts import batch_norms
from fda_flower.wire.protocol import EvaluateRequest, TrainRequest, to_record

SPEC = DataSpec("digits", "rotate", target_samples=40)
ASK = {"server-round": 1, "adabn": True}


def network() -> nn.Sequential:
    """Two BatchNorm layers, one of them behind a linear layer, and dropout."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers: list[nn.Module] = [nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 16), nn.BatchNorm1d(16)]
        return nn.Sequential(*layers, nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 10))


def plain() -> nn.Module:
    federation = load_federation(SPEC)
    return build_model("mlp", federation.shape, federation.classes, seed=0)


def domain(unlabelled: int | None = 40) -> Domain:
    """The target with so many unlabelled samples."""
    whole = load_federation(SPEC).domains["target"]
    if unlabelled is None:
        return replace(whole, unlabelled=None)
    assert whole.unlabelled is not None
    return replace(whole, unlabelled=whole.unlabelled.take(torch.arange(unlabelled)))


def make(data: Domain | None = None, model: nn.Module | None = None, kind: Any = TargetClient) -> Any:
    training = LocalTraining(0.01, 11)
    return kind(domain() if data is None else data, network() if model is None else model, training)


def evaluated(client: DomainClient, **config: Any) -> Any:
    """The metrics of the client's model as it is."""
    request = EvaluateRequest(to_record(client.layers()), {**ASK, **config})
    return client.local_evaluate(request).metrics


# By hand


def test_each_batch_counts_by_its_samples() -> None:
    layer = nn.BatchNorm1d(1)
    batches = [torch.tensor([[1.0], [3.0]]), torch.tensor([[2.0], [4.0], [6.0]])]
    with own_statistics(layer, batches):
        # Means 2 and 4, unbiased variances 2 and 4.
        assert layer.running_mean is not None
        assert layer.running_var is not None
        assert layer.running_mean.item() == pytest.approx((2 * 2 + 3 * 4) / 5)
        assert layer.running_var.item() == pytest.approx((2 * 2 + 3 * 4) / 5)
    assert (layer.running_mean.item(), layer.running_var.item()) == (0, 1)


def test_one_batch_of_all_samples_is_the_direct_computation() -> None:
    x = torch.randn(50, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    layer = nn.BatchNorm2d(3)
    with own_statistics(layer, [x]):
        torch.testing.assert_close(layer.running_mean, x.mean(dim=(0, 2, 3)))
        torch.testing.assert_close(layer.running_var, x.transpose(0, 1).flatten(1).var(dim=1))


def test_batches_of_one_size_give_what_momentum_none_gives() -> None:
    x = torch.randn(60, 64, generator=torch.Generator().manual_seed(1)) * 3 + 1
    model, reference = network(), network()
    for layer in batch_norms(reference):
        layer.momentum = None
        layer.reset_running_stats()
        layer.train()
    reference[4].eval()
    with torch.no_grad():
        for part in x.split(20):
            reference(part)
    with own_statistics(model, x.split(20)):
        for layer, expected in zip(batch_norms(model), batch_norms(reference), strict=True):
            torch.testing.assert_close(layer.running_mean, expected.running_mean)
            torch.testing.assert_close(layer.running_var, expected.running_var)


def test_the_statistics_before_do_not_count() -> None:
    model = network()
    with own_statistics(model, [torch.ones(4, 64) * torch.arange(4.0)[:, None]]):
        first = [layer.running_mean.clone() for layer in batch_norms(model)]
    for layer in batch_norms(model):
        layer.running_mean.fill_(7.0)
    with own_statistics(model, [torch.ones(4, 64) * torch.arange(4.0)[:, None]]):
        for layer, expected in zip(batch_norms(model), first, strict=True):
            torch.testing.assert_close(layer.running_mean, expected)


def test_all_is_as_it_was_at_the_end_and_after_an_error() -> None:
    model = network()
    before, momenta = copy.deepcopy(model.state_dict()), [m.momentum for m in batch_norms(model)]
    with own_statistics(model, [torch.randn(8, 64)]):
        assert not torch.equal(model.state_dict()["1.running_mean"], before["1.running_mean"])
        assert not any(module.training for module in model.modules())
    assert all(torch.equal(array, before[name]) for name, array in model.state_dict().items())
    with pytest.raises(KeyError), own_statistics(model, [torch.randn(8, 64)]):
        raise KeyError
    with pytest.raises(RuntimeError), own_statistics(model, [torch.randn(8, 63)]):
        pass
    assert [m.momentum for m in batch_norms(model)] == momenta
    assert all(torch.equal(array, before[name]) for name, array in model.state_dict().items())


def test_a_batch_of_one_sample_is_left_out() -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    model = network()
    with own_statistics(model, [x, x[:1]]):
        expected = model.state_dict()["3.running_var"].clone()
    with own_statistics(model, [x[:1], x]):
        assert torch.equal(model.state_dict()["3.running_var"], expected)
    with own_statistics(model, [x[:1]]):
        assert model.state_dict()["3.running_var"].tolist() == [1] * 16


def test_the_example() -> None:
    assert doctest.testmod(gradients).failed == 0


# The client


@pytest.mark.parametrize("unlabelled", [40, None])
def test_an_evaluation_is_with_the_statistics_of_all_training_samples(unlabelled: int | None) -> None:
    data = domain(unlabelled)
    parts = [data.train.x, *([data.unlabelled.x] if data.unlabelled is not None else [])]
    inputs = [x.float() / 255 if x.dtype == torch.uint8 else x for x in parts]
    model = network()
    for layer in batch_norms(model):
        layer.momentum = None
    with torch.no_grad():
        model.train()
        model[4].eval()
        for x in inputs:  # as many labelled as unlabelled samples
            model(x)
    expected = evaluated(make(data, model), adabn=False)
    found = evaluated(make(data))
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert found["accuracy"] == expected["accuracy"]
    assert found != evaluated(make(data), adabn=False)


def test_no_label_is_used() -> None:
    data = domain()
    other = replace(data, train=replace(data.train, y=data.train.y.flip(0)))
    assert evaluated(make(other)) == evaluated(make(data))


def test_the_model_is_left_as_it_was_and_the_evaluation_repeats_itself() -> None:
    client = make()
    before = client.layers()
    first = evaluated(client)
    assert all(np.array_equal(array, before[name]) for name, array in client.layers().items())
    assert evaluated(client) == first


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_without_running_statistics_nothing_changes(noise: float) -> None:
    data = domain()
    data = replace(data, test=replace(data.test, noise=noise))
    assert evaluated(make(data, plain())) == evaluated(make(data, plain()), adabn=False)
    unnormalised = nn.Sequential(
        nn.Flatten(), nn.BatchNorm1d(64, track_running_stats=False), nn.Linear(64, 10)
    )
    assert evaluated(make(data, unnormalised)) == evaluated(make(data, unnormalised), adabn=False)


def test_the_noise_of_the_domain_is_drawn_by_the_round() -> None:
    data = domain()
    data = replace(data, train=replace(data.train, noise=0.5))
    first = evaluated(make(data))
    assert evaluated(make(data)) == first
    assert evaluated(make(data), **{"server-round": 2}) != first


def request(client: Any, **config: Any) -> Any:
    settings = {"server-round": 1, "evaluate-trained": True, **config}
    return client.local_train(TrainRequest(to_record(client.layers()), settings))


@pytest.mark.parametrize("guidance", [False, True])
def test_a_model_that_is_evaluated_after_training_is_replied_as_it_was_trained(guidance: bool) -> None:
    more = {"guidance": True} if guidance else {}
    found, without = request(make(), adabn=True, **more), request(make(), **more)
    assert found.metrics["eval-loss"] != without.metrics["eval-loss"]
    client = make()
    client.load(found.arrays)
    assert found.metrics["eval-loss"] == evaluated(client)["loss"]
    pairs = zip(found.records.values(), without.records.values(), strict=True)
    for one, other in ((found.arrays, without.arrays), *pairs):
        assert all(np.array_equal(array, other[name]) for name, array in one.items())


def test_dittos_personal_model_is_evaluated_with_them_and_kept_without() -> None:
    clients = [make(kind=DittoTarget) for _ in range(2)]
    found, _ = (
        request(client, personal=0.5, adabn=gradients)
        for client, gradients in zip(clients, (True, False), strict=True)
    )
    (one, _), (other, _) = (client.own_state.load("ditto") for client in clients)
    assert all(one[name].tobytes() == array.tobytes() for name, array in other.items())
    client = make()
    client.load(one)
    assert found.metrics["eval-loss"] == evaluated(client)["loss"]


def test_feddafs_adapted_model_is_trained_from_as_without() -> None:
    found, without = (request(make(kind=FedDAFTarget), mu=5.0, **more) for more in ({"adabn": True}, {}))
    for name, array in without.records["adapted"].items():
        assert found.records["adapted"][name].tobytes() == array.tobytes()


def test_all_members_of_a_mixture_predict_with_them() -> None:
    def mixed(**config: Any) -> Any:
        client = make(kind=MixtureTarget)
        first = to_record(client.layers())
        settings: dict[str, Any] = {"server-round": 1, "first-round": 1, "report": "full"}
        plan = MixturePlan(epochs=(1,), members=("sources", "target", "tuned")).to_text()
        asked = EvaluateRequest(first, {**settings, "mixture": plan, **config}, {"first": first})
        return client.local_evaluate(asked).metrics

    found, without = mixed(adabn=True), mixed()
    assert found["test.sources"] == evaluated(make())["accuracy"]
    assert without["test.sources"] == evaluated(make(), adabn=False)["accuracy"]
    client = make()
    client.load(client.train_from(client.layers(), {"server-round": 1}).arrays)
    assert found["test.target"] == evaluated(client)["accuracy"]


def test_a_single_sample_is_no_batch() -> None:
    one = domain(None)
    single = Domain("t", Samples(one.train.x[:1], one.train.y[:1]), one.test)
    assert evaluated(make(single)) == evaluated(make(single), adabn=False)
