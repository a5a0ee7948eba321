"""Networks of methods in which nobody trains: torch's features and names, the same bits in any company."""

from typing import Any

import numpy as np
import pytest
import torch
from naming import names

from fda_flower.errors import ConfigError
from fda_flower.models import MODELS, Train, build_model
from fda_flower.models.linear import OF_TABLES, LinearNetwork, TableNetwork, table_network
from fda_flower.models.split import rest_of, split

TABLES = ["logistic", "hinges", "fourier", "hinges+fourier", "logistic+hinges", "logistic+fourier"]
IMAGES = ["logistic", "conv3x64", "logistic+conv3x64", "fourier"]
RANDOM = np.random.default_rng(0)


def both(name: str, shape: tuple[int, ...]) -> Any:
    """The parts of a network by torch, and by NumPy."""
    return split(build_model(name, shape, 3, 0), Train("linear"), shape), table_network(name, shape, 3)


def fitted(network: LinearNetwork) -> dict[str, Any]:
    """Its arrays, with a linear layer that is not zero."""
    heads = {name: array for name, array in network.layers.items() if name.startswith("head")}
    drawn = {name: RANDOM.standard_normal(array.shape).astype("f") for name, array in heads.items()}
    return network.layers | drawn


def state_of(module: torch.nn.Module | None) -> dict[str, tuple[Any, ...]]:
    state = {} if module is None else module.state_dict()
    return {name: (array.numpy().dtype, tuple(array.shape)) for name, array in state.items()}


def form_of(layers: Any) -> dict[str, tuple[Any, ...]]:
    return {name: (array.dtype, array.shape) for name, array in layers.items()}


def close(ours: Any, theirs: Any) -> None:
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("columns", [1, 13, 600])
@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_torchs_features_rows_outputs_and_names_of_arrays(name: str, columns: int) -> None:
    parts, ours = both(name, (columns,))
    x = RANDOM.standard_normal((40, columns)).astype("f")
    x[0] = 0
    features, theirs = x, torch.from_numpy(x).double()
    assert list(form_of(ours.body.layers if ours.body else {}).items()) == list(
        state_of(parts.backbone).items()
    )
    if ours.body is not None:
        for array, numbers in zip(
            ours.body.layers.values(), parts.backbone.state_dict().values(), strict=True
        ):
            assert np.array_equal(array, numbers.numpy()), "a body's digest stays"
        features, theirs = ours.body(x), parts.backbone.double()(theirs)
        close(features, theirs)
    assert list(form_of(ours.network.layers).items()) == list(state_of(parts.trainable).items())
    layers = fitted(ours.network)
    parts.trainable.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in layers.items()})
    rows = ours.network.rows(features, layers)
    close(rows, parts.trainable.double()[:-1](theirs))
    outputs = ours.network.outputs(rows, layers)
    close(outputs, parts.trainable(theirs))
    for count in (0, 1, 2, 7, 39):
        few = x[:count] if ours.body is None else ours.body(x[:count])
        again = ours.network.outputs(ours.network.rows(few, layers), layers)
        assert np.array_equal(again, outputs[:count]), "a row has the same bits in any company"


@pytest.mark.parametrize("name", IMAGES)
def test_images_have_the_same_linear_layer_on_what_torch_makes_of_them(name: str) -> None:
    parts, none = both(name, (1, 8, 8))
    ours = rest_of(parts)
    assert none is None
    assert ours is not None
    assert list(form_of(ours.layers).items()) == list(state_of(parts.trainable).items())
    pixels = torch.from_numpy(RANDOM.integers(0, 256, (5, 1, 8, 8), np.uint8))
    theirs = pixels.float() / 255
    theirs = theirs if parts.backbone is None else parts.backbone(theirs)
    features = pixels.numpy() if parts.backbone is None else theirs.detach().numpy()
    close(ours.rows(features, ours.layers), parts.trainable[:-1](theirs))


def test_a_network_that_computes_more_than_rows_stays_torchs() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Tanh(), torch.nn.Linear(9, 2))
    assert rest_of(split(network, Train("linear"), (9,))) is None


def test_tables_have_parts_of_known_networks_alone() -> None:
    assert OF_TABLES.keys() <= MODELS.keys()
    assert table_network("mlp", (4,), 2) is None
    assert table_network("hinges+mlp", (4,), 2) is None


def parts_of(name: str) -> TableNetwork:
    parts = table_network(name, (4,), 2)
    assert parts is not None
    return parts


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        ("fourier", {"rows.power": np.array(3.0)}, ("rows.power", 3.0, "0.5 or 1")),
        ("hinges+fourier", {"rows.widths": np.array([1, 2])}, ("rows.widths", [1, 2], "[16, 2048]")),
        ("hinges", {"head.weight": np.zeros((2, 3))}, ("head.weight", (2, 3), "(2, 16)")),
        ("hinges", {"head.other": np.zeros(2)}, ("head.other", (2,), "head.bias")),
    ],
)
def test_arrays_that_are_not_a_networks_are_named(name: str, change: Any, named: Any) -> None:
    network = parts_of(name).network
    network.check(network.layers)
    with pytest.raises(ConfigError, check=names(*named)):
        network.check(network.layers | change)
