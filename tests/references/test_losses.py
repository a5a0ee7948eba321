"""The losses of centralised references, by hand and by brute force."""

import copy
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from fda_flower import ConfigError
from fda_flower.models.parts import PrototypeHead, features_of, head_of
from fda_flower.references.losses import (
    CORAL,
    ERM,
    GAMMAS,
    MMD,
    Entropy,
    MinimaxEntropy,
    Mixup,
    SourceTarget,
    Step,
    entropy,
    kernel_gap,
    moment_gap,
)

SIZES = (5, 4, 6)


def number(tensor):
    return tensor.item()


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def batch(size, seed):
    labels = torch.randint(3, (size,), generator=torch.Generator().manual_seed(seed))
    return draw(size, 4, seed=seed), labels


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


@pytest.fixture
def step():
    """A step with three sources whose batches are not equal."""
    sources = [batch(size, seed) for seed, size in enumerate(SIZES)]
    return Step(sources, batch(2, 7), draw(8, 4, seed=8), np.random.default_rng(0))


@pytest.fixture
def network(model):
    """The same network with MME's head, hot enough that nothing is saturated."""
    SourceTarget(temperature=0.5).prepare(model, draw(1, 4))
    return model


# The gaps


def test_the_moment_gap_is_a_mean_over_entries_of_means_and_of_covariances():
    a, b = draw(7, 3, seed=1), 2 * draw(5, 3, seed=2) + 1
    x, y = a.double().numpy(), b.double().numpy()
    wanted = np.mean((x.mean(0) - y.mean(0)) ** 2) + np.mean((np.cov(x.T) - np.cov(y.T)) ** 2)
    assert number(moment_gap(a, b)) == pytest.approx(wanted, rel=1e-5)
    assert moment_gap(a, b) == moment_gap(b, a)
    assert moment_gap(a, a) == 0


def test_a_single_sample_has_no_covariance():
    a, b = torch.tensor([[1.0]]), torch.tensor([[1.0], [5.0]])
    assert moment_gap(a, b) == 4 + 64


def test_the_kernel_gap_is_the_biased_estimate_over_seven_kernels():
    a, b = draw(4, 3, seed=1), draw(6, 3, seed=2) + 0.5

    def mean(x, y):
        return np.mean(
            [[sum(math.exp(-g * number(((p - q) ** 2).sum())) for g in GAMMAS) for q in y] for p in x]
        )

    wanted = mean(a, a) + mean(b, b) - 2 * mean(a, b)
    assert pytest.approx((0.001, 0.01, 0.1, 1, 10, 100, 1000)) == GAMMAS
    assert number(kernel_gap(a, b)) == pytest.approx(wanted, rel=1e-5)
    assert number(kernel_gap(a, a)) == pytest.approx(0, abs=1e-5)
    assert kernel_gap(a, a + 3) > kernel_gap(a, a + 1) > 0


@pytest.mark.parametrize(("shares", "wanted"), [((0.5, 0.5), 0.6931), ((0.9, 0.1), 0.3251)])
def test_the_entropy_of_two_classes(shares, wanted):
    outputs = torch.tensor([shares, shares]).log()
    assert number(entropy(outputs)) == pytest.approx(wanted, abs=5e-5)
    assert number(entropy(outputs + 3)) == pytest.approx(wanted, abs=5e-5)


# Domain generalisation


def test_erm_is_the_mean_over_sources_however_many_samples_they_have(model, step):
    (loss,) = ERM().losses(model, step)
    each = [number(cross_entropy(model(x), y)) for x, y in step.sources]
    assert number(loss) == pytest.approx(np.mean(each), rel=1e-6)


def test_erm_takes_numbers_as_labels_too(step):
    model, numbers = nn.Linear(4, 1), [(x, y.float()[:, None]) for x, y in step.sources]
    (loss,) = ERM().losses(model, Step(numbers, None, None, step.rng, "regression"))
    assert number(loss) == pytest.approx(
        np.mean([number(mse_loss(model(x), y)) for x, y in numbers]), rel=1e-6
    )


@pytest.mark.parametrize(("kind", "gap"), [(CORAL, moment_gap), (MMD, kernel_gap)])
def test_alignment_adds_gamma_times_the_mean_gap_of_all_pairs_of_features(kind, gap, model, step):
    (plain,) = ERM().losses(model, step)
    (loss,) = kind(gamma=0.7).losses(model, step)
    a, b, c = (model[:2](x) for x, _ in step.sources)
    gaps = [gap(a, b), gap(a, c), gap(b, c)]
    assert number(loss - plain) == pytest.approx(0.7 * number(sum(gaps)) / 3, rel=1e-5)
    assert [*kind(gamma=0).losses(model, step)] == [plain]
    (loss - plain).backward()
    assert model[0].weight.grad.any()


