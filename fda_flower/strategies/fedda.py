"""FedDA: the target's update combined with each source's."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal

from fda_flower import aggregation
from fda_flower.aggregation import AdaptiveRule, Encoding
from fda_flower.strategies.adaptive import AdaptiveStrategy

FORMULAS = {"definition": "beta_fedda", "reference-code": "beta_fedda_reference"}
"""The functions that compute β, by the words of `beta_formula`."""


class FedDA(AdaptiveStrategy):
    """``θ ← θ + Σ_i α_i [(1−β_i) Δ_T + β_i Δ_i]`` (Jiang et al., ICLR 2024, Definition 4.1).

    Parameters
    ----------
    beta, auto, estimate_at, gradient_encoding, sketch_size, aggregate_on, **common
        See `AdaptiveStrategy`. With `auto` this is FedDA_Auto; the target sends one number a batch.
    updates : {"raw", "aligned"}
        Combine the sources' updates as they are (the authors' code), or rescaled to the target's steps
        and learning rate.
    beta_formula : {"definition", "reference-code"}
        With `auto`, β by equation 3, or by what the authors' code computes; see
        `fda_flower.aggregation.beta_fedda_reference`.
    source_weights : {"examples", "uniform"}
        α, the weights among the sources.

    Examples
    --------
    >>> from fda_flower.strategies import FedDA
    >>> strategy = FedDA(auto=True)
    """

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "reference-code": {
            "updates": "raw",
            "source_weights": "examples",
            "beta_formula": "reference-code",
        },
        "paper": {"updates": "aligned", "source_weights": "uniform"},
    }

    batch_update_encoding: Encoding = field(default="norms", init=False)
    updates: Literal["raw", "aligned"] = "raw"
    beta_formula: Literal["definition", "reference-code"] = "definition"

    def rule(self) -> AdaptiveRule:
        """Return FedDA's rule."""
        return AdaptiveRule(aggregation.FedDA(self.updates), FORMULAS[self.beta_formula], self.source_weights)
