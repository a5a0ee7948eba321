"""BatchNorm's running statistics, estimated anew from samples of one domain (AdaBN)."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fda_flower.models.parts import batch_norms


@contextmanager
def own_statistics(model: nn.Module, batches: Iterable[Tensor]) -> Iterator[None]:
    """Have BatchNorm's running statistics be those of samples inside, and put the old ones back at the end.

    The mean and the (unbiased) variance of each channel are averaged over the batches, each of which counts
    by its samples; with batches of one size this is what layers with ``momentum=None`` compute. The layers
    normalise each batch by its own statistics meanwhile, so the statistics of a layer are those of inputs
    that the layers before it have adapted. All else is in evaluation mode, parameters are left alone, and no
    labels are used (Li et al., "Adaptive Batch Normalization for practical domain adaptation", 2016/2018,
    Algorithm 1, with batches in place of the whole domain at once).

    Parameters
    ----------
    model : Module
        The network. Without running statistics nothing happens.
    batches : iterable of Tensor
        The samples. A batch of a single sample is left out, since it has no variance.

    Examples
    --------
    >>> layer = nn.BatchNorm1d(1)
    >>> with own_statistics(layer, [torch.tensor([[1.0], [3.0]])]):
    ...     layer.running_mean.item(), layer.running_var.item()
    (2.0, 2.0)
    >>> layer.running_mean.item(), layer.running_var.item()
    (0.0, 1.0)
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
