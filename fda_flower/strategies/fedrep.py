"""FedRep: all clients train a body together, and each has a head of its own."""

from collections.abc import Mapping
from dataclasses import replace

from fda_flower.options import Count, Natural
from fda_flower.protocol import (
    EPOCHS,
    FINAL_HEAD_EPOCHS,
    HEAD_EPOCHS,
    LEARNING_RATE_FACTOR,
    TUNE,
    EvaluateRequest,
)
from fda_flower.strategies.base import Node, Record, Round, TrainRequest
from fda_flower.strategies.local_part import LocalPart


class FedRep(LocalPart):
    """``φ ← Σ_i w_i φ_i``, and a head ``h_i`` of its own at each client (Collins et al., ICML 2021).

    In each round a client trains its head on the body ``φ`` that it receives, and then the body under this
    head. During the head's epochs the body is in evaluation mode, so that BatchNorm's statistics do not move
    either. The headline is the accuracy of the averaged body with the target's head. The head never leaves
    the client, see `LocalPart`: the server's is the initial one, and its model is not evaluated.

    Parameters
    ----------
    head_epochs, body_epochs : int
        Epochs of head and body in a round, in place of the clients' own number of epochs. The defaults are
        those of omarfoq/knn-per and the common setting of Jiang et al. (ICLR 2024).
    final_head_epochs : int
        In the last round the target trains its head for so many epochs more, on the averaged body. The record
        has this model's ``accuracy-final-head`` beside the headline. 0: it does not.
    weights : {"examples", "uniform"}
        Weights of the mean of all clients, the target included.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If a number of epochs cannot work.

    Examples
    --------
    >>> from fda_flower.strategies import FedRep
    >>> strategy = FedRep(head_epochs=5)
    """

    part = "head"

    head_epochs: Count = 10
    body_epochs: Count = 1
    final_head_epochs: Natural = 10

    @property
    def ends_with_an_evaluation(self) -> bool:  # type: ignore[override]
        """Whether the target trains its head for longer in the last round."""
        return self.final_head_epochs > 0

    def train_request(self, node: Node, round: Round) -> TrainRequest | None:
        """Tell every client how long to train its head and the body."""
        request = super().train_request(node, round)
        phases: Record = {HEAD_EPOCHS: self.head_epochs, TUNE: "body", EPOCHS: self.body_epochs}
        return request and request.adding(config=phases)

    def evaluate_request(self, round: Round) -> EvaluateRequest | None:
        """Have the target evaluate the model, in the last round also with a head trained for longer."""
        request = super().evaluate_request(round)
        if request is None or not self.final_head_epochs or round.number != self.num_rounds:
            return request
        asked: Record = {FINAL_HEAD_EPOCHS: self.final_head_epochs}
        if self.learning_rate_factor != 1:
            asked[LEARNING_RATE_FACTOR] = self.learning_rate_factor
        return replace(request, config={**request.config, **asked})

    def training_epochs(
        self, rounds: int, warmup: int, epochs: Mapping[str, int], labels: int
    ) -> dict[str, int]:
        """Return the epochs by role: of head and body in each round, and those of the final head."""
        each = rounds * (self.head_epochs + self.body_epochs)
        return {"source": each + warmup * epochs["source"], "target": each + self.final_head_epochs}
