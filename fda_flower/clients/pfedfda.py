"""pFedFDA's clients: class Gaussians of the features, mixed with the global ones."""

from typing import Any

from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fda_flower.aggregation import (
    ClassGaussians,
    choose_share,
    class_priors,
    shape_of_head,
    with_head,
)
from fda_flower.clients.client import SourceClient, TargetClient
from fda_flower.clients.on_features import OnFeatures
from fda_flower.wire.protocol import EvaluateReply, EvaluateRequest, TrainReply, TrainRequest, to_layers

GAUSSIANS, RIDGE, OWN_SHARE = "gaussians", "ridge", "own-share"
"""Names on the wire: the setting with the number of folds, which is also the record; a setting; a metric."""


class Gaussian(OnFeatures):
    """A client with its own Gaussians, if the message has ``gaussians`` (McLaughlin and Su, 2024)."""

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Reply with the client's Gaussians mixed with the global ones, and ``own-share``, its weight."""
        if GAUSSIANS not in request.config:
            return super().local_train(request)
        mixed, share, _ = self.mixture(request)
        return self.replying(request, {GAUSSIANS: mixed.layers()}, {OWN_SHARE: share})

    def mixture(self, request: EvaluateRequest) -> tuple[ClassGaussians, float, NDArray[Any]]:
        """Return the mixture of own and global Gaussians, the weight of its own, and the labels.

        In the first round there are no global ones, so the mixture is its own.
        """
        model, told = self.received(request), request.records.get(GAUSSIANS)
        features, labels = self.features(model, request.config)
        folds, ridge = int(request.config[GAUSSIANS]), float(request.config[RIDGE])
        if not isinstance(told, ArrayRecord) or not told:
            known = ClassGaussians.initial(*shape_of_head(model))
            return ClassGaussians.of(features, labels, known, ridge), 1.0, labels
        known = ClassGaussians.from_layers(to_layers(told))
        share = choose_share(features, labels, known, folds, ridge, self.groups())
        return ClassGaussians.of(features, labels, known, ridge).mixed(known, share), share, labels


class GaussianSource(Gaussian, SourceClient):
    """A source with its own Gaussians; see `Gaussian`."""


class GaussianTarget(Gaussian, TargetClient):
    """A target that predicts with its own Gaussians; see `Gaussian`."""

    def local_evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        """Evaluate Bayes' rule with the client's mixture and, as ``-global``, the received model."""
        config = request.config
        if GAUSSIANS not in config:
            return super().local_evaluate(request)
        mixed, _, labels = self.mixture(request)
        weight, bias = mixed.discriminant(class_priors(labels, len(mixed.means)))
        passes, model = self.passes(config), self.received(request)
        reply = self.score(self.single(with_head(model, weight, bias), config), config, passes)
        alone = self.single(model, config).outputs(passes)
        return reply.with_second(self.figures(alone, self.domain.test))
