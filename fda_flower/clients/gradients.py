"""Mini-batch gradients of a model before training, and AdaBN's statistics."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict
from numpy.typing import NDArray
from torch import Tensor, nn

from fda_flower.clients.project_network import labels_of, outputs_for
from fda_flower.errors import unknown
from fda_flower.models.devices import widest_float
from fda_flower.models.parts import batch_norms, estimate_statistics, to_train
from fda_flower.wire import protocol
from fda_flower.wire.numpy_client import add_arrays

Batches = Iterable[Any]
"""Pairs of tensors, or dictionaries; see `fda_flower.clients.project_network`."""
Loss = Callable[[Tensor, Tensor], Tensor]
"""Mean loss of a batch, from outputs and labels."""


def each_gradient(
    model: nn.Module, batches: Batches, loss_of: Loss, evaluation: bool = False
) -> Iterator[None]:
    """Yield after the backward pass of each batch, with only this batch's gradients in ``.grad``.

    The model is in training mode, or in `evaluation` mode; its buffers, such as running statistics, are
    restored at the end.
    """
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    if evaluation:
        model.eval()
    else:
        to_train(model)
    for batch in batches:
        model.zero_grad()
        outputs = outputs_for(model, batch)
        torch.autograd.backward(loss_of(outputs, labels_of(batch).to(outputs.device)))
        yield
    model.zero_grad()
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])


@dataclass(frozen=True)
class BatchGradients:
    """The gradients that a train message requests, as arrays of its record; empty without a request."""

    arrays: dict[str, NDArray[Any]]

    def add_to(self, reply: RecordDict | dict[str, Any]) -> None:
        """Add the record to a train reply, or to the metrics returned by the ``fit`` of a `NumPyClient`."""
        add_arrays(reply, protocol.GRADIENTS, self.arrays)


def batch_gradients(
    model: nn.Module,
    batches: Batches,
    loss_fn: Loss,
    config: Mapping[str, Any],
    parameters: Iterable[Tensor] | None = None,
) -> BatchGradients:
    """Compute the gradients of the received model before training, if the train message requests them.

    Parameters
    ----------
    model : Module
        The network with the server's weights. Its buffers are unchanged; it is left in training mode.
    batches : iterable
        Samples and labels, as pairs or dictionaries, shuffled, in batches of the training's size, such as its
        `DataLoader`. It is read once, and only on request.
    loss_fn : callable
        Mean loss of a batch, from outputs (the ``logits``, if the network returns more) and labels.
    config : Mapping
        The ``config`` of the train message: ``gradients`` (``"sketch"``; absent for none), ``sketch-size``
        and ``sketch-seed``.
    parameters : Iterable[Tensor], optional
        The parameters that travel, in the order of the arrays. Default: all, in the order of the state
        dictionary. Untrained parameters have zero gradients.

    Raises
    ------
    ConfigError
        If the config requests an unknown encoding, or a sketch larger than the model.

    Examples
    --------
    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.zeros_(model.weight)
    >>> batches = [(torch.ones(1, 1), torch.ones(1, 1)), (torch.ones(1, 1), torch.zeros(1, 1))]
    >>> config = {"gradients": "sketch", "sketch-size": 1, "sketch-seed": 0}
    >>> found = batch_gradients(model, batches, nn.functional.mse_loss, config).arrays
    >>> {name: float(found[name]) for name in ("norm", "variance", "batches")}  # of -2 and 0
    {'norm': 1.0, 'variance': 1.0, 'batches': 2.0}
    """
    encoding = config.get(protocol.GRADIENTS)
    if encoding is None:
        return BatchGradients({})
    if encoding != "sketch":
        raise unknown("encoding of gradients", str(encoding), ["sketch"])
    if parameters is None:
        every = dict(model.named_parameters(remove_duplicate=False))
        parameters = [every[name] for name in model.state_dict() if name in every]
    chosen = list(parameters)
    sketch = protocol.sketch_in(config, sum(p.numel() for p in chosen))
    sums = [torch.zeros_like(p, dtype=widest_float(p.device)).detach() for p in chosen]
    squares, count = 0.0, 0
    for _ in each_gradient(model, batches, loss_fn):
        count += 1
        for total, parameter in zip(sums, chosen, strict=True):
            if parameter.grad is not None:
                gradient = parameter.grad.to(total)
                total += gradient
                squares += float(gradient.square().sum())
    mean = {str(i): (total / max(count, 1)).cpu().numpy() for i, total in enumerate(sums)}
    norm = float(sum(np.square(layer).sum() for layer in mean.values()))
    variance = max(squares - count * norm, 0.0) / (count * (count - 1)) if count > 1 else 0.0
    sizes = {protocol.SKETCH_SIZE: np.array(sketch.size), protocol.SKETCH_SEED: np.array(sketch.seed)}
    numbers = {"norm": np.array(norm), "variance": np.array(variance), "batches": np.array(count)}
    return BatchGradients({"sketch": sketch(mean), **sizes, **numbers})


@contextmanager
def own_statistics(model: nn.Module, batches: Iterable[Tensor]) -> Iterator[None]:
    """Give BatchNorm running statistics of these samples in the block, and restore the old ones at its end.

    The mean and the (unbiased) variance of each channel are averaged over the batches, weighted by their
    sizes. Each batch is normalised by its own statistics, so a layer sees inputs that earlier layers have
    adapted; everything else is in evaluation mode (Li et al., "Adaptive Batch Normalization for practical
    domain adaptation", 2016/2018, Algorithm 1, with batches instead of the whole domain). Batches of a
    single sample have no variance and are skipped.
    """
    layers = [layer for layer in batch_norms(model) if layer.running_mean is not None]
    if not layers:
        yield
        return
    before = [({name: b.clone() for name, b in layer.named_buffers()}, layer.momentum) for layer in layers]
    try:
        estimate_statistics(model, layers, batches)
        yield
    finally:
        with torch.no_grad():
            for layer, (buffers, momentum) in zip(layers, before, strict=True):
                layer.momentum = momentum
                for name, buffer in layer.named_buffers():
                    buffer.copy_(buffers[name])
