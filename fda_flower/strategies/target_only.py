"""Target Only: what the target achieves alone."""

import numpy as np

from fda_flower.aggregation import mean_update
from fda_flower.strategies.base import Aggregated, ClientUpdate, DomainAdaptationStrategy, Round, Sources


class TargetOnly(DomainAdaptationStrategy):
    """``θ ← θ + Δ_T``. The sources do not train. The options are those of `DomainAdaptationStrategy`."""

    trains = frozenset({"target"})

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Return the target's model."""
        assert target is not None, "the base class holds the round without the target"
        return Aggregated(mean_update(round.model, [target], np.ones(1)))
