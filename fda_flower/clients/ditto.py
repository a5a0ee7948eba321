"""Ditto's target: beside the global model it trains a personal one, drawn towards the global model."""

import math
from dataclasses import replace

from fda_flower.clients.target import TargetClient
from fda_flower.clients.training import penalised, plain_objective
from fda_flower.protocol import (
    EVALUATE_TRAINED,
    FRESH_START,
    PERSONAL,
    PROXIMAL,
    SERVER_ROUND,
    TrainReply,
    TrainRequest,
)

OWN = "ditto"
"""The name under which the target keeps its personal model; see `OwnState`."""


class DittoTarget(TargetClient):
    """A target with a personal model ``v`` (Li et al., "Ditto", ICML 2021), if the message has ``personal``.

    It trains ``v`` on the round's batches with the penalty ``λ/2 ‖v − θ‖²``, where ``λ`` is the value of
    ``personal`` in the message and ``θ`` the model received. It keeps ``v`` by rounds, in its own state, and
    never sends it: a round that is run again begins from the state before it. Without one, as in the first
    round, ``v`` begins at ``θ``.
    """

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Train both models, and keep the personal one.

        Returns
        -------
        TrainReply
            That of `DomainClient.train_from` for the global model, with the evaluation of ``v`` if one is
            asked for, ``distance``, ``‖v − θ‖`` before the training, and ``fresh-start``, 1 if there was
            no ``v``, else 0.
        """
        config, model = request.config, self.received(request)
        if PERSONAL not in config:
            return super().local_train(request)
        strength = float(str(config[PERSONAL]))
        reply = self.train_from(model, {k: v for k, v in config.items() if k != EVALUATE_TRAINED})
        self.load(model)
        personally = replace(self.training_in(config), proximal=strength)
        plain = plain_objective(self.domain.train.y, self.training)
        objective = penalised(plain, self.model, personally, "λ")
        server_round = int(str(config[SERVER_ROUND]))
        metrics, records = {**reply.metrics, **self._take_up(server_round)}, dict(reply.records)
        self.train_on("train", {**config, PROXIMAL: 0.0}, objective)
        personal = self.layers()
        if config.get(EVALUATE_TRAINED):
            evaluation = self.judged(lambda: self.evaluation(config))
            metrics |= evaluation.in_train_reply
            records |= evaluation.records
        self.own_state.save_after(OWN, personal, {}, server_round)
        return replace(reply, metrics=metrics, records=records)

    def _take_up(self, server_round: int) -> dict[str, float]:
        """Put ``v`` into the model in the place of ``θ``; return what the reply tells of it."""
        kept = self.own_state.load_before(OWN, server_round)
        if kept is None:
            return {FRESH_START: 1, "distance": 0.0}
        anchor = [p.detach().clone() for p in self.model.parameters()]
        self.load(kept[0])
        pairs = zip(self.model.parameters(), anchor, strict=True)
        squares = ((p.detach().double() - a.double()).square().sum() for p, a in pairs)
        return {FRESH_START: 0, "distance": math.sqrt(sum(map(float, squares)))}
