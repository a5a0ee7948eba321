"""IRM's source: the penalty by hand and by automatic differentiation, and its training."""

import numpy as np
import pytest
import torch
from digit_clients import SPEC, make, mlp, same, trained
from tensors import tensors
from torch.nn.functional import cross_entropy

from fda_flower.clients import LocalTraining, SourceClient
from fda_flower.clients.generalisation import PenalisedLoss, scale_penalty
from fda_flower.datasets import Domain, load_federation
from fda_flower.prediction.batches import batches
from fda_flower.wire.asked.generalisation import MeasureLoss, Penalise


def random_batch(n, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(classes, (n,), generator=generator)


def source(samples=None, **training):
    """IRM's source with so many samples, which are its first."""
    domain = load_federation(SPEC).domains["source-1"]
    if samples is not None:
        domain = Domain("source-1", domain.train.take(np.arange(samples)), domain.test)
    settings = LocalTraining(**{"learning_rate": 0.01, "batch_size": 16, **training})
    return make(SourceClient, training=settings, domain=domain)


def slope(logits, y):
    """The derivative of CE at logit scale 1, by automatic differentiation."""
    scale = torch.ones((), dtype=logits.dtype, requires_grad=True)
    return torch.autograd.grad(cross_entropy(scale * logits, y), scale, create_graph=True)[0]


def test_the_penalty_of_two_samples_by_hand():
    # p = (0.8808, 0.1192): the first sample's slope is −2 · 0.1192, the second's 2 · 0.8808.
    logits, y = torch.tensor([[1.0, -1.0], [0.0, 2.0]]), torch.tensor([0, 0])
    assert float(scale_penalty(logits, y)) == pytest.approx(-2 * 0.119203 * 2 * 0.880797, rel=1e-5)
    assert float(scale_penalty(torch.zeros(6, 3), torch.arange(6) % 3)) == 0, "nothing is known"
    assert float(scale_penalty(*random_batch(1))) == 0, "a single sample has no second half"


@pytest.mark.parametrize("n", [2, 3, 16])
def test_the_penalty_and_its_gradient_are_those_of_automatic_differentiation(n):
    logits, y = random_batch(n)
    logits.requires_grad_()
    expected = slope(logits[::2], y[::2]) * slope(logits[1::2], y[1::2])
    found = scale_penalty(logits, y)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, logits)[0], torch.autograd.grad(expected, logits)[0]
    )


def test_the_objective_is_the_loss_plus_the_penalty_and_it_remembers_the_penalties_by_samples():
    objective, parts = PenalisedLoss(5.0), [random_batch(4), random_batch(6, seed=1)]
    losses = [objective(torch.nn.Identity(), logits, y) for logits, y in parts]
    penalties = [float(scale_penalty(*part)) for part in parts]
    for part, loss, penalty in zip(parts, losses, penalties, strict=True):
        assert float(loss) == pytest.approx(float(cross_entropy(*part)) + 5 * penalty)
    assert objective.penalty == pytest.approx((4 * penalties[0] + 6 * penalties[1]) / 10)


def test_one_step_follows_the_gradient_of_loss_and_penalty():
    client, model = source(8, optimizer="sgd", learning_rate=0.5), mlp()
    reply = trained(client, question=Penalise(strength=2.0))
    with client.drawing("train", {"server-round": 1}) as generator:
        ((x, y),) = batches(client.domain.train, 16, generator, shuffle=True)
    logits = model(x)
    penalty = slope(logits[::2], y[::2]) * slope(logits[1::2], y[1::2])
    loss = cross_entropy(logits, y) + 2 * penalty
    loss.backward()
    for name, parameter in model.named_parameters():
        expected = (parameter - 0.5 * parameter.grad).detach().numpy()
        np.testing.assert_allclose(reply.arrays[name], expected, rtol=1e-4, atol=1e-6)
    assert reply.answer.penalty == pytest.approx(penalty.item(), rel=1e-4)
    assert reply.metrics["train-loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_batches_of_one_sample_train_as_without_a_penalty():
    found = trained(source(6, batch_size=1), question=Penalise(strength=100.0))
    assert same(found.arrays, trained(source(6, batch_size=1)).arrays)
    assert found.answer.penalty == 0


def test_the_loss_of_the_received_model_is_measured_and_changes_nothing():
    client = source()
    x, y = tensors(client.domain.train)
    with torch.no_grad():
        expected = float(cross_entropy(client.model(x), y))
    plain, asked = trained(source()), trained(client, question=MeasureLoss())
    assert same(plain.arrays, asked.arrays)
    assert (plain.metrics, asked.answer.loss_at_start) == (asked.metrics, pytest.approx(expected, rel=1e-6))
