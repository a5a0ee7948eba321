"""A head of prototypes in place of a network's own."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from fda_flower.models.parts import features_of, head_of


class PrototypeHead(nn.Linear):
    """``W · f/‖f‖ / T``, without bias: the classes' prototypes.

    Parameters
    ----------
    features, classes : int
        Numbers of inputs and outputs.
    temperature : float
        T.
    """

    def __init__(self, features: int, classes: int, temperature: float) -> None:
        super().__init__(features, classes, bias=False)
        self._temperature = temperature

    def forward(self, input: Tensor) -> Tensor:
        """Return the outputs for features of shape ``(n, ...)``, flattened."""
        return linear(normalize(input.flatten(1)), self.weight) / self._temperature


def replace_head(model: nn.Module, x: Tensor, temperature: float) -> None:
    """Replace a network's head by a `PrototypeHead`, whose weights are drawn.

    Parameters
    ----------
    model : Module
        Changed in place; it is left in evaluation mode.
    x : Tensor
        A batch of inputs.
    temperature : float
        T of the head.
    """
    model.eval()
    with torch.no_grad(), features_of(model) as features:
        classes = model(x).shape[1]
    old = head_of(model)
    (name,) = [name for name, module in model.named_modules() if module is old]
    model.set_submodule(name, PrototypeHead(features[0].shape[1], classes, temperature).to(features[0]))
