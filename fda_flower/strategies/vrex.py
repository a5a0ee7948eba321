"""V-REx: the sources' updates, weighted so that the sources' losses become alike."""

from dataclasses import field

from fda_flower.aggregation import SourceWeights, mean_update, vrex_weights
from fda_flower.options import NotNegative
from fda_flower.protocol import LOSS_AT_START
from fda_flower.strategies.base import (
    Aggregated,
    ClientUpdate,
    Node,
    Round,
    Sources,
    TrainRequest,
)
from fda_flower.strategies.penalised import PenalisedSources


class VREx(PenalisedSources):
    """``θ ← θ + Σ_i ω_i Δ_i``, with ``ω_i = (1 + 2λ(L_i − L̄))/N`` over ``N`` sources.

    These are the gradient's weights of ``mean_i L_i + λ/N Σ_i (L_i − L̄)²`` (Krueger et al.,
    "Out-of-Distribution Generalization via Risk Extrapolation", ICML 2021). Each source measures its ``L_i``,
    the mean loss of the received model on its training samples, before it trains, and sends it with its
    model. The target does not train.

    With one local step in a round, of all samples, this is V-REx. With several, the weights stay as they are
    within the round: a surrogate. Negative weights then go back along whole updates, and with a large λ
    the model may diverge; `clip` prevents both.

    A round's record has ``lam`` and each source's ``loss-at-start``, ``L_i``, and ``weight``, ``ω_i``.

    Parameters
    ----------
    lam : float
        ``λ``; DomainBed's is 10. At 0 this is Source Only with uniform weights.
    anneal_steps : int
        In rounds that begin before so many local steps λ is 1, or `lam` if that is smaller; DomainBed's is
        500. The optimizer is a new one in each round, and so when λ rises.
    clip : bool
        Take 0 for negative weights, and divide the others by their sum.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If a number is negative, or λ not finite.

    Examples
    --------
    >>> from fda_flower.strategies import VREx
    >>> strategy = VREx(lam=1.0, anneal_steps=0)
    """

    averages_sources = False

    lam: NotNegative = 10.0
    clip: bool = False
    source_weights: SourceWeights = field(default="uniform", init=False)

    def train_request(self, node: Node, round: Round) -> TrainRequest | None:
        """Ask for the loss at the global model."""
        request = super().train_request(node, round)
        if request is None:
            return None
        return request.adding(
            config={LOSS_AT_START: True},
            requires={LOSS_AT_START: "V-REx's sources have to report the loss of the received model"},
            measures={LOSS_AT_START: LOSS_AT_START},
        )

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Add the weighted updates to the model."""
        entries = [round.record["sources"][domain] for domain in sources]
        weights = vrex_weights([entry["loss-at-start"] for entry in entries], self.strength, self.clip)
        for entry, weight in zip(entries, weights.tolist(), strict=True):
            entry["weight"] = weight
        updates = list(sources.values())
        return self.annealed(round, mean_update(round.model, updates, weights), updates)
