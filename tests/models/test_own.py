"""A network by package.module:function."""

from pathlib import Path

import pytest
import torch
from torch import nn

from fda_flower import RunConfig, run
from fda_flower.errors import ConfigError
from fda_flower.models import build_model

CODE = """
import torch
from torch import nn

class Net:
    @staticmethod
    def small(shape, classes, width: int = 4):
        hidden = nn.Linear(torch.Size(shape).numel(), width)
        return nn.Sequential(nn.Flatten(), hidden, nn.Linear(width, classes))

def small(shape, classes, width: int = 4, dropout: float = 0.0):
    hidden = nn.Linear(torch.Size(shape).numel(), width)
    return nn.Sequential(nn.Flatten(), hidden, nn.Dropout(dropout), nn.Linear(width, classes))

def wide(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), classes + 1))

def pair(shape, classes):
    class Pair(nn.Module):
        def forward(self, x):
            return x, x
    return Pair()

def fails(shape, classes):
    return nn.Linear(3, classes)

def nothing(shape, classes):
    return None

def other(inputs, outputs):
    return None

number = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which holds a module of networks."""
    (tmp_path / "our_networks.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    __import__("sys").modules.pop("our_networks", None)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_a_network_of_ones_own_is_run_with_its_options() -> None:
    config = RunConfig(model="our_networks:small", model_options={"width": "5"})
    assert (config.model, config.model_options) == ("our_networks:small", (("width", 5),))
    network = build_model(config.model, (1, 8, 8), 10, 0, {"width": 5})
    assert isinstance(network, nn.Sequential)
    assert network.training, "it was only evaluated for the check"
    assert torch.equal(
        next(network.parameters()),
        next(build_model(config.model, (1, 8, 8), 10, 0, {"width": 5}).parameters()),
    )
    assert build_model("our_networks:Net.small", (3,), 2, 0)
    result = run(model="our_networks:small", rounds=1, target_samples=16, device="cpu")
    assert len(result.accuracies) == 1


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("no_such_module:small", "cannot be loaded .ModuleNotFoundError.*at every site: install its package"),
        ("our_networks:nope", "cannot be loaded .AttributeError"),
        ("our_networks:number", r"takes \(\): let it be a function whose first arguments are shape"),
        ("our_networks:other", r"takes \(inputs, outputs\)"),
    ],
)
def test_a_reference_to_something_else_is_an_error_before_any_data_are_read(
    reference: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=f"model '{reference}' {says}"):
        RunConfig(model=reference)


@pytest.mark.usefixtures("here")
def test_an_unknown_option_of_it_is_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown option 'depth' of model 'our_networks:small'.*: .* width, dropout"
    ):
        RunConfig(model="our_networks:small", model_options={"depth": 2})


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("wide", r"gives \(1, 11\) for one sample of shape \(1, 8, 8\), not \(1, 10\)"),
        ("pair", r"gives tuple for one sample"),
        ("fails", r"fails on a sample of shape \(1, 8, 8\) \("),
        ("nothing", "returns a NoneType, not a torch.nn.Module"),
    ],
)
def test_a_network_with_other_outputs_is_an_error_before_training(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"model 'our_networks:{name}' {says}"):
        run(model=f"our_networks:{name}", rounds=1)
