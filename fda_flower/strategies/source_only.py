"""Source Only: the sources' FedAvg, evaluated on the target."""

from typing import Unpack

from fda_flower.aggregation import SourceWeights
from fda_flower.strategies.base import CommonOptions
from fda_flower.strategies.fedavg import FedAvg


class SourceOnly(FedAvg):
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
        super().__init__(weights=source_weights, **common)
