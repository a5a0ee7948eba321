"""The tensors of a network's state dictionary, found without making the dictionary anew each time."""

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from torch import Tensor, nn


class _Place(NamedTuple):
    """Where a network holds a tensor: among the parameters or the buffers of one of its modules."""

    name: str
    held: dict[str, Tensor | None]
    key: str

    def tensor(self) -> Tensor:
        found = self.held[self.key]
        assert found is not None, f"'{self.name}' was in the state dictionary"
        return found.detach()


_KNOWN: WeakKeyDictionary[nn.Module, list[_Place]] = WeakKeyDictionary()


def tensors(network: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a network's state dictionary, in its order; they share the network's memory.

    The places of the tensors are found once for each network, in a fraction of whose time they are read: the
    network must keep the modules that it has at the first call.
    """
    places = _KNOWN.get(network)
    if places is None:
        state = network.state_dict(keep_vars=True)
        places = _places(network, state)
        if [place.held.get(place.key) is state[place.name] for place in places] != [True] * len(state):
            return network.state_dict()  # some module has a state of its own kind
        _KNOWN[network] = places
    return {place.name: place.tensor() for place in places}


def _places(network: nn.Module, state: dict[str, Any]) -> list[_Place]:
    modules, places = dict(network.named_modules(remove_duplicate=False)), []
    for name in state:
        path, _, key = name.rpartition(".")
        module = modules.get(path)
        for held in () if module is None else (module._parameters, module._buffers):
            if key in held:
                places.append(_Place(name, held, key))
    return places
