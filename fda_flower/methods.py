"""The one table of methods: a strategy, the client of each role, and how the method is called.

Strategies and clients are named, not imported: only the method that runs is loaded.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from fda_flower.registry import Registry

if TYPE_CHECKING:
    from fda_flower.clients import DomainClient
    from fda_flower.strategies import DomainAdaptationStrategy

SOURCE, TARGET = "fda_flower.clients.source:SourceClient", "fda_flower.clients.target:TargetClient"


@dataclass(frozen=True)
class Method:
    """A method that can be run by name.

    Attributes
    ----------
    label : str
        Its name in tables and pictures.
    summary : str
        One line for ``fda list``.
    strategy : str or type
        Its `DomainAdaptationStrategy`: the class, or ``"module:Class"``.
    options : Mapping
        Keyword arguments of the strategy that make it this method.
    target, source : str or type
        The `DomainClient` that the target and each source run: the class, or ``"module:Class"``.
    all_target_labels : bool
        Whether the target trains on all its training samples, whatever number is labelled.
    """

    label: str
    summary: str
    strategy: "str | type[DomainAdaptationStrategy]"
    options: Mapping[str, Any] = field(default_factory=dict)
    target: "str | type[DomainClient]" = TARGET
    source: "str | type[DomainClient]" = SOURCE
    all_target_labels: bool = False

    @cached_property
    def strategy_class(self) -> "type[DomainAdaptationStrategy]":
        """The strategy's class."""
        strategy: type[DomainAdaptationStrategy] = _load(self.strategy)
        return strategy

    def build(self, **options: Any) -> "DomainAdaptationStrategy":
        """Make the strategy; `options` win over those of the method."""
        return self.strategy_class(**{**self.options, **options})

    def client_class(self, role: str) -> "type[DomainClient]":
        """Return the class of the client of a role, ``"source"`` or ``"target"``."""
        client: type[DomainClient] = _load(self.target if role == "target" else self.source)
        return client

    @property
    def auto(self) -> bool:
        """Whether it estimates β, and so needs at least two batches on the target."""
        return self.options.get("auto") is True

    @property
    def variants(self) -> Mapping[str, Mapping[str, Any]]:
        """Its strategy's options by variant; see `DomainAdaptationStrategy.variants`."""
        return self.strategy_class.variants

    @property
    def weighted(self) -> bool:
        """Whether it takes a β."""
        return self.takes("beta")

    def takes(self, option: str) -> bool:
        """Whether its strategy has an option of this name."""
        return option.replace("-", "_") in self.signature.parameters

    @property
    def signature(self) -> inspect.Signature:
        """The keyword arguments of its strategy."""
        return inspect.signature(self.strategy_class)


def _load(reference: Any) -> Any:
    return resolve_name(reference) if isinstance(reference, str) else reference


def _ours(name: str, label: str, summary: str, **more: Any) -> Method:
    return Method(label, summary, f"fda_flower.strategies:{name}", **more)


METHODS: Registry[Method] = Registry(
    "methods",
    Method,
    {
        "source-only": _ours("SourceOnly", "Source Only", "the sources' mean; the target does not train"),
        "fedavg": _ours("FedAvg", "FedAvg", "the mean of all clients, target included"),
        "target-only": _ours("TargetOnly", "Target Only", "the target alone"),
        "fedda": _ours("FedDA", "FedDA", "target and sources combined with a fixed β"),
        "fedgp": _ours("FedGP", "FedGP", "the target projected on each source, with a fixed β"),
        "fedda-auto": _ours("FedDA", "FedDA_Auto", "FedDA, β estimated every round", options={"auto": True}),
        "fedgp-auto": _ours("FedGP", "FedGP_Auto", "FedGP, β estimated every round", options={"auto": True}),
        "feddaf": _ours(
            "FedDAF", "FedDAF", "two models blended on the target", target="fda_flower.clients:FedDAFTarget"
        ),
        "feddwa": _ours("FedDWA", "FedDWA", "a personal model for each client, by distances"),
        "fedavg-ft": _ours("FedAvgFT", "FedAvg FT", "FedAvg, fine-tuned by the target every round"),
        "finetune-offline": _ours(
            "TargetOnly",
            "Finetune_Offline",
            "50 rounds of the sources, then the target",
            options={"warmup_rounds": 50},
        ),
        "oracle": _ours(
            "TargetOnly", "Oracle", "the target alone, with all its labels", all_target_labels=True
        ),
    },
)
"""The methods by name. A new one is a strategy in a file of its own, and one line here."""
