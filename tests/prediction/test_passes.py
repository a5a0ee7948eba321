"""Passes of samples through a network."""

import numpy as np
import pytest
import torch
from naming import names
from torch import nn

from fda_flower.datasets import Samples
from fda_flower.errors import RunError
from fda_flower.prediction.network_passes import predict

X, Y = np.arange(-6, 6, dtype=np.float32).reshape(6, 2), np.zeros(6, np.int64)


class Negative(nn.Module):
    """A network that writes into its input."""

    def forward(self, x):
        return x.neg_()


@pytest.mark.parametrize("batch_size", [1, 4, 6])
def test_outputs_come_in_the_samples_order(batch_size):
    x = np.where(X > -6, X, np.float32(np.nan))  # a missing value is no change
    outputs = predict(nn.Identity(), Samples(x, Y), torch.Generator(), batch_size)
    assert np.array_equal(outputs.nan_to_num(-6).numpy(), X)


def test_a_network_that_writes_into_its_input_is_an_error():
    with pytest.raises(RunError, check=names("network", "Negative", "a copy")):
        predict(Negative(), Samples(X.copy(), Y), torch.Generator())
