"""Weights for a network: downloaded, or read from a file."""

import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fda_flower.errors import ConfigError

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

    Parameters
    ----------
    network : Module
        Changed in place.
    name : str
        torchvision's name for the network.
    weights : str
        ``imagenet``, or a file.

    Raises
    ------
    ConfigError
        If the weights cannot be loaded or do not fit.
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
            f"of torchvision's {name}"
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
        state: Mapping[str, Tensor] = best.get_state_dict(progress=False, check_hash=True)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"ImageNet's weights for model '{name}' cannot be downloaded ({_first_line(error)}): get "
            f"{best.url} elsewhere and give the file as the model's option weights=FILE"
        ) from error
    return state


def _read(path: Path) -> Mapping[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings(action="ignore"):  # torch would advise another way to load a program
            state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        raise ConfigError(
            f"the weights '{path}' cannot be read ({_reason(error)}): give a state dictionary as torch.save "
            "writes it, or a .safetensors file"
        ) from error
    if not isinstance(state, Mapping) or not all(
        isinstance(entry, str) and isinstance(value, Tensor) for entry, value in state.items()
    ):
        raise ConfigError(
            f"the weights '{path}' are not a state dictionary, which has a tensor for each name: save "
            "only the network's state_dict()"
        )
    return state


def _reason(error: Exception) -> str:
    if isinstance(error, OSError | SafetensorError):
        return _first_line(error)
    return "it is damaged, or holds more than arrays"  # torch would advise to run what it holds


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
