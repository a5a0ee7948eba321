"""Optimizers without the compiler are PyTorch's in all but what they import."""

import subprocess
import sys
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from fda_flower.clients.local_training import OPTIMIZERS
from fda_flower.clients.training import uncompiled

KINDS = {"adam": (torch.optim.Adam, {"fused": True}), "sgd": (torch.optim.SGD, {})}

pytestmark = pytest.mark.parametrize("name", sorted(OPTIMIZERS))


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(number))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def bits(model: nn.Module) -> list[bytes]:
    return [parameter.detach().numpy().tobytes() for parameter in model.parameters()]


def theirs(name: str, model: nn.Module) -> torch.optim.Optimizer:
    kind, options = KINDS[name]
    return kind(model.parameters(), lr=0.1, **options)


def test_its_steps_have_the_bits_of_pytorchs(name):
    ours, reference = network(), network()
    optimizers = OPTIMIZERS[name](ours.parameters(), lr=0.1), theirs(name, reference)
    before = bits(ours)
    for number in range(5):
        for model, optimizer in zip((ours, reference), optimizers, strict=True):
            step(model, optimizer, number)
            optimizer.param_groups[0]["lr"] *= 0.5
    assert bits(ours) == bits(reference) != before
    assert repr(optimizers[0]) == repr(optimizers[1])


def test_it_takes_over_the_state_of_pytorchs(name):
    ours, reference = network(), network()
    optimizer, other = OPTIMIZERS[name](ours.parameters(), lr=0.7), theirs(name, reference)
    step(reference, other, 0)
    ours.load_state_dict(reference.state_dict())
    optimizer.load_state_dict(deepcopy(other.state_dict()))
    for number in range(1, 4):
        step(ours, optimizer, number)
        step(reference, other, number)
    assert bits(ours) == bits(reference)
    assert optimizer.state_dict()["param_groups"] == other.state_dict()["param_groups"]


def test_its_steps_take_no_gradients_and_call_hooks(name):
    model, seen = network(), []
    optimizer = OPTIMIZERS[name](model.parameters(), lr=0.1)
    hook = register_optimizer_step_post_hook(lambda stepped, *_: seen.append(stepped))
    try:
        step(model, optimizer, 0)
    finally:
        hook.remove()
    assert seen == [optimizer]
    assert all(parameter.is_leaf for parameter in model.parameters())


def test_pytorchs_own_class_stays_as_it_is(name):
    kind, _ = KINDS[name]
    methods = dict(vars(kind))
    assert issubclass(uncompiled(kind), kind)
    assert dict(vars(kind)) == methods


def test_it_does_not_import_the_compiler(name):
    code = f"""
import sys
import torch
from fda_flower.clients.local_training import OPTIMIZERS
weight = torch.nn.Parameter(torch.ones(2))
optimizer = OPTIMIZERS[{name!r}]([weight], lr=0.5)
optimizer.zero_grad()
weight.sum().backward()
optimizer.step()
optimizer.load_state_dict(optimizer.state_dict())
assert weight.tolist() != [1, 1]
assert "torch._dynamo" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
