"""FedGP: the target's update is projected on each source's update; sources that disagree are dropped."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from fda_flower import aggregation
from fda_flower.aggregation import AdaptiveRule
from fda_flower.strategies.adaptive import AdaptiveStrategy
from fda_flower.strategies.base import Aggregated, ClientUpdate, Round, Sources
from fda_flower.strategies.stuck import warn_if_stuck

FORMULAS = {
    "definition": "beta_fedgp",
    "filter-aware": "beta_fedgp_thresholded",
    "reference-code": "beta_fedgp_reference",
}
"""The functions that compute β, by the words of `beta_formula`."""


class FedGP(AdaptiveStrategy):
    """``θ ← θ + Σ_i α_i [(1−β_i) Δ_T + β_i P₊(Δ_T | Δ_i)]`` (Jiang et al., ICLR 2024, Definition 4.3).

    Parameters
    ----------
    beta, auto, estimate_at, gradient_encoding, aggregate_on, **common
        See `AdaptiveStrategy`. With `auto` this is FedGP_Auto.
    granularity, filter, magnitude
        See `fda_flower.aggregation.FedGP`.
    beta_formula : {"definition", "filter-aware", "reference-code"}
        With `auto`, β by equation 3; by Appendix A.4, where β accounts for the filter; or by what the
        authors' code computes. See `fda_flower.aggregation.beta_fedgp_thresholded` and
        `beta_fedgp_reference`.
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

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "reference-code": {
            "granularity": "layer",
            "magnitude": "reference-code",
            "beta_formula": "reference-code",
        },
        "paper": {"granularity": "model", "magnitude": "projection", "source_weights": "uniform"},
    }

    batch_update_encoding: Literal["sketch", "full"] = "sketch"
    granularity: Literal["layer", "model"] = "layer"
    filter: bool = True
    magnitude: Literal["projection", "cosine", "reference-code"] = "projection"
    beta_formula: Literal["definition", "filter-aware", "reference-code"] = "definition"

    def rule(self) -> AdaptiveRule:
        """Return FedGP's rule."""
        rule = aggregation.FedGP(self.granularity, self.filter, self.magnitude)
        return AdaptiveRule(rule, FORMULAS[self.beta_formula], self.source_weights)

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Weigh the sources, apply the rule, and warn once where projections cannot move the model."""
        aggregated = super().aggregate(round, target, sources)
        if self.magnitude == "projection":
            warn_if_stuck([*self.history, round.record])
        return aggregated
