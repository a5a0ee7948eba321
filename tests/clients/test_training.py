"""The local training loop, evaluation, optimizers without the compiler, and what makes them repeatable."""

import subprocess
import sys
from copy import deepcopy
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
import torch
from naming import names
from tensors import samples_of, tensors
from torch import nn
from torch.nn.functional import cross_entropy

from fda_flower import run
from fda_flower.clients import LocalTraining, evaluate, train
from fda_flower.clients.measures import metrics_of
from fda_flower.clients.training import (
    OPTIMIZERS,
    light,
    mean_loss,
    repeatable,
    training_loss,
)
from fda_flower.datasets import Samples
from fda_flower.errors import ConfigError

every_optimizer = pytest.mark.parametrize("optimizer", list(OPTIMIZERS))


def samples(count: int = 10, classes: int = 3) -> Samples:
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(count, 1, 2, 2, generator=generator)
    return samples_of(x, torch.randint(classes, (count,), generator=generator))


def linear(weight: Any = 0.0) -> Any:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    with torch.no_grad():
        model[1].weight.copy_(torch.as_tensor(weight))  # type: ignore[operator]
        model[1].bias.zero_()  # type: ignore[operator]
    return model


SPREAD = torch.arange(12.0).reshape(3, 4)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Settings


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"optimizer": "lion"}, ("optimizer", "lion", "adam or sgd")),
        ({"learning_rate": 0}, ("the learning rate", 0, "above 0")),
        ({"learning_rate": float("nan")}, ("the learning rate", ANY, "above 0")),
        ({"batch_size": 0}, ("batch size", 0)),
        ({"epochs": 0}, ("number of epochs", 0)),
        ({"proximal": -0.5}, ("proximal", -0.5, "at least 0")),
        ({"proximal": float("inf")}, ("proximal", float("inf"))),
        ({"batches": "odd"}, ("batches", "odd", "even or keep-last or drop-last")),
        ({"class_weights": "rare"}, ("class-weights", "rare", "none or balanced")),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], error: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError, check=names(*error)):
        LocalTraining(**{"learning_rate": 0.1, "batch_size": 4, **settings})


@pytest.mark.parametrize(
    ("cut", "examples", "batch_size", "epochs", "steps"),
    [
        ("even", 10, 4, 1, 3),
        ("even", 10, 100, 1, 1),
        ("even", 50, 4, 2, 26),
        ("keep-last", 10, 4, 2, 6),
        ("drop-last", 10, 4, 2, 4),
        ("drop-last", 3, 4, 2, 2),
        # Of the paper: 6,000 images in batches of 64, and 100 in batches of 16.
        ("drop-last", 6000, 64, 1, 93),
        ("keep-last", 100, 16, 1, 7),
    ],
)
def test_steps_are_what_training_makes(cut, examples, batch_size, epochs, steps) -> None:
    training = LocalTraining(0.1, batch_size, epochs, "sgd", cut)
    assert training.steps(examples) == steps
    assert train(linear(), samples(examples), training, generator())[0] == steps


# Training


@every_optimizer
def test_every_optimizer_brings_the_loss_down(optimizer: Any) -> None:
    model, data = linear(), samples(30)
    before, _ = evaluate(model, data, generator())
    train(model, data, LocalTraining(0.05, 8, 20, optimizer), generator())
    assert before == pytest.approx(np.log(3))
    assert evaluate(model, data, generator())[0] < before


@pytest.mark.parametrize("cut", ["even", "keep-last", "drop-last"])
def test_the_train_loss_is_the_mean_over_the_samples_that_were_trained_on(cut) -> None:
    model, data, seen = linear(SPREAD), samples(10), list[int]()
    rows, _ = tensors(data)
    model.register_forward_pre_hook(
        lambda _, inputs: seen.extend(int((rows == x).flatten(1).all(1).nonzero()) for x in inputs[0])
    )
    _, loss = train(model, data, LocalTraining(1e-12, 7, 1, "sgd", cut), generator())
    used = data.take(np.array(seen))
    assert len(used) == (7 if cut == "drop-last" else 10)
    assert loss == pytest.approx(evaluate(model, used, generator())[0], rel=1e-5)


