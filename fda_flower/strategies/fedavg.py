"""FedAvg, with the target as one client among the others."""

from collections.abc import Mapping
from typing import Unpack

from fda_flower.aggregation import Layers, SourceWeights, Update, mean_update, source_weights
from fda_flower.records import Record
from fda_flower.strategies.base import DomainAdaptationStrategy
from fda_flower.strategies.common_options import CommonOptions


class FedAvg(DomainAdaptationStrategy):
    """The mean of all clients' models, the target's included.

    It is McMahan et al.'s rule as Flower's own ``FedAvg`` has it, but the result does not depend on the
    order of the replies, and integer buffers keep their type.

    Parameters
    ----------
    weights : {"examples", "uniform"}
        Of the mean. By examples, as McMahan et al., a scarce target counts for next to nothing.
    **common
        See `DomainAdaptationStrategy`.
    """

    def __init__(self, *, weights: SourceWeights = "examples", **common: Unpack[CommonOptions]) -> None:
        super().__init__(**common)
        self._weights = weights

    def settings(self) -> Record:
        """What defines the strategy."""
        return {**super().settings(), "weights": self._weights}

    def combine(
        self, model: Layers, target: Update | None, sources: Mapping[str, Update], record: Record
    ) -> Layers:
        """The weighted mean."""
        clients = [client for client in (target, *sources.values()) if client is not None]
        return mean_update(model, clients, source_weights(clients, self._weights))
