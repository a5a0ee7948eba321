"""Source Only: the sources' FedAvg, evaluated on the target."""

from fda_flower.aggregation import SourceWeights, source_weights
from fda_flower.strategies.base import Aggregated, ClientUpdate, DomainAdaptationStrategy, Round, Sources


class SourceOnly(DomainAdaptationStrategy):
    """``θ ← θ + Σ_i α_i Δ_i``. The target does not train.

    Parameters
    ----------
    source_weights : {"examples", "uniform"}
        α, the weights among the sources; they have no say in a median or trimmed mean (`source_mean`).
    **common
        See `DomainAdaptationStrategy`.
    """

    trains = frozenset({"source"})
    averages_sources = True

    source_weights: SourceWeights = "examples"

    @property
    def needs_only_the_mean(self) -> bool:  # type: ignore[override]
        """Whether the mean of the replies by examples is enough."""
        plain = type(self).aggregate is SourceOnly.aggregate and self.source_weights == "examples"
        return plain and self.source_mean == "mean" and self.max_update_norm is None

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Return the sources' mean, or what takes its place."""
        updates = list(sources.values())
        weights = source_weights(updates, self.source_weights)
        return Aggregated(self.mean_of_sources(round.model, updates, weights))
