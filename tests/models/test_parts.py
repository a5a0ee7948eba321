"""Parts of a network: its head and body, what belongs to BatchNorm, and the tensors of its state."""

import gc

import pytest
import torch
from naming import names
from torch import nn

from fda_flower.errors import ConfigError
from fda_flower.models import MODELS, build_model, parts, reads_text
from fda_flower.models.parts import batch_norm_names, batch_norms, features_of, has_body, head_names, head_of

FLAT = ("mlp", "logistic", "sigmoid", "hinges")


def test_parameters_are_those_of_torch_each_once():
    layer = nn.Linear(2, 2, bias=False)
    network = nn.Sequential(
        layer, nn.BatchNorm1d(2, affine=False), nn.Sequential(nn.ReLU(), layer), nn.Linear(2, 1)
    )
    for _ in range(2):
        known = zip(parts.parameters_of(network), network.parameters(), strict=True)
        assert all(one is other for one, other in known)
    assert parts.modules_of(network) == [*network.modules()]


def shape_of(name):
    if reads_text(name):
        pytest.importorskip(MODELS[name].package)
        return (300,)
    side = 32 if name in ("resnet18", "resnet50") else 16
    return (4,) if name in FLAT else (3, side, side)


@pytest.mark.parametrize("name", MODELS)
def test_the_head_turns_features_into_outputs(name):
    model = build_model(name, shape_of(name), 5, seed=0).eval()
    x = torch.rand(3, *shape_of(name))
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


def test_a_network_can_say_what_its_head_is():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(2, 2))
    model.head = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    assert head_of(model) is model.head
    assert head_names(model) == ("head.0.weight", "head.0.bias", "head.2.weight", "head.2.bias")
    with pytest.raises(ConfigError, check=names("", None, "attribute 'head'")):
        head_of(nn.Conv2d(1, 2, 3))


def test_a_shared_head_has_all_of_its_names_and_one_layer_is_its_own():
    model = nn.ModuleDict({"a": nn.Linear(2, 2)})
    model["b"] = model["a"]
    assert head_names(model) == ("a.weight", "a.bias", "b.weight", "b.bias")
    assert head_names(nn.Linear(3, 2)) == ("weight", "bias")
    assert not has_body(model)
    assert not has_body(nn.Linear(3, 2))


def test_layers_and_arrays_of_batch_norm_are_found_in_order():
    first, inner = nn.BatchNorm2d(2), nn.BatchNorm2d(2, affine=False)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), first, nn.Sequential(inner), nn.GroupNorm(1, 3))
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    assert batch_norms(model) == [first, inner]
    assert batch_norm_names(model) == (
        *("1.weight", "1.bias"),
        *(f"1.{name}" for name in statistics),
        *(f"2.0.{name}" for name in statistics),
    )
    assert batch_norm_names(build_model("conv4", (1, 8, 8), 2, seed=0)) == ()


# The tensors of the state dictionary


def same(network):
    """Whether name, order and memory are those of the state dictionary."""
    expected = {name: (t.data_ptr(), t.shape) for name, t in network.state_dict().items()}
    found = {name: (t.data_ptr(), t.shape) for name, t in parts.tensors(network).items()}
    return list(found.items()) == list(expected.items())


@pytest.mark.parametrize("name", MODELS)
def test_tensors_are_those_of_the_state_dictionary(name):
    network = build_model(name, shape_of(name), 5, seed=0)
    assert same(network)
    assert not any(tensor.requires_grad for tensor in parts.tensors(network).values())


def test_tensors_follow_a_network_whose_tensors_are_replaced():
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    assert same(network)
    network.to(torch.float64)
    network[1].running_mean = torch.ones(2)
    assert same(network)
    assert parts.tensors(network)["1.running_mean"].tolist() == [1, 1]


def test_tensors_with_two_names_and_buffers_that_are_not_saved():
    network = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    network["b"].weight = network["a"].weight
    network.register_buffer("left_out", torch.zeros(3), persistent=False)
    assert same(network)
    assert list(parts.tensors(network)) == ["a.weight", "a.bias", "b.weight", "b.bias"]


def test_a_network_with_a_state_of_its_own_kind():
    class Scaled(nn.Linear):
        def _save_to_state_dict(self, destination, prefix, keep_vars):
            destination[prefix + "doubled"] = 2 * self.weight.detach()

    network = Scaled(2, 2)
    for factor in (1, 3):
        network.weight.data *= factor
        assert torch.equal(parts.tensors(network)["doubled"], 2 * network.weight)


def test_no_network_is_kept_alive():
    network = nn.Linear(2, 2)
    parts.tensors(network)
    gc.collect()
    before = len(parts._KNOWN)
    del network
    gc.collect()
    assert len(parts._KNOWN) == before - 1
