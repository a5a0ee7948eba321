"""Networks by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fda_flower.errors import unknown
from fda_flower.models.convolutional import cnn, conv4, lenet
from fda_flower.models.dense import logistic, mlp, sigmoid
from fda_flower.models.resnet9 import resnet9
from fda_flower.models.resnets import resnet18, resnet50


@dataclass(frozen=True)
class Model:
    """A network that can be named.

    Attributes
    ----------
    summary : str
        One line for ``fda list``.
    build : callable
        From the shape of a sample and the number of classes to the network; further keyword arguments
        are its options.
    """

    summary: str
    build: Callable[..., nn.Module]


MODELS: dict[str, Model] = {
    "cnn": Model("two convolutions of 3x3 and two linear layers", cnn),
    "lenet": Model("two convolutions of 5x5 and three linear layers, for 16x16 or more", lenet),
    "conv4": Model("four convolutions of 3x3 with GroupNorm, and a linear layer", conv4),
    "resnet9": Model("residual network of 9 layers, for 16x16 or more", resnet9),
    "resnet18": Model("torchvision's, random or with weights=imagenet or a file; 32x32 or more", resnet18),
    "resnet50": Model("torchvision's, random or with weights=imagenet or a file; 32x32 or more", resnet50),
    "mlp": Model("one hidden layer of 64", mlp),
    "logistic": Model("one linear layer", logistic),
    "sigmoid": Model("one hidden layer of 100 with sigmoid", sigmoid),
}
"""The networks by name. A new one is a function and one line here."""


def build_model(
    name: str, shape: tuple[int, ...], classes: int, seed: int, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """A network with weights drawn from a seed; the global random state stays as it was.

    Raises
    ------
    ConfigError
        If the name is unknown, or the network cannot take such samples.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        return MODELS[name].build(shape, classes, **(options or {}))


__all__ = ["MODELS", "Model", "build_model"]
