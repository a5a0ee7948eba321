"""The numbers by which a network whose code has changed is noticed."""

import pytest
import torch

from fda_flower.errors import ConfigError
from fda_flower.files import TOLERANCE, check_same_network
from fda_flower.models.probe import answers, is_foreign

CODE = """
import torch
from torch import nn
from torch.nn import functional

class Net(nn.Module):
    def __init__(self, shape, classes, act, last=lambda x: x):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(shape[0], 4, 3), nn.BatchNorm2d(4)
        self.register_buffer("scale", torch.tensor(2.0))
        self.head, self.act, self.last = nn.LazyLinear(classes), act, last

    def forward(self, x):
        return self.last(self.head(self.scale * self.act(self.norm(self.conv(x))).flatten(1)))

def act(shape, classes, name="relu"):
    return Net(shape, classes, getattr(functional, name))

def times(shape, classes, factor=1.0):
    return Net(shape, classes, functional.relu, lambda x: x * factor)

def noisy(shape, classes):
    return Net(shape, classes, functional.dropout)

def rate(shape, classes, p=0.5):
    return Net(shape, classes, nn.Dropout(p))

def endless(shape, classes):
    return Net(shape, classes, torch.log)

def fails(shape, classes):
    return Net(shape, classes, lambda x: x @ x.new_zeros(3))
"""
SHAPE, CLASSES = (3, 8, 8), 5


@pytest.fixture
def of(tmp_path, monkeypatch):
    """The numbers of a function in CODE."""
    (tmp_path / "probed.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda function, **options: answers(f"probed:{function}", SHAPE, CLASSES, options)


@pytest.mark.parametrize(
    "option", [{"name": "tanh"}, {"name": "gelu"}, {"name": "leaky_relu"}, {"name": "elu"}]
)
def test_another_function_of_the_same_weights_is_noticed(of, option):
    before = of("act")
    assert len(before) == 8
    check_same_network("mine", before, of("act"), "then", "restore it")
    with pytest.raises(ConfigError, match="'mine' has changed since then"):
        check_same_network("mine", before, of("act", **option), "then", "restore it")


def test_rounding_of_another_machine_is_no_change(of):
    before, state = of("times"), torch.random.get_rng_state()
    check_same_network("mine", before, of("times", factor=1 + TOLERANCE / 3), "then", "restore it")
    with pytest.raises(ConfigError):
        check_same_network("mine", before, of("times", factor=1 + 3 * TOLERANCE), "then", "restore it")
    assert torch.equal(torch.random.get_rng_state(), state)


def test_chance_is_the_same_each_time_and_what_acts_in_training_alone_does_not_show(of):
    assert of("noisy") == of("noisy") != ()
    assert of("rate") == of("rate", p=0.1)


@pytest.mark.parametrize("name", ["endless", "fails"])
def test_a_network_without_numbers_is_not_compared(of, name):
    assert of(name) == ()
    check_same_network("mine", of("act"), (), "then", "restore it")
    check_same_network("mine", (), of("act"), "then", "restore it")


def test_our_own_networks_have_none():
    assert answers("cnn", SHAPE, CLASSES, {}) == answers("logistic+conv3x64", SHAPE, CLASSES, {}) == ()
    assert is_foreign("torchvision:resnet18")
