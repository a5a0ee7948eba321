"""FedDA: the target's update combined with each source's."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

from fda_flower import aggregation
from fda_flower.aggregation import AdaptiveRule, Encoding, GradientEncoding, SourceWeights
from fda_flower.strategies.adaptive import AdaptiveStrategy, AggregateOn, Beta
from fda_flower.strategies.at_start import EstimateAt
from fda_flower.strategies.base import CommonOptions


class FedDA(AdaptiveStrategy):
    """``θ ← θ + Σ_i α_i [(1−β_i) Δ_T + β_i Δ_i]`` (Jiang et al., ICLR 2024, Definition 4.1).

    Parameters
    ----------
    beta, auto, estimate_at, gradient_encoding, sketch_size, aggregate_on, **common
        See `AdaptiveStrategy`. With `auto` this is FedDA_Auto; the target sends one number a batch.
    updates : {"raw", "aligned"}
        Combine the sources' updates as they are (the authors' code), or rescaled to the target's steps
        and learning rate.
    source_weights : {"examples", "uniform"}
        α, the weights among the sources.

    Examples
    --------
    >>> from fda_flower.strategies import FedDA
    >>> strategy = FedDA(auto=True)
    """

    encodings: ClassVar[tuple[Encoding, ...]] = ("norms",)
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "reference-code": {"updates": "raw", "source_weights": "examples"},
        "paper": {"updates": "aligned", "source_weights": "uniform"},
    }

    def __init__(
        self,
        beta: Beta = 0.5,
        *,
        auto: bool = False,
        updates: Literal["raw", "aligned"] = "raw",
        source_weights: SourceWeights = "examples",
        estimate_at: EstimateAt = "training",
        gradient_encoding: GradientEncoding = "sketch",
        sketch_size: int = 1024,
        aggregate_on: AggregateOn = "server",
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(
            AdaptiveRule(aggregation.FedDA(updates), "beta_fedda", source_weights),
            beta=beta,
            auto=auto,
            batch_update_encoding="norms",
            sketch_size=sketch_size,
            estimate_at=estimate_at,
            gradient_encoding=gradient_encoding,
            aggregate_on=aggregate_on,
            **common,
        )
