"""FADA's clients: losses by hand, who trains on what, and a target that alignment helps."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from digit_clients import kept, mlp, same, trained
from tensors import samples_of
from torch import nn
from torch.nn.functional import cross_entropy

from fda_flower.clients import LocalTraining, SourceClient, TargetClient
from fda_flower.clients.fada import (
    OWN,
    Disentangler,
    alignment,
    confusion_loss,
    disentangling,
    domain_identifier,
    generator_loss,
    identifier_loss,
    mutual_information,
)
from fda_flower.datasets import DataSpec, Domain, load_federation
from fda_flower.wire.asked.fada import VECTORS, Align, Disentangle

SPEC = DataSpec("digits", "noise", (("std", 0.1),), target_samples=30, source_samples=40)
TRAINING = LocalTraining(0.01, 16)
WEIGHTS: dict[str, Any] = {"adversarial": 1.0, "mutual_information": 1.0, "reconstruction": 1.0, "vectors": 8}


def source(**more):
    return SourceClient(load_federation(SPEC).domains["source-1"], mlp(), TRAINING, **more)


def target(domain=None):
    return TargetClient(domain or load_federation(SPEC).domains["target"], mlp(), TRAINING)


def disentangled(client, round=1, **changes):
    return trained(client, round, question=Disentangle(**{**WEIGHTS, **changes}))


def aligned(client, round=1, identifiers=(), order=(1, 2), adversarial=0.5):
    """The reply to models that are 1% and 2% larger than the target's."""

    def larger(by):
        return {
            name: np.asarray(array * (1 + by / 100), np.float32) for name, array in client.layers().items()
        }

    rows = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    question = Align(
        adversarial=adversarial,
        vectors=8,
        models={f"source-{i}": larger(i) for i in order},
        features={f"source-{i}": {VECTORS: rows + np.float32(i)} for i in order},
        identifiers=dict(identifiers),
    )
    return trained(client, round, question=question)


# The losses


def test_the_losses_by_hand():
    odds = torch.tensor([[3.0], [1.0]]).log()  # DI = 3/4 and 1/2
    assert float(generator_loss(odds)) == pytest.approx(-(math.log(0.75) + math.log(0.5)) / 2)
    loss = float(identifier_loss(odds, odds[:1]))
    assert loss == pytest.approx(-(math.log(0.75) + math.log(0.5)) / 2 - math.log(0.25))
    shares = torch.tensor([[0.9, 0.1], [0.5, 0.5]]).log()
    assert float(confusion_loss(shares)) == pytest.approx((1.20397 + math.log(2)) / 2, rel=1e-5)
    joint, apart = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [math.log(3)]])
    assert float(mutual_information(joint, apart)) == pytest.approx(1.5 - math.log((1 + 3) / 2))


def with_weight(layer, weight, bias=0.0):
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.fill_(bias)


def by_hand():
    """A network, ``f = x`` with a head of zeros, and a disentangler with ``f_di = f`` and ``f_ds = 2f``."""
    network, own = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 2)), Disentangler(1, 2)
    with_weight(network[0], [[1.0]])
    with_weight(network[1], [[0.0], [0.0]])
    with_weight(own.split, [[1.0], [2.0]])
    with_weight(own.class_identifier, [[0.0], [0.0]])
    with_weight(own.reconstructor, [[1.0, 1.0]])
    return network, own


@pytest.mark.parametrize(
    ("weights", "more"),
    [
        ({}, 0.0),
        ({"reconstruction": 0.5}, 0.5 * (2**2 + 4**2) / 2),  # rebuilt: f + 2f; f is 1 and 2
        ({"adversarial": 3.0}, 3 * math.log(2)),
    ],
)
def test_a_sources_objective_by_hand(weights, more):
    """Three cross entropies and the confusion of outputs of 0 are log 2 each."""
    network, own = by_hand()
    for layer in (own.estimator[0], own.estimator[2]):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    identifier = domain_identifier(1)
    for parameter in identifier.parameters():
        nn.init.zeros_(parameter)
    none = {"adversarial": 0.0, "mutual_information": 0.0, "reconstruction": 0.0, "vectors": 1}
    question = Disentangle(**{**none, **weights})
    objective = disentangling(network, own, question, (1,), cross_entropy, identifier)
    loss = objective(network, torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1]))
    assert float(loss.detach()) == pytest.approx(4 * math.log(2) + more, rel=1e-6)


