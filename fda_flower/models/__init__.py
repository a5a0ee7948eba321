"""Networks by name.

They are named, not imported: torch is imported only when a network is built.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fda_flower.errors import unknown
from fda_flower.models.own import builder_of, check_network, is_reference
from fda_flower.names import Registry, resolve

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Model:
    """An entry of the table of networks.

    Attributes
    ----------
    summary : str
        One line for ``fda list``.
    build : str or callable
        A function, or ``"module:function"``, that takes the shape of a sample and the number of classes, and
        returns the network; further keyword arguments are its options.
    """

    summary: str
    build: "str | Callable[..., nn.Module]"

    @cached_property
    def builder(self) -> "Callable[..., nn.Module]":
        """The function `build`, imported on first use."""
        return resolve(self.build)  # type: ignore[no-any-return]


def _ours(summary: str, build: str) -> Model:
    return Model(summary, f"fda_flower.models.{build}")


TORCHVISIONS = "torchvision's, with random weights, weights=imagenet or weights=FILE; 32x32 or more"

MODELS: Registry[Model] = Registry(
    "models",
    Model,
    {
        "cnn": _ours("two convolutions of 3x3 and two linear layers", "small:cnn"),
        "lenet": _ours("two convolutions of 5x5 and three linear layers, for 16x16 or more", "small:lenet"),
        "conv4": _ours("four convolutions of 3x3 with GroupNorm, and a linear layer", "small:conv4"),
        "resnet9": _ours("residual network of 9 layers, for 16x16 or more", "small:resnet9"),
        "resnet18": _ours(TORCHVISIONS, "resnets:resnet18"),
        "resnet50": _ours(TORCHVISIONS, "resnets:resnet50"),
        "mlp": _ours("one hidden layer of 64", "small:mlp"),
        "logistic": _ours("one linear layer", "small:logistic"),
        "sigmoid": _ours("one hidden layer of 100 with sigmoid", "small:sigmoid"),
    },
)
"""The networks by name. A new one is a function and one line here; another package adds its own with an entry
point ``fda_flower.models``."""


def check_name(name: str) -> None:
    """Raise a `ConfigError` unless a name is in `MODELS`, or of the form ``package.module:function``."""
    if name not in MODELS and not is_reference(name):
        raise unknown("model", name, MODELS)


def find_model(name: str) -> Model:
    """Return the network of a name in `MODELS`, or of ``package.module:function``; else a `ConfigError`."""
    check_name(name)
    return MODELS[name] if name in MODELS else Model("a network of your own", builder_of(name))


def build_model(
    name: str, shape: tuple[int, ...], classes: int, seed: int, options: Mapping[str, Any] | None = None
) -> "nn.Module":
    """Return a network with weights drawn from a seed, without changing the global random state.

    A network of one's own, ``package.module:function``, is tried on one sample. A `ConfigError` says if the
    name is unknown, or the network does not accept such samples.
    """
    import torch

    model = find_model(name)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        network = model.builder(shape, classes, **(options or {}))
        if is_reference(name):
            check_network(name, network, shape, classes)
        return network


def build_architecture(
    name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, Any] | None = None
) -> "nn.Module":
    """Return a network whose weights are to be replaced: none are downloaded or read from a file."""
    from fda_flower.models.resnets import replaced

    with replaced():
        return build_model(name, shape, classes, 0, options)


__all__ = ["MODELS", "Model", "build_architecture", "build_model", "check_name", "find_model"]
