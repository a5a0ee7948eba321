"""Networks of users, named ``package.module:function`` and checked before training."""

import copy
import inspect
import logging
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from fda_flower.errors import ConfigError
from fda_flower.names.words import counted

if TYPE_CHECKING:
    from torch import Tensor, nn

ARGUMENTS = ("shape", "classes")

LIBRARIES = {
    "timm": "fda_flower.models.pretrained:timms",
    "torchvision": "fda_flower.models.pretrained:torchvisions",
}
"""The libraries whose networks have names such as ``timm:resnet18``."""

DOWNLOADED = "imagenet"
"""The option ``weights`` of a network whose library downloads them."""

KINDS = {
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64"),
}
"""The types of tensors that travel."""

logger = logging.getLogger("fda_flower")

_ONLY_READ = ContextVar("only read", default=False)

NEARLY = 1e-4
"""How far from 1 the sum of probabilities may be."""


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


def check_at_site(name: str, options: Mapping[str, Any], allowed: Collection[str] | None) -> None:
    """Raise a `ConfigError` if a run's network imports a module, or reads a file, that a site has not named.

    Parameters
    ----------
    name, options : str, Mapping
        The network and its options.
    allowed : Collection of str, optional
        The site's modules and files of weights. With None it lets runs import modules, but read no file.
    """
    module = name.partition(":")[0]
    known = {name, *accumulate(module.split("."), "{}.{}".format)}
    if is_reference(name) and allowed is not None and known.isdisjoint(allowed):
        what, thing = "model names a module", "model"
    elif str(options.get("weights") or DOWNLOADED) not in (DOWNLOADED, *(allowed or ())):
        what, thing = "the model's option weights names a file", "weights"
    else:
        return
    remedy = "choose a model of `fda list`, or let the site name it"
    raise ConfigError(f"{what} that is not in this site's allow-models", thing=thing, remedy=remedy)


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
        builder: Any = import_module(module)
        for part in attribute.split("."):
            builder = getattr(builder, part)
    except Exception as error:  # Foreign code may raise anything.
        raise unfit(
            reference,
            f"cannot be loaded ({error!r})",
            "give package.module:function, and make it importable wherever the run takes place, in a "
            "deployment at every site: install its package, or start in its folder",
        ) from error
    try:
        parameters = list(inspect.signature(builder).parameters)
    except (TypeError, ValueError):
        parameters = []
    if parameters[:2] != list(ARGUMENTS):
        raise unfit(
            reference,
            f"takes ({', '.join(parameters)})",
            "give a function whose first arguments are shape, of one sample, and classes, their number; "
            "further arguments are options",
        )
    return builder  # type: ignore[no-any-return]


def check_network(
    reference: str,
    network: Any,
    again: "Callable[[], nn.Module]",
    shape: tuple[int, ...],
    classes: int,
) -> None:
    """Raise a `ConfigError` unless a network returns one output per class, and its state is all that it is.

    The state dictionary is what sites send each other and what a model's file holds. `again` makes the
    network with other random numbers.
    """
    import torch
    from torch.nn.parameter import is_lazy

    if not isinstance(network, torch.nn.Module):
        raise unfit(reference, f"returns a {type(network).__name__}, not a torch.nn.Module", "fix it")
    other, x, training = again().eval(), torch.rand(1, *shape), network.training
    state = network.state_dict()
    lazy = [name for name, value in state.items() if is_lazy(value)]
    _check_state(reference, {name: value for name, value in state.items() if name not in lazy}, other)
    outputs = _outputs(reference, network.eval(), x, classes)
    if classes > 1 and bool((outputs >= 0).all()) and abs(float(outputs.sum()) - 1) < NEARLY:
        logger.warning(
            "model '%s' ends in probabilities, but the loss takes scores: leave the softmax out", reference
        )
    network.train(training)
    state = network.state_dict()
    _check_state(reference, {name: state[name] for name in lazy}, other)
    _outputs(reference, other, x, classes)
    _load(reference, state, other)
    if not torch.allclose(outputs, _outputs(reference, other, x, classes), equal_nan=True):
        what = "computes with numbers that its state_dict() does not hold, so that they would not travel"
        remedy = "keep layers in attributes or a ModuleList, and numbers in a Parameter or register_buffer"
        raise unfit(reference, what, remedy)


