"""The losses of centralised references, by hand and by brute force."""

import copy
import math
from dataclasses import replace
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
    DANN,
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
    SourceTarget(temperature=0.5).prepare(model, draw(1, 4), 3)
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


@pytest.mark.parametrize(
    ("done", "rounds", "rise", "weight"),
    [(0, 4, 0, 0), (1, 4, 0, 0.848284), (4, 4, 0, 0.999909), (1, 4, 2, 0.986614), (3, 4, 2, 0.999909)],
)
def test_the_weight_of_the_reversed_gradient_rises_over_the_rounds(done, rounds, rise, weight, step):
    """By hand: 2 / (1 + exp(−10 p)) − 1 at p = 0, 1/4, 1/2 and 1."""
    at = replace(step, done=done, rounds=rounds)
    assert DANN(rise_rounds=rise).weight(at) == pytest.approx(weight, abs=1e-6)


def test_dann_on_a_linear_network_by_hand():
    """One sample of each of two sources, a feature f = a x, outputs (0, b f) and guesses (0, c f).

    a = 2, b = 1, c = 3, x = 1 and 1/2, classes 1 and 0; f = 2 and 1.
    """
    body, head, guess = (nn.Linear(1, size, bias=False) for size in (1, 2, 2))
    model, dann = nn.Sequential(body, head), DANN(gamma=4)
    dann.discriminator = guess
    for part, weight in ((body, [[2.0]]), (head, [[0.0], [1.0]]), (guess, [[0.0], [3.0]])):
        part.weight.data = torch.tensor(weight)
    sources = [(torch.tensor([[x]]), torch.tensor([y])) for x, y in ((1.0, 1), (0.5, 0))]
    (loss,) = dann.losses(model, Step(sources, None, None, np.random.default_rng(0), done=1, rounds=2))
    of_body, of_head, of_guess = torch.autograd.grad(loss, [part.weight for part in (body, head, guess)])

    def sigmoid(z):
        return 1 / (1 + math.exp(-z))

    one, two = sigmoid(2) - 1, sigmoid(1)  # of the class losses, by the second output
    first, second = sigmoid(6), sigmoid(3) - 1  # of the sources' losses, by the second guess
    losses = -math.log(sigmoid(2)), -math.log(sigmoid(-1)), -math.log(sigmoid(-6)), -math.log(sigmoid(3))
    assert number(loss) == pytest.approx(sum(losses) / 2, rel=1e-5)
    assert number(of_head[1]) == pytest.approx((one * 2 + two * 1) / 2, rel=1e-5)
    assert number(of_guess[1]) == pytest.approx((first * 2 + second * 1) / 2, rel=1e-5)
    lam = 2 / (1 + math.exp(-2)) - 1
    wanted = (1 * (one * 1 + two * 0.5) - lam * 3 * (first * 1 + second * 0.5)) / 2
    assert number(of_body) == pytest.approx(wanted, rel=1e-5)


def test_the_discriminator_has_an_output_for_each_source_and_leaves_the_model_alone(model, step):
    dann, before = DANN(), copy.deepcopy(model.state_dict())
    dann.prepare(model, draw(1, 4), 3)
    assert [tuple(p.shape) for p in dann.discriminator.parameters()][::2] == [(256, 6), (256, 256), (3, 256)]
    assert all(map(torch.equal, before.values(), model.state_dict().values()))
    (plain,), (loss,) = ERM().losses(model, step), dann.losses(model, step)
    loss.backward()
    grads = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    plain.backward()
    assert all(map(torch.equal, grads, (p.grad for p in model.parameters()))), "λ is 0 at the beginning"


def test_dann_gives_up_a_shortcut_whose_values_tell_the_sources_apart():
    """A noisy signal, and a shortcut: right in two sources, but shifted between them, and wrong elsewhere."""

    def domain(size, shift, sign, generator):
        y = torch.randint(2, (size,), generator=generator)
        noise, side = torch.randn(2, size, generator=generator), 2.0 * y - 1
        return torch.stack([side + 0.8 * noise[0], shift + sign * side + 0.3 * noise[1]], 1), y

    def accuracy(gamma):
        generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model, dann = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 2)), DANN(gamma=gamma)
            dann.prepare(model, torch.zeros(1, 2), 2)
        optimizer = torch.optim.Adam([*model.parameters(), *dann.discriminator.parameters()], lr=0.03)
        for done in range(150):
            sources = [domain(32, shift, 1, generator) for shift in (1, -1)]
            optimizer.zero_grad()
            (loss,) = dann.losses(model, Step(sources, None, None, rng, done=done, rounds=150))
            loss.backward()
            optimizer.step()
        x, y = domain(1000, 0, -1, generator)
        return number((model(x).argmax(1) == y).float().mean())

    assert accuracy(gamma=0) < 0.7
    assert accuracy(gamma=10) > 0.77


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
        (DANN, "gamma", -1.0),
        (DANN, "rise_rounds", -1),
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
        (DANN(), {"validation-share": 0.2, "gamma": 10.0, "rise-rounds": 0}),
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
