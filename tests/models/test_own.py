"""A network by package.module:function."""

import sys

import numpy as np
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

STATES = """
import torch
from math import prod
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, classes, **state):
        super().__init__()
        self.body, self.head = nn.Linear(prod(shape), 8), nn.Linear(8, classes)
        for name, value in state.items():
            self.register_buffer(name, value)

    def forward(self, x):
        return self.head(self.body(x.flatten(1)))

def half(shape, classes):
    network = Net(shape, classes)
    network.body.register_forward_pre_hook(lambda _, inputs: inputs[0].bfloat16())
    network.head.register_forward_pre_hook(lambda _, inputs: inputs[0].float())
    network.body.bfloat16().requires_grad_(False)
    return network

def float8(shape, classes):
    return Net(shape, classes, scale=torch.ones(2).to(torch.float8_e5m2))

def complex_(shape, classes):
    return Net(shape, classes, scale=torch.ones(2, dtype=torch.complex64))

def sparse(shape, classes):
    return Net(shape, classes, scale=torch.eye(3).to_sparse())

def expanded(shape, classes):
    return Net(shape, classes, scale=torch.ones(1).expand(3))

def infinite(shape, classes):
    return Net(shape, classes, scale=torch.full((2, 2), -torch.inf).triu(1))

def meta(shape, classes):
    with torch.device("meta"):
        return Net(shape, classes)

def uninitialised(shape, classes):
    network = Net(shape, classes)
    network.scale = nn.LazyLinear(2)
    return network

class Extra(Net):
    def get_extra_state(self):
        return {"calls": 3}

def extra(shape, classes):
    return Extra(shape, classes)

class Unregistered(Net):
    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.layers = [nn.Linear(8, 8)]

    def forward(self, x):
        return self.head(self.layers[0](self.body(x.flatten(1))))

def unregistered(shape, classes):
    return Unregistered(shape, classes)

class Random(Net):
    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.register_buffer("scale", torch.randn(8), persistent=False)

    def forward(self, x):
        return self.head(self.scale * self.body(x.flatten(1)))

def unsaved(shape, classes):
    return Random(shape, classes)

class Hiding(Net):
    def state_dict(self, *args, **options):
        state = super().state_dict(*args, **options)
        return {name: value for name, value in state.items() if name != "body.weight"}

def hiding(shape, classes):
    return Hiding(shape, classes)

class Copying(Net):
    def state_dict(self, *args, **options):
        return {name: value.clone() for name, value in super().state_dict(*args, **options).items()}

def copying(shape, classes):
    return Copying(shape, classes)

def irregular(shape, classes):
    return Net(shape, classes, **{f"number_{torch.randint(10**9, ())}": torch.ones(1)})

class Mixed(Net):
    def forward(self, x):
        return self.head(self.body(x.flatten(1).half()).double()).float()

def mixed(shape, classes):
    kinds = [torch.bool, torch.uint8, torch.float16, torch.float64]
    buffers = {f"buffer{i}": torch.ones(2, dtype=kind) for i, kind in enumerate(kinds)}
    network = Mixed(shape, classes, **buffers, buffer=torch.tensor(2**62 + 1))
    network.body.half()
    network.head.double()
    network.number, network.empty = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.zeros(0, 3))
    network.register_buffer("mask", torch.full((2, 2), -torch.inf), persistent=False)
    network.register_buffer("frozen", None)
    return network

def lazy(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(6), nn.LazyBatchNorm1d(), nn.Linear(6, classes))

class Training(Net):
    def __init__(self, shape, classes, returns):
        super().__init__(shape, classes)
        self.returns = returns

    def forward(self, x):
        outputs = super().forward(x)
        return self.returns(outputs) if self.training else outputs

def auxiliary(shape, classes, weights: str = ""):
    return Training(shape, classes, lambda outputs: (outputs, outputs))

def mapping(shape, classes):
    return Training(shape, classes, lambda outputs: {"logits": outputs})

def wider(shape, classes):
    return Training(shape, classes, lambda outputs: outputs.repeat(1, 2))

def whole(shape, classes):
    return Training(shape, classes, lambda outputs: outputs.argmax(1))

def still(shape, classes):
    return Net(shape, classes).requires_grad_(False)

def double(shape, classes):
    return Net(shape, classes).double()

def shares(shape, classes):
    return nn.Sequential(Net(shape, classes), nn.Softmax(1))

def detached(shape, classes):
    return Training(shape, classes, lambda outputs: outputs.detach())

def failing(shape, classes):
    return Training(shape, classes, lambda outputs: outputs["logits"])

def uncopied(shape, classes):
    return Training(shape, classes, (each for each in ()))
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """The current folder holds a module of networks."""
    (tmp_path / "our_networks.py").write_text(CODE)
    (tmp_path / "our_states.py").write_text(STATES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    for name in ("our_networks", "our_states"):
        sys.modules.pop(name, None)


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


@pytest.mark.parametrize(
    ("name", "says", "remedy"),
    [
        ("half", r"'body.weight' .* bfloat16", "float32"),
        ("float8", "'scale' .* float8_e5m2", "float32"),
        ("complex_", "'scale' .* complex64", "view_as_real"),
        ("sparse", "'scale' .* sparse", "to_dense"),
        ("expanded", "'scale' .* share memory", "clone"),
        ("infinite", "'scale' .* not finite", "persistent=False"),
        ("meta", "'body.weight' .* without values", "values"),
        ("uninitialised", "'scale.weight' .* without values", "values"),
        ("extra", "'_extra_state' .* dict", "get_extra_state"),
        ("unregistered", "does not hold", "ModuleList"),
        ("unsaved", "does not hold", "register_buffer"),
        ("hiding", "does not hold", "register_buffer"),
        ("copying", "does not hold", "register_buffer"),
        ("irregular", "other names or shapes", "same layers"),
    ],
)
def test_a_state_that_does_not_travel_whole_is_an_error_before_training(name, says, remedy):
    with pytest.raises(ConfigError, match=says, check=names("model", f"our_states:{name}", remedy)):
        build_model(f"our_states:{name}", (1, 8, 8), 10, 0)


@pytest.mark.parametrize("name", ["mixed", "lazy"])
def test_a_state_of_any_type_that_numpy_has_travels_bit_for_bit(name):
    first = build_model(f"our_states:{name}", (1, 8, 8), 10, 0).state_dict()
    result = run(model=f"our_states:{name}", rounds=1, method="fedgp-auto", target_samples=16, device="cpu")
    assert {n: t.shape for n, t in first.items()} == {n: a.shape for n, a in result.model.items()}
    assert {n: t.numpy().dtype for n, t in first.items()} == {n: a.dtype for n, a in result.model.items()}
    kept = {n: t for n, t in first.items() if n.startswith("buffer") or n in ("number", "empty")}
    assert all(np.array_equal(result.model[n], t) for n, t in kept.items())
    assert all(source["fallback"] is None for source in result.history[-1]["sources"].values())


@pytest.mark.parametrize(
    ("name", "says", "remedy"),
    [
        ("auxiliary", "tuple .* in training mode", "outputs.logits"),
        ("mapping", "dict .* in training mode", "outputs.logits"),
        ("wider", r"\(2, 20\) .* in training mode", "fix it"),
        ("whole", "int64 .* in training mode", "fix it"),
        ("failing", "fails .* in training mode", "fix it"),
        ("detached", "without gradients", "detach"),
        ("still", "no parameter to train", "requires_grad"),
        ("double", "Double", "network.float"),
        ("uncopied", "cannot be copied", "deepcopy"),
    ],
)
def test_a_network_that_fails_in_training_mode_alone_is_an_error_before_training(name, says, remedy):
    with pytest.raises(ConfigError, match=says, check=names("model", f"our_states:{name}", remedy)):
        run(model=f"our_states:{name}", rounds=1)


def test_a_network_that_ends_in_probabilities_is_told(caplog):
    for name, told in (("mixed", False), ("shares", True)):
        build_model(f"our_states:{name}", (1, 8, 8), 10, 0)
        assert any("softmax" in line for line in caplog.messages) == told


def test_of_a_network_whose_head_is_trained_alone_the_rest_is_never_in_training_mode():
    result = run(
        model="our_states:auxiliary",
        model_options={"weights": "own"},
        train="head",
        rounds=1,
        target_samples=16,
        device="cpu",
    )
    assert len(result.accuracies) == 1
