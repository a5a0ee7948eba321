"""Linear layers among a model's arrays, and their training on rows."""

import numpy as np
import pytest
import torch

from fda_flower.aggregation import head_in, linear_head, shape_of_head, train_head, with_head
from fda_flower.aggregation.features import BATCH, DECAY, RATE

WEIGHT, BIAS = np.zeros((3, 2), np.float32), np.zeros(3, np.float32)


@pytest.mark.parametrize(
    "model",
    [
        {"weight": WEIGHT},
        {"bias": BIAS, "scale": BIAS},
        {"weight": WEIGHT, "bias": np.zeros(2, np.float32)},
        {"weight": WEIGHT, "bias": BIAS, "more": BIAS},
        {"kernel": np.zeros((3, 2, 1)), "bias": BIAS},
    ],
)
def test_what_is_no_linear_layer(model):
    assert linear_head(model) is None


def test_values_are_put_where_they_belong_whatever_the_order_and_buffers_stay():
    model = {"b": BIAS, "running_var": np.ones(4, np.float32), "w": WEIGHT}
    assert linear_head(model) == ("w", "b")
    new = with_head(model, np.arange(6.0).reshape(3, 2), np.array([7.0, 8.0, 9.0]))
    assert list(new) == list(model)
    assert (new["b"].tolist(), new["w"].tolist()) == ([7, 8, 9], [[0, 1], [2, 3], [4, 5]])
    assert {array.dtype for array in new.values()} == {np.dtype(np.float32)}
    assert new["running_var"] is model["running_var"]


def test_a_head_is_trained_as_with_torchs_adamw():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((20, 4)), rng.integers(0, 3, 20)
    weight, bias = rng.standard_normal((3, 4)), rng.standard_normal(3)
    found = train_head(weight, bias, x, y, epochs=30, seed=0)
    layer = torch.nn.Linear(4, 3).double()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))
    optimizer = torch.optim.AdamW(layer.parameters(), lr=RATE, weight_decay=DECAY)
    for _ in range(30):  # each epoch is one batch
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(layer(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimizer.step()
    for own, parameter in zip(found, layer.parameters(), strict=True):
        np.testing.assert_allclose(own, parameter.detach().numpy(), rtol=1e-9)


def test_all_rows_are_seen_in_batches_and_the_seed_decides_the_order():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3 * BATCH + 1, 2)), rng.integers(0, 2, 3 * BATCH + 1)
    start = np.zeros((2, 2)), np.zeros(2)
    one, again, other = (train_head(*start, x, y, 1, seed)[0].tobytes() for seed in (0, 0, 1))
    assert one == again != other
    y = (x[:, 0] > 0).astype(int)
    weight, bias = train_head(*start, x, y, 300, 0)
    assert ((x @ weight.T + bias).argmax(axis=1) == y).mean() > 0.9


def test_the_shape_of_a_linear_layer_and_what_is_none():
    assert shape_of_head({"w": WEIGHT, "b": BIAS}) == (3, 2)
    with pytest.raises(ValueError, match="no linear layer"):
        head_in({"w": WEIGHT})
