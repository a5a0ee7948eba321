"""The network of a loaded model: with NumPy for a linear layer on a table's columns, else PyTorch's."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from fda_flower.aggregation import Layers
from fda_flower.datasets import Samples
from fda_flower.errors import invalid
from fda_flower.models.linear import TableNetwork, table_network
from fda_flower.prediction.files import About
from fda_flower.prediction.passes import Drawing, LinearPasses, Passes, through


class ModelNetwork(ABC):
    """A network whose arrays a predictor gives."""

    @abstractmethod
    def check(self, networks: Iterable[Layers]) -> None:
        """Raise an exception unless it can be built and has arrays of these names and shapes.

        A description with a forged size takes no memory.
        """

    @abstractmethod
    def passes(self, samples: Samples, drawing: Drawing) -> Passes:
        """Return the passes of samples through it; `drawing` gives the random numbers of their noise."""


@dataclass(frozen=True)
class OfTable(ModelNetwork):
    """A linear layer on fixed features of a table's columns, with NumPy."""

    parts: TableNetwork

    def check(self, networks: Iterable[Layers]) -> None:
        """Raise a `ConfigError` unless the arrays are the linear layer's."""
        for layers in networks:
            self.parts.network.check(layers)

    def passes(self, samples: Samples, drawing: Drawing) -> Passes:
        """Return the passes of rows of standardised columns."""
        return LinearPasses(self.parts.network, through(self.parts.body, samples), drawing)


def network_of(about: About, device: str, body: Layers) -> ModelNetwork:
    """Return a model's network; `body` has the arrays of its frozen backbone, if a file holds them.

    Raise an exception if it cannot be built, or has another body.
    """
    given = about.network, about.shape, about.classes
    if is_linear(about) and (parts := table_network(*given, body)) is not None:
        if options := dict(about.network_options):
            raise invalid("network options", options, "leave them out", f"but '{about.network}' has none")
        return OfTable(parts)
    from fda_flower.prediction.torch_network import TorchNetwork

    return TorchNetwork(about, device, body)


def is_linear(about: About) -> bool:
    """Return whether a model is a linear layer on fixed features, which NumPy computes."""
    return about.train == "linear" and about.prototypes is None
