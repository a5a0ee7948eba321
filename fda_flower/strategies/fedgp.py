"""FedGP: the target's update is projected on each source's update; sources that disagree are dropped."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

from fda_flower import aggregation
from fda_flower.aggregation import AdaptiveRule, Encoding, GradientEncoding, SourceWeights
from fda_flower.strategies.adaptive import AdaptiveStrategy, AggregateOn, Beta
from fda_flower.strategies.at_start import EstimateAt
from fda_flower.strategies.base import Aggregated, ClientUpdate, CommonOptions, Round, Sources
from fda_flower.strategies.stuck import warn_if_stuck


class FedGP(AdaptiveStrategy):
    """``θ ← θ + Σ_i α_i [(1−β_i) Δ_T + β_i P₊(Δ_T | Δ_i)]`` (Jiang et al., ICLR 2024, Definition 4.3).

    Parameters
    ----------
    beta, auto, estimate_at, gradient_encoding, aggregate_on, **common
        See `AdaptiveStrategy`. With `auto` this is FedGP_Auto.
    granularity, filter, magnitude
        See `fda_flower.aggregation.FedGP`.
    filter_aware_beta : bool
        Let β account for the filter, as the authors' code does.
    batch_update_encoding : {"sketch", "full"}
        With `auto` the target sends a sketch of each batch update, or the batch updates themselves.
    sketch_size : int
        Numbers in a sketch, of a batch update or of a gradient.
    source_weights : {"examples", "uniform"}
        α, the weights among the sources.

    Examples
    --------
    >>> from fda_flower.strategies import FedGP
    >>> strategy = FedGP(beta=0.5)
    """

    encodings: ClassVar[tuple[Encoding, ...]] = ("sketch", "full")
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "reference-code": {"granularity": "layer", "magnitude": "cosine", "filter_aware_beta": True},
        "paper": {"granularity": "model", "magnitude": "projection", "source_weights": "uniform"},
    }

    def __init__(
        self,
        beta: Beta = 0.5,
        *,
        auto: bool = False,
        granularity: Literal["layer", "model"] = "layer",
        filter: bool = True,
        magnitude: Literal["projection", "cosine"] = "projection",
        filter_aware_beta: bool = False,
        batch_update_encoding: Encoding = "sketch",
        sketch_size: int = 1024,
        source_weights: SourceWeights = "examples",
        estimate_at: EstimateAt = "training",
        gradient_encoding: GradientEncoding = "sketch",
        aggregate_on: AggregateOn = "server",
        **common: Unpack[CommonOptions],
    ) -> None:
        beta_rule = "beta_fedgp_thresholded" if filter_aware_beta else "beta_fedgp"
        super().__init__(
            AdaptiveRule(aggregation.FedGP(granularity, filter, magnitude), beta_rule, source_weights),
            beta=beta,
            auto=auto,
            batch_update_encoding=batch_update_encoding,
            sketch_size=sketch_size,
            estimate_at=estimate_at,
            gradient_encoding=gradient_encoding,
            aggregate_on=aggregate_on,
            **common,
        )
        self._filter_aware_beta = filter_aware_beta
        self._projects = magnitude == "projection"

    def settings(self) -> dict[str, object]:
        """Return what defines the strategy."""
        return {**super().settings(), "filter-aware-beta": self._filter_aware_beta}

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Weigh the sources, apply the rule, and warn once where projections cannot move the model."""
        aggregated = super().aggregate(round, target, sources)
        if self._projects:
            warn_if_stuck([*self.history, round.record])
        return aggregated
