"""Which arrays of a network travel, which a client keeps for itself, and which never move."""

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from torch import Tensor, nn

from fda_flower.errors import ConfigError, unknown
from fda_flower.files import checksum
from fda_flower.models.parts import batch_norm_names, frozen_names, head_names, tensors

PARTS: dict[str, Callable[[nn.Module], tuple[str, ...]]] = {
    "head": head_names,
    "batch-norm": batch_norm_names,
}
"""The names of a part's arrays, by the name of the part in messages."""


@dataclass(frozen=True)
class Exchange:
    """The names of a network's state dictionary, in its order, in three disjoint parts.

    Attributes
    ----------
    shared : tuple of str
        What server and clients send each other.
    own : tuple of str
        What the client keeps for itself between rounds. It replies with the server's as it came.
    frozen : tuple of str
        What nobody trains: it never travels, and each site makes the same.

    Examples
    --------
    >>> body = nn.Linear(3, 2).requires_grad_(False)
    >>> Exchange.of(nn.Sequential(body, nn.BatchNorm1d(2), nn.Linear(2, 5)), own="head")
    ... # doctest: +NORMALIZE_WHITESPACE
    Exchange(shared=('1.weight', '1.bias', '1.running_mean', '1.running_var', '1.num_batches_tracked'),
             own=('2.weight', '2.bias'), frozen=('0.weight', '0.bias'))
    """

    shared: tuple[str, ...]
    own: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()

    @classmethod
    def of(cls, network: nn.Module, own: str = "") -> "Exchange":
        """Return how the arrays of a network are exchanged.

        Its parameters' ``requires_grad`` tells what is frozen (see `fda_flower.models.parts`). The part of
        its `own` that the client keeps is a name of `PARTS`, or a pattern such as ``layer4.*``. If nothing in
        the network is trained, or it has no such part, a `ConfigError` tells so.
        """
        frozen = frozen_names(network)
        fixed = set(frozen)
        moving = [name for name in tensors(network) if name not in fixed]
        if frozen and not moving:
            raise ConfigError(
                f"the network {type(network).__name__} has no parameter with requires_grad, so that there is "
                "nothing to train: leave its head trainable",
                thing="network",
                value=type(network).__name__,
            )
        kept = PARTS[own](network) if own in PARTS else fnmatch.filter(moving, own)
        if own and not kept and own not in PARTS:
            raise unknown("part of the model", own, PARTS)
        shared = tuple(name for name in moving if name not in kept)
        return cls(shared, tuple(name for name in moving if name in kept), frozen)

    def layers(self, network: nn.Module) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays of a network that are not frozen, in the order of its dictionary."""
        frozen = set(self.frozen)
        return {n: t.cpu().numpy().copy() for n, t in tensors(network).items() if n not in frozen}

    def named(self, network: nn.Module, arrays: Iterable[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the arrays of a message, which are in the order of `layers`, by its names."""
        frozen = set(self.frozen)
        return dict(zip((n for n in tensors(network) if n not in frozen), arrays, strict=True))

    def parameters(self, network: nn.Module) -> dict[str, Tensor]:
        """Return the parameters of a network that travel, in the order of its dictionary."""
        parameters = dict(network.named_parameters(remove_duplicate=False))
        return {name: parameters[name] for name in self.shared if name in parameters}


def frozen_layers(network: nn.Module) -> dict[str, NDArray[Any]]:
    """Return copies of the arrays of a network that are frozen."""
    own = tensors(network)
    return {name: own[name].cpu().numpy().copy() for name in frozen_names(network)}


def frozen_digest(network: nn.Module) -> str:
    """Return a digest of what is frozen in a network, which is the same at all sites; empty for nothing."""
    layers = frozen_layers(network)
    return checksum({}, layers) if layers else ""
