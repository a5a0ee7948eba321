"""Ditto's target: beside the global model it trains a personal one, drawn towards the global model."""

import math
from dataclasses import replace

from fda_flower.clients.target import TargetClient
from fda_flower.clients.training import penalised, plain_objective
from fda_flower.protocol import EVALUATE_TRAINED, PERSONAL, PROXIMAL, TrainReply, TrainRequest


class DittoTarget(TargetClient):
    """A target with a personal model ``v`` (Li et al., "Ditto", ICML 2021), if the message has ``personal``.

    It trains ``v`` on the round's batches with the penalty ``λ/2 ‖v − θ‖²``, where ``λ`` is the value of
    ``personal`` in the message and ``θ`` the model received. It keeps ``v`` as ``personal``; without one, as
    in the first round, ``v`` begins at ``θ``.
    """

    keeps = (PERSONAL,)

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Train both models, and keep the personal one.

        Returns
        -------
        TrainReply
            That of `DomainClient.train_from` for the global model, with the record ``personal``, the
            evaluation of ``v`` if one is asked for, and ``distance``, ``‖v − θ‖`` before the training,
            unless ``v`` begins at ``θ``.
        """
        config, model = request.config, self.received(request)
        if PERSONAL not in config:
            return super().local_train(request)
        strength = float(str(config[PERSONAL]))
        reply = self.train_from(model, {k: v for k, v in config.items() if k != EVALUATE_TRAINED})
        self.load(model)
        personally = replace(self.training_in(config), proximal=strength)
        plain, metrics = plain_objective(self.domain.train.y, self.training), dict(reply.metrics)
        objective = penalised(plain, self.model, personally, "λ")
        if (own := self.kept(PERSONAL)) is not None:
            anchor = [p.detach().clone() for p in self.model.parameters()]
            self.load(own)
            pairs = zip(self.model.parameters(), anchor, strict=True)
            squares = ((p.detach().double() - a.double()).square().sum() for p, a in pairs)
            metrics["distance"] = math.sqrt(sum(map(float, squares)))
        self.train_on("train", {**config, PROXIMAL: 0.0}, objective)
        personal = self.layers()
        records = {**reply.records, PERSONAL: personal}
        if config.get(EVALUATE_TRAINED):
            evaluation = self.judged(lambda: self.evaluation(config))
            metrics |= evaluation.in_train_reply
            records |= evaluation.records
        self.keep(PERSONAL, personal)
        return replace(reply, metrics=metrics, records=records)
