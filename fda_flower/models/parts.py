"""The parts of a network that methods tell apart: its head and its body, and its BatchNorm layers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fda_flower.errors import ConfigError


def head_of(model: nn.Module) -> nn.Module:
    """Return the head of a network: the layers that turn features into outputs.

    It is the network's attribute ``head``, if it has one that is a module, else its last linear layer.

    Raises
    ------
    ConfigError
        If there is neither.
    """
    own = getattr(model, "head", None)
    if isinstance(own, nn.Module):
        return own
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise ConfigError(
            "the model has no head, since it has no linear layer: choose another model, or give the module "
            "an attribute 'head'"
        )
    return layers[-1]


def head_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the head's arrays, in the order of the state dictionary; see `head_of`."""
    return _names(model, [head_of(model)])


def has_body(model: nn.Module) -> bool:
    """Return whether a network has parameters outside its head."""
    inside = set(head_names(model))
    return any(name not in inside for name, _ in model.named_parameters(remove_duplicate=False))


def batch_norm_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of all arrays of BatchNorm layers: parameters, running statistics, counters."""
    return _names(model, batch_norms(model))


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """Return the BatchNorm layers of a network."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


@contextmanager
def features_of(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the features of each batch that the model is called with inside: the inputs of its head.

    Yields
    ------
    list[Tensor]
        The features of the calls so far, each of shape ``(n, features)``, float32, with their
        gradients.

    Examples
    --------
    >>> import torch
    >>> model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 5))
    >>> with features_of(model) as features:
    ...     _ = model(torch.ones(4, 3))
    >>> features[0].shape
    torch.Size([4, 2])
    """
    found: list[Tensor] = []
    handle = head_of(model).register_forward_pre_hook(
        lambda _, inputs: found.append(inputs[0].flatten(1).float())
    )
    try:
        yield found
    finally:
        handle.remove()


def _names(model: nn.Module, parts: Sequence[nn.Module]) -> tuple[str, ...]:
    inside = {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules(remove_duplicate=False)
        if any(module is part for part in parts)
        for name in module.state_dict()
    }
    return tuple(name for name in model.state_dict() if name in inside)
