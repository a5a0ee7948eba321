"""The local training loop, evaluation, and what makes them repeatable."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fda_flower.clients import LocalTraining, evaluate, train
from fda_flower.clients.training import OPTIMIZERS, figures, mean_loss, repeatable
from fda_flower.datasets import Samples
from fda_flower.errors import ConfigError
from fda_flower.models.parts import Part


def samples(count: int = 10, classes: int = 3) -> Samples:
    generator = torch.Generator().manual_seed(3)
    return Samples(
        torch.rand(count, 1, 2, 2, generator=generator),
        torch.randint(classes, (count,), generator=generator),
    )


def linear(classes: int = 3) -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, classes))
    nn.init.zeros_(model[1].weight)  # type: ignore[arg-type]
    nn.init.zeros_(model[1].bias)  # type: ignore[arg-type]
    return model


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"optimizer": "lion"}, ["optimizer", "'lion'", *OPTIMIZERS]),
        ({"learning_rate": 0}, ["learning rate", "0", "above 0"]),
        ({"learning_rate": -0.1}, ["learning rate", "-0.1", "above 0"]),
        ({"learning_rate": float("nan")}, ["learning rate", "nan", "above 0"]),
        ({"batch_size": 0}, ["batch size", "0", "at least 1"]),
        ({"batch_size": -4}, ["batch size", "-4", "at least 1"]),
        ({"epochs": 0}, ["number of epochs", "0", "at least 1"]),
        ({"proximal": -0.5}, ["proximal", "-0.5", "at least 0"]),
        ({"proximal": float("nan")}, ["proximal", "nan"]),
        ({"proximal": float("inf")}, ["proximal", "inf"]),
        ({"batches": "odd"}, ["batches", "'odd'", "even or keep-last or drop-last"]),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        LocalTraining(**{"learning_rate": 0.1, "batch_size": 4, **settings})
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("examples", "batch_size", "epochs", "steps"),
    [(10, 4, 1, 3), (10, 5, 1, 2), (10, 100, 1, 1), (1, 1, 1, 1), (10, 4, 3, 9), (50, 4, 2, 26)],
)
def test_steps_are_what_training_makes(examples: int, batch_size: int, epochs: int, steps: int) -> None:
    training = LocalTraining(0.1, batch_size, epochs, "sgd")
    assert training.steps(examples) == steps
    assert train(linear(), samples(examples), training, generator())[0] == steps


@pytest.mark.parametrize(
    ("cut", "examples", "batch_size", "epochs", "steps"),
    [
        ("keep-last", 10, 4, 2, 6),
        ("drop-last", 10, 4, 2, 4),
        ("drop-last", 8, 4, 1, 2),
        ("drop-last", 3, 4, 2, 2),
        # Of the paper: 6,000 images in batches of 64, and 100 in batches of 16.
        ("drop-last", 6000, 64, 1, 93),
        ("keep-last", 100, 16, 1, 7),
    ],
)
def test_steps_of_full_batches(cut: str, examples: int, batch_size: int, epochs: int, steps: int) -> None:
    training = LocalTraining(0.1, batch_size, epochs, "sgd", cut)
    assert training.steps(examples) == steps
    assert train(linear(), samples(examples), training, generator())[0] == steps


def test_the_train_loss_is_the_mean_over_the_samples_that_were_trained_on() -> None:
    model, data, seen = linear(), samples(10), list[int]()
    with torch.no_grad():
        model[1].weight.copy_(torch.arange(12.0).reshape(3, 4))  # type: ignore[index]
    model.register_forward_pre_hook(
        lambda _, inputs: seen.extend(int((data.x == x).flatten(1).all(1).nonzero()) for x in inputs[0])
    )
    _, loss = train(model, data, LocalTraining(1e-12, 7, 1, "sgd", "drop-last"), generator())
    trained = data.take(torch.tensor(seen))
    assert len(trained) == 7
    assert loss == pytest.approx(evaluate(model, trained, generator())[0], rel=1e-5)


# training


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_every_optimizer_brings_the_loss_down(optimizer: str) -> None:
    model, data = linear(), samples(30)
    before, _ = evaluate(model, data, generator())
    train(model, data, LocalTraining(0.05, 8, 20, optimizer), generator())
    after, _ = evaluate(model, data, generator())
    assert before == pytest.approx(np.log(3))
    assert after < before


def test_the_train_loss_is_the_mean_over_samples_not_over_batches() -> None:
    model, data = linear(), samples(10)
    with torch.no_grad():
        model[1].weight.copy_(torch.arange(12.0).reshape(3, 4))  # type: ignore[index]
    training = LocalTraining(1e-12, batch_size=7, epochs=2, optimizer="sgd")
    _, loss = train(model, data, training, generator())
    assert loss == pytest.approx(evaluate(model, data, generator())[0], rel=1e-5)


def test_plain_sgd_takes_the_step_of_the_formula() -> None:
    model, data = linear(), samples(6)
    train(model, data, LocalTraining(0.5, 6, 1, "sgd"), generator())
    x, y = data.x.flatten(1).double().numpy(), np.eye(3)[data.y.numpy()]
    gradient = (1 / 3 - y).T @ x / len(x)
    np.testing.assert_allclose(model[1].weight.detach().numpy(), -0.5 * gradient, rtol=1e-5, atol=1e-7)  # type: ignore[index]


@pytest.mark.parametrize("epochs", [1, 3])
def test_each_epoch_sees_each_sample_once_in_another_order(epochs: int) -> None:
    seen: list[list[float]] = []
    model, data = linear(), samples(10)
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][:, 0, 0, 0].tolist()))
    train(model, data, LocalTraining(0.1, 4, epochs), generator())
    flat = [value for batch in seen for value in batch]
    passes = [flat[start : start + 10] for start in range(0, len(flat), 10)]
    assert len(passes) == epochs
    assert all(sorted(one) == sorted(data.x[:, 0, 0, 0].tolist()) for one in passes)
    assert len({tuple(one) for one in passes}) == epochs


def test_training_is_in_training_mode_and_evaluation_is_not() -> None:
    modes: list[bool] = []
    model = linear()
    model.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    evaluate(model, samples(4), generator())
    train(model, samples(4), LocalTraining(0.1, 4), generator())
    evaluate(model, samples(4), generator())
    assert modes == [False, True, False]


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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.body(x))
        return outputs


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize("trained", ["body", "head"])
def test_what_does_not_train_keeps_its_bits_buffers_included(optimizer: str, trained: Part) -> None:
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


# evaluation


LOGITS = torch.tensor([[2.0, 0.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 5.0], [0.0, 1.0, 0.0]])
LABELS = torch.tensor([0, 2, 0, 2, 0])


@pytest.mark.parametrize("batch_size", [1, 2, 5, 1024])
def test_evaluation_of_logits_made_by_hand(batch_size: int) -> None:
    handmade = Samples(LOGITS[:, :, None, None], LABELS)
    loss, accuracy = evaluate(nn.Flatten(), handmade, generator(), batch_size)
    logits = LOGITS.double().numpy()
    picked = logits[np.arange(5), LABELS.numpy()]
    assert loss == pytest.approx(float(np.mean(np.log(np.exp(logits).sum(axis=1)) - picked)), rel=1e-6)
    assert accuracy == 3 / 5


def test_evaluation_of_a_model_that_is_always_right_or_always_wrong() -> None:
    right = Samples(100 * torch.eye(3)[:, :, None, None], torch.arange(3))
    assert evaluate(nn.Flatten(), right, generator()) == (0.0, 1.0)
    wrong = Samples(right.x, (right.y + 1) % 3)
    assert evaluate(nn.Flatten(), wrong, generator()) == (100.0, 0.0)


def test_evaluation_makes_no_gradients_and_changes_no_weights() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.BatchNorm1d(3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    evaluate(model, samples(), generator())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


# regression


def regression(count: int = 12, outputs: int = 3) -> Samples:
    generator = torch.Generator().manual_seed(4)
    return Samples(torch.rand(count, 4, generator=generator), torch.rand(count, outputs, generator=generator))


def test_plain_sgd_takes_the_step_of_the_squared_errors_formula() -> None:
    model, data = linear(), regression(6)
    _, loss = train(model, data, LocalTraining(0.5, 6, 1, "sgd"), generator())
    x, y = data.x.double().numpy(), data.y.double().numpy()
    # d/dW of the mean over 6 samples and 3 outputs of (Wx − y)², at W = 0.
    gradient = 2 * (0 - y).T @ x / y.size
    np.testing.assert_allclose(model[1].weight.detach().numpy(), -0.5 * gradient, rtol=1e-5)  # type: ignore[index]
    assert loss == pytest.approx(float(np.mean(y**2)), rel=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e30])
def test_the_loss_of_classes_is_the_cross_entropy_of_torch(scale):
    outputs, y = scale * torch.randn(500, 7, generator=generator()), torch.arange(500) % 7
    outputs[3, 2] = -torch.inf  # of another class: this one is impossible
    loss = mean_loss(outputs, y)
    assert loss == pytest.approx(float(cross_entropy(outputs.double(), y)), rel=1e-6)
    assert figures(outputs, y)["loss"] == loss
    outputs[3, 3] = -torch.inf
    assert mean_loss(outputs, y) == torch.inf
    outputs[0, 0] = torch.nan
    assert np.isnan(mean_loss(outputs, y))


@pytest.mark.parametrize("batch_size", [1, 2, 4, 256])
def test_evaluation_of_a_regression_made_by_hand(batch_size: int) -> None:
    predicted = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0], [6.0, 2.0]])
    true = torch.tensor([[0.0, 0.0], [2.0, 2.0], [5.0, 1.0], [5.0, 1.0]])
    loss, determination = evaluate(nn.Flatten(), Samples(predicted, true), generator(), batch_size)
    # Squared errors: 1 + 1 + 1 + 1 + 1 = 5. Means 3 and 1, around which 9 + 1 + 4 + 4 + 1 + 1 = 20.
    assert loss == pytest.approx(5 / 8)
    assert determination == pytest.approx(1 - 5 / 20)


def test_determination_is_1_if_exact_0_for_the_mean_and_negative_if_worse() -> None:
    y = torch.tensor([[1.0], [3.0]])
    for predicted, expected in (([[1.0], [3.0]], 1.0), ([[2.0], [2.0]], 0.0), ([[3.0], [1.0]], -3.0)):
        assert evaluate(nn.Flatten(), Samples(torch.tensor(predicted), y), generator())[1] == expected


@pytest.mark.parametrize(("output", "expected"), [(np.inf, -np.inf), (np.nan, np.nan)])
def test_determination_of_outputs_that_are_not_finite_is_no_finite_number(output, expected) -> None:
    found = figures(torch.tensor([[output], [1.0]]), torch.tensor([[0.0], [1.0]]))
    np.testing.assert_array_equal(found["r2"], expected)


def test_determination_of_samples_that_are_all_alike_is_a_number() -> None:
    y = torch.full((3, 1), 2.0)
    assert evaluate(nn.Flatten(), Samples(y, y), generator()) == (0.0, 1.0)
    assert evaluate(nn.Flatten(), Samples(y + 1, y), generator()) == (1.0, 0.0)


def test_a_regression_is_learned_with_noise_on_its_inputs() -> None:
    model, data = linear(), regression(40)
    clean = Samples(data.x, data.x @ torch.tensor([[1.0, 0, 2], [0, 1, 0], [3, 0, 0], [0, -1, 1]]))
    noisy = Samples(clean.x, clean.y, noise=0.05)
    train(model, noisy, LocalTraining(0.02, 8, 80), generator())
    assert evaluate(model, clean, generator())[1] > 0.9
    assert evaluate(model, noisy, generator(1))[1] != evaluate(model, noisy, generator(2))[1]


# repeatable


def test_repeatable_gives_the_same_numbers_and_restores_what_was_before() -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    deterministic = torch.backends.cudnn.deterministic
    drawn = []
    for _ in range(2):
        with repeatable(seed=7, threads=threads + 1):
            assert torch.get_num_threads() == threads + 1
            assert torch.backends.cudnn.deterministic
            drawn.append(torch.rand(4))
        assert torch.get_num_threads() == threads
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.backends.cudnn.deterministic == deterministic
    assert torch.equal(*drawn)


def test_repeatable_restores_even_if_the_body_fails() -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    deterministic = torch.backends.cudnn.deterministic

    def fails() -> None:
        torch.rand(4)
        raise KeyError

    with pytest.raises(KeyError), repeatable(seed=7, threads=threads + 1):
        fails()
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.backends.cudnn.deterministic == deterministic


def test_repeatable_depends_on_the_seed() -> None:
    drawn = []
    for seed in (1, 2):
        with repeatable(seed, torch.get_num_threads()):
            drawn.append(torch.rand(4))
    assert not torch.equal(*drawn)
