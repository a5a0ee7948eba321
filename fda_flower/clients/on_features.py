"""Clients that send statistics of their features instead of a trained model."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import Layers, shape_of_head
from fda_flower.clients.client import DomainClient, Settings
from fda_flower.wire.protocol import EvaluateRequest, TrainReply, TrainRequest

EMPTY: Mapping[str, float] = MappingProxyType({})


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
        self, request: TrainRequest, records: dict[str, Layers], metrics: Mapping[str, float] = EMPTY
    ) -> TrainReply:
        """Return a reply with the received model, so that its update is zero."""
        received = {name: np.array(array) for name, array in self.received(request).items()}
        return TrainReply(received, len(self.domain.train), metrics, records)
