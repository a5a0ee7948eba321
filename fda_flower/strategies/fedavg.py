"""FedAvg, with the target as one client among the others."""

from fda_flower.aggregation import SourceWeights, mean_update, source_weights
from fda_flower.strategies.base import (
    Aggregated,
    ClientUpdate,
    DomainAdaptationStrategy,
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

    weights: SourceWeights = "examples"

    @property
    def needs_only_the_mean(self) -> bool:  # type: ignore[override]
        """Whether the mean of the replies by examples is enough."""
        plain = type(self).aggregate is FedAvg.aggregate and self.weights == "examples"
        return plain and self.source_mean == "mean" and self.max_update_norm is None

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Return the weighted mean."""
        clients = [client for client in (target, *sources.values()) if client is not None]
        return Aggregated(mean_update(round.model, clients, source_weights(clients, self.weights)))
