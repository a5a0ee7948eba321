"""kNN-Per's target: the model's prediction, mixed with the labels of the nearest training samples."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from fda_flower import protocol
from fda_flower.aggregation import best_weight, choose_weight, mixed_scores, neighbour_probabilities
from fda_flower.aggregation.layers import Vector
from fda_flower.clients.target import TargetClient
from fda_flower.clients.training import predict
from fda_flower.datasets import Samples
from fda_flower.models.parts import features_of
from fda_flower.protocol import EvaluateReply, EvaluateRequest

Settings = Mapping[str, Any]


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
        config, train, test = request.config, self.domain.train, self.domain.test
        if protocol.NEIGHBOURS not in config:
            return super().answer_evaluation(request)
        self.load(self.received(request))
        outputs, queries = self._seen(test, "test", config)
        known, keys = self._seen(train, "keys", config)
        logits, labels = outputs.cpu().numpy(), train.y.cpu().numpy()
        mix: Any = config[protocol.MIX]
        k, scale = int(str(config[protocol.NEIGHBOURS])), float(str(config[protocol.KERNEL_SCALE]))
        search = NearestNeighbors(algorithm="brute").fit(keys)

        def neighbours_of(samples: Vector | None) -> Vector:
            count = min(k, len(keys) - (samples is None))
            distances, found = search.kneighbors(samples, count)
            return neighbour_probabilities(distances, labels[found], logits.shape[1], keys.shape[1], scale)

        near, weight = neighbours_of(queries), config[protocol.LAMBDA]
        metrics: dict[str, float] = {}
        if weight == "oracle-test":
            best = best_weight(logits, near, test.y.cpu().numpy(), mix)
            metrics = dict(zip((protocol.LAMBDA_ORACLE, protocol.ACCURACY_ORACLE), best, strict=True))
        if isinstance(weight, str):
            weight = choose_weight(known.cpu().numpy(), neighbours_of(None), labels, mix)
        metrics[protocol.LAMBDA] = float(str(weight))
        mixed = torch.from_numpy(mixed_scores(logits, near, metrics[protocol.LAMBDA], mix)).to(test.y.device)
        alone = self.scored(outputs, config)
        # The float64 scores of the model alone have other bits than its outputs.
        reply = (self.scored(mixed, config) if weight else alone).beside(alone)
        return replace(reply, metrics={**reply.metrics, **metrics})

    def _seen(self, samples: Samples, phase: str, config: Settings) -> tuple[Tensor, Vector]:
        """Return the model's outputs for samples, and their features, shape ``(n, features)``."""
        with (
            self.adapting(config),
            self.drawing(phase, config) as generator,
            features_of(self.model) as features,
        ):
            outputs = predict(self.model, samples, generator)
        return outputs, torch.cat(features).double().cpu().numpy()
