"""The partition of a network's arrays: those that travel, that a client keeps, and that are frozen.

PyTorch is imported for its networks alone.
"""

import fnmatch
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from numpy.typing import NDArray

from fda_flower.aggregation import Layers
from fda_flower.errors import ConfigError, unknown
from fda_flower.files import checksum
from fda_flower.models.linear import HEAD, LinearNetwork
from fda_flower.names.registry import resolve

if TYPE_CHECKING:
    from torch import Tensor, nn

Network: TypeAlias = "nn.Module | LinearNetwork"

PARTS = {
    "head": "fda_flower.models.parts:head_names",
    "batch-norm": "fda_flower.models.parts:batch_norm_names",
}
"""Functions that return the names of a part's arrays, by the name of the part in messages."""


@dataclass(frozen=True)
class Exchange:
    """The names of a network's state dictionary, in order, in three disjoint parts.

    Attributes
    ----------
    shared : tuple of str
        Arrays that server and clients send each other.
    own : tuple of str
        Arrays that the client keeps between rounds. It replies with the server's unchanged.
    frozen : tuple of str
        Arrays that nobody trains: they never travel, and each site creates the same.
    moving : tuple of str
        Arrays of the first two parts, in the order of the dictionary.

    Examples
    --------
    >>> from torch import nn
    >>> body = nn.Linear(3, 2).requires_grad_(False)
    >>> Exchange.of(nn.Sequential(body, nn.BatchNorm1d(2), nn.Linear(2, 5)), own="head")
    ... # doctest: +NORMALIZE_WHITESPACE
    Exchange(shared=('1.weight', '1.bias', '1.running_mean', '1.running_var', '1.num_batches_tracked'),
             own=('2.weight', '2.bias'), frozen=('0.weight', '0.bias'))
    """

    shared: tuple[str, ...]
    own: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    moving: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def of(cls, network: Network, own: str = "") -> "Exchange":
        """Return the partition of a network.

        Arrays are frozen by ``requires_grad`` of the parameters (see `fda_flower.models.parts`). The part
        `own`, which the client keeps, is a name of `PARTS` or a pattern such as ``layer4.*``. The partition
        is found once per network. Raises a `ConfigError` if nothing in the network is trainable, or it has
        no such part.
        """
        known = _KNOWN.setdefault(network, {})
        if own not in known:
            known[own] = cls._find(network, own)
        return known[own]

    @classmethod
    def _find(cls, network: Network, own: str) -> "Exchange":
        frozen = _frozen(network)
        fixed = set(frozen)
        moving = [name for name in layers_of(network) if name not in fixed]
        if frozen and not moving:
            raise ConfigError(
                f"the network {type(network).__name__} has no parameter with requires_grad, so that there is "
                "nothing to train: leave its head trainable",
                thing="network",
                value=type(network).__name__,
            )
        private = resolve(PARTS[own])(network) if own in PARTS else fnmatch.filter(moving, own)
        if own and not private and own not in PARTS:
            raise unknown("part of the model", own, PARTS)
        shared = tuple(name for name in moving if name not in private)
        return cls(shared, tuple(name for name in moving if name in private), frozen, tuple(moving))

    def layers(self, network: Network) -> dict[str, NDArray[Any]]:
        """Return copies of a network's unfrozen arrays, in the order of its dictionary."""
        own = layers_of(network)
        return {name: own[name].copy() for name in self.moving}

    def named(self, arrays: Layers) -> dict[str, NDArray[Any]]:
        """Return the arrays of a message by the network's names, in the order of `layers`.

        In the message they have these names, or their positions ``"0"``, ``"1"`` and so on, in this order.
        Otherwise a `ConfigError` names the first that does not: a site's mods read arrays by name.
        """
        own = list(self.moving)
        if list(arrays) not in (own, [str(position) for position in range(len(own))]):
            other = next((name for name, known in zip(arrays, own, strict=False) if name != known), None)
            what = f"{len(arrays)} arrays" if len(arrays) != len(own) else f"the array '{other}'"
            raise ConfigError(
                f"the message has {what}, and the network {len(own)} arrays by other names",
                thing="message",
                value=other,
                remedy="name them as in the network's state dictionary, in its order, or number them from 0",
            )
        return dict(zip(own, arrays.values(), strict=True))

    def buffers(self, network: Network) -> frozenset[str]:
        """Return the names of the arrays that travel and nobody trains, such as running statistics."""
        if isinstance(network, LinearNetwork):
            return frozenset(self.shared) - set(HEAD)
        return frozenset(self.shared) - self.parameters(network).keys()

    def parameters(self, network: "nn.Module") -> "dict[str, Tensor]":
        """Return a network's parameters that travel, in the order of its dictionary."""
        parameters = dict(network.named_parameters(remove_duplicate=False))
        return {name: parameters[name] for name in self.shared if name in parameters}


_KNOWN: WeakKeyDictionary[Network, dict[str, Exchange]] = WeakKeyDictionary()


def layers_of(network: Network) -> Layers:
    """Return the arrays of a network's state dictionary, in its order; they may share its memory."""
    if isinstance(network, LinearNetwork):
        return network.layers
    from fda_flower.models.parts import tensors

    return {name: tensor.cpu().numpy() for name, tensor in tensors(network).items()}


def _frozen(network: Network) -> tuple[str, ...]:
    if isinstance(network, LinearNetwork):
        return ()
    from fda_flower.models.parts import frozen_names

    return frozen_names(network)


def frozen_layers(network: Network) -> dict[str, NDArray[Any]]:
    """Return copies of a network's frozen arrays."""
    own = layers_of(network)
    return {name: own[name].copy() for name in _frozen(network)}


def frozen_digest(network: Network) -> str:
    """Return a digest of a network's frozen arrays, equal at all sites; empty if nothing is frozen."""
    layers = frozen_layers(network)
    return checksum({}, layers) if layers else ""
