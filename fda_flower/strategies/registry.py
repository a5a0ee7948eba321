"""The methods by name. A new one is a strategy in a file of its own, and one line here."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fda_flower.strategies.base import DomainAdaptationStrategy
from fda_flower.strategies.fedavg import FedAvg
from fda_flower.strategies.fedavg_ft import FedAvgFT
from fda_flower.strategies.fedda import FedDA
from fda_flower.strategies.feddaf import FedDAF
from fda_flower.strategies.feddwa import FedDWA
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
    whole_target : bool
        Whether the target trains on all its training samples, whatever number is labelled.
    target_client : str
        The target's client, by its name in `fda_flower.clients.TARGETS`.
    """

    label: str
    summary: str
    build: Callable[..., DomainAdaptationStrategy]
    whole_target: bool = False
    target_client: str = "target"

    @property
    def auto(self) -> bool:
        """Whether it estimates β, and so needs at least two batches on the target."""
        parameter = inspect.signature(self.build).parameters.get("auto")
        return parameter is not None and parameter.default is True

    @property
    def variants(self) -> Mapping[str, Mapping[str, Any]]:
        """Its strategy's options by variant; see `DomainAdaptationStrategy.variants`."""
        strategy: Any = self.build.func if isinstance(self.build, partial) else self.build
        variants: Mapping[str, Mapping[str, Any]] = strategy.variants
        return variants

    @property
    def weighted(self) -> bool:
        """Whether it takes a β."""
        return self.takes("beta")

    def takes(self, option: str) -> bool:
        """Whether its strategy has an option of this name."""
        return option.replace("-", "_") in inspect.signature(self.build).parameters


FINETUNE = partial(TargetOnly, initial_rounds=50)

METHODS: dict[str, Method] = {
    "source-only": Method("Source Only", "the sources' mean; the target does not train", SourceOnly),
    "fedavg": Method("FedAvg", "the mean of all clients, target included", FedAvg),
    "target-only": Method("Target Only", "the target alone", TargetOnly),
    "fedda": Method("FedDA", "target and sources combined with a fixed β", FedDA),
    "fedgp": Method("FedGP", "the target projected on each source, with a fixed β", FedGP),
    "fedda-auto": Method("FedDA_Auto", "FedDA, β estimated every round", partial(FedDA, auto=True)),
    "fedgp-auto": Method("FedGP_Auto", "FedGP, β estimated every round", partial(FedGP, auto=True)),
    "feddaf": Method("FedDAF", "two models blended on the target", FedDAF, target_client="feddaf"),
    "feddwa": Method("FedDWA", "a personal model for each client, by distances", FedDWA),
    "fedavg-ft": Method("FedAvg FT", "FedAvg, fine-tuned by the target every round", FedAvgFT),
    "finetune-offline": Method("Finetune_Offline", "50 rounds of the sources, then the target", FINETUNE),
    "oracle": Method("Oracle", "the target alone, with all its labels", TargetOnly, whole_target=True),
}
