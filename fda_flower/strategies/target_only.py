"""Target Only: what the target achieves alone."""

from collections.abc import Mapping

import numpy as np

from fda_flower.aggregation import Layers, Update, mean_update
from fda_flower.records import Record
from fda_flower.strategies.base import DomainAdaptationStrategy


class TargetOnly(DomainAdaptationStrategy):
    """``θ ← θ + Δ_T``. The sources do not train.

    Parameters
    ----------
    **common
        See `DomainAdaptationStrategy`.
    """

    trains: frozenset[str] = frozenset({"target"})

    def combine(
        self, model: Layers, target: Update | None, sources: Mapping[str, Update], record: Record
    ) -> Layers:
        """The target's model."""
        assert target is not None, "the base class holds the model without the target"
        return mean_update(model, [target], np.ones(1))
