"""Passes of samples through a network, with the arrays of a predictor; PyTorch is imported for its own."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import Layers
from fda_flower.datasets import Samples
from fda_flower.errors import ConfigError
from fda_flower.models.exchange import Network
from fda_flower.models.linear import LinearNetwork, TableBody

if TYPE_CHECKING:
    import torch

BATCH = 256
"""Samples in a batch of a pass without training."""

Drawing: TypeAlias = "Callable[[], AbstractContextManager[torch.Generator]]"
"""Gives the random numbers of a pass."""


@contextmanager
def seeded() -> "Iterator[torch.Generator]":
    """Yield a generator for samples without noise."""
    import torch

    yield torch.Generator().manual_seed(0)


def through(body: TableBody | None, samples: Samples) -> Samples:
    """Return a table's rows as features of a body, if there is one; noise is drawn once."""
    if body is None:
        return samples
    if samples.noise:
        from fda_flower.prediction.features import keys_of, with_noise

        samples = with_noise(samples, keys_of(samples.x))
    return replace(samples, x=body(samples.x))


class Passes(ABC):
    """Passes of the same samples through a network; labels are ignored."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._done: list[tuple[Layers, NDArray[Any]]] = []

    def __len__(self) -> int:
        return len(self._samples)

    def outputs(self, layers: Layers) -> NDArray[Any]:
        """Return the network's outputs with these arrays, shape ``(n, C)``, computed once per arrays."""
        for known, outputs in self._done:
            if known is layers:
                return outputs
        outputs = self._outputs(layers)
        self._done.append((layers, outputs))
        return outputs

    def outputs_and_features(self, layers: Layers) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return outputs, and the inputs of the network's head, shape ``(n, features)``."""
        return self.outputs(layers), self.features(layers)

    @abstractmethod
    def features(self, layers: Layers) -> NDArray[Any]:
        """Return the inputs of the network's head, shape ``(n, features)``."""

    @abstractmethod
    def _outputs(self, layers: Layers) -> NDArray[Any]: ...


class LinearPasses(Passes):
    """Passes through a linear layer on rows, with NumPy; `drawing` gives the random numbers of noise."""

    def __init__(self, network: LinearNetwork, samples: Samples, drawing: Drawing = seeded) -> None:
        super().__init__(samples)
        self._network, self._drawing = network, drawing

    def features(self, layers: Layers) -> NDArray[Any]:
        """Return the rows, shape ``(n, features)``."""
        self._network.check(layers)
        return self._network.rows(self._inputs, layers)

    def _outputs(self, layers: Layers) -> NDArray[Any]:
        return self._network.outputs(self.features(layers), layers)

    @cached_property
    def _inputs(self) -> NDArray[Any]:
        """The samples' inputs, with the noise of each pass; only files and noise need PyTorch."""
        check_any(self._samples)
        if isinstance(self._samples.x, np.ndarray) and not self._samples.noise:
            return self._samples.x
        from fda_flower.prediction.batches import batches

        with self._drawing() as generator:
            return np.concatenate([x.numpy() for x, _ in batches(self._samples, BATCH, generator)])


def passes_of(network: Network, samples: Samples, drawing: Drawing = seeded) -> Passes:
    """Return the passes of samples through a network, whose arrays PyTorch overwrites.

    `drawing` gives the random numbers, the same for each pass; samples without noise need none.
    """
    if isinstance(network, LinearNetwork):
        return LinearPasses(network, samples, drawing)
    from fda_flower.prediction.network_passes import NetworkPasses

    return NetworkPasses(network, samples, drawing)


def check_any(samples: Samples) -> None:
    """Raise a `ConfigError` if there are no samples."""
    if not len(samples):
        remedy = "give the client labelled samples to train on and others to test on, or leave it out"
        raise ConfigError("a client has no samples", thing="samples", value=0, remedy=remedy)
