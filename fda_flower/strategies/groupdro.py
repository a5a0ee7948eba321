"""GroupDRO: the sources' mean, in which sources with a large loss come to weigh more."""

from dataclasses import field

import numpy as np

from fda_flower.aggregation import SourceWeights, groupdro_weights, mean_update
from fda_flower.options import NotNegative
from fda_flower.protocol import NUM_STEPS, TRAIN_LOSS
from fda_flower.strategies.base import (
    Aggregated,
    ClientUpdate,
    Node,
    Round,
    Sources,
    TrainRequest,
)
from fda_flower.strategies.source_only import SourceOnly

Q = "q"


class GroupDRO(SourceOnly):
    """``θ ← θ + Σ_i q_i Δ_i``, with ``q_i ← q_i exp(η_q K L_i)``, normalised, over the sources.

    The rule is Sagawa et al.'s ("Distributionally Robust Neural Networks for Group Shifts", ICLR 2020,
    Algorithm 1), one update of ``q`` a round. ``L_i`` is the mean loss of source ``i`` while it trains,
    ``K`` the mean number of the sources' local steps in the round: ``q`` moves as far as ``K`` updates with
    these losses would move it. The target does not train.

    With one local step in a round this is GroupDRO. With several, ``q`` stays as it is within the round: a
    surrogate.

    The server keeps ``q``, which begins at 1 for each source and has mean 1 over the sources. A source
    without a usable reply keeps its ``q``, and the weights of the others sum to 1. A round's record has each
    source's ``weight``.

    Parameters
    ----------
    step_size : float
        ``η_q``, for each local step; DomainBed's is 0.01. At 0 this is Source Only with uniform weights.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If the step size is negative or not finite.

    Examples
    --------
    >>> from fda_flower.strategies import GroupDRO
    >>> strategy = GroupDRO(step_size=0.001)
    """

    averages_sources = False

    step_size: NotNegative = 0.01
    source_weights: SourceWeights = field(default="uniform", init=False)

    def train_request(self, node: Node, round: Round) -> TrainRequest | None:
        """Require the mean loss and the number of local steps."""
        request = super().train_request(node, round)
        if request is None:
            return None
        return request.adding(
            requires={
                TRAIN_LOSS: "GroupDRO's sources have to report the mean loss of their training",
                NUM_STEPS: "GroupDRO's sources have to report num-steps and learning-rate",
            }
        )

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Move ``q`` by the losses, and add the weighted updates to the model."""
        kept = {name: float(array.numpy()) for name, array in self.state.get(Q, {}).items()}
        before = [kept.get(domain, 1.0) for domain in sources]
        updates, entries = list(sources.values()), [round.record["sources"][domain] for domain in sources]
        step_size = self.step_size * float(np.mean([update.steps for update in updates]))
        losses = [float(str(entry["train-loss"])) for entry in entries]
        weights = groupdro_weights(before, losses, step_size)
        for domain, entry, weight in zip(sources, entries, weights.tolist(), strict=True):
            entry["weight"] = weight
            kept[domain] = weight * sum(before)
        q = {domain: np.array(kept[domain]) for domain in sorted(kept)}
        return Aggregated(mean_update(round.model, updates, weights), {Q: q})
