"""FedDA_Joint: the target's update combined with the sources', which are weighed together."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

from fda_flower import aggregation
from fda_flower.aggregation import Encoding, GradientEncoding, JointRule, SourceWeights
from fda_flower.records import Record
from fda_flower.strategies.adaptive import AdaptiveStrategy, AggregateOn, Beta
from fda_flower.strategies.at_start import EstimateAt
from fda_flower.strategies.base import CommonOptions


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

    encodings: ClassVar[tuple[Encoding, ...]] = ("norms",)
    weighs_by: ClassVar[Literal["beta", "weight"]] = "weight"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "reference-code": {"updates": "raw", "source_weights": "examples"},
        "paper": {"updates": "aligned", "source_weights": "uniform"},
    }

    def __init__(
        self,
        beta: Beta = 0.5,
        *,
        updates: Literal["raw", "aligned"] = "raw",
        source_weights: SourceWeights = "examples",
        estimate_at: EstimateAt = "training",
        gradient_encoding: GradientEncoding = "sketch",
        sketch_size: int = 1024,
        aggregate_on: AggregateOn = "server",
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(
            JointRule(aggregation.FedDA(updates), "beta_fedda", source_weights),
            beta=beta,
            auto=True,
            batch_update_encoding="norms",
            sketch_size=sketch_size,
            estimate_at=estimate_at,
            gradient_encoding=gradient_encoding,
            aggregate_on=aggregate_on,
            **common,
        )

    def settings(self) -> Record:
        """Return what defines the strategy."""
        return {**super().settings(), "joint": True}
