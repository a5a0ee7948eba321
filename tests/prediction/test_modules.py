"""Predictors as modules: the same numbers as the maths, also where a network fails."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fda_flower.aggregation import Mixture
from fda_flower.prediction.predictors import MixedModule


class Constant(nn.Module):
    """A network that always returns the same."""

    def __init__(self, outputs: list[list[float]]) -> None:
        super().__init__()
        self.outputs = torch.tensor(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.outputs


GOOD = [[0.0, 1.0], [3.0, 1.0]]


@pytest.mark.parametrize("regression", [False, True], ids=["classes", "regression"])
@pytest.mark.parametrize("other", [2.0, torch.inf, torch.nan])
def test_the_module_of_a_mixture_leaves_out_what_the_mixture_leaves_out(other, regression):
    bad = [[1.0, 0.0], [2.0, other]]
    mixture = Mixture({"good": 0.25, "bad": 0.75}, {}, regression)
    expected = mixture.predict({"good": [np.array(GOOD)], "bad": [np.array(bad)]})
    found = MixedModule(mixture, {"good": [Constant(GOOD)], "bad": [Constant(bad)]}, [])(torch.zeros(2, 1))
    assert (found if regression else found.exp()).numpy() == pytest.approx(expected, rel=1e-6)
