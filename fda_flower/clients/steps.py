"""Training steps written out: for plain layers autograd's bits, in about half of its time.

A network of linear layers trains by a few products for each batch; autograd's graph, calls of modules and an
optimizer object take longer. `fastest` writes the products out: the same operations of PyTorch, in autograd's
order. A network's first batch goes both ways, and unless all numbers are equal autograd trains the network.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from fda_flower.clients.settings import LocalTraining
from fda_flower.models.rows import PlainColumns
from fda_flower.models.split import KindsOfRows, Rows

Step = Callable[[Tensor, Tensor], Tensor]
"""Trains on a batch, samples and labels, and returns its mean loss before the step."""

Update = Callable[[list[Tensor], list[Tensor]], object]
"""The step of an optimizer, in place: of parameters, by their gradients."""

FIRST = {nn.Flatten, Rows, KindsOfRows, PlainColumns}
"""Types of modules, without parameters, that may come before the first linear layer."""

LAYERS = {*FIRST, nn.Sequential, nn.Identity, nn.Linear, nn.ReLU}
"""The exact types of a network's modules whose steps are written out."""

ATEN: Any = torch.ops.aten
ONE = torch.ones(())

any_global_hook: Callable[[], Any] = _has_any_global_hook
hooks_of = attrgetter("_backward_hooks", "_post_accumulate_grad_hooks")

_EQUAL: WeakKeyDictionary[nn.Module, dict[Any, bool]] = WeakKeyDictionary()
"""By network, and by optimizer and trained parameters, whether both ways have equal bits."""


class Layer(NamedTuple):
    """A linear layer: weight and bias, whether each is trained, and whether a ReLU follows."""

    weight: Tensor
    bias: Tensor | None
    trains: tuple[bool, bool]
    relu: bool


