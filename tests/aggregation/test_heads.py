"""Linear layers among a model's arrays."""

import numpy as np
import pytest

from fda_flower.aggregation import linear_head, with_head

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
