"""The head and the body of each network, and what belongs to BatchNorm."""

import pytest
import torch
from torch import nn

from fda_flower.errors import ConfigError
from fda_flower.models import MODELS, build_model
from fda_flower.models.parts import (
    batch_norm_names,
    batch_norms,
    features_of,
    has_body,
    head_names,
    head_of,
)

NETWORKS = [
    ("cnn", (1, 8, 8)),
    ("lenet", (1, 16, 16)),
    ("conv4", (1, 8, 8)),
    ("resnet9", (3, 16, 16)),
    ("resnet18", (3, 32, 32)),
    ("resnet50", (3, 32, 32)),
    ("mlp", (4,)),
    ("logistic", (4,)),
    ("sigmoid", (4,)),
]


def test_all_networks_are_here():
    assert {name for name, _ in NETWORKS} == set(MODELS)


@pytest.mark.parametrize(("name", "shape"), NETWORKS)
def test_the_head_turns_features_into_outputs(name, shape):
    model = build_model(name, shape, 5, seed=0).eval()
    x = torch.rand(3, *shape)
    with features_of(model) as features, torch.no_grad():
        outputs = model(x)
    (found,) = features
    assert found.ndim == 2
    assert torch.equal(head_of(model)(found), outputs)
    weight, bias = head_names(model)
    assert model.state_dict()[weight].shape == (5, found.shape[1])
    assert model.state_dict()[bias].shape == (5,)
    assert has_body(model) == (name != "logistic")
    with torch.no_grad():
        model(x)
    assert len(features) == 1, "nothing is collected afterwards"


class WithOwnHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)
        self.head = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
        self.other = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.body(x))


def test_a_network_can_say_what_its_head_is():
    model = WithOwnHead()
    assert head_of(model) is model.head
    assert head_names(model) == ("head.0.weight", "head.0.bias", "head.2.weight", "head.2.bias")


def test_a_shared_head_has_all_of_its_names():
    model = nn.Module()
    model.a = nn.Linear(2, 2)
    model.b = model.a
    assert head_names(model) == ("a.weight", "a.bias", "b.weight", "b.bias")
    assert not has_body(model)


def test_a_network_that_is_one_layer_is_its_own_head():
    model = nn.Linear(3, 2)
    assert head_names(model) == ("weight", "bias")
    assert not has_body(model)


def test_a_network_without_a_linear_layer_has_no_head():
    with pytest.raises(ConfigError, match=r"has no head.*attribute 'head'"):
        head_of(nn.Conv2d(1, 2, 3))


def test_arrays_of_batch_norm_are_found_in_order():
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Sequential(nn.BatchNorm2d(2, affine=False))
    )
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    assert batch_norm_names(model) == (
        *("1.weight", "1.bias"),
        *(f"1.{name}" for name in statistics),
        *(f"2.0.{name}" for name in statistics),
    )
    assert batch_norm_names(build_model("conv4", (1, 8, 8), 2, seed=0)) == (), "GroupNorm is not BatchNorm"


def test_batch_norm_layers_are_found():
    layers = [nn.BatchNorm1d(3), nn.BatchNorm1d(3, track_running_stats=False), nn.GroupNorm(1, 3)]
    inner = nn.BatchNorm2d(3)
    assert batch_norms(nn.Sequential(*layers, nn.Sequential(inner))) == [*layers[:2], inner]
