"""DP-SGD on a linear head: clipping against autograd, noise, draws, and what it refuses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naming import names
from tensors import samples_of, tensors
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from fda_flower.clients import LocalTraining
from fda_flower.clients.patient_steps import Draw, clipped_sum, residuals_of, train_patients
from fda_flower.errors import ConfigError
from fda_flower.site.noise import PatientPrivacy

EXACT = PatientPrivacy(clip=0.5, noise=1e-12, delta=1e-5, seed=3)
SGD = LocalTraining(0.1, 100, optimizer="sgd")


def linear(bias=True):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=bias))


def rows(n=12, regression=False, groups=None):
    torch.manual_seed(1)
    y = torch.randn(n, 3) if regression else torch.arange(n) % 3
    return samples_of(torch.randn(n, 4), y, groups=groups)


def gradients_by_autograd(model, samples):
    """One gradient for each sample, as a vector."""
    loss = cross_entropy if samples.task == "classes" else mse_loss
    found = []
    for x, y in zip(*tensors(samples), strict=True):
        parts = torch.autograd.grad(loss(model(x[None]), y[None]), list(model.parameters()))
        found.append(torch.cat([part.flatten() for part in parts]).double())
    return torch.stack(found)


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).double()


def trained(samples, privacy=EXACT, training=SGD, model=None, **more):
    model = linear() if model is None else model
    steps = train_patients(model, samples, training, torch.Generator(), privacy, **more)
    return model, steps


@given(st.integers(1, 6), st.floats(0.01, 10), st.booleans(), st.booleans())
def test_the_clipped_sum_is_that_of_gradients_made_one_by_one(n, clip, bias, regression):
    model, samples = linear(bias), rows(n, regression)
    gradients = gradients_by_autograd(model, samples)
    shares = torch.linspace(0.5, 1, n, dtype=torch.float64)
    norms = gradients.norm(dim=1)
    expected = (shares * (clip / norms).clamp_max(1)) @ gradients
    x, y = tensors(samples)
    with torch.no_grad():
        residuals = residuals_of(model(x).double(), y)
    found = clipped_sum(x.double(), residuals, shares, clip, bias)
    parts = [found[:, :4].flatten(), found[:, 4]] if bias else [found.flatten()]
    torch.testing.assert_close(torch.cat(parts), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("regression", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_step_of_a_site_smaller_than_a_batch_takes_all_patients(regression, bias):
    samples, model = rows(regression=regression), linear(bias)
    gradients = gradients_by_autograd(model, samples)
    clipped = (0.5 / gradients.norm(dim=1)).clamp_max(1)
    expected = flat(model) - 0.1 * clipped @ gradients / 12
    _, steps = trained(samples, model=model)
    torch.testing.assert_close(flat(model), expected, rtol=1e-4, atol=1e-5)
    assert steps == (1e-12, 1.0, 1)


def test_a_patient_counts_once_however_many_rows_there_are():
    samples = rows(6, groups=torch.tensor([5, 5, 5, 7, 8, 8]))
    start = flat(linear())
    with_all, steps = trained(samples)
    without, _ = trained(samples.take(np.arange(3, 6)))
    # Sums, since a step divides by the number of patients.
    sums = [(start - flat(model)) * patients for model, patients in ((with_all, 3), (without, 2))]
    assert float((sums[0] - sums[1]).norm()) <= 0.1 * 0.5 + 1e-6
    assert steps[1:] == (1.0, 1)


def test_the_noise_has_the_deviation_of_clip_and_multiplier():
    samples = samples_of(torch.zeros(10, 400), torch.zeros(10, dtype=torch.int64))
    model = nn.Sequential(nn.Linear(400, 50))
    before = flat(model)
    privacy = replace(EXACT, clip=2.0, noise=3.0)
    trained(samples, privacy, model=model)
    # 0.1 · z C / n; of zero features alone the bias has a gradient.
    found = (flat(model) - before)[: 400 * 50] / (0.1 * 3.0 * 2.0 / 10)
    assert float(found.std()) == pytest.approx(1, abs=0.02)
    assert float(found.mean()) == pytest.approx(0, abs=0.02)


def test_patients_are_drawn_one_by_one_with_the_rate():
    n, counts = 200, []

    def count(features, residuals, *rest):
        counts.append(len(features))
        return clipped_sum(features, residuals, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fda_flower.clients.patient_steps.clipped_sum", count)
        _, steps = trained(rows(n), training=replace(SGD, batch_size=20, epochs=20))
    assert steps == (1e-12, 0.1, 200)
    # Binomial: mean 20, deviation √18.
    assert np.mean(counts) == pytest.approx(20, abs=1.2)
    assert np.std(counts) == pytest.approx(18**0.5, abs=0.9)


def test_a_step_does_not_tell_how_many_it_drew(monkeypatch):
    monkeypatch.setattr(
        "fda_flower.clients.patient_steps.clipped_sum", lambda *sums: torch.ones(3, 5, dtype=torch.float64)
    )
    start = flat(linear())
    model, steps = trained(rows(40), training=replace(SGD, batch_size=10))
    torch.testing.assert_close(start - flat(model), torch.full((15,), steps[2] * 0.1 / 10).double())


def test_a_step_may_draw_nobody():
    model, steps = trained(rows(40), training=replace(SGD, batch_size=1), privacy=replace(EXACT, noise=1.0))
    assert steps[2] == 40
    assert flat(model).isfinite().all()


def test_noise_and_draws_follow_from_the_sites_seed_alone():
    training, noisy = replace(SGD, batch_size=3), replace(EXACT, noise=1.0)
    first, second, other = (
        flat(trained(rows(), replace(noisy, seed=seed), training)[0]) for seed in (3, 3, 4)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    # Without a seed they are the operating system's: nobody can repeat them.
    secret = [flat(trained(rows(), replace(noisy, seed=-1), training)[0]) for _ in range(2)]
    assert not torch.equal(*secret)


def test_a_servers_infinite_weight_does_not_show_who_is_there():
    model = linear()
    with torch.no_grad():
        model[1].weight[0, 0] = torch.inf
    samples = rows()
    samples.x[3, 0] = 0.0  # whose output alone is not a number
    trained(samples, model=model)
    rest = flat(model)[1:]
    assert rest.isfinite().all()


def test_the_penalty_draws_to_the_model_that_the_round_began_with():
    strong = LocalTraining(0.1, 100, epochs=2, optimizer="sgd", proximal=10.0)
    start = flat(linear())
    one, _ = trained(rows(), training=SGD)
    two, _ = trained(rows(), training=strong)
    # With η μ = 1 the second step forgets the first.
    assert float((flat(two) - start).norm()) < 1.1 * float((flat(one) - start).norm())


@pytest.mark.parametrize(("n", "size", "expected"), [(10, 4, (0.4, 3)), (4, 4, (1.0, 1)), (3, 4, (1.0, 1))])
def test_the_rate_is_a_batch_of_the_patients(n, size, expected):
    draw = Draw.of(n, LocalTraining(0.1, size))
    assert (draw.rate, draw.steps) == expected


class Scaled(nn.Linear):
    def forward(self, input):
        return super().forward(input / input.norm())


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)),
        nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)),
        nn.Sequential(Scaled(4, 3)),
    ],
    ids=["a layer before", "BatchNorm", "another layer"],
)
def test_networks_that_train_more_than_a_linear_layer_are_refused(network):
    with pytest.raises(ConfigError, check=names("dp-unit", "patient")):
        trained(rows(), model=network)


def test_what_is_frozen_before_the_head_makes_features_and_stays():
    body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).requires_grad_(False)
    model = nn.Sequential(body, nn.Linear(4, 3))
    before: dict[str, Any] = {name: value.clone() for name, value in model.state_dict().items()}
    trained(rows(), model=model)
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {"1.weight", "1.bias"}


def test_weights_of_classes_are_refused():
    with pytest.raises(ConfigError, check=names("class-weights", "balanced")):
        trained(rows(), training=replace(SGD, class_weights="balanced"))
