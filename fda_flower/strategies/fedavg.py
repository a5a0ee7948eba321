"""FedAvg, with the target as one client among the others."""

from typing import Unpack

from fda_flower.aggregation import SourceWeights, mean_update, source_weights
from fda_flower.errors import check_choice
from fda_flower.strategies.base import (
    Aggregated,
    ClientUpdate,
    CommonOptions,
    DomainAdaptationStrategy,
    Record,
    Round,
    Sources,
)


class FedAvg(DomainAdaptationStrategy):
    """The mean of all clients' models, the target's included.

    The rule is McMahan et al.'s, as in Flower's own ``FedAvg``, but the result does not depend on the order
    of the replies, and integer buffers keep their type.

    Parameters
    ----------
    weights : {"examples", "uniform"}
        Weights of the mean. By examples, as in McMahan et al., a scarce target hardly counts.
    **common
        See `DomainAdaptationStrategy`.
    """

    def __init__(self, *, weights: SourceWeights = "examples", **common: Unpack[CommonOptions]) -> None:
        super().__init__(**common)
        check_choice("weights", weights, ("examples", "uniform"))
        self._weights = weights

    @property
    def needs_only_the_mean(self) -> bool:  # type: ignore[override]
        """Whether the mean of the replies by examples is enough."""
        return type(self).aggregate is FedAvg.aggregate and self._takes_the_mean

    @property
    def _takes_the_mean(self) -> bool:
        is_mean = self._weights == "examples" and self._source_mean == "mean"
        return is_mean and self._limit.max_norm is None

    def settings(self) -> Record:
        """Return what defines the strategy."""
        return {**super().settings(), "weights": self._weights}

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Return the weighted mean."""
        clients = [client for client in (target, *sources.values()) if client is not None]
        return Aggregated(mean_update(round.model, clients, source_weights(clients, self._weights)))
