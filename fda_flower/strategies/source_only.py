"""Source Only: the sources' FedAvg, evaluated on the target."""

from collections.abc import Mapping
from typing import Unpack

from fda_flower.aggregation import Layers, SourceWeights, Update, mean_update, source_weights
from fda_flower.records import Record
from fda_flower.strategies.base import DomainAdaptationStrategy
from fda_flower.strategies.common_options import CommonOptions


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
        """What defines the strategy."""
        return {**super().settings(), "source-weights": self._source_weights}

    def combine(
        self, model: Layers, target: Update | None, sources: Mapping[str, Update], record: Record
    ) -> Layers:
        """The sources' weighted mean."""
        updates = list(sources.values())
        return mean_update(model, updates, source_weights(updates, self._source_weights))
