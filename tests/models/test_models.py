"""Every model of the registry: shapes, seeds, names, half precision."""

import math

import numpy as np
import pytest
import torch
from naming import names
from tensors import samples_of, tensors
from torch import nn
from torch.nn.functional import cross_entropy

from fda_flower.clients import LocalTraining, TargetClient
from fda_flower.datasets import Domain
from fda_flower.errors import ConfigError
from fda_flower.models import FORMS, MODELS, Train, build_model, check_name, reads_text
from fda_flower.models.exchange import frozen_digest
from fda_flower.models.rows import Hinges
from fda_flower.models.small import ChannelMaximum, Residual
from fda_flower.models.split import split

SHAPES = [(1, 8, 8), (2, 28, 28), (3, 33, 36), (13,)]
IMAGE = (1, 33, 33)
"""A shape that every model takes."""

SMALLEST = {
    "cnn": 4,
    "conv4": 1,
    "lenet": 16,
    "resnet9": 16,
    "resnet18": 32,
    "resnet50": 32,
    "conv3x64": 5,
    "efficientnet-lite0": 1,
    "efficientnet-lite1": 1,
    "efficientnet-lite2": 1,
}
"""Sides of the smallest images that a network for images takes."""

OF_NUMBERS = [name for name in MODELS if not reads_text(name)]
FLAT = [name for name in OF_NUMBERS if name not in SMALLEST]

every_model = pytest.mark.parametrize("name", OF_NUMBERS)


def takes(name, shape):
    if len(shape) == 1:
        return name in FLAT
    channels = not name.startswith(("efficientnet", "resnet18", "resnet50")) or shape[0] in (1, 3)
    return name != "hinges" and shape[1] >= SMALLEST.get(name, 1) and channels


def shape_for(name):
    return (13,) if name == "hinges" else IMAGE


def images(count, shape):
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.parametrize(
    ("name", "shape"), [(n, shape) for n in OF_NUMBERS for shape in SHAPES if takes(n, shape)]
)
def test_a_model_gives_a_finite_number_for_each_class_and_every_parameter_has_a_gradient(name, shape):
    for classes in (2, 10):
        logits = build_model(name, shape, classes, seed=0)(images(1, shape))
        assert (logits.shape, logits.dtype) == ((1, classes), torch.float32)
        assert torch.isfinite(logits).all()
    model = build_model(name, shape, 4, seed=0)
    cross_entropy(model(images(8, shape)), torch.arange(8) % 4).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key


@every_model
def test_weights_are_the_seeds_and_the_global_random_state_stays(name):
    shape = shape_for(name)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first = build_model(name, shape, 10, seed=5).state_dict()
        torch.manual_seed(2)
        before = torch.get_rng_state()
        second = build_model(name, shape, 10, seed=5).state_dict()
        assert torch.equal(torch.get_rng_state(), before)
    other = build_model(name, shape, 10, seed=6).state_dict()
    assert list(first) == list(second)
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)
    assert len(MODELS[name].summary.splitlines()) == 1


@every_model
def test_a_client_trains_a_model_and_sends_all_of_its_state(name):
    samples = samples_of(images(3, shape_for(name)), torch.tensor([0, 1, 2]))
    model, other = (build_model(name, shape_for(name), 3, seed) for seed in (0, 1))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    client = TargetClient(Domain("a", samples, samples), model, LocalTraining(0.01, 2, optimizer="sgd"))
    arrays, _, metrics = client.fit(client.get_parameters({}), {"server-round": 1, "batch-updates": "norms"})
    assert metrics["num-steps"] == 2
    assert math.isfinite(metrics["train-loss"])
    other.load_state_dict(dict(zip(before, map(torch.from_numpy, arrays), strict=True)))
    for (key, value), sent in zip(other.state_dict().items(), arrays, strict=True):
        assert np.array_equal(value.numpy(), sent), key
        assert value.dtype == before[key].dtype, key
        assert name.startswith("efficientnet") or not torch.equal(value, before[key]), (
            key
        )  # BatchNorm undoes some
    with torch.no_grad():
        x, _ = tensors(samples)
        assert torch.equal(other.eval()(x), model.eval()(x))


@pytest.mark.parametrize("shape", [*SHAPES, (5, 40, 40), (1, 3, 9)])
def test_a_model_that_does_not_take_samples_names_all_that_do(shape):
    fitting = [name for name in OF_NUMBERS if takes(name, shape)]
    for name in OF_NUMBERS:
        if name not in fitting:
            with pytest.raises(ConfigError, check=names("model", name, f"one of {', '.join(fitting)}")):
                build_model(name, shape, 2, seed=0)


@pytest.mark.parametrize(("name", "side"), SMALLEST.items())
def test_images_that_are_too_small_are_refused(name, side):
    if side > 1:
        with pytest.raises(ConfigError, match=f"{side}x{side} or more", check=names("model", name)):
            build_model(name, (1, side - 1, side), 2, seed=0)
    assert build_model(name, (1, side, side), 2, seed=0).eval()(images(1, (1, side, side))).shape == (1, 2)


