"""What of a network is trained, and where it is cut: what comes before makes features, once."""

import copy
from typing import Any, cast

import numpy as np
import pytest
import torch
from naming import names
from torch import nn

from fda_flower.errors import ConfigError
from fda_flower.models import Train, build_model
from fda_flower.models.parts import frozen_names
from fda_flower.models.split import Features, split
from fda_flower.prediction.network_passes import load_layers

SHAPE = (3, 16, 16)


class Net(nn.Module):
    """A stem, blocks with BatchNorm, a layer after them, and a head; some networks do more between these."""

    def __init__(self, adds: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.blocks = nn.Sequential(*(self._block() for _ in range(3)))
        self.after = nn.Conv2d(8, 12, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(12, 5)
        self.adds = adds

    def _block(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU()
        )

    def forward(self, x):
        x = self.stem(x) + (1.0 if self.adds else 0.0)
        return self.classifier(torch.flatten(self.pool(self.after(self.blocks(x)).relu()), 1))


def net(adds=False):
    torch.manual_seed(0)
    network = Net(adds)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
            assert module.running_var is not None
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return network.eval()


X = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(1))


def outputs(module):
    with torch.no_grad():
        return module.eval()(X)


def whole_of(parts):
    return parts.trainable if parts.backbone is None else nn.Sequential(parts.backbone, parts.trainable)


def trained(trainable):
    return [name for name, parameter in trainable.named_parameters() if parameter.requires_grad]


LAST = [f"blocks.2.{name}" for name in ("0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias")]
HEAD = ["classifier.weight", "classifier.bias"]


@pytest.mark.parametrize("text", ["body", "adapters", "adapters:0", "adapters:two", "head:3", ""])
def test_another_word_is_refused_with_those_that_there_are(text):
    with pytest.raises(ConfigError, check=names("train", text, "adapters:RANK")):
        Train.read(text)


def test_all_is_the_network_itself():
    network = net()
    parts = split(network, Train("all"), SHAPE)
    assert parts.backbone is None
    assert parts.trainable is network


def test_a_head_is_cut_off_and_takes_features_of_about_unit_size():
    whole = outputs(net())
    parts = split(net(), Train("head"), SHAPE)
    assert trained(parts.trainable) == ["head.weight", "head.bias"]
    backbone = cast(Features, parts.backbone)
    head = cast(nn.Linear, parts.trainable.get_submodule("head"))
    with torch.no_grad():
        rows = backbone(X)
        torch.testing.assert_close(head(rows / backbone.factor), whole)
    assert 0.4 < rows.square().mean().sqrt() < 2.5
    assert float(backbone.factor.log2()) % 1 == 0
    assert not any(parameter.requires_grad for parameter in backbone.parameters())


@pytest.mark.parametrize("train", ["last", "adapters:2"])
@pytest.mark.parametrize("adds", [False, True], ids=["cut", "cannot be cut"])
def test_before_the_last_block_a_network_is_cut_if_what_it_returns_stays(train, adds):
    whole = outputs(net(adds))
    parts = split(net(adds), Train.read(train), SHAPE)
    assert torch.equal(outputs(whole_of(parts)), whole), "adapters begin with nothing"
    assert (parts.backbone is None) == adds
    if train == "last":
        assert trained(parts.trainable) == [*LAST, "after.weight", "after.bias", *HEAD]
    names_here = set(parts.trainable.state_dict())
    assert any(name.startswith("blocks.0") for name in names_here) == adds
    assert all(
        name in frozen_names(parts.trainable) for name in names_here if name.startswith(("stem", "blocks.0"))
    )


def test_adapters_have_orthonormal_rows_and_only_their_other_half_and_the_head_are_trained():
    pytest.importorskip("peft")
    trainable = split(net(), Train("adapters", 2), SHAPE).trainable
    assert trained(trainable) == [f"{path}.lora_B.default.weight" for path in ("blocks.2.1", "after")] + HEAD
    for path in ("blocks.2.1", "after"):
        layer: Any = trainable.get_submodule(path)
        rows = layer.lora_A["default"].weight.flatten(1)
        torch.testing.assert_close(rows @ rows.T, torch.eye(2))
    statistics = [name for name in trainable.state_dict() if "running" in name]
    assert statistics
    assert set(statistics) <= set(frozen_names(trainable))


@pytest.mark.parametrize("name", ["torchvision:resnet18", "torchvision:mobilenet_v3_small"])
def test_libraries_networks_are_cut(name):
    x = torch.rand(2, 3, 32, 32)
    network = build_model(name, (3, 32, 32), 4, 0).eval()
    with torch.no_grad():
        whole = network(x)
        parts = split(network, Train("last"), (3, 32, 32))
        assert parts.backbone is not None
        assert torch.equal(whole_of(parts).eval()(x), whole)


@pytest.mark.parametrize(
    ("network", "train", "thing", "value"),
    [
        (nn.Sequential(nn.Conv2d(3, 5, 16), nn.Flatten()), "head", "", None),
        (nn.Linear(4, 2), "head", "train", "head"),
        (nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.ReLU(), nn.Linear(8, 5)), "last", "train", "net"),
    ],
    ids=["no head", "nothing but a head", "no blocks"],
)
def test_what_cannot_be_cut_is_named(network, train, thing, value):
    with pytest.raises(ConfigError, check=names(thing, value)):
        split(network, Train.read(train), SHAPE, "net")


