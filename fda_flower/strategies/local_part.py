"""FedAvg of models of which every client keeps a part for itself."""

from collections.abc import Iterable
from logging import WARNING
from typing import Any, ClassVar

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.common import log
from flwr.serverapp import Grid

from fda_flower.protocol import LOCAL_PART
from fda_flower.strategies.base import (
    Aggregated,
    ClientUpdate,
    Node,
    Round,
    Sources,
    TrainRequest,
)
from fda_flower.strategies.fedavg import FedAvg


class LocalPart(FedAvg):
    """FedAvg, in which each client puts its own part into every model that it trains or evaluates.

    The clients run `fda_flower.clients.LocalPartSource` and `LocalPartTarget`. They reply with this part as
    they received it, so that the server's stays as it is. A round's record has, for each client,
    ``local-part``, the round whose part it began with (0: that of the server), and ``fallback`` if it had a
    later one before.

    In warm-up rounds the whole model is averaged over the sources; each client's part begins there.
    """

    keeps_own = True

    part: ClassVar[str]
    """The part, by its name in `fda_flower.clients.exchange.PARTS`, or a pattern."""

    def train_request(self, node: Node, round: Round) -> TrainRequest | None:
        """Tell every client to keep its part."""
        request = super().train_request(node, round)
        remedy = (
            f"{type(self).__name__}'s clients have to be served by fda_flower.clients.LocalPartSource and "
            "LocalPartTarget"
        )
        return request and request.adding(
            config={LOCAL_PART: self.part}, requires={LOCAL_PART: remedy}, measures={LOCAL_PART: LOCAL_PART}
        )

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Average all clients; say which of them have lost their part."""
        entries: list[Any] = [round.record["target"], *round.record["sources"].values()]
        for entry in entries:
            if entry is not None and entry[LOCAL_PART] < self._last_round(entry["domain"]):
                entry["fallback"] = _loss(int(entry[LOCAL_PART]))
                log(WARNING, "Round %d: %s: %s", round.number, entry["domain"], entry["fallback"])
        return super().aggregate(round, target, sources)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the evaluate message, which tells the target to put its part into the model."""
        told = {} if self.round.warmup else {LOCAL_PART: self.part}
        return super().configure_evaluate(server_round, arrays, ConfigRecord({**config, **told}), grid)

    def _last_round(self, domain: str) -> int:
        """Return the last round in which a client is known to have trained its part; 0 for none."""
        replied = (
            record["round"]
            for record in reversed(self.history)
            if not record["warmup"]
            and (domain in record["sources"] or (record["target"] or {}).get("domain") == domain)
        )
        return next(replied, 0)


def _loss(round: int) -> str:
    began = f"that of round {round}" if round else "that of the server's model"
    return f"it had lost the part of the model that it keeps, and began with {began}"
