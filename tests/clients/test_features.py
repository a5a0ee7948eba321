"""pFedFDA's clients, on a frozen body."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from digit_clients import evaluated, make, same, trained
from tensors import tensors
from torch import nn

from fda_flower.aggregation import ClassGaussians, choose_share, class_priors
from fda_flower.clients import LocalTraining, SourceClient, TargetClient
from fda_flower.wire.asked.features import EvaluateGaussians, MixGaussians

ASKED = MixGaussians(folds=2, ridge=1.0)
EACH = pytest.mark.parametrize("kind", [SourceClient, TargetClient])


def network():
    """A head on a frozen body of 16 features."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU()).requires_grad_(False)
        return nn.Sequential(body, nn.Linear(16, 10))


def client_of(kind, **more):
    return make(kind, network(), training=LocalTraining(0.01, 10), **more)


def features_of(client):
    x, y = tensors(client.domain.train)
    with torch.no_grad():
        return network()[0](x).double().numpy(), y.numpy()


@EACH
def test_the_reply_has_the_model_as_it_came_and_a_record(kind):
    client = client_of(kind)
    reply = trained(client, 1, question=ASKED)
    assert same(reply.arrays, client_of(kind).layers())
    assert reply.examples == len(client.domain.train)
    assert reply.records == {}
    again = trained(client_of(kind), 1, question=ASKED)
    assert same(reply.answer.gaussians, again.answer.gaussians)


def test_gaussians_are_its_own_at_first_and_then_mixed_with_the_global_ones():
    client = client_of(TargetClient)
    x, y = features_of(client)
    own = ClassGaussians.of(x, y, ClassGaussians.initial(10, 16), 1.0)
    reply = trained(client, 1, question=ASKED)
    np.testing.assert_allclose(reply.answer.gaussians["means"], own.means, rtol=1e-5, atol=1e-6)
    assert reply.answer.own_share == 1
    rng = np.random.default_rng(0)
    known = ClassGaussians(rng.standard_normal((10, 16)).astype(np.float32).astype(float), np.eye(16))
    reply = trained(client, 2, question=replace(ASKED, gaussians=known.layers()))
    share = choose_share(x, y, known, 2, 1.0)
    assert reply.answer.own_share == share
    mixed = ClassGaussians.of(x, y, known, 1.0).mixed(known, share)
    np.testing.assert_allclose(reply.answer.gaussians["means"], mixed.means, rtol=1e-4, atol=1e-5)
    # And it predicts by Bayes' rule.
    asked = EvaluateGaussians(folds=2, ridge=1.0, gaussians=known.layers())
    found = evaluated(client, 2, question=asked)
    weight, bias = mixed.discriminant(class_priors(y, 10))
    test = client.domain.test
    with torch.no_grad():
        rows = network()[0](tensors(test)[0]).double().numpy()
    right = ((rows @ weight.T + bias).argmax(axis=1) == test.y).mean()
    assert found.metrics["accuracy"] == pytest.approx(right, abs=0.01)
