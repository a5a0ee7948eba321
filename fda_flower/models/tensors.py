"""The tensors of a network's state dictionary, found without making the dictionary anew each time."""

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from torch import Tensor, nn


class _Place(NamedTuple):
    """Where a network holds a tensor: an attribute of a module in it, or of itself if that is None."""

    name: str
    module: nn.Module | None
    attribute: str

    def find(self, network: nn.Module) -> Any:
        return getattr(network if self.module is None else self.module, self.attribute, None)


_KNOWN: WeakKeyDictionary[nn.Module, list[_Place]] = WeakKeyDictionary()


def tensors(network: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a network's state dictionary, in its order; they share the network's memory.

    Where the tensors are is worked out once for each network, which takes most of the time: the network must
    keep the modules that it has at the first call.
    """
    places = _KNOWN.get(network)
    if places is None:
        state = network.state_dict(keep_vars=True)
        places = _places(network, state)
        if any(place.find(network) is not state[place.name] for place in places):
            return network.state_dict()  # some module has a state of its own kind
        _KNOWN[network] = places
    return {place.name: place.find(network).detach() for place in places}


def _places(network: nn.Module, state: dict[str, Any]) -> list[_Place]:
    # The network itself is left out, since it would keep itself alive.
    modules = {path: module for path, module in network.named_modules(remove_duplicate=False) if path}
    split = {name: name.rpartition(".") for name in state}
    return [_Place(name, modules.get(path), attribute) for name, (path, _, attribute) in split.items()]
