"""MPFT: in one round, the server trains a head on all clients' prototypes; the target adapts it."""

import numpy as np

from fda_flower.aggregation import Layers, shape_of_head
from fda_flower.names import Count, NotNegative
from fda_flower.strategies.base import ClientUpdate, Node, Round, TrainRequest
from fda_flower.strategies.hooks import Epochs
from fda_flower.strategies.on_features import Rows, TrainsHead
from fda_flower.wire.protocol import EvaluateRequest

PROTOTYPES, DISTILLATION = "prototypes", "distillation"
"""Names on the wire: the setting with the number of prototypes, their record, and a setting."""


class MPFT(TrainsHead):
    """A head trained on all clients' prototypes and adapted by the target (Zhang et al., ICLR 2025).

    Each client, including the target, sends prototypes of each class: the mean of its features, or cluster
    centres. The server trains the head on all of them, without averaging. In each evaluation the target
    trains it on its labels, with ``λ KL(p_θ ‖ p)`` to the received head in its loss. The clients run
    `fda_flower.clients.PrototypesSource` and `PrototypesTarget`. The method takes one round.

    The headline is the accuracy of the adapted head; ``accuracy-global`` is the server's.

    The paper trains an adapter before CLIP's head, which it derives from the classes' names. Here there is no
    adapter, and the head itself is trained. The paper's random sampling, which sends features, is omitted.

    Parameters
    ----------
    prototypes : int
        Number per class and client; 1 is the mean, more are k-means centres.
    epochs : int
        Passes of the server over the prototypes, with AdamW and a learning rate of 0.001. The authors' code
        stops once the loss is constant, after at most 200.
    distillation : float
        ``λ``; the paper's value is unknown, so the default is unverified. 0 is plain fine-tuning.
    """

    evaluates_own = True

    prototypes: Count = 1
    epochs: Count = 200
    distillation: NotNegative = 1.0

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request the prototypes."""
        remedy = "serve the clients with fda_flower.clients.PrototypesSource and PrototypesTarget"
        request = super().train_request(node, round)
        return request.adding(
            config={PROTOTYPES: self.prototypes},
            expects={PROTOTYPES: self._empty},
            requires={PROTOTYPES: remedy},
        )

    def _empty(self, model: Layers) -> Layers:
        """Return an empty record of prototypes: a mask of used places, and the centres."""
        classes, features = shape_of_head(model)
        used = np.zeros((classes, self.prototypes), np.uint8)
        return {"used": used, "centres": np.zeros((*used.shape, features), np.float32)}

    def rows_of(self, round: Round, domain: str, client: ClientUpdate) -> Rows:
        """Return a client's prototypes."""
        told = client.extra[PROTOTYPES]
        classes, places = np.nonzero(told["used"])
        if not len(classes):
            raise ValueError(f"'{domain}' has sent no prototype")
        return told["centres"][classes, places].astype(np.float64), classes

    def evaluate_request(self, round: Round) -> EvaluateRequest:
        """Request adaptation of the new head, and evaluation of both."""
        return EvaluateRequest(round.arrays, {**round.config, DISTILLATION: self.distillation})

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role: the target adapts the head in each round that it evaluates."""
        total = super().training_epochs(rounds, warmup, epochs, labels)
        return {**total, "target": rounds * epochs["target"]}
