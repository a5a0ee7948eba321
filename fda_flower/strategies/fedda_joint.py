"""FedDA_Joint: the target's update combined with the sources', which are weighed together."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal

from fda_flower import aggregation
from fda_flower.aggregation import Encoding, JointRule
from fda_flower.strategies.adaptive import AdaptiveStrategy


class FedDAJoint(AdaptiveStrategy):
    """``θ ← θ + (1−Σw) Δ_T + Σ_i w_i Δ_i``, with ``w`` that minimises ``σ²(1−Σw)² + wᵀDw`` in every round.

    It estimates from the same numbers as FedDA_Auto, and with one source is the same. With several, a source
    from the target's own domain may weigh up to 1, not only α, and sources that err in opposite directions
    correct each other; see `fda_flower.aggregation.joint`.

    A round's record has the ``weight`` of each source.

    Parameters
    ----------
    beta, source_weights
        Where ``w_i`` cannot be estimated, it is ``α_i β_i``, as FedDA has it.
    updates
        As of `FedDA`.
    estimate_at, gradient_encoding, sketch_size, aggregate_on, **common
        See `AdaptiveStrategy`.

    Examples
    --------
    >>> from fda_flower.strategies import FedDAJoint
    >>> strategy = FedDAJoint()
    """

    weighs_by: ClassVar[Literal["beta", "weight"]] = "weight"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "reference-code": {"updates": "raw", "source_weights": "examples"},
        "paper": {"updates": "aligned", "source_weights": "uniform"},
    }

    auto: bool = field(default=True, init=False)
    batch_update_encoding: Encoding = field(default="norms", init=False)
    updates: Literal["raw", "aligned"] = "raw"

    def rule(self) -> JointRule:
        """Return the rule that weighs the sources together."""
        return JointRule(aggregation.FedDA(self.updates), "beta_fedda", self.source_weights)