def check_training(name: str, network: "nn.Module", x: "Tensor", classes: int) -> None:
    """Raise a `ConfigError` unless a network to train returns one output per class for each sample of `x`."""
    import torch

    from fda_flower.models.parts import to_train

    try:
        copied = copy.deepcopy(network)
    except Exception as error:  # Foreign code may raise anything.
        remedy = "keep in its attributes only what copy.deepcopy copies"
        raise unfit(name, f"cannot be copied ({error})", remedy) from error
    to_train(copied)
    with torch.random.fork_rng([]):
        outputs = _outputs(name, copied, x, classes, " in training mode")
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise unfit(name, "has no parameter to train", "leave requires_grad of some of them true")
    if not outputs.requires_grad:
        remedy = "let it return what it computes, without detach() or no_grad()"
        raise unfit(name, "returns outputs without gradients in training mode", remedy)


def _outputs(name: str, network: "nn.Module", x: "Tensor", classes: int, mode: str = "") -> "Tensor":
    """Return a network's outputs for samples, the same for the same state; raise if they are unfit."""
    import torch

    samples = f"{counted(len(x), 'sample')} of shape {tuple(x.shape[1:])}{mode}"
    torch.default_generator.manual_seed(0)
    try:
        with torch.set_grad_enabled(bool(mode)):
            outputs: Any = network(x)
    except Exception as error:  # Foreign code may raise anything.
        kinds = {_kind(each) for each in network.parameters() if each.is_floating_point()}
        remedy = "fix it, or choose a network for such samples"
        if kinds - {"float32"}:
            remedy = "samples are of float32: make it so, too, as by network.float()"
        raise unfit(name, f"fails on {samples} ({error})", remedy) from error
    if not isinstance(outputs, torch.Tensor):
        alone = "return the tensor of scores alone, such as outputs[0] or outputs.logits"
        remedy = alone if is_reference(name) else "choose another network"
        raise unfit(name, f"returns a {type(outputs).__name__} for {samples}, not a tensor", remedy)
    if tuple(outputs.shape) != (len(x), classes) or not outputs.is_floating_point():
        result = f"{tuple(outputs.shape)} of {_kind(outputs)}"
        wanted = f"not ({len(x)}, {classes}) of floats, one output per class"
        raise unfit(name, f"returns {result} for {samples}, {wanted}", "fix it")
    return outputs


def _load(reference: str, state: "Mapping[str, Tensor]", network: "nn.Module") -> None:
    """Put the state of a network into another that the same function has made."""
    import torch

    from fda_flower.models.parts import tensors

    own = tensors(network)
    if {name: value.shape for name, value in state.items()} != {name: t.shape for name, t in own.items()}:
        what = "has a state_dict() of other names or shapes each time it is made"
        raise unfit(reference, what, "make the same layers for the same arguments")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(state[name])


def _check_state(reference: str, state: "Mapping[str, Any]", network: "nn.Module") -> None:
    """Raise a `ConfigError` if a state dictionary holds what does not travel; name the first such entry."""
    from fda_flower.models.parts import frozen_names

    frozen = frozen_names(network)
    for name, value in state.items():
        if fault := _fault(name, value, travels=name not in frozen):
            what, remedy = fault
            raise unfit(reference, f"has '{name}' in its state_dict(), {what}", remedy)


def _fault(name: str, value: Any, *, travels: bool) -> tuple[str, str] | None:
    """Return why an entry of a state dictionary is unfit, and what to do; None if it is fit."""
    import torch
    from torch.nn.parameter import is_lazy

    if not isinstance(value, torch.Tensor) or name.endswith("_extra_state"):
        remedy = "let state_dict() hold parameters and buffers alone, without get_extra_state"
        return f"a {type(value).__name__} that is neither parameter nor buffer", remedy
    if is_lazy(value) or value.is_meta:
        return "a tensor without values", "give it its values in the function that makes the network"
    if value.layout != torch.strided:
        return "a sparse tensor", "keep it as to_dense()"
    if _kind(value) not in KINDS:
        real = "keep it as torch.view_as_real()"
        remedy = "convert it to float32; --precision bf16 computes in bfloat16 all the same"
        return f"of type {_kind(value)}", real if value.is_complex() else remedy
    if any(stride == 0 and size > 1 for stride, size in zip(value.stride(), value.shape, strict=True)):
        return "whose elements share memory", "keep it as clone()"
    if travels and not bool(torch.isfinite(value).all()):
        remedy = "give it finite values or, if nothing trains it, register_buffer(..., persistent=False)"
        return "with values that are not finite", remedy
    return None


def _kind(tensor: "Tensor") -> str:
    return str(tensor.dtype).removeprefix("torch.")
