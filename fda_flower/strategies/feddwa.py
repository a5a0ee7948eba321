"""FedDWA: every client gets a personal model, a mean of all models weighted by closeness to its guidance."""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fda_flower.aggregation import Layers, distance_weights, guidance_distances, mean_update, personal_model
from fda_flower.names import Count
from fda_flower.strategies.base import (
    Aggregated,
    ClientUpdate,
    DomainAdaptationStrategy,
    Node,
    Round,
    Sources,
    TrainRequest,
)
from fda_flower.strategies.hooks import Epochs
from fda_flower.wire.protocol import GUIDANCE, to_layers


class FedDWA(DomainAdaptationStrategy):
    """``u_i = Σ_j p_ij w_j``, ``p_ij ∝ 1/‖g_i − w_j‖²`` (Liu et al., IJCAI 2023).

    Every client trains its personal model ``u_i`` to ``w_i``, then trains as long again from there to the
    guidance ``g_i``, and sends both. The run's model is the target's ``u_T``. Each client keeps its own
    buffers: the server returns the buffers that the client sent, so a checkpoint is complete. If an update is
    clipped, its guidance moves towards ``u_i`` by the same factor.

    A round's record has ``weight``, the weight of each client in the target's new model (``p_Tj``).

    Parameters
    ----------
    top : int
        ``K``: the number of clients in a personal model, including the client itself.
    evaluate : {"aggregated", "trained"}
        The headline: ``u_T`` as aggregated by the server, or ``w_T`` as trained by the target.
    """

    refused_buffers: ClassVar = {
        "target": "the run's model is the target's own, with its own running statistics"
    }

    top: Count = 5
    evaluate: Literal["aggregated", "trained"] = "aggregated"

    @property
    def evaluates_trained(self) -> bool:  # type: ignore[override]
        """Whether the headline is ``w_T``."""
        return self.evaluate == "trained"

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Send each node its own model, and request its guidance."""
        request = replace(super().train_request(node, round), arrays=self._sent(node, round))
        remedy = "FedDWA's clients train one pass more where the train message's config has 'guidance'"
        return request.adding(
            config={GUIDANCE: True}, expects={GUIDANCE: "parameters"}, requires={GUIDANCE: remedy}
        )

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role: the guidance takes as many as each local training."""
        total = super().training_epochs(rounds, warmup, epochs, labels)
        return {role: total[role] + rounds * each for role, each in epochs.items()}

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Compute each client's next personal model; the run's model is the target's."""
        assert target is not None, "the base class holds the round without the target"
        nodes = [node for node in round.sources if node.domain in sources]
        before = [*(to_layers(self._sent(node, round)) for node in nodes), round.model]
        updates = [*sources.values(), target]
        trained = [mean_update(b, [u], np.ones(1)) for b, u in zip(before, updates, strict=True)]
        local = [{name: after[name] for name in target.parameters} for after in trained]
        guidances = [_guidance(b, u) for b, u in zip(before, updates, strict=True)]
        weights = distance_weights(*guidance_distances(guidances, local), self.top)
        personal = [{**own, **personal_model(local, p)} for own, p in zip(trained, weights, strict=True)]
        record: Any = round.record
        record["target"]["weight"] = float(weights[-1, -1])
        for domain, weight in zip(sources, weights[-1].tolist(), strict=False):
            record["sources"][domain]["weight"] = weight
        return Aggregated(personal[-1], dict(zip(sources, personal, strict=False)))

    def _sent(self, node: Node, round: Round) -> ArrayRecord:
        """Return the model that a node trains from: a source's own, or the global one for the target."""
        return round.arrays if node.is_target else self.state.get(node.domain, round.arrays)


def _guidance(before: Layers, update: ClientUpdate) -> dict[str, NDArray[Any]]:
    """Return ``g_i``, scaled like the update: ``u_i + factor (g_i − u_i)``."""
    guidance = dict(update.extra[GUIDANCE])
    if update.factor == 1:
        return guidance
    return {
        name: (before[name] + update.factor * (array - before[name])).astype(array.dtype)
        for name, array in guidance.items()
    }
