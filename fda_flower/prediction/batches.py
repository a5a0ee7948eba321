"""Samples as tensors: on a device, in batches, with their noise."""

import warnings
import weakref
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fda_flower.datasets import Samples
from fda_flower.prediction.passes import check_any

CPU = torch.device("cpu")

_TENSORS: dict[tuple[int, torch.device], tuple[weakref.ref[NDArray[Any]], Tensor]] = {}
"""By the array's id and the device, an array and a copy of it, while the array exists."""


def tensor_of(array: NDArray[Any], device: torch.device = CPU) -> Tensor:
    """Return an array as a tensor; on the CPU it shares the array's memory, elsewhere it is copied once.

    An array whose numbers run backwards is copied once, too. A network must not write into it.
    """
    if device.type == "cpu" and min(array.strides, default=0) >= 0:
        return _shared(array)
    key = id(array), device
    if (known := _TENSORS.get(key)) is None:
        tensor = _shared(np.ascontiguousarray(array)).to(device)
        known = _TENSORS[key] = weakref.ref(array, lambda _: _TENSORS.pop(key, None)), tensor
    return known[1]


def _shared(array: NDArray[Any]) -> Tensor:
    if not array.flags.writeable:
        _warned()
    return torch.from_numpy(array)


@cache
def _warned() -> None:
    """Have torch's warning of read-only arrays, which comes once a process, while nobody hears it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        torch.from_numpy(np.frombuffer(bytes(1), np.uint8))


def device_of(network: nn.Module) -> torch.device:
    """Return the device of a network's first array; the CPU if it has none."""
    for tensors in (network.parameters(), network.buffers()):
        for tensor in tensors:
            return tensor.device
    return CPU


def inputs_at(samples: Samples, where: Tensor | slice, device: torch.device = CPU) -> Tensor:
    """Return the inputs of samples at positions, images of uint8 in [0, 1], without noise."""
    return _floats_at(_inputs(samples, device), where, device)


def _inputs(samples: Samples, device: torch.device) -> Any:
    """Return the inputs as a tensor; image files stay files."""
    return tensor_of(samples.x, device) if isinstance(samples.x, np.ndarray) else samples.x


def _floats_at(inputs: Any, where: Tensor | slice, device: torch.device) -> Tensor:
    if isinstance(inputs, Tensor):
        x = _picked(inputs, where)
    else:
        places = where if isinstance(where, slice) else where.cpu().numpy()
        x = torch.from_numpy(inputs[places]).to(device)
    return x.float() / 255 if x.dtype == torch.uint8 else x


def batches(
    samples: Samples,
    size: int,
    generator: torch.Generator,
    shuffle: bool = False,
    cut: str = "even",
    device: torch.device = CPU,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield samples once, in batches of at most `size` samples.

    Without shuffling, noise or a conversion from uint8, a batch is the samples themselves, not a copy: a
    network must not write into it.

    Parameters
    ----------
    samples : Samples
        The samples.
    size : int
        The most samples in a batch.
    generator : torch.Generator
        On the CPU; determines the order, the same on every device, and the noise.
    shuffle : bool
        Whether to shuffle the samples.
    cut : {"even", "keep-last", "drop-last"}
        ``"even"``: the fewest batches, of nearly equal size, as the estimators of auto-weighting assume; none
        has a single sample, on which BatchNorm cannot train. Else batches of exactly `size`, and a rest,
        which ``"drop-last"`` drops unless it is the only batch.
    device : torch.device
        The device of the batches.

    Raises
    ------
    ConfigError
        If there are no samples.
    """
    check_any(samples)
    count = len(samples)
    positions = (torch.randperm(count, generator=generator) if shuffle else torch.arange(count)).to(device)
    number = -(-count // size)
    parts = positions.tensor_split(number) if cut == "even" else torch.split(positions, size)
    if cut == "drop-last" and len(parts) > 1 and len(parts[-1]) < size:
        parts = parts[:-1]
    noisy = on_device(generator, device) if samples.noise else generator
    inputs, labels, begin = _inputs(samples, device), tensor_of(samples.y, device), 0
    for part in parts:
        where = part if shuffle else slice(begin, begin + len(part))
        x, y, begin = _floats_at(inputs, where, device), _picked(labels, where), begin + len(part)
        if samples.noise:
            x = x + samples.noise * torch.randn(x.shape, generator=noisy, device=device)
        yield x, y


def _picked(values: Tensor, where: Tensor | slice) -> Tensor:
    """Return ``values[where]``; for positions by `index_select`, in half the time."""
    return values[where] if isinstance(where, slice) else values.index_select(0, where)


def on_device(generator: torch.Generator, device: torch.device) -> torch.Generator:
    """Return a generator of random numbers on a device.

    On the CPU it is the given one, which seeds a GPU's. All GPUs draw the same numbers: their generator
    counts (Philox; Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011).
    """
    if device.type == "cpu":
        return generator
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    return torch.Generator(device).manual_seed(seed)
