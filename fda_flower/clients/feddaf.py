"""FedDAF's target: blend the sources' model with its own, then train."""

from dataclasses import replace

from fda_flower.aggregation import Layers, blend, functional_distance, gradient_similarity
from fda_flower.clients.client import Settings, TargetClient
from fda_flower.clients.training import mean_gradient
from fda_flower.datasets import Samples
from fda_flower.wire.protocol import FRESH_START, SERVER_ROUND, TrainReply, TrainRequest

ADAPTED, MU = "adapted", "mu"
"""Names on the wire: the record with the model that the target started from, and a setting."""

OWN = "feddaf"
"""Name of the target's own model in `OwnState`."""


class FedDAFTarget(TargetClient):
    """A target that adapts the received model (Sen et al., Algorithm 3), if the message has ``mu``.

    It keeps its trained model by round in its own state. Without one, as in the first round, the adapted
    model is the received one.
    """

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Adapt the model, train from the adapted one, and keep the trained model.

        Replies as `train_from` does, with the record ``adapted``, and ``fresh-start``: 1 if the target had
        no model of its own, else 0 with ``sim``, ``theta`` (radians) and ``alpha``.
        """
        if MU not in request.config:
            return super().local_train(request)
        config, received = request.config, self.received(request)
        server_round = int(config[SERVER_ROUND])
        kept = self.own_state.load_before(OWN, server_round)
        adapted: Layers = received
        told: dict[str, float] = {}
        if kept is not None:
            adapted, told = blended(self, received, kept[0], self.domain.train, config, float(config[MU]))
        reply = self.train_from(adapted, config)
        self.own_state.save_after(OWN, reply.arrays, {}, server_round)
        metrics = {**reply.metrics, FRESH_START: int(kept is None), **told}
        return replace(reply, metrics=metrics, records={**reply.records, ADAPTED: adapted})


def blended(
    client: TargetClient, sources: Layers, own: Layers, samples: Samples, config: Settings, mu: float
) -> tuple[Layers, dict[str, float]]:
    """Return FedDAF's blend of two models, and ``sim``, ``theta`` and ``alpha``.

    Both models' mean gradients use the same batches of samples, noise and dropout.
    """
    gradients = []
    for model in (sources, own):
        client.load(model)
        with client.drawing("gradient", config) as generator:
            gradients.append(mean_gradient(client.model, samples, client.training, generator))
    similarity = gradient_similarity(*gradients)
    theta, alpha = functional_distance(similarity, mu)
    blended = blend(sources, own, alpha, sources.keys() - gradients[0].keys())
    return blended, {"sim": similarity, "theta": theta, "alpha": alpha}
