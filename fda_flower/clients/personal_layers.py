"""Clients that keep a part of the model between rounds."""

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from fda_flower.aggregation import Layers
from fda_flower.clients.client import DomainClient, Settings, SourceClient, TargetClient
from fda_flower.models.exchange import Exchange
from fda_flower.wire import protocol
from fda_flower.wire.methods import FINAL_HEAD_EPOCHS
from fda_flower.wire.protocol import EvaluateReply, EvaluateRequest, TrainReply, TrainRequest


class LocalPart(DomainClient):
    """A client with its own part of the model, if the message has ``local-part``.

    ``head`` is the part of FedRep (Collins et al., ICML 2021), ``batch-norm`` of FedBN (Li et al., ICLR
    2021). The client keeps its part in its own state and puts it into each received model; its reply has the
    part as received. In the first round it starts from the received part.
    """

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Train the received model with the client's own part, and keep this part.

        Replies as `train_from` does, with the part as received; ``local-part`` is the round of the part that
        training started from, or 0.
        """
        config = request.config
        if protocol.LOCAL_PART not in config:
            return super().local_train(request)
        received, now = self.received(request), int(config[protocol.SERVER_ROUND])
        own, kept_in = self._own_part(now)
        model: Layers = {**received, **own}
        if protocol.HEAD_EPOCHS in config:
            self.load(model)
            self._train_head("head", config, config[protocol.HEAD_EPOCHS])
            model = self.layers()
        reply = self.train_from(model, config)
        names = Exchange.of(self.model, str(config[protocol.LOCAL_PART])).own
        self.own_state.save_after(protocol.LOCAL_PART, {name: reply.arrays[name] for name in names}, {}, now)
        arrays = {**reply.arrays, **{name: received[name] for name in names}}
        return replace(reply, arrays=arrays, metrics={**reply.metrics, protocol.LOCAL_PART: kept_in})

    def local_evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        """Evaluate the model of a request with the client's own part.

        With ``final-head-epochs`` the reply also has ``accuracy-final-head`` and ``loss-final-head``, for a
        head trained this many epochs longer and then discarded.
        """
        config = request.config
        if protocol.LOCAL_PART not in config:
            return super().local_evaluate(request)
        own, _ = self._own_part(int(config[protocol.SERVER_ROUND]) + 1)
        model = {**self.received(request), **own}
        reply = self.score(self.single(model, config), config)
        if FINAL_HEAD_EPOCHS not in config:
            return reply
        self.load(model)
        self._train_head("final-head", config, config[FINAL_HEAD_EPOCHS])
        outputs = self.single(self.layers(), config).outputs(self.passes(config))
        final = self.figures(outputs, self.domain.test)
        beside = {f"{name}-{protocol.FINAL_HEAD}": value for name, value in final.items()}
        return replace(reply, metrics={**reply.metrics, **beside})

    def _train_head(self, phase: str, config: Settings, epochs: Any) -> None:
        self.train_on(phase, {**config, protocol.EPOCHS: epochs}, part="head")

    def _own_part(self, round: int) -> tuple[dict[str, NDArray[Any]], int]:
        """Return the last part kept before a round, and its round; nothing and 0 if there is none."""
        kept = self.own_state.load_before(protocol.LOCAL_PART, round)
        return ({}, 0) if kept is None else (kept[0], int(kept[1]["round"]))


class LocalPartSource(LocalPart, SourceClient):
    """A source with its own part of the model; see `LocalPart`."""


class LocalPartTarget(LocalPart, TargetClient):
    """A target with its own part of the model; see `LocalPart`."""
