"""Methods whose clients keep a part of the model: FedPer, FedRep, FedBN."""

from dataclasses import replace
from logging import WARNING
from typing import Any, ClassVar

from flwr.common import log

from fda_flower.names import Count, Natural
from fda_flower.strategies.base import Aggregated, ClientUpdate, Node, Record, Round, Sources, TrainRequest
from fda_flower.strategies.fedavg import FedAvg
from fda_flower.strategies.hooks import Epochs
from fda_flower.wire import protocol
from fda_flower.wire.protocol import LOCAL_PART, EvaluateRequest

FINAL_HEAD_EPOCHS = "final-head-epochs"
"""The setting of an evaluate message that asks for a further training of the head."""


class LocalPart(FedAvg):
    """FedAvg, in which each client puts its own part into every model that it trains or evaluates.

    The clients run `fda_flower.clients.LocalPartSource` and `LocalPartTarget`. They reply with this part as
    they received it, so that the server's stays as it is. A round's record has, for each client,
    ``local-part``, the round whose part it began with (0: that of the server), and ``fallback`` if it had a
    later one before.

    In warm-up rounds the whole model is averaged over the sources; each client's part begins there.
    """

    evaluates_own = True

    part: ClassVar[str]
    """The part, by its name in `fda_flower.clients.exchange.PARTS`, or a pattern."""

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Tell every client to keep its part."""
        remedy = "serve the clients with fda_flower.clients.LocalPartSource and LocalPartTarget"
        request = super().train_request(node, round)
        return request.adding(
            config={LOCAL_PART: self.part}, requires={LOCAL_PART: remedy}, measures={LOCAL_PART: LOCAL_PART}
        )

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Average all clients; say which of them have lost their part."""
        entries: list[Any] = [round.record["target"], *round.record["sources"].values()]
        for entry in entries:
            if entry is not None and entry[LOCAL_PART] < self._last_round(entry["domain"]):
                number = int(entry[LOCAL_PART])
                began = f"that of round {number}" if number else "that of the server's model"
                entry["fallback"] = f"it had lost the part of the model that it keeps, and began with {began}"
                log(WARNING, "Round %d: %s: %s", round.number, entry["domain"], entry["fallback"])
        return super().aggregate(round, target, sources)

    def evaluate_config(self, round: Round) -> protocol.Config:
        """Tell the target to put its part into the model."""
        told = {} if round.warmup else {LOCAL_PART: self.part}
        return {**super().evaluate_config(round), **told}

    def _last_round(self, domain: str) -> int:
        """Return the last round in which a client is known to have trained its part; 0 for none."""
        replied = (
            record["round"]
            for record in reversed(self.history)
            if not record["warmup"]
            and (domain in record["sources"] or (record["target"] or {}).get("domain") == domain)
        )
        return next(replied, 0)


class FedPer(LocalPart):
    """FedAvg of the body; the head stays at each client (Arivazhagan et al., arXiv 1912.00818).

    A client trains body and head together, from the body that it receives and the head that it has kept, see
    `LocalPart`. The headline is the accuracy of the averaged body with the target's head.
    """

    part = "head"


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
        """Tell every client how long to train its head and the body."""
        phases: Record = {
            protocol.HEAD_EPOCHS: self.head_epochs,
            protocol.TUNE: "body",
            protocol.EPOCHS: self.body_epochs,
        }
        return super().train_request(node, round).adding(config=phases)

    def evaluate_request(self, round: Round) -> EvaluateRequest | None:
        """Have the target evaluate the model, in the last round also with a head trained for longer."""
        request = super().evaluate_request(round)
        if request is None or not self.final_head_epochs or round.number != self.num_rounds:
            return request
        asked: Record = {FINAL_HEAD_EPOCHS: self.final_head_epochs}
        if self.learning_rate_factor != 1:
            asked[protocol.LEARNING_RATE_FACTOR] = self.learning_rate_factor
        return replace(request, config={**request.config, **asked})

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role: of head and body in each round, and those of the final head."""
        each = rounds * (self.head_epochs + self.body_epochs)
        return {"source": each + warmup * epochs["source"], "target": each + self.final_head_epochs}


class FedBN(LocalPart):
    """FedAvg of all arrays but those of BatchNorm layers (Li et al., "FedBN", ICLR 2021).

    Parameters, running statistics and counters of BatchNorm layers stay at each client, see `LocalPart`. The
    target evaluates the new global model with its own. On a network without BatchNorm this is FedAvg.
    """

    part = "batch-norm"
    refused_buffers: ClassVar = {
        "target": "every client keeps its running statistics, which the server never sees"
    }
