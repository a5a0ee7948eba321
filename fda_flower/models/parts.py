"""Parts of a network: its state's tensors, its head and body, its frozen modules, and its precision."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize
from torch.nn.modules.batchnorm import _BatchNorm

from fda_flower.errors import ConfigError


class _Place(NamedTuple):
    """Where a network holds a tensor: an attribute of a module or, if `module` is None, of itself."""

    name: str
    module: nn.Module | None
    attribute: str

    def find(self, network: nn.Module) -> Any:
        return getattr(network if self.module is None else self.module, self.attribute, None)


_KNOWN: WeakKeyDictionary[nn.Module, list[_Place]] = WeakKeyDictionary()


def tensors(network: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a network's state dictionary, in its order; they share the network's memory.

    Their places are found once per network, which must keep the modules of the first call.
    """
    places = _KNOWN.get(network)
    if places is None:
        state = network.state_dict(keep_vars=True)
        # Without the network itself, which would keep itself alive.
        modules = {path: module for path, module in network.named_modules(remove_duplicate=False) if path}
        split = {name: name.rpartition(".") for name in state}
        places = [_Place(name, modules.get(path), attribute) for name, (path, _, attribute) in split.items()]
        if any(place.find(network) is not state[place.name] for place in places):
            return network.state_dict()  # some module defines its own state
        _KNOWN[network] = places
    return {place.name: place.find(network).detach() for place in places}


_MODULES: WeakKeyDictionary[nn.Module, list[ref[nn.Module]]] = WeakKeyDictionary()


def modules_of(network: nn.Module) -> list[nn.Module]:
    """Return a network's modules, itself first; they are found once, and it must keep them."""
    if network not in _MODULES:
        _MODULES[network] = list(map(ref, network.modules()))
    return [module for known in _MODULES[network] if (module := known()) is not None]


def parameters_of(network: nn.Module) -> list[nn.Parameter]:
    """Return a network's parameters in their order, each once."""
    own = (vars(module)["_parameters"].values() for module in modules_of(network))
    return list(dict.fromkeys(each for parameters in own for each in parameters if each is not None))


def head_of(model: nn.Module) -> nn.Module:
    """Return the head of a network: the layers that turn features into outputs.

    This is the result of timm's ``get_classifier``, else the network's attribute ``head``, if it is a module,
    else its last linear layer. Raise a `ConfigError` if there is none.
    """
    classifier = getattr(model, "get_classifier", None)
    own = classifier() if callable(classifier) else getattr(model, "head", None)
    if isinstance(own, nn.Module):
        return own
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        remedy = "choose another model, or give the module an attribute 'head'"
        raise ConfigError("the model has no head, since it has no linear layer", remedy=remedy)
    return layers[-1]


def head_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the head's arrays, in the order of the state dictionary; see `head_of`."""
    return _names(model, [head_of(model)])


def has_body(model: nn.Module, trained: bool = False) -> bool:
    """Return whether a network has parameters outside its head; with `trained`, parameters to train."""
    inside = set(head_names(model)) | (set(frozen_names(model)) if trained else set())
    return any(name not in inside for name, _ in model.named_parameters(remove_duplicate=False))


def count_trained(model: nn.Module) -> int:
    """Return how many numbers a network trains."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def batch_norm_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the parameters, running statistics and counters of `batch_norms`."""
    return _names(model, batch_norms(model))


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """Return the BatchNorm layers of a network that are not frozen."""
    frozen = set(frozen_modules(model))
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m not in frozen]


@torch.no_grad()
def estimate_statistics(model: nn.Module, layers: Sequence[_BatchNorm], batches: Iterable[Tensor]) -> None:
    """Estimate the running statistics of a model's BatchNorm layers; the model is in evaluation mode then.

    The mean and the (unbiased) variance of each channel are averaged over the batches, weighted by their
    sizes. Batches of a single sample have no variance and are skipped. The layers' momentum changes.
    """
    model.eval()
    for layer in layers:
        layer.train()
    seen = 0
    for x in batches:
        if len(x) > 1:
            seen += len(x)
            for layer in layers:
                layer.momentum = len(x) / seen
            model(x)
    model.eval()


def frozen_modules(model: nn.Module) -> list[nn.Module]:
    """Return the frozen modules of a network.

    A module without parameters, such as dropout or BatchNorm with ``affine=False``, is frozen if it is inside
    a frozen module.

    Examples
    --------
    >>> body = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, affine=False)).requires_grad_(False)
    >>> model = nn.Sequential(body, nn.Dropout(), nn.Linear(2, 5))
    >>> [type(module).__name__ for module in frozen_modules(model)]
    ['Sequential', 'Linear', 'BatchNorm1d']
    """
    frozen = dict[nn.Module, None]()
    for module in model.modules():
        trained = [parameter.requires_grad for parameter in module.parameters()]
        if module not in frozen and trained and not any(trained):
            frozen |= dict.fromkeys(module.modules())
    return list(frozen)


