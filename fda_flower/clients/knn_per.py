"""kNN-Per's target: the model's prediction, mixed with the labels of the nearest training samples."""

from dataclasses import replace
from typing import cast

from fda_flower import protocol
from fda_flower.aggregation import best_weight, choose_weight
from fda_flower.clients.target import TargetClient
from fda_flower.prediction.predictors import Mix, Neighbours, Predictor
from fda_flower.protocol import EvaluateReply, EvaluateRequest


class KNNPerTarget(TargetClient):
    """A target that asks its nearest training samples too, where the evaluate message has ``neighbours``.

    Its training is plain. In an evaluation the keys are the features of all its training samples, the inputs
    of the model's head, and nothing is kept (Marfoq et al., ICML 2022).
    """

    def answer_evaluation(self, request: EvaluateRequest) -> EvaluateReply:
        """Evaluate the mixture of model and neighbours on the test set.

        Where the message's ``lambda`` is a word, ``λ`` is chosen by leave-one-out on the training labels: the
        neighbours of a training sample are the nearest of the others. Its model term is the received model,
        which may have seen the label.

        Returns
        -------
        EvaluateReply
            ``accuracy`` and ``loss`` of the mixture, ``lambda``; ``accuracy-global`` and ``loss-global`` of
            the model alone; if ``lambda`` is ``oracle-test``, ``accuracy-oracle-lambda`` and
            ``oracle-lambda``.
        """
        config = request.config
        if protocol.NEIGHBOURS not in config:
            return super().answer_evaluation(request)
        predictor, passes = self._neighbours(request), self.passes(config)
        reply = self.evaluated(predictor, config, passes)
        metrics: dict[str, float] = {protocol.LAMBDA: predictor.weight}
        if config[protocol.LAMBDA] == "oracle-test":
            outputs, near = predictor.seen(passes)
            labels = self.domain.test.y.cpu().numpy()
            best = best_weight(outputs.cpu().numpy(), near, labels, predictor.mix)
            metrics |= dict(zip((protocol.LAMBDA_ORACLE, protocol.ACCURACY_ORACLE), best, strict=True))
        reply = reply.beside(self.scored(passes.outputs(predictor.layers), config))
        return replace(reply, metrics={**reply.metrics, **metrics})

    def predictor(self, request: EvaluateRequest) -> Predictor:
        """Return the model with the neighbours, if the message has ``neighbours``."""
        asks = protocol.NEIGHBOURS in request.config
        return self._neighbours(request) if asks else super().predictor(request)

    def _neighbours(self, request: EvaluateRequest) -> Neighbours:
        config, train = request.config, self.domain.train
        layers = self.single(self.received(request), config).layers
        outputs, keys = self.passes(config, "keys", train).outputs_and_features(layers)
        labels, mix, weight = train.y.cpu().numpy(), cast(Mix, config[protocol.MIX]), config[protocol.LAMBDA]
        k, scale = int(str(config[protocol.NEIGHBOURS])), float(str(config[protocol.KERNEL_SCALE]))
        predictor = Neighbours(layers, keys.double().cpu().numpy(), labels, k, scale, 0.0, mix)
        if isinstance(weight, str):
            near = predictor.near(outputs.shape[1])
            weight = choose_weight(outputs.cpu().numpy(), near, labels, mix)
        return replace(predictor, weight=float(str(weight)))