def test_who_learns_what_from_the_mutual_information():
    """The estimator raises it, the disentangler lowers it, and the body has no part in it."""
    network, own = by_hand()
    question = Disentangle(adversarial=0.0, mutual_information=0.5, reconstruction=0.0, vectors=1)

    def zero(outputs, _):
        return 0 * outputs.sum()

    x = torch.tensor([[1.0], [2.0], [4.0]])
    with torch.no_grad():
        own.class_identifier.weight.zero_()
    objective = disentangling(network, own, question, (1,), zero, None)
    objective(network, x, torch.zeros(3)).backward()
    gradients = [own.split.weight.grad.clone(), own.estimator[0].weight.grad.clone()]
    assert not network[0].weight.grad.any()
    own.zero_grad()
    own.information(*own.parts(network[0](x).detach())).backward()
    assert torch.allclose(gradients[0], 0.5 * own.split.weight.grad)
    assert torch.allclose(gradients[1], -own.estimator[0].weight.grad)
    assert gradients[1].any()


def test_the_targets_objective_by_hand_and_who_learns_from_it():
    network = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 2))
    with_weight(network[0], [[1.0]])
    identifiers = [domain_identifier(1) for _ in range(2)]
    for identifier in identifiers:
        last: Any = identifier[2]
        nn.init.zeros_(last.weight)
        nn.init.constant_(last.bias, math.log(3.0))  # DI = 3/4
    objective = alignment(network, identifiers, [torch.ones(5, 1)] * 2)
    loss = objective(network, torch.ones(3, 1), torch.zeros(3))
    of_identifier, of_body = -math.log(0.75) - math.log(0.25), -math.log(0.75)
    assert float(loss.detach()) == pytest.approx(2 * of_identifier + of_body)
    loss.backward()
    head: Any = network[1]
    first: Any = identifiers[0][2]
    assert head.weight.grad is None
    assert float(first.bias.grad) == pytest.approx(-0.25 + 0.75), "nothing of the body's loss"


# The sources


def test_a_source_keeps_its_disentangler_and_sends_features_of_its_samples_by_its_new_model():
    client = source()
    reply = disentangled(client)
    rows = reply.answer.features[VECTORS]
    assert (rows.shape, rows.dtype, reply.answer.fresh_start) == ((8, 64), "float32", True)
    every = client.passes({"server-round": 1}, "features", client.domain.train).features(reply.arrays)
    assert {row.tobytes() for row in rows} <= {row.tobytes() for row in every.astype(np.float32)}
    assert kept(client, OWN).keys() == Disentangler(64, 10).state_dict().keys()
    assert (reply.examples, reply.metrics["num-steps"]) == (40, 3)
    assert disentangled(client, 2, vectors=100).answer.features[VECTORS].shape == (40, 64)


def test_a_round_done_again_has_the_same_bits_and_the_next_goes_on():
    client = source()
    start = client.layers()
    first = disentangled(client)
    second = disentangled(client, 2)
    assert not second.answer.fresh_start
    again = trained(client, 2, first.arrays, Disentangle(**WEIGHTS))
    third = trained(source(), 2, first.arrays, Disentangle(**WEIGHTS))
    assert same(again.arrays, second.arrays)
    assert not same(third.arrays, second.arrays), "its disentangler is new"
    assert same(trained(client, 1, start, Disentangle(**WEIGHTS)).arrays, first.arrays)