_FROZEN: WeakKeyDictionary[nn.Module, tuple[str, ...]] = WeakKeyDictionary()


def frozen_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the arrays of frozen modules, and of frozen parameters.

    They are found once per network, which must not freeze or unfreeze parameters later.
    """
    if model not in _FROZEN:
        inside = set(_names(model, frozen_modules(model)))
        parameters = model.named_parameters(remove_duplicate=False)
        inside |= {name for name, parameter in parameters if not parameter.requires_grad}
        _FROZEN[model] = tuple(name for name in model.state_dict() if name in inside)
    return _FROZEN[model]


Part = Literal["all", "head", "body"]
"""The part of a network that trains; the body is everything but the head."""


def to_train(model: nn.Module, part: Part = "all") -> list[nn.Parameter]:
    """Put a part of a network in training mode, and return its parameters, in the network's order.

    The rest, and frozen modules, are in evaluation mode.
    """
    mode = part != "head"
    if any(module.training != mode for module in modules_of(model)):
        model.train(mode)
    inside = set[nn.Parameter]()
    if part != "all":
        head = head_of(model).train(part == "head")
        inside |= set(head.parameters())
    if frozen_names(model):
        for module in frozen_modules(model):
            module.training = False
    trained = [parameter for parameter in parameters_of(model) if parameter.requires_grad]
    return trained if part == "all" else [p for p in trained if (p in inside) == (part == "head")]


@contextmanager
def features_of(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the inputs of the model's head in each call: features, float32, shape ``(n, features)``.

    Their gradients are kept.
    """
    features: list[Tensor] = []
    handle = head_of(model).register_forward_pre_hook(
        lambda _, inputs: features.append(inputs[0].flatten(1).float())
    )
    try:
        yield features
    finally:
        handle.remove()


def _names(model: nn.Module, parts: Sequence[nn.Module]) -> tuple[str, ...]:
    if not parts:
        return ()
    inside = {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules(remove_duplicate=False)
        if any(module is part for part in parts)
        for name in module.state_dict()
    }
    return tuple(name for name in model.state_dict() if name in inside)


class PrototypeHead(nn.Linear):
    """A linear head without bias on normalised features, ``W · f/‖f‖ / T``, with the `temperature` T."""

    def __init__(self, features: int, classes: int, temperature: float) -> None:
        super().__init__(features, classes, bias=False)
        self._temperature = temperature

    def forward(self, input: Tensor) -> Tensor:
        """Return the outputs for features of shape ``(n, ...)``, flattened."""
        return linear(normalize(input.flatten(1)), self.weight) / self._temperature


def replace_head(model: nn.Module, x: Tensor, temperature: float) -> None:
    """Replace a network's head by a random `PrototypeHead`, and leave the network in evaluation mode.

    `x` is a batch of inputs.
    """
    model.eval()
    with torch.no_grad(), features_of(model) as features:
        classes = model(x).shape[1]
    old = head_of(model)
    (name,) = [name for name, module in model.named_modules() if module is old]
    model.set_submodule(name, PrototypeHead(features[0].shape[1], classes, temperature).to(features[0]))


def in_precision(network: nn.Module, precision: str) -> nn.Module:
    """Let a network train in a precision, in place; its names and its class stay.

    With ``"bf16"``, torch's autocast computes convolutions, linear layers and others in bfloat16 while
    gradients are taken. Parameters, buffers and outputs stay float32, and so do computations without
    gradients: evaluations, and the statistics of AdaBN.

    Examples
    --------
    >>> network = in_precision(nn.Linear(3, 2), "bf16")
    >>> network(torch.ones(1, 3)).dtype, network.weight.dtype, isinstance(network, nn.Linear)
    (torch.float32, torch.float32, True)
    """
    if precision == "bf16":
        kind = type(network)
        # A wrapper would rename the arrays; copies would share a replaced `forward`.
        network.__class__ = type(kind.__name__, (_InBf16, kind), {})
    return network


class _InBf16(nn.Module):
    """A base before a network's own class."""

    def forward(self, x: Tensor, *more: Any) -> Tensor:
        """Return the network's outputs as float32."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=torch.is_grad_enabled()):
            outputs: Tensor = super().forward(x, *more)
        return outputs.float()
