"""Ridge's clients: a source sums up its rows, the target fits its head; nobody trains."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import Layers, Sums, shape_of_head, to_targets
from fda_flower.clients.client import Settings, SourceClient, TargetClient
from fda_flower.clients.local_ridge import PATHS, SOURCES, SUMS, Array, fit_target
from fda_flower.clients.on_features import OnFeatures
from fda_flower.wire.protocol import TrainReply, TrainRequest, to_layers


class OnRows(OnFeatures):
    """A client with rows: the features, as the network's linear layer takes them, and a 1."""

    def rows(self, model: Layers, config: Settings) -> tuple[Array, NDArray[Any]]:
        """Return rows, float64 of shape ``(n, d)``, and labels of the training samples."""
        features, labels = self.features(model, config)
        return np.hstack([features, np.ones((len(features), 1))]), labels


class RidgeSource(OnRows, SourceClient):
    """A source that sends sums over its rows where the train message has ``sums``."""

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Return the model as received, and the record ``sums``; see `fda_flower.aggregation.Sums`."""
        if SUMS not in request.config:
            return super().local_train(request)
        model = self.received(request)
        rows, labels = self.rows(model, request.config)
        numbers = labels.dtype.kind == "f"
        targets = labels.astype(np.float64) if numbers else to_targets(labels, shape_of_head(model)[0])
        return self.replying(request, {SUMS: Sums.of(rows, targets).to_arrays()})


class RidgeTarget(OnRows, TargetClient):
    """A target that fits its head where the train message has the record ``sources``."""

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Return the model with the head that it has fitted, and numbers for the round's record."""
        if SOURCES not in request.records:
            return super().local_train(request)
        model = self.received(request)
        rows, labels = self.rows(model, request.config)
        sent = to_layers(request.records[SOURCES])  # type: ignore[arg-type]
        fitted = fit_target(rows, labels, sent, request.config[PATHS])
        return TrainReply(fitted.in_model(model), len(rows), fitted.metrics)
