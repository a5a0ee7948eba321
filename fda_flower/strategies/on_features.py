"""Base classes of methods whose clients send statistics of their features instead of training."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fda_flower.aggregation import (
    head_in,
    linear_head,
    mean_update,
    source_weights,
    train_head,
    with_head,
)
from fda_flower.aggregation.updates import Vector
from fda_flower.errors import ConfigError, invalid
from fda_flower.files import derive_seed
from fda_flower.names import Count
from fda_flower.strategies.base import Aggregated, ClientUpdate, DomainAdaptationStrategy, Round, Sources
from fda_flower.strategies.hooks import Epochs
from fda_flower.strategies.replies import NotFiniteError
from fda_flower.wire.protocol import to_layers


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


def placed(
    round: Round, clients: Sequence[ClientUpdate], weight: Vector, bias: Vector
) -> dict[str, NDArray[Any]]:
    """Return a round's model with a new linear layer and the mean of the clients' buffers."""
    return with_head(mean_update(round.model, clients, source_weights(clients)), weight, bias)


Rows = tuple[Vector, Any]
"""Rows of features with their classes."""


class TrainsHead(OnFeatures):
    """A strategy that trains the model, a linear layer, on rows made from the clients' statistics."""

    epochs: Count = 50

    @abstractmethod
    def rows_of(self, round: Round, domain: str, client: ClientUpdate) -> Rows:
        """Return the rows of a client; raise a `ValueError` if its statistics are invalid."""

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Train the layer on the rows of all clients."""
        assert target is not None, "the base class holds the round without the target"
        assert round.target is not None, "it has replied"
        clients = {round.target.domain: target, **sources}
        try:
            found = [self.rows_of(round, domain, client) for domain, client in clients.items()]
        except ValueError as error:
            raise NotFiniteError(str(error)) from error
        rows, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
        seed = derive_seed(0, "head", round.number)
        trained = train_head(*head_in(round.model), rows, labels, self.epochs, seed)
        return Aggregated(placed(round, list(clients.values()), *trained))
