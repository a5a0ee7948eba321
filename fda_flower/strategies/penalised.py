"""What IRM and V-REx share: the sources alone, a penalty of strength λ, and fewer of it at first."""

from collections.abc import Collection
from logging import WARNING

import numpy as np
from flwr.common import log

from fda_flower.aggregation import Layers
from fda_flower.options import Natural, NotNegative
from fda_flower.protocol import NUM_STEPS
from fda_flower.strategies.base import (
    Aggregated,
    ClientUpdate,
    Node,
    Round,
    TrainRequest,
)
from fda_flower.strategies.source_only import SourceOnly

ANNEALING, DONE = "annealing", "steps"
"""What the strategy keeps: the local steps that are done."""


class PenalisedSources(SourceOnly):
    """Source Only with a penalty, whose λ is at most 1 in the first local steps (annealing).

    The server counts the local steps: in each round of the method, the mean of the sources' ``num-steps``. A
    round has one λ, which a round's record has as ``lam``. Warm-up rounds and held rounds do not count.

    Parameters
    ----------
    lam : float
        ``λ`` after the annealing.
    anneal_steps : int
        In rounds that begin before so many local steps λ is 1, or `lam` if that is smaller.
    source_weights : {"examples", "uniform"}
        Weights of the sources' mean.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If a number is negative, or λ not finite.
    """

    lam: NotNegative = 1.0
    anneal_steps: Natural = 500

    @property
    def strength(self) -> float:
        """``λ`` of the current round."""
        return self.lam if self._steps_done() >= self.anneal_steps else min(self.lam, 1.0)

    def train_request(self, node: Node, round: Round) -> TrainRequest | None:
        """Require the number of local steps, which ends the annealing."""
        request = super().train_request(node, round)
        if request is None or self.anneal_steps == 0:
            return request
        remedy = "the annealing counts steps: report num-steps and learning-rate, or set anneal_steps to 0"
        return request.adding(requires={NUM_STEPS: remedy})

    def annealed(self, round: Round, model: Layers, sources: Collection[ClientUpdate]) -> Aggregated:
        """Return a round's result with the local steps counted; record λ."""
        strength = round.record["lam"] = self.strength
        if strength < self.lam and round.number == self.num_rounds:
            log(
                WARNING,
                "In the whole run λ was %g, not %g: the sources have done fewer than %d local steps. Train "
                "longer, or lower anneal_steps",
                strength,
                self.lam,
                self.anneal_steps,
            )
        if self.anneal_steps == 0:
            return Aggregated(model)
        done = self._steps_done() + float(np.mean([source.steps for source in sources]))
        return Aggregated(model, {ANNEALING: {DONE: np.array(done)}})

    def _steps_done(self) -> float:
        return float(self.state[ANNEALING][DONE].numpy()) if ANNEALING in self.state else 0.0
