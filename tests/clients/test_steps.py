from collections import OrderedDict
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from fda_flower.clients import steps
from fda_flower.clients.settings import LocalTraining
from fda_flower.clients.training import train
from fda_flower.datasets import Samples
from fda_flower.models.parts import in_precision
from fda_flower.models.rows import PlainColumns
from fda_flower.models.split import KindsOfRows, Rows

COLUMNS, CLASSES, STEPS = 6, 4, 5
"""Of the samples, and the steps of a training: 22 samples in batches of 5, the last one of 2."""

SGD, ADAM = (LocalTraining(0.3, 5, 1, name, "keep-last") for name in ("sgd", "adam"))


def samples() -> Samples:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(22, 2, 3, generator=generator).numpy()
    return Samples(x, torch.randint(CLASSES, (22,), generator=generator).numpy())


def linear(rows: nn.Module) -> nn.Sequential:
    layers = {"body": nn.Sequential(nn.Flatten(), nn.Identity()), "rows": rows}
    return nn.Sequential(OrderedDict(layers, head=nn.Linear(COLUMNS, CLASSES)))


def mlp(hidden: int = 5) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(COLUMNS, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES), nn.Identity()
    )


def frozen() -> nn.Sequential:
    network = mlp()
    network[1].requires_grad_(False)
    network[3].weight.requires_grad_(False)
    return network


def bare() -> nn.Sequential:
    """Layers without bias and, inside, a network of three layers with ReLU after the last one."""
    inner = nn.Sequential(mlp(), nn.ReLU(), nn.Linear(CLASSES, 3, bias=False))
    return nn.Sequential(inner, nn.Linear(3, CLASSES, bias=False), nn.ReLU())


CASES = [
    *product([lambda: linear(nn.Identity()), bare, mlp, lambda: mlp(1), frozen], ["all"]),
    *product([mlp, bare], ["head", "body"]),
    (lambda: linear(Rows(0.5)), "all"),
    (lambda: linear(PlainColumns()), "head"),
    (lambda: linear(KindsOfRows([Rows(0.5), Rows(1.0)], [2, 4])), "all"),
]


@pytest.fixture
def backwards(monkeypatch):
    """Autograd's backward passes."""
    calls, backward = [], torch.autograd.backward
    monkeypatch.setattr(torch.autograd, "backward", lambda loss: calls.append(backward(loss)))
    return calls


def trained(network, training, part="all", objective=None):
    """Train twice; return the parameters after each step, and what `train` returns."""
    states = []

    def on_step():
        states.extend(parameter.detach().clone() for parameter in network.parameters())

    ends = [
        train(network, samples(), training, torch.Generator().manual_seed(seed), objective, part, on_step)
        for seed in range(2)
    ]
    return ends, states


def assert_autograds(make, training, part="all", objective=None):
    """Check that training in this way, and by autograd alone, have equal bits."""

    def ends(make=make):
        torch.manual_seed(1)
        return trained(make(), training, part, objective)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fda_flower.clients.training.fastest", lambda *given: given[-1]())
        theirs = ends()
    ours = ends()
    assert ours[0] == theirs[0]
    assert all(torch.equal(*pair) for pair in zip(ours[1], theirs[1], strict=True))


@pytest.mark.parametrize("training", [SGD, ADAM], ids=["sgd", "adam"])
@pytest.mark.parametrize(("make", "part"), CASES)
def test_a_step_written_out_has_autograds_bits(make, part, training, backwards):
    assert_autograds(make, training, part)
    assert len(backwards) == 2 * STEPS + 1  # only the first batch went both ways


class Doubled(nn.Linear):
    def forward(self, input):
        return 2 * super().forward(input)


def changed(change):
    def make():
        network = mlp()
        change(network)
        return network

    return make


OTHERS = {
    "another layer": lambda network: network.append(nn.Tanh()),
    "a subclass": lambda network: network.append(Doubled(CLASSES, CLASSES)),
    "a function": lambda network: setattr(network[4], "forward", lambda x: 2 * x),
    "a forward hook": lambda network: network[1].register_forward_hook(lambda *given: 2 * given[-1]),
    "a hook before": lambda network: network.register_forward_pre_hook(lambda _, given: (2 * given[0],)),
    "a backward hook": lambda network: network[3].register_full_backward_hook(lambda *given: None),
    "a gradient's hook": lambda network: network[1].weight.register_hook(lambda gradient: 2 * gradient),
    "a hook after": lambda network: network[3].bias.register_post_accumulate_grad_hook(
        lambda parameter: setattr(parameter, "grad", 2 * parameter.grad)
    ),
    "a shared layer": lambda network: network.extend([nn.Linear(CLASSES, CLASSES)] * 2),
    "in place": lambda network: network.extend([nn.ReLU(inplace=True)]),
    "flat at the end": lambda network: network.append(nn.Flatten()),
    "bf16": lambda network: in_precision(network, "bf16"),
    "an order in memory": lambda network: setattr(
        network[1], "weight", nn.Parameter(torch.ones(COLUMNS, 5).t() / 9)
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_train_by_autograd(name, backwards):
    assert_autograds(changed(OTHERS[name]), SGD)
    assert len(backwards) == 4 * STEPS


def doubled_loss(model, x, y):
    return 2 * nn.functional.cross_entropy(model(x), y)


@pytest.mark.parametrize(
    ("training", "objective"),
    [
        (SGD, doubled_loss),
        (LocalTraining(0.3, 5, proximal=1.0), None),
        (LocalTraining(0.3, 5, class_weights="balanced"), None),
    ],
)
def test_other_losses_train_by_autograd(training, objective, backwards):
    assert_autograds(mlp, training, objective=objective)
    assert len(backwards) == 4 * STEPS


@pytest.mark.parametrize("register", [register_module_forward_hook, register_optimizer_step_pre_hook])
def test_hooks_of_all_modules_and_optimizers_are_called(register, backwards):
    calls, network = [], mlp()
    trained(network, SGD)
    handle = register(lambda *given: calls.append(given))
    try:
        trained(network, SGD)
    finally:
        handle.remove()
    assert len(calls) >= 2 * STEPS
    assert len(backwards) == 1 + 2 * STEPS
    trained(network, SGD)
    assert len(backwards) == 1 + 2 * STEPS


@pytest.mark.parametrize("fault", ["gradients", "optimizer", "raises"])
def test_numbers_that_differ_leave_the_network_to_autograd(fault, monkeypatch, backwards):
    right = steps.WrittenOut._back

    def back(network, *given):
        return [2 * gradient for gradient in right(network, *given)] if fault == "gradients" else 1 / 0

    if fault == "optimizer":
        monkeypatch.setitem(steps.UPDATES, "sgd", lambda rate: steps._descent(2 * rate))
    else:
        monkeypatch.setattr(steps.WrittenOut, "_back", back)
    assert_autograds(mlp, SGD)
    assert len(backwards) == 4 * STEPS