def test_mixup_is_what_a_loop_over_a_random_cycle_of_sources_gives(model, step):
    mixup = Mixup(alpha=0.4)
    (loss,) = mixup.losses(model, step)
    assert [*mixup.losses(model, step)] != [loss], "drawn anew in each step"
    rng, losses = np.random.default_rng(0), []
    order = rng.permutation(3)
    for i, j in pairwise([*order, order[0]]):
        u = rng.beta(0.4, 0.4)
        n = min(SIZES[i], SIZES[j])
        (x, y), (other_x, other_y) = step.sources[i], step.sources[j]
        outputs = model(torch.stack([u * x[k] + (1 - u) * other_x[k] for k in range(n)]))
        losses.append(u * cross_entropy(outputs, y[:n]) + (1 - u) * cross_entropy(outputs, other_y[:n]))
    assert number(loss) == pytest.approx(number(sum(losses)) / 3, rel=1e-6)


# The target's samples


def test_the_head_has_no_bias_and_takes_normalised_features_over_the_temperature(network):
    head = head_of(network)
    assert isinstance(head, PrototypeHead)
    assert list(dict(head.named_parameters())) == ["weight"]
    with features_of(network) as features:
        outputs = network(draw(5, 4))
    lengths = features[0].square().sum(1, keepdim=True).sqrt()
    assert torch.allclose(outputs, features[0] / lengths @ head.weight.T / 0.5, atol=1e-6)
    assert torch.allclose(head(7 * features[0]), outputs, atol=1e-6)


def test_st_is_cross_entropy_of_all_labelled_samples_together(network, step):
    (loss,) = SourceTarget().losses(network, step)
    x, y = (torch.cat(parts) for parts in zip(*step.sources, step.labelled, strict=True))
    assert len(y) == sum(SIZES) + 2
    assert number(loss) == pytest.approx(number(cross_entropy(network(x), y)), rel=1e-6)


@pytest.mark.parametrize("kind", [Entropy, MinimaxEntropy])
def test_without_lambda_or_unlabelled_samples_it_is_st(kind, network, step):
    (plain,) = SourceTarget().losses(network, step)
    assert [*kind(lam=0).losses(network, step)] == [plain]
    assert [*kind().losses(network, Step(step.sources, step.labelled, None, step.rng))] == [plain]


@pytest.mark.parametrize(("kind", "sign"), [(Entropy, 1), (MinimaxEntropy, -1)])
def test_the_second_loss_is_lambda_times_the_entropy_of_the_model_after_the_first_step(
    kind, sign, network, step
):
    losses = kind(lam=0.3).losses(network, step)
    next(losses)
    with torch.no_grad():
        next(head_of(network).parameters()).neg_()
    assert number(next(losses)) == pytest.approx(
        sign * 0.3 * number(entropy(network(step.unlabelled))), rel=1e-6
    )
    assert list(losses) == []


def head_gradient(network):
    return head_of(network).weight.grad


def test_mme_reverses_the_gradient_between_head_and_body_alone(network):
    x, twin, mme = draw(3, 4), copy.deepcopy(network), MinimaxEntropy()
    with pytest.raises(RuntimeError):
        mme.entropy_loss(network, draw(3, 5))
    loss, plain = mme.entropy_loss(network, x), entropy(twin(x))
    loss.backward()
    plain.backward()
    assert loss == -plain
    assert torch.equal(network[0].weight.grad, twin[0].weight.grad)
    assert torch.equal(head_gradient(network), -head_gradient(twin))
    network.zero_grad()
    entropy(network(x)).backward()
    assert all(map(torch.equal, *([p.grad for p in each.parameters()] for each in (network, twin))))


# Options


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (ERM, "validation_share", 0.0),
        (MMD, "validation_share", 1.0),
        (CORAL, "gamma", -1.0),
        (Mixup, "alpha", 0.0),
        (SourceTarget, "temperature", 0.0),
        (MinimaxEntropy, "lam", -0.1),
    ],
)
def test_a_number_that_cannot_work_is_named(kind, name, value):
    with pytest.raises(ConfigError, check=lambda error: error.thing == name):
        kind(**{name: value})


@pytest.mark.parametrize(
    ("reference", "settings"),
    [
        (CORAL(gamma=2.0), {"validation-share": 0.2, "gamma": 2.0}),
        (Mixup(), {"validation-share": 0.2, "alpha": 0.2}),
        (MinimaxEntropy(warmup_rounds=2), {"temperature": 0.05, "lam": 0.1, "warmup-rounds": 2}),
    ],
)
def test_the_settings_hold_every_option(reference, settings):
    common = {"warmup-rounds": 0, "learning-rate-factor": 1.0}
    assert reference.settings() == {**common, **settings}


@pytest.mark.parametrize(("kind", "known"), [(ERM, {"target": 0}), (SourceTarget, {})])
def test_the_epochs_of_the_target_are_known_only_where_there_are_none(kind, known):
    epochs = kind().training_epochs(20, 2, {"source": 3, "target": 1}, 50)
    assert epochs == {"source": 66, **known}
