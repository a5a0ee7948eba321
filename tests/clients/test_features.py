"""pFedFDA's clients, on a frozen body."""

import numpy as np
import pytest
import torch
from digit_clients import evaluated, make, same, trained
from torch import nn

from fda_flower.aggregation import ClassGaussians, choose_share, class_priors
from fda_flower.clients import GaussianSource, GaussianTarget, LocalTraining
from fda_flower.wire.protocol import EvaluateRequest, TrainRequest, to_record

ASKED = {"gaussians": 2, "ridge": 1.0}
EACH = pytest.mark.parametrize("kind", [GaussianSource, GaussianTarget])


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
def test_the_reply_has_the_model_as_it_came_and_a_record(kind):
    client = client_of(kind)
    reply = trained(client, 1, **ASKED)
    assert same(reply.arrays, client_of(kind).layers())
    assert reply.examples == len(client.domain.train)
    assert set(reply.records) == {"gaussians"}
    again = trained(client_of(kind), 1, **ASKED)
    assert same(reply.records["gaussians"], again.records["gaussians"])


@EACH
def test_without_the_setting_it_trains_and_evaluates_as_any_client(kind):
    reply = trained(client_of(kind))
    assert not same(reply.arrays, client_of(kind).layers())
    assert "accuracy-global" not in evaluated(client_of(kind)).metrics


def test_gaussians_are_its_own_at_first_and_then_mixed_with_the_global_ones():
    client = client_of(GaussianTarget)
    x, y = features_of(client)
    own = ClassGaussians.of(x, y, ClassGaussians.initial(10, 16), 1.0)
    reply = trained(client, 1, **ASKED)
    np.testing.assert_allclose(reply.records["gaussians"]["means"], own.means, rtol=1e-5, atol=1e-6)
    assert reply.metrics["own-share"] == 1
    rng = np.random.default_rng(0)
    known = ClassGaussians(rng.standard_normal((10, 16)).astype(np.float32).astype(float), np.eye(16))
    records = {"gaussians": to_record(known.layers())}
    arrays = to_record(client.layers())
    reply = client.local_train(TrainRequest(arrays, {"server-round": 2, **ASKED}, records))
    share = choose_share(x, y, known, 2, 1.0)
    assert reply.metrics["own-share"] == share
    mixed = ClassGaussians.of(x, y, known, 1.0).mixed(known, share)
    np.testing.assert_allclose(reply.records["gaussians"]["means"], mixed.means, rtol=1e-4, atol=1e-5)
    # And it predicts by Bayes' rule.
    found = client.local_evaluate(EvaluateRequest(arrays, {"server-round": 2, **ASKED}, records))
    weight, bias = mixed.discriminant(class_priors(y, 10))
    test = client.domain.test
    with torch.no_grad():
        rows = network()[0](test.x).double().numpy()
    right = ((rows @ weight.T + bias).argmax(axis=1) == test.y.numpy()).mean()
    assert found.metrics["accuracy"] == pytest.approx(right, abs=0.01)
    plain = evaluated(client_of(GaussianTarget))
    assert found.metrics["accuracy-global"] == plain.metrics["accuracy"]
