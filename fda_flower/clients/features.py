"""Clients that send statistics of their features instead of a trained model: FedPFT, MPFT, pFedFDA."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import kl_div

from fda_flower.aggregation import (
    ClassGaussians,
    ClassMixtures,
    Layers,
    choose_share,
    class_priors,
    k_means,
    shape_of_head,
    with_head,
)
from fda_flower.clients.client import DomainClient, Settings, SourceClient, TargetClient
from fda_flower.clients.training import Objective, plain_objective
from fda_flower.files import derive_seed
from fda_flower.wire import protocol
from fda_flower.wire.methods import DISTILLATION, GAUSSIANS, MIXTURES, OWN_SHARE, PROTOTYPES, RIDGE
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


class Mixtures(OnFeatures):
    """A client that sends mixtures of its features, if the message has ``mixtures`` (FedPFT, 2024)."""

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Reply with one mixture per class."""
        config = request.config
        if MIXTURES not in config:
            return super().local_train(request)
        features, labels = self.features(self.received(request), config)
        seed = derive_seed(self.seed, "mixtures", config.get(protocol.SERVER_ROUND, 0), self.domain.name)
        found = ClassMixtures.of(features, labels, self.classes(request), int(config[MIXTURES]), seed)
        return self.replying(request, {MIXTURES: found.layers()})


class MixturesSource(Mixtures, SourceClient):
    """A source that sends mixtures of its features; see `Mixtures`."""


class MixturesTarget(Mixtures, TargetClient):
    """A target that sends mixtures of its features; see `Mixtures`."""


class Prototypes(OnFeatures):
    """A client that sends prototypes of its features, if the message has ``prototypes`` (MPFT)."""

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Reply with the prototypes: the mean of each class, or the centres of its clusters."""
        config = request.config
        if PROTOTYPES not in config:
            return super().local_train(request)
        features, labels = self.features(self.received(request), config)
        most, seed = int(config[PROTOTYPES]), config.get(protocol.SERVER_ROUND, 0)
        used = np.zeros((self.classes(request), most), np.uint8)
        centres = np.zeros((*used.shape, features.shape[1]), np.float32)
        for label in np.unique(labels):
            drawn = derive_seed(self.seed, "prototypes", seed, self.domain.name, int(label))
            found, _ = k_means(features[labels == label], most, drawn)
            used[label, : len(found)], centres[label, : len(found)] = 1, found
        return self.replying(request, {PROTOTYPES: {"used": used, "centres": centres}})


class PrototypesSource(Prototypes, SourceClient):
    """A source that sends prototypes of its features; see `Prototypes`."""


class PrototypesTarget(Prototypes, TargetClient):
    """A target that sends prototypes of its features and adapts the head; see `Prototypes`."""

    def local_evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        """Train the received head on the labels and evaluate it; ``-global`` metrics are before training.

        ``distillation`` in the message is ``λ`` of the objective; see `distilled`.
        """
        config = request.config
        if DISTILLATION not in config:
            return super().local_evaluate(request)
        received, passes = self.received(request), self.passes(config)
        self.load(received)
        plain = plain_objective(self.domain.train.y, self.training)
        objective = distilled(plain, copy.deepcopy(self.model), float(config[DISTILLATION]))
        self.train_on("adapt", config, objective)
        reply = self.score(self.single(self.layers(), config), config, passes)
        alone = self.single(received, config).outputs(passes)
        return reply.with_second(self.figures(alone, self.domain.test))


def distilled(plain: Objective, teacher: nn.Module, strength: float) -> Objective:
    """Return the objective ``plain + λ KL(p_teacher ‖ p)``, the mean over a batch.

    The network's outputs are computed twice, which is cheap for a head.
    """
    teacher = teacher.eval().requires_grad_(False)

    def objective(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        own, told = model(x).log_softmax(dim=1), teacher(x).log_softmax(dim=1)
        divergence = kl_div(own, told, reduction="batchmean", log_target=True)
        return plain(model, x, y) + torch.tensor(strength) * divergence

    return objective


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
