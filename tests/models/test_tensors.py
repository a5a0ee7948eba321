"""The tensors of a network are those of its state dictionary, whatever becomes of the network."""

import gc

import pytest
import torch
from torch import nn

from fda_flower.models import MODELS, build_model, parts
from fda_flower.models.parts import tensors

SHAPES = {"mlp": (4,), "logistic": (4,), "sigmoid": (4,), "resnet18": (3, 32, 32), "resnet50": (3, 32, 32)}


def same(network):
    """Whether name, order and memory are those of the state dictionary."""
    expected = {name: (t.data_ptr(), t.shape) for name, t in network.state_dict().items()}
    found = {name: (t.data_ptr(), t.shape) for name, t in tensors(network).items()}
    return list(found.items()) == list(expected.items())


@pytest.mark.parametrize("name", MODELS)
def test_they_are_those_of_the_state_dictionary(name):
    network = build_model(name, SHAPES.get(name, (3, 16, 16)), 5, seed=0)
    assert same(network)
    assert not any(tensor.requires_grad for tensor in tensors(network).values())


def test_they_follow_a_network_whose_tensors_are_replaced():
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    assert same(network)
    network.to(torch.float64)
    network[1].running_mean = torch.ones(2)
    assert same(network)
    assert tensors(network)["1.running_mean"].tolist() == [1, 1]


def test_parameters_with_two_names_and_buffers_that_are_not_saved():
    network = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    network["b"].weight = network["a"].weight
    network.register_buffer("left_out", torch.zeros(3), persistent=False)
    assert same(network)
    assert list(tensors(network)) == ["a.weight", "a.bias", "b.weight", "b.bias"]


def test_a_network_with_a_state_of_its_own_kind():
    class Scaled(nn.Linear):
        def _save_to_state_dict(self, destination, prefix, keep_vars):
            destination[prefix + "doubled"] = 2 * self.weight.detach()

    network = Scaled(2, 2)
    assert torch.equal(tensors(network)["doubled"], 2 * network.weight)
    assert network not in parts._KNOWN


def test_no_network_is_kept_alive():
    network = nn.Linear(2, 2)
    tensors(network)
    gc.collect()
    before = len(parts._KNOWN)
    del network
    gc.collect()
    assert len(parts._KNOWN) == before - 1
