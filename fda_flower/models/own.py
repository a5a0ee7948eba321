"""A network of one's own, named by ``package.module:function``, and checked before training."""

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fda_flower.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

ARGUMENTS = ("shape", "classes")

LIBRARIES = {
    "timm": "fda_flower.models.pretrained:timms",
    "torchvision": "fda_flower.models.pretrained:torchvisions",
}
"""The libraries whose networks have names such as ``timm:resnet18``."""

_ONLY_READ = ContextVar("only read", default=False)


@contextmanager
def only_read() -> Iterator[None]:
    """Inside, configurations come from a folder that anybody may have written: their code never runs."""
    token = _ONLY_READ.set(True)
    try:
        yield
    finally:
        _ONLY_READ.reset(token)


def may_import(name: str) -> bool:
    """Whether the function that a model's name refers to, if any, may be imported here; see `only_read`."""
    return not (is_reference(name) and _ONLY_READ.get())


def unfit(name: str, what: str, remedy: str) -> ConfigError:
    """Return the error for a model that cannot be used."""
    return ConfigError(f"model '{name}' {what}", thing="model", value=name, remedy=remedy)


def is_reference(name: str) -> bool:
    """Whether a model's name is of the form ``package.module:function``, and not one of a known library."""
    return ":" in name and name.partition(":")[0] not in LIBRARIES


def builder_of(reference: str) -> "Callable[..., nn.Module]":
    """Return the function that a reference names; modules in the current folder are found too.

    A `ConfigError` says if it cannot be imported, or does not take the arguments ``shape`` and ``classes``.
    """
    module, _, attribute = reference.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # as `python -m` does; behind what is installed
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # A module of someone else's may raise anything.
        raise unfit(
            reference,
            f"cannot be loaded ({error!r})",
            "it must be package.module:function, and importable by Python wherever the run takes place, in "
            "a deployment at every site: install its package, or start in the folder that holds it",
        ) from error
    try:
        parameters = list(inspect.signature(found).parameters)
    except (TypeError, ValueError):
        parameters = []
    if parameters[:2] != list(ARGUMENTS):
        raise unfit(
            reference,
            f"takes ({', '.join(parameters)})",
            "let it be a function whose first arguments are shape, of one sample, and classes, their number; "
            "further ones are options",
        )
    return found  # type: ignore[no-any-return]


def check_network(reference: str, network: Any, shape: tuple[int, ...], classes: int) -> None:
    """Raise a `ConfigError` unless a network gives an output for each class of one sample."""
    import torch

    if not isinstance(network, torch.nn.Module):
        raise unfit(reference, f"returns a {type(network).__name__}, not a torch.nn.Module", "fix it")
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            outputs = network(torch.zeros(1, *shape))
    except Exception as error:  # A network of someone else's may raise anything.
        what = f"fails on a sample of shape {shape} ({error})"
        raise unfit(reference, what, "fix it, or choose a network for such samples") from error
    finally:
        network.train(training)
    found = tuple(getattr(outputs, "shape", ())) or type(outputs).__name__
    if found != (1, classes):
        what = f"gives {found} for one sample of shape {shape}, not (1, {classes}), one output for each class"
        raise unfit(reference, what, "fix it")