class Body(nn.Module):
    """A layer with BatchNorm below a head with BatchNorm, and a count of the gradients of its first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.BatchNorm1d(5))
        self.head = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
        self.gradients = 0
        self.body[1].weight.register_hook(self.count)  # type: ignore[operator]

    def count(self, gradient: torch.Tensor) -> None:
        self.gradients += 1

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.body(x))


@every_optimizer
@pytest.mark.parametrize("trained", ["body", "head"])
def test_what_does_not_train_keeps_its_bits_buffers_included(optimizer: Any, trained: Any) -> None:
    model = Body()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for _ in range(2):
        train(model, samples(), LocalTraining(0.1, 4, 2, optimizer), generator(), part=trained)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) == (not name.startswith(trained)), name
    assert all(p.requires_grad for p in model.parameters())
    assert model.gradients == (12 if trained == "body" else 0), "only gradients that are used"


def test_a_gradient_left_from_before_is_not_used() -> None:
    fresh, stale = linear(), linear()
    for parameter in stale.parameters():
        parameter.grad = torch.full_like(parameter, 100.0)
    for model in (fresh, stale):
        train(model, samples(), LocalTraining(0.1, 4, 1, "sgd"), generator())
    assert all(map(torch.equal, fresh.parameters(), stale.parameters()))


# Evaluation


LOGITS = torch.tensor([[2.0, 0.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 5.0], [0.0, 1.0, 0.0]])
LABELS = torch.tensor([0, 2, 0, 2, 0])
NUMBERS = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0], [6.0, 2.0]])
TRUE = torch.tensor([[0.0, 0.0], [2.0, 2.0], [5.0, 1.0], [5.0, 1.0]])


@pytest.mark.parametrize("batch_size", [1, 2, 5, 1024])
def test_evaluation_of_outputs_made_by_hand(batch_size: int) -> None:
    handmade = samples_of(LOGITS[:, :, None, None], LABELS)
    loss, accuracy = evaluate(nn.Flatten(), handmade, generator(), batch_size)
    logits = LOGITS.double().numpy()
    picked = logits[np.arange(5), LABELS.numpy()]
    assert loss == pytest.approx(float(np.mean(np.log(np.exp(logits).sum(axis=1)) - picked)), rel=1e-6)
    assert accuracy == 3 / 5
    loss, determination = evaluate(nn.Flatten(), samples_of(NUMBERS, TRUE), generator(), batch_size)
    # Squared errors: 1 + 1 + 1 + 1 + 1 = 5. Means 3 and 1, around which 9 + 1 + 4 + 4 + 1 + 1 = 20.
    assert loss == pytest.approx(5 / 8)
    assert determination == pytest.approx(1 - 5 / 20)


def labelled(y):
    """Return samples with these labels, whose inputs do not matter."""
    return samples_of(torch.zeros(len(y), 1), y)


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e30])
def test_the_loss_of_classes_is_the_cross_entropy_of_torch(scale):
    outputs, y = scale * torch.randn(500, 7, generator=generator()), torch.arange(500) % 7
    outputs[3, 2] = -torch.inf  # of another class: this one is impossible
    loss = mean_loss(outputs, labelled(y))
    assert loss == pytest.approx(float(cross_entropy(outputs.double(), y)), rel=1e-6)
    outputs[3, 3] = -torch.inf
    assert mean_loss(outputs, labelled(y)) == torch.inf
    outputs[0, 0] = torch.nan
    assert np.isnan(mean_loss(outputs, labelled(y)))


@pytest.mark.parametrize(
    ("y", "predicted", "expected"),
    [
        ([1.0, 3.0], [3.0, 1.0], -3.0),
        ([0.0, 0.0], [np.inf, 1.0], -np.inf),
        ([0.0, 0.0], [np.nan, 1.0], np.nan),
    ],
)
def test_determination_of_a_regression(y, predicted, expected) -> None:
    outputs, samples = torch.tensor(predicted)[:, None], labelled(torch.tensor(y)[:, None])
    found = metrics_of(outputs.numpy(), samples, mean_loss(outputs, samples))
    np.testing.assert_array_equal(found["r2"], expected)


# Regression and class weights


def test_plain_sgd_takes_the_step_of_the_squared_errors_formula() -> None:
    data = samples_of(torch.rand(6, 4, generator=generator(4)), torch.rand(6, 3, generator=generator(5)))
    model = linear()
    _, loss = train(model, data, LocalTraining(0.5, 6, 1, "sgd"), generator())
    x, y = data.x.astype(np.float64), data.y.astype(np.float64)
    # d/dW of the mean over 6 samples and 3 outputs of (Wx − y)², at W = 0.
    gradient = 2 * (0 - y).T @ x / y.size
    np.testing.assert_allclose(model[1].weight.detach().numpy(), -0.5 * gradient, rtol=1e-5)
    assert loss == pytest.approx(float(np.mean(y**2)), rel=1e-6)


BALANCED = LocalTraining(0.1, 4, class_weights="balanced")


def test_class_weights_by_hand():
    # Three labels of class 0, one of class 2: weights 4 / (2 · 3) and 4 / (2 · 1).
    outputs, batch = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]]), torch.tensor([0, 2])
    losses = cross_entropy(outputs, batch, reduction="none")
    expected = (2 / 3 * losses[0] + 2 * losses[1]) / (2 / 3 + 2)
    torch.testing.assert_close(
        training_loss(labelled(torch.tensor([0, 0, 0, 2])), BALANCED)(outputs, batch), expected
    )


def test_balanced_labels_and_numbers_have_the_plain_loss():
    y, outputs = torch.tensor([0, 1, 0, 1]), torch.randn(4, 3, generator=generator())
    torch.testing.assert_close(training_loss(labelled(y), BALANCED)(outputs, y), cross_entropy(outputs, y))
    assert training_loss(labelled(torch.zeros(2, 1)), BALANCED) is nn.functional.mse_loss
    assert training_loss(labelled(torch.tensor([0, 1])), LocalTraining(0.1, 4)) is cross_entropy


@pytest.mark.parametrize("method", ["fedavg", "ditto", "apfl", "irm", "feddaf", "mixture", "fedda-joint"])
def test_every_training_on_labels_is_weighted(method):
    settings = {"model": "mlp", "rounds": 2, "target_samples": 13, "source_samples": 20, "test_samples": 50}
    settings |= {"method": method, "partition": "dirichlet", "partition_options": {"alpha": 0.3}}
    plain, weighted = (run(**settings, class_weights=each) for each in ("none", "balanced"))  # type: ignore[arg-type]
    assert any((weighted.model[name] != array).any() for name, array in plain.model.items())


# Optimizers without the compiler


KINDS: dict[str, Any] = {"adam": (torch.optim.Adam, {"fused": True}), "sgd": (torch.optim.SGD, {})}


def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    x = torch.rand(6, 4, generator=generator(number))
    optimizer.zero_grad()
    torch.autograd.backward(model(x).square().mean())
    optimizer.step()


def bits(model: nn.Module) -> list[bytes]:
    return [parameter.detach().numpy().tobytes() for parameter in model.parameters()]


@every_optimizer
def test_steps_and_state_of_an_optimizer_have_the_bits_of_pytorchs(optimizer):
    kind, options = KINDS[optimizer]
    methods = dict(vars(kind))
    assert issubclass(light(kind), kind)
    assert dict(vars(kind)) == methods, "PyTorch's own class stays as it is"
    ours, theirs = linear(SPREAD), linear(SPREAD)
    one, other = (
        OPTIMIZERS[optimizer](ours.parameters(), lr=0.1),
        kind(theirs.parameters(), lr=0.1, **options),
    )
    assert repr(one) == repr(other)
    for number in range(5):
        for model, each in ((ours, one), (theirs, other)):
            step(model, each, number)
            each.param_groups[0]["lr"] *= 0.5
    assert bits(ours) == bits(theirs) != bits(linear(SPREAD))
    seen: list[Any] = []
    one.register_step_post_hook(lambda *args: seen.append(args[0]))
    step(ours, one, 5)
    step(theirs, other, 5)
    assert seen == [one]
    third = OPTIMIZERS[optimizer](ours.parameters(), lr=0.7)
    third.load_state_dict(deepcopy(other.state_dict()))
    for number in range(5, 8):
        step(ours, third, number)
        step(theirs, other, number)
    assert bits(ours) == bits(theirs)


def test_optimizers_do_not_import_the_compiler():
    code = """
import sys, torch
from fda_flower.clients.training import OPTIMIZERS
for make in OPTIMIZERS.values():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = make([weight], lr=0.5)
    weight.sum().backward()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# What makes it repeatable


@pytest.mark.parametrize("fails", [False, True])
def test_repeatable_draws_by_the_seed_and_restores_what_was_before(fails) -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    drawn = []
    for seed in (7, 7, 8):
        try:
            with repeatable(seed, threads + 1):
                assert torch.get_num_threads() == threads + 1
                drawn.append(torch.rand(4).tolist())
                if fails:
                    raise KeyError
        except KeyError:
            assert fails
        assert torch.get_num_threads() == threads
        assert torch.equal(torch.get_rng_state(), state)
    assert drawn[0] == drawn[1] != drawn[2]
