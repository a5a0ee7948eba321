"""Networks by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fda_flower.errors import unknown
from fda_flower.models.networks import cnn, lenet, mlp


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
    "mlp": Model("one hidden layer of 64", mlp),
}
"""The networks by name. A new one is a function and one line here."""


def build_model(
    name: str, shape: tuple[int, ...], classes: int, seed: int, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """A network with weights drawn from a seed; the global random state stays as it was.

    Raises
    ------
    ConfigError
        If the name is unknown; it lists the valid ones.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        return MODELS[name].build(shape, classes, **(options or {}))


__all__ = ["MODELS", "Model", "build_model"]
