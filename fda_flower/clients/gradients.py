"""Mini-batch gradients of a model as it is, before it is trained."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fda_flower.aggregation import GRADIENT_ENCODINGS, CountSketch
from fda_flower.errors import unknown
from fda_flower.models.parts import batch_norms, to_train
from fda_flower.wire import protocol
from fda_flower.wire.numpy_client import add_arrays

Batches = Iterable[tuple[Tensor, Tensor]]
Loss = Callable[[Tensor, Tensor], Tensor]
"""The mean loss of a batch, from outputs and labels."""


def each_gradient(model: nn.Module, batches: Batches, loss_of: Loss) -> Iterator[None]:
    """Yield after the backward pass of each batch, with the gradients of this batch alone in ``.grad``.

    The model is in training mode; at the end its buffers, such as running statistics, are put back.
    """
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    to_train(model)
    for x, y in batches:
        model.zero_grad()
        torch.autograd.backward(loss_of(model(x), y))
        yield
    model.zero_grad()
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])


@dataclass(frozen=True)
class BatchGradients:
    """The gradients that a train message asks for: the arrays of its record, none if it asks for none."""

    arrays: dict[str, NDArray[Any]]

    def add_to(self, reply: RecordDict | dict[str, Any]) -> None:
        """Add the record to a train reply, or to the metrics that the ``fit`` of a `NumPyClient` returns."""
        add_arrays(reply, protocol.GRADIENTS, self.arrays)


def batch_gradients(
    model: nn.Module,
    batches: Batches,
    loss_fn: Loss,
    config: Mapping[str, Any],
    parameters: Iterable[Tensor] | None = None,
) -> BatchGradients:
    """Take the gradients of the received model, before it is trained, if the train message asks for them.

    Parameters
    ----------
    model : Module
        The network, with the server's weights. Its buffers stay, and it is in training mode afterwards.
    batches : iterable of (Tensor, Tensor)
        Samples and labels, shuffled, in batches of the training's size, on the model's device: such as its
        `DataLoader`. It is read once, and not if nothing is asked for.
    loss_fn : callable
        The mean loss of a batch, from outputs and labels.
    config : Mapping
        The ``config`` of the train message: ``gradients`` (``"sketch"`` or ``"full"``; absent for none) and,
        with ``"sketch"``, ``sketch-size`` and ``sketch-seed``.
    parameters : Iterable[Tensor], optional
        The parameters that are sent, in the order of the arrays. Default: all, in the order of the state
        dictionary. The gradient of one that is not trained counts as zero.

    Raises
    ------
    ConfigError
        If the config asks for an unknown encoding.

    Examples
    --------
    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.zeros_(model.weight)
    >>> batches = [(torch.ones(1, 1), torch.ones(1, 1)), (torch.ones(1, 1), torch.zeros(1, 1))]
    >>> found = batch_gradients(model, batches, nn.functional.mse_loss, {"gradients": "full"})
    >>> {name: array.tolist() for name, array in found.arrays.items()}  # of -2 and 0
    {'full': [-1.0], 'norm': 1.0, 'variance': 1.0, 'batches': 2}
    """
    encoding = config.get(protocol.GRADIENTS)
    if encoding is None:
        return BatchGradients({})
    if encoding not in GRADIENT_ENCODINGS:
        raise unknown("encoding of gradients", str(encoding), GRADIENT_ENCODINGS)
    if parameters is None:
        every = dict(model.named_parameters(remove_duplicate=False))
        parameters = [every[name] for name in model.state_dict() if name in every]
    chosen = list(parameters)
    sums = [torch.zeros_like(parameter, dtype=torch.float64).detach() for parameter in chosen]
    squares, count = 0.0, 0
    for _ in each_gradient(model, batches, loss_fn):
        count += 1
        for total, parameter in zip(sums, chosen, strict=True):
            if parameter.grad is not None:
                gradient = parameter.grad.double()
                total += gradient
                squares += float(gradient.square().sum())
    mean = {str(i): (total / max(count, 1)).cpu().numpy() for i, total in enumerate(sums)}
    norm = float(sum(np.square(layer).sum() for layer in mean.values()))
    variance = max(squares - count * norm, 0.0) / (count * (count - 1)) if count > 1 else 0.0
    arrays: dict[str, NDArray[Any]] = {}
    if encoding == "sketch":
        size, seed = int(config[protocol.SKETCH_SIZE]), int(config[protocol.SKETCH_SEED])
        arrays[encoding] = CountSketch(size, seed)(mean)
        arrays |= {protocol.SKETCH_SIZE: np.array(size), protocol.SKETCH_SEED: np.array(seed)}
    else:
        arrays[encoding] = np.concatenate([layer.reshape(-1) for layer in mean.values()]).astype(np.float32)
    numbers = {"norm": np.array(norm), "variance": np.array(variance), "batches": np.array(count)}
    return BatchGradients(arrays | numbers)


@contextmanager
def own_statistics(model: nn.Module, batches: Iterable[Tensor]) -> Iterator[None]:
    """Give BatchNorm the running statistics of samples inside, and put the old ones back at the end.

    The mean and the (unbiased) variance of each channel are averaged over the batches, weighted by their
    sizes. Each batch is normalised by its own statistics meanwhile, so a layer sees inputs that the layers
    before it have adapted; all else is in evaluation mode (Li et al., "Adaptive Batch Normalization for
    practical domain adaptation", 2016/2018, Algorithm 1, with batches in place of the whole domain). Batches
    of a single sample, which have no variance, are left out.
    """
    layers = [layer for layer in batch_norms(model) if layer.running_mean is not None]
    if not layers:
        yield
        return
    before = [({name: b.clone() for name, b in layer.named_buffers()}, layer.momentum) for layer in layers]
    try:
        _estimate(model, layers, batches)
        yield
    finally:
        with torch.no_grad():
            for layer, (buffers, momentum) in zip(layers, before, strict=True):
                layer.momentum = momentum
                for name, buffer in layer.named_buffers():
                    buffer.copy_(buffers[name])


@torch.no_grad()
def _estimate(model: nn.Module, layers: Sequence[_BatchNorm], batches: Iterable[Tensor]) -> None:
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