def test_an_identifier_turns_a_sources_features_unless_its_weight_is_0():
    torch.manual_seed(0)
    identifier = {name: tensor.numpy() for name, tensor in domain_identifier(64).state_dict().items()}
    plain = disentangled(source()).arrays
    assert not same(disentangled(source(), identifier=identifier).arrays, plain)
    assert same(disentangled(source(), identifier=identifier, adversarial=0).arrays, plain)


# The target


def test_the_labels_of_the_target_are_never_read_and_no_order_matters():
    domain = load_federation(SPEC).domains["target"]
    expected = aligned(target())
    others = replace(domain, train=replace(domain.train, y=np.full(30, -1)))
    for reply in (aligned(target(others)), aligned(target(), order=(2, 1))):
        assert same(reply.arrays, expected.arrays)
        assert reply.metrics == expected.metrics
        assert reply.answer.gain == expected.answer.gain
    assert expected.examples == 30 + len(domain.unlabelled or ())


def test_without_alignment_the_model_is_the_weighted_mean_of_the_sources():
    client = target()
    start = client.layers()
    reply = aligned(client, adversarial=0)
    gains = np.array([reply.answer.gain[name] for name in ("source-1", "source-2")])
    first = np.exp(gains[0]) / np.exp(gains).sum()
    for name, array in start.items():
        np.testing.assert_allclose(reply.arrays[name], array * (1.01 * first + 1.02 * (1 - first)), rtol=1e-5)
    assert (gains < 0).all(), "larger features are further apart"
    assert reply.answer.dispersion > 0


def test_identifiers_go_on_from_those_before():
    client = target()
    start = client.layers()
    answer = aligned(client).answer
    client.load(start)
    new = aligned(client).answer.identifiers
    assert same(new["source-1"], answer.identifiers["source-1"])
    client.load(start)
    further = aligned(client, identifiers=answer.identifiers).answer.identifiers
    assert not same(further["source-1"], new["source-1"])


# A toy


def blobs(seed, shift):
    """Two classes at -1 and 1 on the first of two axes, of deviation 0.3, and shifted along it."""
    y = np.arange(200) % 2
    x = np.random.default_rng(seed).normal(0, 0.3, (200, 2)) + np.stack([2 * y - 1 + shift, 0 * y], axis=1)
    return samples_of(torch.tensor(x, dtype=torch.float32), torch.tensor(y))


def accuracy_on_a_shifted_target(adversarial, shift=1.3):
    """After 15 rounds with two sources; without alignment the boundary stays at 0."""
    how = LocalTraining(0.02, 20, optimizer="sgd")
    network = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    domains = [Domain(name, blobs(i, 0.0), blobs(i, 0.0)) for i, name in enumerate("ab")]
    sources = [SourceClient(domain, network, how) for domain in domains]
    domain = Domain("t", blobs(2, shift), blobs(3, shift))
    own = TargetClient(domain, network, replace(how, learning_rate=0.05))
    generator = np.random.default_rng(0)
    identifiers: dict[str, Any] = {}
    model = {name: generator.normal(0, 0.5, a.shape).astype(np.float32) for name, a in own.layers().items()}
    for number in range(1, 16):
        question = Disentangle(**{**WEIGHTS, "adversarial": 0.0, "vectors": 200})
        replies = {each.domain.name: trained(each, number, model, question) for each in sources}
        align = Align(
            adversarial=adversarial,
            vectors=200,
            models={name: reply.arrays for name, reply in replies.items()},
            features={name: reply.answer.features for name, reply in replies.items()},
            identifiers=identifiers,
        )
        reply = trained(own, number, model, align)
        model, identifiers = reply.arrays, reply.answer.identifiers
    return own.score(own.single(model, {}), {}).metrics["accuracy"]


def test_alignment_helps_a_target_whose_classes_are_shifted():
    """Measured: 65% and 95%."""
    assert accuracy_on_a_shifted_target(0.0) < 0.7
    assert accuracy_on_a_shifted_target(1.0) > 0.9
