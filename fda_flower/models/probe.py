"""A few numbers that say what a network computes: they change with its code, not with its weights."""

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from fda_flower.models import OURS, find_model, reads_text

if TYPE_CHECKING:
    from torch import nn

SAMPLES, OUTPUTS = 2, 4
"""How many made-up samples a network reads, and of how many of its outputs the numbers are."""


def is_foreign(name: str) -> bool:
    """Return whether a network's code is of another package, or the user's own."""
    return ":" in name or not find_model(name).module.startswith(OURS)


def answers(name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> tuple[float, ...]:
    """Return outputs of a foreign network with made-up weights for made-up samples, in evaluation mode.

    Empty for our own networks, and where such weights have no finite outputs. What acts in training alone,
    as the rate of dropout does, does not show.
    """
    if reads_text(name) or not is_foreign(name):
        return ()
    import torch
    from torch.nn.parameter import is_lazy

    from fda_flower.models.pretrained import replaced

    x = torch.from_numpy(_uniform(0, (SAMPLES, *shape))).float()
    with torch.random.fork_rng([]), torch.no_grad(), replaced():
        torch.default_generator.manual_seed(0)
        try:
            network: nn.Module = find_model(name).builder(shape, classes, **options).cpu().eval()
            if any(map(is_lazy, network.state_dict().values())):
                network(x)  # which gives them their shapes
            _make_up(network)
            torch.default_generator.manual_seed(0)
            outputs = network(x)[:, :OUTPUTS].flatten().tolist()
        except Exception:  # Foreign code may raise anything; other checks name it.
            return ()
    return tuple(float(f"{each:.6g}") for each in outputs) if np.isfinite(outputs).all() else ()


def _make_up(network: "nn.Module") -> None:
    """Replace the numbers of a network's state: biases are near 0, matrices keep the scale, others near 1."""
    import torch

    for place, (name, tensor) in enumerate(network.state_dict().items(), 1):
        if not tensor.is_floating_point():
            continue
        numbers = _uniform(place, tuple(tensor.shape))
        if tensor.ndim > 1:
            numbers = (2 * numbers - 1) * np.sqrt(6 * len(tensor) / tensor.numel())
        elif name.endswith(("bias", "mean")):
            numbers -= 0.5
        else:
            numbers += 0.5
        tensor.copy_(torch.from_numpy(numbers))


def _uniform(seed: int, shape: tuple[int, ...]) -> "np.typing.NDArray[np.float64]":
    """Return numbers in [0, 1), the same on every machine and with every version of NumPy."""
    bits = np.random.PCG64(seed).random_raw(prod(shape)) >> np.uint64(11)
    return np.asarray(bits * 2.0**-53, np.float64).reshape(shape)
