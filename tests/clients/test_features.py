"""Clients that tell of their features: pFedFDA's, FedPFT's and MPFT's, on a frozen body."""

from typing import Any

import numpy as np
import pytest
import torch
from digit_clients import evaluated, make, same, state_of, trained
from torch import nn
from torch.nn.functional import cross_entropy

from fda_flower.aggregation import ClassGaussians, choose_share, class_priors, k_means
from fda_flower.clients import (
    GaussianSource,
    GaussianTarget,
    LocalTraining,
    MixturesSource,
    MixturesTarget,
    PrototypesSource,
    PrototypesTarget,
)
from fda_flower.clients.features import distilled
from fda_flower.wire.protocol import EvaluateRequest, TrainRequest, to_record

ASKS: dict[str, tuple[tuple[Any, Any], dict[str, Any]]] = {
    "gaussians": ((GaussianSource, GaussianTarget), {"gaussians": 2, "ridge": 1.0}),
    "mixtures": ((MixturesSource, MixturesTarget), {"mixtures": 2}),
    "prototypes": ((PrototypesSource, PrototypesTarget), {"prototypes": 2}),
}
EACH = pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for name, (kinds, _) in ASKS.items() for kind in kinds]
)


def network():
    """A head on a frozen body of 16 features."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU()).requires_grad_(False)
        return nn.Sequential(body, nn.Linear(16, 10))


def client_of(kind, **more):
    return make(kind, network(), training=LocalTraining(0.01, 10), **more)


def features_of(client):
    x = client.domain.train.x
    with torch.no_grad():
        return network()[0](x).double().numpy(), client.domain.train.y.numpy()


@EACH
def test_the_reply_has_the_model_as_it_came_and_a_record(kind, name):
    client = client_of(kind)
    reply = trained(client, 1, **ASKS[name][1])
    assert same(reply.arrays, client_of(kind).layers())
    assert reply.examples == len(client.domain.train)
    assert set(reply.records) == {name}
    again = trained(client_of(kind), 1, **ASKS[name][1])
    assert same(reply.records[name], again.records[name])


@EACH
def test_without_the_setting_it_trains_and_evaluates_as_any_client(kind, name):
    reply = trained(client_of(kind))
    assert not same(reply.arrays, client_of(kind).layers())
    assert "accuracy-global" not in evaluated(client_of(kind)).metrics


def test_gaussians_are_its_own_at_first_and_then_mixed_with_the_global_ones():
    client, asked = client_of(GaussianTarget), ASKS["gaussians"][1]
    x, y = features_of(client)
    own = ClassGaussians.of(x, y, ClassGaussians.initial(10, 16), 1.0)
    reply = trained(client, 1, **asked)
    np.testing.assert_allclose(reply.records["gaussians"]["means"], own.means, rtol=1e-5, atol=1e-6)
    assert reply.metrics["own-share"] == 1
    rng = np.random.default_rng(0)
    known = ClassGaussians(rng.standard_normal((10, 16)).astype(np.float32).astype(float), np.eye(16))
    records = {"gaussians": to_record(known.layers())}
    arrays = to_record(client.layers())
    reply = client.local_train(TrainRequest(arrays, {"server-round": 2, **asked}, records))
    share = choose_share(x, y, known, 2, 1.0)
    assert reply.metrics["own-share"] == share
    mixed = ClassGaussians.of(x, y, known, 1.0).mixed(known, share)
    np.testing.assert_allclose(reply.records["gaussians"]["means"], mixed.means, rtol=1e-4, atol=1e-5)
    # And it predicts by Bayes' rule.
    found = client.local_evaluate(EvaluateRequest(arrays, {"server-round": 2, **asked}, records))
    weight, bias = mixed.discriminant(class_priors(y, 10))
    test = client.domain.test
    with torch.no_grad():
        rows = network()[0](test.x).double().numpy()
    right = ((rows @ weight.T + bias).argmax(axis=1) == test.y.numpy()).mean()
    assert found.metrics["accuracy"] == pytest.approx(right, abs=0.01)
    plain = evaluated(client_of(GaussianTarget))
    assert found.metrics["accuracy-global"] == plain.metrics["accuracy"]


def test_mixtures_and_prototypes_are_those_of_each_class():
    client = client_of(MixturesTarget)
    x, y = features_of(client)
    one = trained(client, 1, mixtures=1).records["mixtures"]
    assert one["counts"].tolist() == np.bincount(y, minlength=10).tolist()
    prototypes = trained(client_of(PrototypesTarget), 1, prototypes=1).records["prototypes"]
    for label in np.unique(y):
        mean = x[y == label].mean(axis=0)
        np.testing.assert_allclose(one["means"][label, 0], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(prototypes["centres"][label, 0], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            one["variances"][label, 0], x[y == label].var(axis=0), rtol=1e-4, atol=1e-6
        )
    few = trained(client_of(PrototypesTarget), 1, prototypes=50).records["prototypes"]
    counts = [len(k_means(x[y == label], 50, 0)[0]) if label in y else 0 for label in range(10)]
    assert few["used"].sum(axis=1).tolist() == counts


def test_the_target_adapts_the_head_in_each_evaluation_and_keeps_nothing():
    client = client_of(PrototypesTarget)
    model = state_of(network()[1])
    before = {f"1.{name}": array for name, array in model.items()}
    found = evaluated(client, 1, before, distillation=0.5)
    assert found.metrics == evaluated(client_of(PrototypesTarget), 1, before, distillation=0.5).metrics
    assert found.metrics["loss"] != found.metrics["loss-global"]
    far = evaluated(client_of(PrototypesTarget), 1, before, distillation=1e4)
    change = [
        abs(float(str(each.metrics["loss"])) - float(str(found.metrics["loss-global"])))
        for each in (far, found)
    ]
    assert change[0] < change[1]


def test_the_objective_adds_the_divergence_from_the_teacher():
    torch.manual_seed(0)
    model, teacher = nn.Linear(3, 4), nn.Linear(3, 4)
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 0])
    plain = lambda network, x, y: cross_entropy(network(x), y)  # noqa: E731
    found = distilled(plain, teacher, 0.5)(model, x, y)
    p, q = teacher(x).softmax(dim=1), model(x).softmax(dim=1)
    divergence = (p * (p.log() - q.log())).sum(dim=1).mean()
    expected = (plain(model, x, y) + 0.5 * divergence).item()
    assert found.item() == pytest.approx(expected, rel=1e-5)
    found.backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())
