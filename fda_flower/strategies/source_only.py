"""Source Only: the sources' FedAvg, evaluated on the target."""

from typing import ClassVar, Unpack

from fda_flower.aggregation import SourceWeights, source_weights
from fda_flower.strategies.base import Aggregated, ClientUpdate, CommonOptions, Round, Sources
from fda_flower.strategies.fedavg import FedAvg


class SourceOnly(FedAvg):
    """``θ ← θ + Σ_i α_i Δ_i``. The target does not train.

    Parameters
    ----------
    source_weights : {"examples", "uniform"}
        α, the weights among the sources; they have no say in a median or trimmed mean (`source_mean`).
    **common
        See `DomainAdaptationStrategy`.
    """

    trains: frozenset[str] = frozenset({"source"})
    averages_sources: ClassVar[bool] = True

    def __init__(
        self, *, source_weights: SourceWeights = "examples", **common: Unpack[CommonOptions]
    ) -> None:
        super().__init__(weights=source_weights, **common)

    @property
    def needs_only_the_mean(self) -> bool:  # type: ignore[override]
        """Whether the mean of the replies by examples is enough."""
        return type(self).aggregate is SourceOnly.aggregate and self._takes_the_mean

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Return the sources' mean, or what takes its place."""
        updates = list(sources.values())
        return Aggregated(self.source_mean(round.model, updates, source_weights(updates, self._weights)))
