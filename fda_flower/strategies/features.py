"""pFedFDA: the clients send statistics of their features instead of training."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fda_flower.aggregation import (
    ClassGaussians,
    linear_head,
    mean_update,
    source_weights,
    with_head,
)
from fda_flower.aggregation.rules import mean_of_models
from fda_flower.aggregation.updates import Vector
from fda_flower.errors import ConfigError, invalid
from fda_flower.names.options import NotNegative
from fda_flower.records.record import Record
from fda_flower.strategies.base import Aggregated, DomainAdaptationStrategy, Node, Round, Sources
from fda_flower.strategies.method import Epochs
from fda_flower.strategies.replies import ClientUpdate, NotFiniteError
from fda_flower.wire.asked.features import EvaluateGaussians, GaussiansMixed, MixGaussians
from fda_flower.wire.protocol import EvaluateRequest, TrainRequest, to_layers
from fda_flower.wire.questions import Folds

GAUSSIANS = "gaussians"
"""The state with the global Gaussians."""


class OnFeatures(DomainAdaptationStrategy):
    """A strategy whose model is one linear layer on the features of a frozen body.

    Its clients reply with the received model and a record of statistics.

    Raises
    ------
    ConfigError
        If `max_update_norm` is set: the clients send no update.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_update_norm is not None:
            remedy = "leave it out, or choose another method"
            why = f"but the clients of {type(self).__name__} send no update that it could limit"
            raise invalid("max_update_norm", self.max_update_norm, remedy, why)

    def begin(self, arrays: ArrayRecord, done: int) -> None:
        """Begin the run; raise a `ConfigError` unless the model is one linear layer."""
        if linear_head(to_layers(arrays)) is None:
            name = type(self).__name__
            remedy = "freeze all but the head, as with --train head, or choose another method"
            why = f"{name} needs a model that is one linear layer, but its arrays are {list(arrays)[:3]}"
            raise ConfigError(why, thing="model", value=name, remedy=remedy)
        super().begin(arrays, done)

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role: only the sources', in the warm-up rounds."""
        return {role: warmup * each * (role == "source") for role, each in epochs.items()}


def with_mean_buffers(
    round: Round, clients: Sequence[ClientUpdate], weight: Vector, bias: Vector
) -> dict[str, NDArray[Any]]:
    """Return a round's model with a new linear layer and the mean of the clients' buffers."""
    return with_head(mean_update(round.model, clients, source_weights(clients)), weight, bias)


class PFedFDA(OnFeatures):
    """``N(μ_c, Σ)`` of the features of each class: the clients' mean, mixed with ``β`` of the target's own.

    McLaughlin and Su, NeurIPS 2024. In each round every client, including the target, estimates means and one
    covariance of its features. It mixes them with the global ones, ``β`` to ``1 − β``, with the ``β`` that
    predicts best in cross-validation, and sends the mixture. The server's mean, weighted by examples, is the
    next global one.

    The headline is the accuracy of Bayes' rule, a linear layer, with the target's mixture; the run's model is
    the layer of the global Gaussians and even priors, whose accuracy is ``accuracy-global``. A round's record
    has each client's ``own-share``, its ``β`` in that round.

    The body is frozen here, while the paper trains it too, under the layer of the global Gaussians. Two more
    differences: in the first round clients send only their own Gaussians, where the authors' code has random
    global means; and ``β`` is found on a grid instead of by L-BFGS.

    Parameters
    ----------
    folds : int
        Number of cross-validation folds, at least 2; the authors' code uses 2.
    ridge : float
        Added to the diagonal of every client's covariance; without it, few samples give a singular one. The
        authors' code adds 1, which assumes features of about unit size, as from the frozen bodies here.
    """

    questions = (MixGaussians, EvaluateGaussians)

    folds: Folds = 2
    ridge: NotNegative = 1.0

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Send the global Gaussians, and request the client's."""
        return replace(super().train_request(node, round), question=MixGaussians(**self._asked))

    def answered(self, domain: str, answer: GaussiansMixed) -> Record:
        """Record the weight of the client's own Gaussians."""
        return {"own-share": answer.own_share}

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Average the Gaussians; the model is their linear layer."""
        assert target is not None, "the base class holds the round without the target"
        clients = [target, *sources.values()]
        own = [client.answer.gaussians for client in clients]
        layers = mean_of_models(own, source_weights(clients).tolist())
        gaussians = ClassGaussians.from_layers(layers)
        classes = len(gaussians.means)
        try:
            np.linalg.cholesky(gaussians.covariance)
            weight, bias = gaussians.discriminant(np.full(classes, 1 / classes))
        except np.linalg.LinAlgError as error:
            raise NotFiniteError(f"the mean covariance of the clients is none: {error}") from error
        return Aggregated(with_mean_buffers(round, clients, weight, bias), {GAUSSIANS: layers})

    def evaluate_request(self, round: Round) -> EvaluateRequest:
        """Request an evaluation of the target's mixture."""
        question = EvaluateGaussians(**self._asked) if GAUSSIANS in self.state else None
        return EvaluateRequest(round.arrays, round.config, question=question)

    def further_requests(self, round: Round) -> Mapping[str, EvaluateRequest]:
        """Request an evaluation of the global Gaussians' layer, once there is one."""
        return super().further_requests(round) if GAUSSIANS in self.state else {}

    @property
    def _asked(self) -> dict[str, Any]:
        known = to_layers(self.state[GAUSSIANS]) if GAUSSIANS in self.state else None
        return {"gaussians": known, "folds": self.folds, "ridge": self.ridge}
