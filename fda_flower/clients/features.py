"""pFedFDA's clients, which send statistics of their features instead of a trained model."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fda_flower.aggregation import (
    ClassGaussians,
    Layers,
    choose_share,
    class_priors,
    shape_of_head,
    with_head,
)
from fda_flower.clients.client import DomainClient, Settings, SourceClient, TargetClient
from fda_flower.wire.methods import GAUSSIANS, OWN_SHARE, RIDGE
from fda_flower.wire.protocol import EvaluateReply, EvaluateRequest, TrainReply, TrainRequest, to_layers


class OnFeatures(DomainClient):
    """A client whose features are the inputs of the network's head, a linear layer on a frozen body."""

    def features(self, model: Layers, config: Settings) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return features, float64 of shape ``(n, d)``, and labels, ``(n,)``, of the training samples."""
        train = self.domain.train
        _, features = self.passes(config, "features", train).outputs_and_features(model)
        return features.double().cpu().numpy(), train.y.cpu().numpy()

    def groups(self) -> NDArray[Any] | None:
        """Return the group of each training sample, such as a patient, if there are groups."""
        groups = self.domain.train.groups
        return None if groups is None else groups.cpu().numpy()

    def classes(self, request: EvaluateRequest) -> int:
        """Return the number of classes of the model in a message."""
        return shape_of_head(self.received(request))[0]

    def replying(
        self, request: TrainRequest, records: dict[str, Layers], metrics: Mapping[str, float] | None = None
    ) -> TrainReply:
        """Return a reply with the received model, so that its update is zero."""
        received = {name: np.array(array) for name, array in self.received(request).items()}
        return TrainReply(received, len(self.domain.train), metrics or {}, records)


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
