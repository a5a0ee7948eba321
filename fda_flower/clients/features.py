"""pFedFDA's clients, which send statistics of their features instead of a trained model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import (
    ClassGaussians,
    Layers,
    choose_share,
    class_priors,
    shape_of_head,
    with_head,
)
from fda_flower.clients.client import DomainClient
from fda_flower.clients.trainee import Settings
from fda_flower.datasets import Samples
from fda_flower.wire.asked.features import EvaluateGaussians, GaussiansMixed, MixGaussians, WithGaussians
from fda_flower.wire.protocol import EvaluateReply, EvaluateRequest, TrainReply, TrainRequest


def features_and_labels(
    client: DomainClient, model: Layers, config: Settings, samples: Samples | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return features, float64 of shape ``(n, d)``, and labels, ``(n,)``, of samples.

    By default these are the training samples.
    """
    train = client.domain.train if samples is None else samples
    features = client.passes(config, "features", train).features(model)
    return features.astype(np.float64), train.y


def mix_gaussians(client: DomainClient, request: TrainRequest, question: MixGaussians) -> TrainReply:
    """Reply with the client's Gaussians mixed with the global ones (McLaughlin and Su, NeurIPS 2024)."""
    mixed, share, _ = mixture(client, request, question)
    received = {name: np.array(array) for name, array in client.received(request).items()}
    answer = GaussiansMixed(gaussians=mixed.layers(), own_share=share)
    return TrainReply(received, len(client.domain.train), answer=answer)


def evaluate_gaussians(
    client: DomainClient, request: EvaluateRequest, question: EvaluateGaussians
) -> EvaluateReply:
    """Evaluate Bayes' rule with the client's mixture on the test set."""
    mixed, _, labels = mixture(client, request, question)
    weight, bias = mixed.discriminant(class_priors(labels, len(mixed.means)))
    layers = with_head(client.received(request), weight, bias)
    return client.score(client.single(layers, request.config), request.config)


def mixture(
    client: DomainClient, request: EvaluateRequest, question: WithGaussians
) -> tuple[ClassGaussians, float, NDArray[Any]]:
    """Return the mixture of own and global Gaussians, the weight of its own, and the labels.

    In the first round there are no global ones, so the mixture is its own.
    """
    model, ridge = client.received(request), question.ridge
    features, labels = features_and_labels(client, model, request.config)
    if question.gaussians is None:
        known = ClassGaussians.initial(*shape_of_head(model))
        return ClassGaussians.of(features, labels, known, ridge), 1.0, labels
    known = ClassGaussians.from_layers(question.gaussians)
    share = choose_share(features, labels, known, question.folds, ridge, client.domain.train.groups)
    return ClassGaussians.of(features, labels, known, ridge).mixed(known, share), float(share), labels
