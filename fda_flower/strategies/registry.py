"""The methods by name. A new one is a strategy in a file of its own, and one line here."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fda_flower.strategies.base import DomainAdaptationStrategy
from fda_flower.strategies.fedavg import FedAvg
from fda_flower.strategies.fedda import FedDA
from fda_flower.strategies.fedgp import FedGP
from fda_flower.strategies.source_only import SourceOnly
from fda_flower.strategies.target_only import TargetOnly


@dataclass(frozen=True)
class Method:
    """A method that can be run by name.

    Attributes
    ----------
    label : str
        Its name in tables and pictures.
    summary : str
        One line for ``fda list``.
    build : callable
        Makes its strategy from options.
    """

    label: str
    summary: str
    build: Callable[..., DomainAdaptationStrategy]

    @property
    def auto(self) -> bool:
        """Whether it estimates β, and so needs at least two batches on the target."""
        parameter = inspect.signature(self.build).parameters.get("auto")
        return parameter is not None and parameter.default is True

    @property
    def weighted(self) -> bool:
        """Whether it takes a β."""
        return self.takes("beta")

    def takes(self, option: str) -> bool:
        """Whether its strategy has an option of this name."""
        return option.replace("-", "_") in inspect.signature(self.build).parameters


METHODS: dict[str, Method] = {
    "source-only": Method("Source Only", "the sources' mean; the target does not train", SourceOnly),
    "fedavg": Method("FedAvg", "the mean of all clients, target included", FedAvg),
    "target-only": Method("Target Only", "the target alone", TargetOnly),
    "fedda": Method("FedDA", "target and sources combined with a fixed β", FedDA),
    "fedgp": Method("FedGP", "the target projected on each source, with a fixed β", FedGP),
    "fedda-auto": Method("FedDA_Auto", "FedDA, β estimated every round", partial(FedDA, auto=True)),
    "fedgp-auto": Method("FedGP_Auto", "FedGP, β estimated every round", partial(FedGP, auto=True)),
}
