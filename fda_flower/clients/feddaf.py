"""FedDAF's target: it blends the sources' model with its own before it trains."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fda_flower.aggregation import blend, functional_distance, gradient_similarity
from fda_flower.clients.client import PERSONAL, NDArrays, as_metrics
from fda_flower.clients.target import TargetClient
from fda_flower.clients.training import mean_gradient


class FedDAFTarget(TargetClient):
    """A target that adapts the model it receives (Sen et al., Algorithm 3), where the message has ``mu``.

    Its own model of the round before is the `ArrayRecord` ``personal`` of its state. Without one, as in the
    first round, the adapted model is the one received. Without ``mu`` it is a `TargetClient`.
    """

    def fit(self, parameters: NDArrays, config: dict[str, Any]) -> tuple[NDArrays, int, dict[str, Any]]:
        """Adapt, train from the adapted model, and keep what comes of it.

        Returns
        -------
        tuple
            As of `DomainClient.fit`; beside its metrics ``adapted.*``, the adapted model's arrays in NumPy's
            file format, and, unless this is the first round, ``sim``, ``theta`` (radians) and ``alpha``.
        """
        if "mu" not in config:
            return super().fit(parameters, config)
        received = dict(zip(self.model.state_dict(), parameters, strict=True))
        adapted, blended = self._adapt(received, config)
        trained, examples, metrics = super().fit(list(adapted.values()), config)
        kept = zip(received, trained, strict=True)
        self._state[PERSONAL] = ArrayRecord({name: Array(np.asarray(array)) for name, array in kept})
        return trained, examples, {**metrics, **blended, **as_metrics("adapted", adapted)}

    def _adapt(
        self, received: Mapping[str, NDArray[Any]], config: dict[str, Any]
    ) -> tuple[Mapping[str, NDArray[Any]], dict[str, float]]:
        """``w_n``, and how it was blended."""
        if PERSONAL not in self._state.array_records:
            return received, {}
        own = {name: array.numpy() for name, array in self._state.array_records[PERSONAL].items()}
        gradients = [self._gradient(list(model.values()), config) for model in (received, own)]
        similarity = gradient_similarity(*gradients)
        theta, alpha = functional_distance(similarity, float(config["mu"]))
        buffers = received.keys() - gradients[0].keys()
        adapted = blend(received, own, alpha, buffers)
        return adapted, {"sim": similarity, "theta": theta, "alpha": alpha}

    def _gradient(self, parameters: NDArrays, config: dict[str, Any]) -> dict[str, NDArray[Any]]:
        """Both models see the same batches, with the same noise and dropout."""
        self._load(parameters)
        with self._drawing("gradient", config.get("server-round", 0)) as generator:
            return mean_gradient(self.model, self.domain.train, self.training.batch_size, generator)
