"""The batches of a project's own loader, and what its own network returns for them."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fda_flower.errors import ConfigError

INPUTS = ("image", "img", "x", "features", "pixel_values")
"""Names of the inputs in batches that are dictionaries with more entries than the network takes."""
LABELS = ("label", "labels", "y", "target")
"""Names of the labels in batches that are dictionaries."""
OUTPUTS = ("logits", "out")
"""Names of the outputs that count among several."""


def outputs_for(model: nn.Module, batch: Any, instead: str = "") -> Tensor:
    """Return a network's outputs for a batch, on its device; see `logits_in`.

    A batch is a pair ``x, y`` or a dictionary. Inputs that are a dictionary, or its entries beyond the
    labels, are passed by keyword if these are parameters of the network; else a single one, or one of
    `INPUTS`, by position.

    Raises
    ------
    ConfigError
        If the inputs or outputs are not clear. Its remedy begins with `instead`, what else the caller takes.
    """
    inputs = _pair(batch)[0]
    named = dict(inputs) if isinstance(inputs, Mapping) else None
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    chosen = _chosen(model, {"": inputs} if named is None else named)
    if not chosen or not all(hasattr(value, "to") for value in chosen.values()):
        raise _unclear(batch, "inputs", INPUTS, instead)
    moved = {name: value.to(device) for name, value in chosen.items()}
    return logits_in(model(moved.pop("")) if "" in moved else model(**moved), instead)


def labels_of(batch: Any, instead: str = "") -> Tensor:
    """Return the labels of a batch: the ``y`` of a pair, or the entry of a dictionary among `LABELS`.

    Raise a `ConfigError` if they are not clear; see `outputs_for`.
    """
    labels = _pair(batch)[1]
    if not isinstance(labels, Tensor):
        raise _unclear(batch, "labels", LABELS, instead)
    return labels


def logits_in(outputs: Any, instead: str = "") -> Tensor:
    """Return the tensor of samples among a network's outputs: its ``logits`` or ``out``, else the first.

    Raise a `ConfigError` if it is none, such as a loss.

    Examples
    --------
    >>> logits_in((torch.ones(2, 3), torch.zeros(2, 4))).shape
    torch.Size([2, 3])
    """
    logits = outputs
    if isinstance(outputs, Mapping):
        named = [outputs[name] for name in OUTPUTS if name in outputs]
        logits = next(iter([*named, *outputs.values()]), None)
    elif not isinstance(outputs, Tensor):
        first = outputs[0] if isinstance(outputs, Sequence) and outputs else None
        logits = getattr(outputs, OUTPUTS[0], first)
    if isinstance(logits, Tensor) and logits.dim():
        return logits
    kind = type(outputs).__name__
    what = f"the network returns a {kind}, in which the outputs of the samples are not clear"
    remedy = f"{instead}let it return a tensor, or an object with .logits"
    raise ConfigError(what, thing="network", value=kind, remedy=remedy)


def with_logits(outputs: Any, logits: Tensor, loss: Tensor | None = None) -> Any:
    """Return outputs of a network's form with other logits and loss; all further entries are None.

    Examples
    --------
    >>> with_logits({"loss": torch.ones(()), "logits": torch.ones(1), "states": ()}, torch.zeros(1))
    {'loss': None, 'logits': tensor([0.]), 'states': None}
    """
    if isinstance(outputs, Tensor):
        return logits
    make: Any = type(outputs)
    if isinstance(outputs, Mapping):
        name = next((name for name in OUTPUTS if name in outputs), next(iter(outputs)))
        new = {**dict.fromkeys(outputs), **({"loss": loss} if "loss" in outputs else {}), name: logits}
        return new if make is dict else make(**new)
    if isinstance(outputs, Sequence):
        names = getattr(make, "__match_args__", ())  # of a named tuple
        entries: list[Any] = [None] * len(outputs)
        entries[names.index(OUTPUTS[0]) if OUTPUTS[0] in names else 0] = logits
        return make(*entries) if names else make(entries)
    return _Outputs(logits, loss)


class _Outputs:
    """What a network returns that returns an object with ``logits``."""

    def __init__(self, logits: Tensor, loss: Tensor | None) -> None:
        self.logits, self.loss = logits, loss


def _pair(batch: Any) -> tuple[Any, Any]:
    """Return a batch's inputs and labels; None for each that is ambiguous."""
    if isinstance(batch, Mapping):
        labels = [batch[name] for name in LABELS if name in batch]
        inputs = {str(name): batch[name] for name in batch if name not in LABELS}
        return inputs, labels[0] if len(labels) == 1 else None
    return tuple(batch) if isinstance(batch, tuple | list) and len(batch) == 2 else (None, None)


def _chosen(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs that a network takes, by keyword, or one of no name by position; empty if unclear."""
    parameters = inspect.signature(model.forward).parameters.values()
    by_keyword = {
        each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    if inputs.keys() <= by_keyword:
        return dict(inputs)
    named = [*inputs] if len(inputs) == 1 else [name for name in INPUTS if name in inputs]
    if len(named) == 1:
        return {"": inputs[named[0]]}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    return dict(inputs) if takes_any and not named else {}


def _unclear(batch: Any, what: str, names: Sequence[str], instead: str) -> ConfigError:
    is_named = isinstance(batch, Mapping)
    entries = sorted(map(str, batch)) if is_named else type(batch).__name__
    has = f"have the entries {', '.join(entries)}" if is_named else f"are of the type {entries}"
    remedy = f"{instead}give batches x, y of tensors, or dictionaries with one of {', '.join(names)}"
    message = f"the {what} in the loader's batches are not clear: they {has}"
    return ConfigError(message, thing="batches", value=entries, remedy=remedy)
