"""Methods whose clients keep a part of the model: FedPer, FedRep, FedBN."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from flwr.app import ArrayRecord

from fda_flower.names.options import Count, Natural
from fda_flower.records.record import Record
from fda_flower.strategies.base import Node, Round, TrainRequest
from fda_flower.strategies.fedavg import FedAvg
from fda_flower.strategies.method import Epochs
from fda_flower.wire import protocol
from fda_flower.wire.asked.personal_layers import EvaluateWithPart, KeepPart, PartKept
from fda_flower.wire.protocol import EvaluateRequest


class LocalPart(FedAvg):
    """FedAvg in which each client replaces a part of every received model by its own.

    They reply with this part as received, so the server's is unchanged. A round's record has, for each
    client, ``local-part``, the round of the part it started from (0: the server's), and ``fallback`` if it
    lost a later one.

    In warm-up rounds the whole model is averaged over the sources; each client's part starts from there.
    """

    questions = (KeepPart, EvaluateWithPart)

    part: ClassVar[str]
    """The part, by its name in `fda_flower.models.exchange.PARTS`, or a pattern."""

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request training with the client's own part."""
        return replace(super().train_request(node, round), question=KeepPart(part=self.part))

    def answered(self, domain: str, answer: PartKept) -> Record:
        """Record the round of the part that a client began with, and whether it has lost a later one."""
        entry: Record = {"local-part": answer.began_in}
        if answer.began_in < self._last_round(domain):
            began = f"its part of round {answer.began_in}" if answer.began_in else "the server's part"
            entry["fallback"] = f"it lost its own part of the model, and started from {began}"
        return entry

    def global_request(self, round: Round, arrays: ArrayRecord) -> EvaluateRequest:
        """Request an evaluation of a model with the target's own part."""
        return EvaluateRequest(arrays, round.config, question=EvaluateWithPart(part=self.part))

    def further_requests(self, round: Round) -> Mapping[str, EvaluateRequest]:
        """Return none: the server's model has no part of its own."""
        return {}

    def _last_round(self, domain: str) -> int:
        """Return the last round in which a client is known to have trained its part, or 0."""
        replied = (
            record["round"]
            for record in reversed(self.history)
            if not record["warmup"]
            and (domain in record["sources"] or (record["target"] or {}).get("domain") == domain)
        )
        return next(replied, 0)


class FedPer(LocalPart):
    """FedAvg of the body; the head stays at each client (Arivazhagan et al., arXiv 1912.00818).

    A client trains body and head together, from the received body and its own head, see `LocalPart`. The
    headline is the accuracy of the averaged body with the target's head.
    """

    part = "head"


class FedRep(LocalPart):
    """``φ ← Σ_i w_i φ_i``, and an own head ``h_i`` at each client (Collins et al., ICML 2021).

    In each round a client trains its head on the received body ``φ``, and then the body under this head.
    During the head's epochs the body is in evaluation mode, so BatchNorm's statistics are constant. The
    headline is the accuracy of the averaged body with the target's head. The head never leaves the client,
    see `LocalPart`: the server keeps the initial one, and its model is not evaluated.

    Parameters
    ----------
    head_epochs, body_epochs : int
        Epochs of head and body in a round; they replace the clients' own number. The defaults are those of
        omarfoq/knn-per and the common setting of Jiang et al. (ICLR 2024).
    final_head_epochs : int
        In the last round the target trains its head for this many further epochs on the averaged body. The
        record has this model's ``accuracy-final-head`` in addition to the headline. 0: no such training.
    """

    part = "head"

    head_epochs: Count = 10
    body_epochs: Count = 1
    final_head_epochs: Natural = 10

    @property
    def ends_with_an_evaluation(self) -> bool:  # type: ignore[override]
        """Whether the target trains its head for longer in the last round."""
        return self.final_head_epochs > 0

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request epochs of the head, then of the body."""
        request = super().train_request(node, round)
        phases = {**request.config, protocol.TUNE: "body", protocol.EPOCHS: self.body_epochs}
        question = KeepPart(part=self.part, head_epochs=self.head_epochs)
        return replace(request, config=phases, question=question)

    def further_requests(self, round: Round) -> Mapping[str, EvaluateRequest]:
        """Request, in the last round, an evaluation with a head trained for longer."""
        if not self.final_head_epochs or round.number != self.num_rounds:
            return {}
        factor = self.learning_rate_factor
        config = round.config if factor == 1 else {**round.config, protocol.LEARNING_RATE_FACTOR: factor}
        question = EvaluateWithPart(part=self.part, final_head_epochs=self.final_head_epochs)
        return {"final-head": EvaluateRequest(round.arrays, config, question=question)}

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role: head and body in each round, and the final head."""
        each = rounds * (self.head_epochs + self.body_epochs)
        return {"source": each + warmup * epochs["source"], "target": each + self.final_head_epochs}

    def epochs_of_head(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs of the head: all but the body's, and the warm-up's."""
        total = rounds * self.head_epochs
        return {"source": total, "target": total + self.final_head_epochs}


class FedBN(LocalPart):
    """FedAvg of all arrays except BatchNorm layers (Li et al., "FedBN", ICLR 2021).

    Parameters, running statistics and counters of BatchNorm layers stay at each client, see `LocalPart`. The
    target evaluates the new global model with its own. On a network without BatchNorm this is FedAvg.
    """

    part = "batch-norm"
    refused_buffers: ClassVar = {
        "target": "every client keeps its running statistics, which the server never sees"
    }
