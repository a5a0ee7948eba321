"""Every model of the registry: shapes, seeds, names."""

import pytest
import torch
from torch import nn

from fda_flower.errors import ConfigError
from fda_flower.models import MODELS, build_model

SHAPES = [(1, 8, 8), (2, 28, 28), (3, 32, 32)]

every_model = pytest.mark.parametrize("name", list(MODELS))
SMALLEST = {"lenet": 16}
"""Sides of the smallest images that a model takes, where not all will do."""

every_model_and_shape = pytest.mark.parametrize(
    ("name", "shape"),
    [(name, shape) for name in MODELS for shape in SHAPES if shape[1] >= SMALLEST.get(name, 1)],
)


def images(count: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(0))


@every_model_and_shape
@pytest.mark.parametrize("classes", [2, 10])
def test_a_model_gives_a_finite_number_for_each_image_and_class(
    name: str, shape: tuple[int, ...], classes: int
) -> None:
    model = build_model(name, shape, classes, seed=0)
    for count in (1, 5):
        logits = model(images(count, shape))
        assert logits.shape == (count, classes)
        assert logits.dtype == torch.float32
        assert torch.isfinite(logits).all()


@every_model_and_shape
def test_every_parameter_of_a_model_has_a_gradient(name: str, shape: tuple[int, ...]) -> None:
    model = build_model(name, shape, 4, seed=0)
    model(images(8, shape)).square().sum().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key


@every_model
def test_logits_of_an_image_do_not_depend_on_the_others_in_evaluation(name: str) -> None:
    model = build_model(name, (1, 16, 16), 10, seed=0).eval()
    x = images(6, (1, 16, 16))
    with torch.no_grad():
        torch.testing.assert_close(model(x)[2:3], model(x[2:3]))


@every_model
def test_a_seed_gives_the_same_weights_whatever_the_global_state(name: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first = build_model(name, (1, 16, 16), 10, seed=5).state_dict()
        torch.manual_seed(2)
        second = build_model(name, (1, 16, 16), 10, seed=5).state_dict()
    assert list(first) == list(second)
    assert all(torch.equal(first[key], second[key]) for key in first)


@every_model
def test_another_seed_gives_other_weights(name: str) -> None:
    first, second = (build_model(name, (1, 16, 16), 10, seed).state_dict() for seed in (5, 6))
    assert any(not torch.equal(first[key], second[key]) for key in first)


@every_model
def test_building_leaves_the_global_random_state(name: str) -> None:
    before = torch.get_rng_state()
    build_model(name, (1, 16, 16), 10, seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_building_leaves_the_global_random_state_even_if_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(shape: tuple[int, ...], classes: int) -> nn.Module:
        torch.rand(3)
        raise RuntimeError("no such layer")

    monkeypatch.setitem(MODELS, "broken", MODELS["mlp"].__class__("fails", fails))
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="no such layer"):
        build_model("broken", (1, 16, 16), 10, seed=0)
    assert torch.equal(torch.get_rng_state(), before)


@every_model
def test_a_model_has_a_summary_of_one_line(name: str) -> None:
    assert MODELS[name].summary
    assert "\n" not in MODELS[name].summary


def test_an_unknown_name_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match="unknown model 'resnet'") as caught:
        build_model("resnet", (1, 16, 16), 10, seed=0)
    assert all(name in str(caught.value) for name in MODELS)
