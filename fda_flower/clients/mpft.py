"""MPFT's clients: send prototypes of each class; the target adapts the head."""

import copy

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div

from fda_flower.aggregation import k_means
from fda_flower.clients.client import SourceClient, TargetClient
from fda_flower.clients.on_features import OnFeatures
from fda_flower.clients.training import Objective, plain_objective
from fda_flower.files import derive_seed
from fda_flower.wire.protocol import SERVER_ROUND, EvaluateReply, EvaluateRequest, TrainReply, TrainRequest

PROTOTYPES, DISTILLATION = "prototypes", "distillation"
"""Names on the wire: the setting with the number of prototypes, their record, and a setting."""


class Prototypes(OnFeatures):
    """A client that sends prototypes of its features, if the message has ``prototypes`` (MPFT, 2025)."""

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Reply with the prototypes: the mean of each class, or the centres of its clusters."""
        config = request.config
        if PROTOTYPES not in config:
            return super().local_train(request)
        features, labels = self.features(self.received(request), config)
        most, seed = int(config[PROTOTYPES]), config.get(SERVER_ROUND, 0)
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
