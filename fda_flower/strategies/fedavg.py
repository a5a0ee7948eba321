"""FedAvg and simple variants: Source Only, Target Only, FedProx, FedAvg with fine-tuning."""

from dataclasses import replace
from typing import Literal

import numpy as np

from fda_flower.aggregation import SourceWeights, mean_update, source_weights
from fda_flower.names.options import NotNegative
from fda_flower.strategies.base import Aggregated, DomainAdaptationStrategy, Node, Round, Sources
from fda_flower.strategies.method import Epochs
from fda_flower.strategies.replies import ClientUpdate
from fda_flower.wire.asked.personal import EvaluatePersonal, FineTune
from fda_flower.wire.protocol import PROXIMAL, EvaluateRequest, TrainRequest


class FedAvg(DomainAdaptationStrategy):
    """The mean of all clients' models, including the target's (McMahan et al.).

    Unlike Flower's own ``FedAvg``, the result is independent of the order of the replies, and integer buffers
    keep their type.

    Parameters
    ----------
    weights : {"examples", "uniform"}
        Weights of the mean. By examples, as in McMahan et al., a target with few labels hardly counts.
    """

    weights: SourceWeights = "examples"

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Return the weighted mean."""
        clients = [client for client in (target, *sources.values()) if client is not None]
        return Aggregated(mean_update(round.model, clients, source_weights(clients, self.weights)))


class SourceOnly(DomainAdaptationStrategy):
    """``θ ← θ + Σ_i α_i Δ_i``. The target does not train.

    Parameters
    ----------
    source_weights : {"examples", "uniform"}
        α, the weights among the sources; a median or trimmed mean (`source_mean`) ignores them.
    """

    trains = frozenset({"source"})
    averages_sources = True
    source_weights: SourceWeights = "examples"

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Return the sources' mean, or its replacement."""
        updates = list(sources.values())
        weights = source_weights(updates, self.source_weights)
        return Aggregated(self.mean_of_sources(round.model, updates, weights))


class TargetOnly(DomainAdaptationStrategy):
    """``θ ← θ + Δ_T``. The sources do not train."""

    trains = frozenset({"target"})

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Return the target's model."""
        assert target is not None, "the base class holds the round without the target"
        return Aggregated(mean_update(round.model, [target], np.ones(1)))


class FedProx(FedAvg):
    """FedAvg of all clients, each of which minimises ``F_i(v) + μ/2 ‖v − θ‖²`` (Li et al., MLSys 2020).

    ``θ`` is the global model that the client receives (Algorithm 2). The paper lets clients do different
    amounts of work; here each does its configured amount. Warm-up rounds have no penalty.

    Parameters
    ----------
    mu : float
        ``μ``: 0 is FedAvg; a large value keeps clients near ``θ``. The paper uses 0.001 to 1, chosen for each
        data set. With SGD the product of μ and the learning rate must stay below 2, or training diverges.
    """

    mu: NotNegative = 0.01

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Add the penalty to every request."""
        return super().train_request(node, round).adding(config={PROXIMAL: self.mu})


class FedAvgFT(FedAvg):
    """FedAvg of all clients; the headline is the target's model after its local training.

    The target fine-tunes the global model in every round (Sen et al., Section 5.2.3). The method
    ``finetune-offline`` fine-tunes once, after the sources have trained.

    Parameters
    ----------
    tune : {"all", "head"}
        What the target trains: all parameters, or only the last linear layer.
    """

    questions = (FineTune, EvaluatePersonal)

    weights: SourceWeights = "uniform"
    tune: Literal["all", "head"] = "all"

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Ask the target to keep what it trains."""
        request = super().train_request(node, round)
        return replace(request, question=FineTune(part=self.tune)) if node.is_target else request

    def epochs_of_head(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the target's epochs if it tunes the head."""
        return {"source": 0, "target": rounds * epochs["target"] * (self.tune == "head")}

    def evaluate_request(self, round: Round) -> EvaluateRequest:
        """Request an evaluation of the model that the target has trained."""
        return EvaluateRequest(round.arrays, round.config, question=EvaluatePersonal())
