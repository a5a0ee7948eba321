"""Networks of users, named ``package.module:function`` and checked before training."""

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
    """Never run the code that a configuration names: it comes from a folder that anybody may have written."""
    token = _ONLY_READ.set(True)
    try:
        yield
    finally:
        _ONLY_READ.reset(token)


def may_import(name: str) -> bool:
    """Return whether the code that a model's name refers to, if any, may run here; see `only_read`."""
    return not (is_reference(name) and _ONLY_READ.get())


def unfit(name: str, what: str, remedy: str) -> ConfigError:
    """Return the error for a model that cannot be used."""
    return ConfigError(f"model '{name}' {what}", thing="model", value=name, remedy=remedy)


def is_reference(name: str) -> bool:
    """Return whether a model's name is of the form ``package.module:function``, not a known library's."""
    return ":" in name and name.partition(":")[0] not in LIBRARIES


def builder_of(reference: str) -> "Callable[..., nn.Module]":
    """Return the function that a reference names; also search the current folder.

    Raise a `ConfigError` if it cannot be imported, or its first arguments are not ``shape`` and ``classes``.
    """
    module, _, attribute = reference.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # last, so that installed packages win
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # Foreign code may raise anything.
        raise unfit(
            reference,
            f"cannot be loaded ({error!r})",
            "give package.module:function, and make it importable wherever the run takes place, in a "
            "deployment at every site: install its package, or start in its folder",
        ) from error
    try:
        parameters = list(inspect.signature(found).parameters)
    except (TypeError, ValueError):
        parameters = []
    if parameters[:2] != list(ARGUMENTS):
        raise unfit(
            reference,
            f"takes ({', '.join(parameters)})",
            "give a function whose first arguments are shape, of one sample, and classes, their number; "
            "further arguments are options",
        )
    return found  # type: ignore[no-any-return]


def check_network(reference: str, network: Any, shape: tuple[int, ...], classes: int) -> None:
    """Raise a `ConfigError` unless a network returns one output per class for a sample."""
    import torch

    if not isinstance(network, torch.nn.Module):
        raise unfit(reference, f"returns a {type(network).__name__}, not a torch.nn.Module", "fix it")
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            outputs = network(torch.zeros(1, *shape))
    except Exception as error:  # Foreign code may raise anything.
        what = f"fails on a sample of shape {shape} ({error})"
        raise unfit(reference, what, "fix it, or choose a network for such samples") from error
    finally:
        network.train(training)
    found = tuple(getattr(outputs, "shape", ())) or type(outputs).__name__
    if found != (1, classes):
        what = f"returns {found} for one sample of shape {shape}, not (1, {classes}), one output per class"
        raise unfit(reference, what, "fix it")
