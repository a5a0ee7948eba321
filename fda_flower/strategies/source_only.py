"""Source Only: the sources' FedAvg, evaluated on the target."""

from typing import Unpack

from fda_flower.aggregation import SourceWeights, mean_update, source_weights
from fda_flower.strategies.base import (
    Aggregated,
    ClientUpdate,
    CommonOptions,
    DomainAdaptationStrategy,
    Record,
    Round,
    Sources,
)


class SourceOnly(DomainAdaptationStrategy):
    """``θ ← θ + Σ_i α_i Δ_i``. The target does not train.

    Parameters
    ----------
    source_weights : {"examples", "uniform"}
        α, the weights among the sources.
    **common
        See `DomainAdaptationStrategy`.
    """

    trains: frozenset[str] = frozenset({"source"})

    def __init__(
        self, *, source_weights: SourceWeights = "examples", **common: Unpack[CommonOptions]
    ) -> None:
        super().__init__(**common)
        self._source_weights = source_weights

    def settings(self) -> Record:
        """Return what defines the strategy."""
        return {**super().settings(), "source-weights": self._source_weights}

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Return the sources' weighted mean."""
        updates = list(sources.values())
        return Aggregated(mean_update(round.model, updates, source_weights(updates, self._source_weights)))
