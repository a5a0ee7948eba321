"""IRM: the sources' mean, each source trained with a penalty for features that predict differently."""

from fda_flower import protocol
from fda_flower.aggregation import SourceWeights
from fda_flower.options import NotNegative
from fda_flower.strategies.base import (
    Aggregated,
    ClientUpdate,
    Node,
    Round,
    Sources,
    TrainRequest,
)
from fda_flower.strategies.penalised import PenalisedSources


class IRM(PenalisedSources):
    """``min mean_i (L_i + λ D_i)`` over the sources (Arjovsky et al., "Invariant Risk Minimization", 2019).

    ``D_i``, the penalty of IRMv1 with DomainBed's unbiased square, is zero where no scale of the logits
    would serve source ``i`` better. The sources, which run `fda_flower.clients.IRMSource`, train with it, and
    the server averages them; a penalty needs no other source. The target does not train.

    With one local step in a round this is IRMv1. With several, each source minimises its own objective from
    the global model on, as FedAvg does: a surrogate.

    A round's record has ``lam`` and each source's ``penalty``, the mean of ``D_i`` over its steps;
    ``train-loss`` is the mean of ``L_i + λ D_i``.

    Parameters
    ----------
    lam : float
        ``λ``; DomainBed's is 100. At 0 this is Source Only.
    anneal_steps : int
        In rounds that begin before so many local steps λ is 1, or `lam` if that is smaller; DomainBed's is
        500. The optimizer is a new one in each round, and so when λ rises.
    source_weights : {"uniform", "examples"}
        Weights of the sources' mean.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If a number is negative, or λ not finite.

    Examples
    --------
    >>> from fda_flower.strategies import IRM
    >>> strategy = IRM(lam=10.0, anneal_steps=100)
    """

    lam: NotNegative = 100.0
    source_weights: SourceWeights = "uniform"

    def train_request(self, node: Node, round: Round) -> TrainRequest | None:
        """Ask for the penalty, unless λ is 0."""
        request = super().train_request(node, round)
        if request is None or self.strength == 0:
            return request
        return request.adding(
            config={protocol.IRM: self.strength},
            requires={protocol.PENALTY: "IRM's sources have to be served by fda_flower.clients.IRMSource"},
            measures={protocol.PENALTY: protocol.PENALTY},
        )

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Average the sources."""
        model = super().aggregate(round, target, sources).model
        return self.annealed(round, model, sources.values())
