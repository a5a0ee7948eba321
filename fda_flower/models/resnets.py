"""Residual networks of torchvision, with weights that are random, downloaded, or read from a file."""

import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fda_flower.errors import ConfigError
from fda_flower.models.own import unfit
from fda_flower.models.small import check_images

HEAD = ("fc.weight", "fc.bias")
"""The entries of the last layer."""

COUNTER = "num_batches_tracked"
"""BatchNorm's counter, which old files lack and evaluation does not use."""

UNREADABLE = (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError, SafetensorError)


_REPLACED = ContextVar("replaced", default=False)


@contextmanager
def replaced() -> Iterator[None]:
    """Inside, load no weights into new networks: others will replace them."""
    token = _REPLACED.set(True)
    try:
        yield
    finally:
        _REPLACED.reset(token)


def load_weights(network: nn.Module, name: str, weights: str) -> None:
    """Load weights into a network of torchvision; a last layer that they do not fit stays as it is.

    `weights` is ``imagenet``, or a file. A `ConfigError` says if they cannot be loaded or do not fit.
    """
    if _REPLACED.get():
        return
    if weights == "imagenet":
        state, where = _download(name), "ImageNet's weights"
    else:
        state, where = _read(Path(weights).expanduser()), f"the weights in '{weights}'"
    own = network.state_dict()
    if any(_differs(entry, own, state) for entry in HEAD):
        state = {entry: value for entry, value in state.items() if entry not in HEAD}
    wrong = sorted(
        entry
        for entry in own.keys() | state.keys()
        if entry not in HEAD and not entry.endswith(COUNTER) and _differs(entry, own, state)
    )
    if wrong:
        raise ConfigError(
            f"{where} do not fit model '{name}': {len(wrong)} entries differ, the first is '{wrong[0]}' "
            f"({_shape(state, wrong[0])} there, {_shape(own, wrong[0])} in the model): give weights "
            f"of torchvision's {name}",
            thing="weights",
            value=weights,
        )
    network.load_state_dict(state, strict=False)


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
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings(action="ignore"):  # torch would advise another way to load a program
            state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        what = f"cannot be read ({_reason(error)})"
        remedy = "give a state dictionary as torch.save writes it, or a .safetensors file"
        raise _unusable(path, what, remedy) from error
    if not isinstance(state, Mapping) or not all(
        isinstance(entry, str) and isinstance(value, Tensor) for entry, value in state.items()
    ):
        what = "are not a state dictionary, which has a tensor for each name"
        raise _unusable(path, what, "save only the network's state_dict()")
    return state


def _unusable(path: Path, what: str, remedy: str) -> ConfigError:
    return ConfigError(f"the weights '{path}' {what}", thing="weights", value=path, remedy=remedy)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError | SafetensorError):
        return _first_line(error)
    return "it is damaged, or holds more than arrays"  # torch would advise to run what it holds


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's mean and deviation of red, green and blue."""


def resnet(name: str, shape: tuple[int, ...], classes: int, weights: str = "") -> nn.Module:
    """Build a residual network of torchvision, with a last layer for the given number of classes.

    Its state dictionary is torchvision's. With given weights, the network first normalises images in [0, 1]
    by ImageNet's mean and deviation. Grey images are repeated for red, green and blue.

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
        Empty for random weights, ``imagenet`` for torchvision's best, which are downloaded, or a file with a
        state dictionary (``.pth``, ``.safetensors``). A last layer that does not fit is left out.

    References
    ----------
    He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.
    """
    from torchvision import models

    check_images(name, shape, 32)
    if shape[0] not in (1, 3):
        what = f"needs images of 3 channels, or 1 if grey, but these have {shape[0]}"
        raise unfit(name, what, "choose conv4 or resnet9")
    network: nn.Module = getattr(models, name)(num_classes=classes)
    if weights:
        load_weights(network, name, weights)
    if weights or shape[0] == 1:
        network.prepare = Prepare(bool(weights))
        network.register_forward_pre_hook(_prepare)
    return network


resnet18 = partial(resnet, "resnet18")
resnet50 = partial(resnet, "resnet50")


class Prepare(nn.Module):
    """Repeats grey images, and normalises by ImageNet's mean and deviation if asked to."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, normalise: bool) -> None:
        super().__init__()
        for name, values in (("mean", MEAN), ("deviation", DEVIATION)):
            buffer = torch.tensor(values)[:, None, None] if normalise else None
            self.register_buffer(name, buffer, persistent=False)
        self.normalise = normalise

    def forward(self, x: Tensor) -> Tensor:
        """Map images of shape ``(n, 1 or 3, height, width)`` to ``(n, 3, height, width)``."""
        x = x.expand(-1, 3, -1, -1)
        return (x - self.mean) / self.deviation if self.normalise else x


def _prepare(network: nn.Module, inputs: tuple[Any, ...]) -> Any:
    assert isinstance(network.prepare, Prepare)
    return network.prepare(*inputs)
