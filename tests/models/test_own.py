"""A network by package.module:function."""

import sys

import pytest
import torch
from naming import names
from torch import nn

from fda_flower import RunConfig, run
from fda_flower.errors import ConfigError
from fda_flower.models import build_model

CODE = """
from math import prod
from torch import nn

def small(shape, classes, width: int = 4):
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), width), nn.Linear(width, classes))

class Net:
    small = staticmethod(small)

def wide(shape, classes):
    return small(shape, classes + 1)

class Pair(nn.Module):
    def forward(self, x):
        return x, x

def pair(shape, classes):
    return Pair()

def fails(shape, classes):
    return nn.Linear(3, classes)

def nothing(shape, classes):
    return None

def other(inputs, outputs):
    return None

number = 3
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """The current folder holds a module of networks."""
    (tmp_path / "our_networks.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    sys.modules.pop("our_networks", None)


def test_a_network_of_ones_own_is_run_with_its_options():
    config = RunConfig(model="our_networks:small", model_options={"width": "5"})
    assert (config.model, config.model_options) == ("our_networks:small", (("width", 5),))
    network, again = (build_model(config.model, (1, 8, 8), 10, 0, {"width": 5}) for _ in range(2))
    assert isinstance(network, nn.Sequential)
    assert network.training, "it was only evaluated for the check"
    assert torch.equal(next(network.parameters()), next(again.parameters()))
    assert build_model("our_networks:Net.small", (3,), 2, 0)
    result = run(model="our_networks:small", rounds=1, target_samples=16, device="cpu")
    assert len(result.accuracies) == 1


@pytest.mark.parametrize(
    ("reference", "says", "remedy"),
    [
        ("no_such_module:small", "ModuleNotFoundError", "install its package"),
        ("our_networks:nope", "AttributeError", "install its package"),
        ("our_networks:number", r"takes \(\)", "whose first arguments are shape"),
        ("our_networks:other", r"takes \(inputs, outputs\)", "whose first arguments are shape"),
    ],
)
def test_a_reference_to_something_else_is_an_error_before_any_data_are_read(reference, says, remedy):
    with pytest.raises(ConfigError, match=says, check=names("model", reference, remedy)):
        RunConfig(model=reference)


def test_an_unknown_option_of_it_is_an_error():
    with pytest.raises(ConfigError, check=names("option", "depth", "width")):
        RunConfig(model="our_networks:small", model_options={"depth": 2})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("wide", r"\(1, 11\) .* \(1, 8, 8\), not \(1, 10\)"),
        ("pair", "tuple"),
        ("fails", r"fails .*\(1, 8, 8\) \("),
        ("nothing", "NoneType"),
    ],
)
def test_a_network_with_other_outputs_is_an_error_before_training(name, says):
    with pytest.raises(ConfigError, match=says, check=names("model", f"our_networks:{name}")):
        run(model=f"our_networks:{name}", rounds=1)