def test_adapters_need_layers_and_a_rank_that_fits_them():
    pytest.importorskip("peft")
    with pytest.raises(ConfigError, check=names("train", "adapters:9", "at most 8")):
        split(net(), Train("adapters", 9), SHAPE)


def unit(features, power=1.0):
    found = features.sign() * features.abs() ** power
    return found / found.norm(dim=1, keepdim=True).clamp(min=1e-12)


DENSE = nn.Sequential(nn.Flatten(), nn.Linear(768, 9), nn.Tanh(), nn.Linear(9, 5))


@pytest.mark.parametrize("network", [Net(), DENSE], ids=["never negative", "any sign"])
def test_a_linear_layer_takes_features_of_unit_length_and_the_root_of_those_that_are_never_negative(network):
    features = split(copy.deepcopy(network), Train("head"), SHAPE).backbone
    parts = split(network, Train("linear"), SHAPE)
    assert trained(parts.trainable) == ["head.weight", "head.bias"]
    power = 0.5 if isinstance(network, Net) else 1.0
    rows = cast(Any, parts.trainable.get_submodule("rows"))
    assert rows.power == power
    with torch.no_grad():
        found = cast(Features, features)(X)
        assert torch.equal(cast(Features, parts.backbone)(X), found), "the features of other methods"
        torch.testing.assert_close(rows(found), unit(found, power))
        assert not rows(torch.zeros(2, found.shape[1])).any()


def test_a_power_that_a_server_chooses_by_itself_is_refused_before_data_are_read():
    network = split(build_model("logistic", (1, 8, 8), 10, 0), Train("linear"), (1, 8, 8)).trainable
    layers = {name: array.numpy().copy() for name, array in network.state_dict().items()}
    load_layers(network, {**layers, "rows.power": np.array(0.5, np.float32)})
    with pytest.raises(ConfigError, check=names("rows.power", 41)):
        load_layers(network, {**layers, "rows.power": np.array(41, np.float32)})


@pytest.mark.parametrize("name", ["logistic", "nothing else"])
def test_without_a_body_a_linear_layer_takes_the_samples(name):
    network = nn.Linear(7, 3) if name == "nothing else" else build_model(name, (1, 4, 4), 3, 0)
    shape = (7,) if name == "nothing else" else (1, 4, 4)
    parts = split(network, Train("linear"), shape)
    assert parts.backbone is None
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    head = cast(nn.Linear, parts.trainable.get_submodule("head"))
    rows = x / 7**0.5 if name == "nothing else" else unit(x.flatten(1))  # a table's columns keep their units
    torch.testing.assert_close(parts.trainable(x), head(rows))
    assert frozen_names(parts.trainable) == ()


@pytest.mark.parametrize("name", ["hinges+fourier", "logistic+hinges", "mlp+fourier+hinges"])
def test_kinds_of_a_tables_rows_have_a_mean_squared_length_of_about_1(name):
    x = torch.randn(500, 9, generator=torch.Generator().manual_seed(0))
    parts = split(build_model(name, (9,), 3, 0), Train("linear"), (9,), name)
    rows = cast(Any, parts.trainable.get_submodule("rows"))
    with torch.no_grad():
        kinds = torch.split(rows(cast(nn.Module, parts.backbone)(x)), rows.widths.tolist(), dim=1)
    widths = {"hinges": 36, "fourier": 2048, "logistic": 9, "mlp": 64}
    assert [kind.shape[1] for kind in kinds] == [widths[each] for each in name.split("+")]
    for kind in kinds:
        assert float(kind.square().sum(dim=1).mean()) == pytest.approx(1, abs=0.1)


def test_the_kinds_of_a_message_are_those_of_the_network():
    name, shape = "logistic+conv3x64", (1, 8, 8)
    trainable = split(build_model(name, shape, 3, 0), Train("linear"), shape, name).trainable
    layers = {key: value.numpy().copy() for key, value in trainable.state_dict().items()}
    assert layers["rows.widths"].tolist() == [64, 1152]
    layers["rows.widths"] = np.array([1152, 64])
    with pytest.raises(ConfigError, check=names("rows.widths", [1152, 64])):
        load_layers(trainable, layers)