@pytest.mark.parametrize(
    ("name", "shape", "part", "remedy"),
    [
        ("logistic+conv3x64", (13,), "conv3x64", "fourier, hinges, mlp, logistic, sigmoid"),
        ("logistic+hinges", IMAGE, "hinges", "cnn"),
        ("torchvision:resnet18", (13,), "torchvision:resnet18", "hinges"),
    ],
)
def test_of_several_networks_the_one_that_does_not_take_the_samples_is_named(name, shape, part, remedy):
    with pytest.raises(ConfigError, check=names("model", part, remedy)):
        build_model(name, shape, 2, seed=0)


def test_a_network_that_reads_texts_is_alone():
    with pytest.raises(ConfigError, check=names("model", "minilm+hinges", "choose minilm alone")):
        check_name("minilm+hinges")


def test_hinges_by_hand_are_the_same_at_every_site_and_their_rows_stay_as_they_are():
    z = torch.tensor([[-3.0, 0.5], [1.0, 0.0]])
    expected = torch.tensor(
        [[-3, 0.5, 0, 1.2, 0, 0.5, 0, 0], [1, 0, 1.7, 0.7, 1, 0, 0.3, 0]], dtype=torch.float32
    )
    torch.testing.assert_close(Hinges()(z), expected / 6**0.5)
    sites = [split(build_model("hinges", (2,), 3, seed), Train("linear"), (2,)) for seed in (0, 1)]
    backbones = [site.backbone for site in sites]
    assert backbones[0] is not None
    assert backbones[1] is not None
    head = sites[0].trainable.get_submodule("head")
    with torch.no_grad():
        torch.testing.assert_close(sites[0].trainable(backbones[0](z)), head(Hinges()(z)))
    assert frozen_digest(backbones[0]) == frozen_digest(backbones[1]) != ""
    assert list(sites[0].trainable.state_dict()) == ["head.weight", "head.bias"]
    for columns, features in ((512, 2048), (513, 513)):
        wide = split(build_model("hinges", (columns,), 3, 0), Train("linear"), (columns,)).trainable
        assert wide.state_dict()["head.weight"].shape == (3, features)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        ("logistic", (13,), 2, 13 * 2 + 2),
        ("mlp", (13,), 2, 13 * 64 + 64 + 64 * 2 + 2),
        ("sigmoid", (50,), 10, 50 * 100 + 100 + 100 * 10 + 10),
        ("lenet", (1, 28, 28), 10, 44_426),
        # Convolutions of 1,216, 73,856 and twice 147,584; normalisation of 896; 1,290.
        ("conv4", (2, 28, 28), 10, 372_426),
        ("resnet9", (3, 32, 32), 10, 6_573_130),
        # torchvision's published 11,689,512 and 25,557,032, with a last layer of 10 for that of 1000.
        ("resnet18", (3, 32, 32), 10, 11_689_512 - 513 * 990),
        ("resnet50", (3, 32, 32), 10, 25_557_032 - 2049 * 990),
    ],
)
def test_the_number_of_parameters(name, shape, classes, count):
    model = build_model(name, shape, classes, seed=0)
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize(
    ("name", "option", "shape"), [("sigmoid", "hidden", (50,)), ("resnet9", "width", IMAGE)]
)
def test_the_width_is_an_option(name, option, shape):
    first = next(build_model(name, shape, 10, 0, {option: 7}).parameters())
    assert len(first) == 7
    with pytest.raises(ConfigError, check=names(f"option '{option}' of model '{name}'", 0)):
        build_model(name, shape, 10, 0, {option: 0})


def test_a_residual_adds_its_input():
    layers = Residual(nn.Linear(2, 2, bias=False), nn.ReLU())
    layers.load_state_dict({"0.weight": torch.eye(2)})
    assert layers(torch.tensor([[1.0, -3.0]])).tolist() == [[2.0, -3.0]]


def test_an_unknown_name_is_refused_with_the_valid_ones():
    with pytest.raises(ConfigError, check=names("model", "resnet", ", ".join(sorted([*MODELS, *FORMS])))):
        build_model("resnet", IMAGE, 10, seed=0)


def test_resnet9s_maximum_has_the_bits_of_the_pooling_that_a_gpu_has_no_deterministic_algorithm_for():
    """Where values are equal, as after ReLU, the same one has the gradient."""
    x = images(5, (3, 4, 4)).round(decimals=1)
    x[0, 0] = 0
    found = []
    for network in (ChannelMaximum(), nn.AdaptiveMaxPool2d(1)):
        inputs = x.clone().requires_grad_()
        outputs = network(inputs).flatten(1)
        (outputs * images(5, (3,))).sum().backward()
        found.append((outputs, inputs.grad))
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