class WrittenOut:
    """The passes of a network on the CPU, with plain cross entropy, written out."""

    def __init__(self, first: Sequence[nn.Module], layers: Sequence[Layer]) -> None:
        self._first, self._layers = first, layers
        self._across = [layer.weight.detach().t() for layer in layers]
        self.parts = tuple(layer.trains for layer in layers)
        self._lowest = [*map(any, self.parts), True].index(True)

    def gradients(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return a batch's mean loss, and the gradients of the trained parameters in their order."""
        for module in self._first:
            x = module(x)
        inputs = [x]
        for (_, bias, _, relu), across in zip(self._layers, self._across, strict=True):
            x = x.mm(across) if bias is None else torch.addmm(bias, x, across)
            x = x.relu() if relu else x
            inputs.append(x)
        outputs = torch.log_softmax(x, 1)
        loss, weight = ATEN.nll_loss_forward(outputs, y, None, 1, -100)
        back = ATEN.nll_loss_backward(ONE, outputs, y, None, 1, -100, weight)
        return loss, self._back(torch._log_softmax_backward_data(back, outputs, 1, outputs.dtype), inputs)

    def _back(self, back: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients, from the one of the outputs."""
        gradients: list[Tensor] = []
        for place in range(len(self._layers) - 1, self._lowest - 1, -1):
            weight, _, (trains_weight, trains_bias), relu = self._layers[place]
            if relu:
                back = ATEN.threshold_backward(back, inputs[place + 1], 0)
            if trains_bias:
                gradients.append(back.sum(0))
            if trains_weight:
                gradients.append(back.t().mm(inputs[place]))
            if place > self._lowest:
                back = back.mm(weight)
        return gradients[::-1]


def fastest(
    model: nn.Module,
    parameters: Sequence[Tensor],
    training: LocalTraining,
    by_autograd: Callable[[], Step],
) -> Step:
    """Return the fastest step of plain training that has autograd's bits.

    Parameters
    ----------
    model : Module
        The network, which minimises the plain cross entropy.
    parameters : sequence of Tensor
        Its parameters to train; no others have ``requires_grad``.
    training : LocalTraining
        The optimizer and its rate.
    by_autograd : callable
        Makes the step for any network, which leaves the gradients in ``.grad``.
    """
    network = written_out(model, parameters)
    if network is None or training.optimizer not in UPDATES:
        return by_autograd()
    update, trained = UPDATES[training.optimizer](training.learning_rate), list(parameters)

    def step(x: Tensor, y: Tensor) -> Tensor:
        with torch.inference_mode():
            loss, gradients = network.gradients(x, y)
            update(trained, gradients)
        return loss

    equal, key = _EQUAL.setdefault(model, {}), (training.optimizer, network.parts)
    if key in equal:
        return step if equal[key] else by_autograd()
    usual = by_autograd()

    def compared(x: Tensor, y: Tensor) -> Tensor:
        if key in equal:
            return step(x, y) if equal[key] else usual(x, y)
        numbers = _tried(network, update, trained, x, y)
        loss = usual(x, y)
        known = [loss, *(parameter.grad for parameter in trained), *trained]
        equal[key] = len(numbers) == len(known) and all(
            other is not None and torch.equal(one, other) for one, other in zip(numbers, known, strict=True)
        )
        return loss

    return compared


def _tried(
    network: WrittenOut, update: Update, parameters: list[Tensor], x: Tensor, y: Tensor
) -> list[Tensor]:
    """Return the loss, the gradients and the parameters after a step written out; none if it fails."""
    try:
        with torch.inference_mode():
            loss, gradients = network.gradients(x, y)
            after = [parameter.clone() for parameter in parameters]
            update(after, gradients)
    except Exception:  # autograd says what is wrong
        return []
    return [loss, *gradients, *after]


def written_out(model: nn.Module, parameters: Sequence[Tensor]) -> WrittenOut | None:
    """Return a network's passes; None if it has modules, hooks, or numbers of another kind."""
    first, layers = list[nn.Module](), list[Layer]()
    for module in _in_turn(model):
        kind = type(module)
        if kind not in LAYERS or _is_changed(module):
            return None
        if isinstance(module, nn.Linear):
            weight, bias = module.weight, module.bias
            trains = weight.requires_grad, bias is not None and bias.requires_grad
            layers.append(Layer(weight, bias, trains, relu=False))
        elif isinstance(module, nn.ReLU) and layers and not (layers[-1].relu or module.inplace):
            layers[-1] = Layer(*layers[-1][:3], relu=True)
        elif kind in FIRST and not layers:
            first.append(module)
        elif kind is not nn.Identity:
            return None
    every = [parameter for layer in layers for parameter in layer[:2] if parameter is not None]
    trained = [id(parameter) for parameter in every if parameter.requires_grad]
    fits = trained == [*map(id, parameters)] and all(map(_is_plain, every))
    return WrittenOut(first, layers) if fits and not _watched() else None


def _in_turn(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules of a network in the order of their calls."""
    if type(module) is nn.Sequential and not _is_changed(module):
        for each in module:
            yield from _in_turn(each)
    else:
        yield module


def _is_changed(module: nn.Module) -> bool:
    """Return whether a call of a module does more than its class says."""
    own = vars(module)
    hooks = own["_forward_hooks"] or own["_forward_pre_hooks"]
    hooks = hooks or own["_backward_hooks"] or own["_backward_pre_hooks"]
    return bool(hooks) or "forward" in own or own.get("_compiled_call_impl") is not None


def _is_plain(parameter: Tensor) -> bool:
    """Return whether a parameter is one of PyTorch's own, in float32 on the CPU, without hooks."""
    known = type(parameter) is nn.Parameter and parameter.dtype is torch.float32
    if not known or not parameter.is_cpu or not parameter.is_contiguous():
        return False
    return not any(hooks_of(parameter))


def _watched() -> bool:
    """Return whether all modules or optimizers have hooks, or PyTorch changes how autograd works."""
    hooks = any_global_hook() or _global_optimizer_pre_hooks or _global_optimizer_post_hooks
    return bool(hooks) or torch.is_autocast_enabled("cpu") or torch.is_anomaly_enabled()


def _descent(rate: float) -> Update:
    """Return the step of SGD without momentum, ``w ← w − η g``."""
    return lambda parameters, gradients: torch._foreach_add_(parameters, gradients, alpha=-rate)


def _adam(rate: float) -> Update:
    """Return the step of Adam with PyTorch's settings; it keeps the moments."""
    moments: list[list[Tensor]] = []

    def update(parameters: list[Tensor], gradients: list[Tensor]) -> None:
        if not moments:
            moments.extend([torch.zeros_like(each) for each in parameters] for _ in range(2))
            moments.append([torch.zeros(()) for _ in parameters])
        means, squares, steps = moments
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            parameters,
            gradients,
            means,
            squares,
            [],
            steps,
            lr=rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    return update


UPDATES: Mapping[str, Callable[[float], Update]] = {"adam": _adam, "sgd": _descent}
"""The steps of `fda_flower.clients.training.OPTIMIZERS`: functions of the learning rate."""
