"""What is known of a network before any training: what it trains, and which parts it has."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fda_flower.errors import ConfigError
from fda_flower.models.exchange import Network
from fda_flower.models.linear import HEAD, LinearNetwork

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Structure:
    """A network's parts; by default a linear layer alone.

    Attributes
    ----------
    trained : int
        How many numbers it trains, or fits.
    batch_norms : int
        How many BatchNorm layers it trains.
    head : {"linear", "other"} or None
        What turns features into outputs: one linear layer, other layers, or no known ones.
    body, trained_body : bool
        Whether it has parameters before its head, and such that it trains.
    """

    trained: int
    batch_norms: int = 0
    head: str | None = "linear"
    body: bool = False
    trained_body: bool = False


def structure_of(network: Network) -> Structure:
    """Return the structure of a network; PyTorch is imported for its own alone."""
    if isinstance(network, LinearNetwork):
        return Structure(sum(network.layers[name].size for name in HEAD))
    from fda_flower.models.parts import batch_norms, count_trained, has_body

    if (head := _head_of(network)) is None:
        return Structure(count_trained(network), len(batch_norms(network)), None)
    bodies = has_body(network), has_body(network, trained=True)
    return Structure(count_trained(network), len(batch_norms(network)), head, *bodies)


def _head_of(network: "nn.Module") -> str | None:
    from torch.nn import Linear

    from fda_flower.models.parts import head_of

    try:
        return "linear" if isinstance(head_of(network), Linear) else "other"
    except ConfigError:
        return None
