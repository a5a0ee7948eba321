"""MPFT: in one round, a head that the server trains on all clients' prototypes; the target adapts it."""

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
    """A head trained on all clients' prototypes, and adapted by the target (Zhang et al., ICLR 2025).

    Each client, the target too, sends prototypes of each class: the mean of its features, or the centres of
    clusters. The server trains the head on all of them, without averaging any. In each evaluation the
    target trains it on its labels, with ``λ KL(p_θ ‖ p)`` to the received one in its loss. The clients run
    `fda_flower.clients.PrototypesSource` and `PrototypesTarget`. One round is the whole method.

    The headline is the accuracy of the adapted head; ``accuracy-global`` is the server's.

    The paper trains an adapter before CLIP's head, which it makes of the classes' names; there is none here,
    and the head is trained itself (ours). Its random sampling, which sends features, is left out.

    Parameters
    ----------
    prototypes : int
        Of each class, from each client; 1 is the mean, more are k-means' centres.
    epochs : int
        Passes of the server over the prototypes, with AdamW and a rate of 0.001. The authors' code stops
        once the loss no longer changes, after 200 at most.
    distillation : float
        ``λ``; unverified, as the paper's value is not known. 0 is plain fine-tuning.
    """

    evaluates_own = True

    prototypes: Count = 1
    epochs: Count = 200
    distillation: NotNegative = 1.0

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Ask for the prototypes."""
        remedy = "serve the clients with fda_flower.clients.PrototypesSource and PrototypesTarget"
        request = super().train_request(node, round)
        return request.adding(
            config={PROTOTYPES: self.prototypes},
            expects={PROTOTYPES: self._empty},
            requires={PROTOTYPES: remedy},
        )

    def _empty(self, model: Layers) -> Layers:
        """Return a record like that of prototypes: which places are used, and the centres."""
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
        """Have the target adapt the new head, and evaluate both."""
        return EvaluateRequest(round.arrays, {**round.config, DISTILLATION: self.distillation})

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role: the target adapts the head in each round in which it evaluates."""
        total = super().training_epochs(rounds, warmup, epochs, labels)
        return {**total, "target": rounds * epochs["target"]}
