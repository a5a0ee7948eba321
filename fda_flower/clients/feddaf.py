"""FedDAF's target: it blends the sources' model with its own before it trains."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from fda_flower.aggregation import Layers, blend, functional_distance, gradient_similarity
from fda_flower.clients.client import TargetClient
from fda_flower.clients.training import mean_gradient
from fda_flower.wire.protocol import FRESH_START, SERVER_ROUND, TrainReply, TrainRequest

ADAPTED, MU = "adapted", "mu"
"""Names on the wire: the record with the model that the target began with, and a setting."""

OWN = "feddaf"
"""The name under which the target keeps its own model; see `OwnState`."""


class FedDAFTarget(TargetClient):
    """A target that adapts the model it receives (Sen et al., Algorithm 3), where the message has ``mu``.

    It keeps its trained model by rounds, in its own state. Without one, as in the first round, the adapted
    model is the one received.
    """

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Adapt the model, train from the adapted one, and keep the trained model.

        Returns
        -------
        TrainReply
            As from `train_from`, with the record ``adapted``, and ``fresh-start``: 1 if the target had no
            model of its own, else 0 with ``sim``, ``theta`` (radians) and ``alpha``.
        """
        if MU not in request.config:
            return super().local_train(request)
        adapted, blended = self._adapt(self.received(request), request.config)
        reply = self.train_from(adapted, request.config)
        server_round = int(str(request.config[SERVER_ROUND]))
        self.own_state.save_after(OWN, reply.arrays, {}, server_round)
        return replace(
            reply, metrics={**reply.metrics, **blended}, records={**reply.records, ADAPTED: adapted}
        )

    def _adapt(self, received: Layers, config: Mapping[str, Any]) -> tuple[Layers, dict[str, float]]:
        """Return ``w_n``, and how it was blended."""
        kept = self.own_state.load_before(OWN, int(config[SERVER_ROUND]))
        if kept is None:
            return received, {FRESH_START: 1}
        own, _ = kept
        gradients = [self._gradient(model, config) for model in (received, own)]
        similarity = gradient_similarity(*gradients)
        theta, alpha = functional_distance(similarity, float(config[MU]))
        buffers = received.keys() - gradients[0].keys()
        adapted = blend(received, own, alpha, buffers)
        return adapted, {FRESH_START: 0, "sim": similarity, "theta": theta, "alpha": alpha}

    def _gradient(self, model: Layers, config: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Return the mean gradient at a model; both models see the same batches, noise and dropout."""
        self.load(model)
        with self.drawing("gradient", config) as generator:
            return mean_gradient(self.model, self.domain.train, self.training, generator)
