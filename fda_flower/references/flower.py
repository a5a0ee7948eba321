"""Flower's strategies as methods: their rule for the clients' models, inside this package's rounds."""

import gc
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower

from fda_flower.aggregation import Layers
from fda_flower.errors import ConfigError, RefusedError
from fda_flower.strategies.base import (
    Aggregated,
    BadReplyError,
    ClientUpdate,
    DomainAdaptationStrategy,
    Node,
    Round,
    Sources,
)
from fda_flower.wire.protocol import ARRAYS, METRICS, NUM_EXAMPLES, TRAIN, to_layers, to_record


class FlowerFedAvg(DomainAdaptationStrategy):
    """Flower's ``FedAvg``, and the base of its other strategies here.

    Its ``aggregate_train`` makes the new model from all clients' models and numbers of examples, in the order
    of domains, target first: the rule knows no roles. The arrays keep their types, and the rest is as in each
    `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If Flower's strategy rejects an option's value.
    RefusedError
        Before training, if it cannot aggregate this number of clients, such as Bulyan fewer than 4f + 3.
    """

    rule: ClassVar[type[flower.FedAvg]] = flower.FedAvg
    without_patients = "but Flower's own rules are not made for such noise"

    def __post_init__(self) -> None:
        super().__post_init__()
        own = self.of_flower()
        try:
            self._rule = self.rule(**own)
        except ValueError as error:
            message = f"Flower's {self.rule.__name__} refuses {own}: {error}"
            raise ConfigError(message, thing="method-options", value=own) from error

    def of_flower(self) -> dict[str, Any]:
        """Return the options that Flower's strategy is made with."""
        return self.own_options()

    def validate_nodes(self, nodes: Iterable[Node]) -> None:
        """Raise a `RefusedError` if Flower's strategy cannot aggregate this number of clients."""
        count = len(self.participation.of([*nodes], 1)[0])
        if self._combine(0, [({"probe": np.zeros(1, np.float32)}, 1)] * count) is None:
            options = ", ".join(f"{name}={value}" for name, value in self.of_flower().items())
            raise RefusedError(
                f"Flower's {self.rule.__name__} cannot aggregate {count} clients with {options}",
                thing="clients",
                value=count,
                remedy="use more sources, or other options",
            )

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Return the model that Flower's strategy makes from the clients' models."""
        clients = [client for client in (target, *sources.values()) if client is not None]
        models = [(_model(round.model, client), client.examples) for client in clients]
        arrays = self._combine(round.number, models)
        if arrays is None:
            raise BadReplyError(f"Flower's {self.rule.__name__} cannot aggregate {len(clients)} clients")
        return Aggregated(
            {name: np.asarray(arrays[name]).astype(layer.dtype) for name, layer in round.model.items()}
        )

    def _combine(self, number: int, models: Sequence[tuple[Layers, int]]) -> Layers | None:
        replies = [
            Message(
                RecordDict({ARRAYS: to_record(model), METRICS: MetricRecord({NUM_EXAMPLES: examples})}),
                dst_node_id=1,
                message_type=TRAIN,
            )
            for model, examples in models
        ]
        # Flower's Bulyan collects garbage for each array; to look through all of torch takes it seconds.
        gc.freeze()
        try:
            arrays, _ = self._rule.aggregate_train(number, replies)
        finally:
            gc.unfreeze()
        return None if arrays is None else to_layers(arrays)


def _model(before: Layers, update: ClientUpdate) -> Layers:
    """Return a client's model, in the order of the global one."""
    return {
        name: layer + update.parameters[name] if name in update.parameters else update.buffers[name]
        for name, layer in before.items()
    }


class FlowerFedMedian(FlowerFedAvg):
    """Flower's ``FedMedian``: the coordinate-wise median of all clients' models (Yin et al., ICML 2018)."""

    rule = flower.FedMedian


class FlowerFedTrimmedAvg(FlowerFedAvg):
    """Flower's ``FedTrimmedAvg``: the coordinate-wise trimmed mean of all clients' models.

    Parameters
    ----------
    cut : float
        The share that is cut at each end, rounded down to whole clients: ``beta`` in Flower.
    """

    rule = flower.FedTrimmedAvg

    cut: float = 0.2

    def of_flower(self) -> dict[str, Any]:
        """Return the options that Flower's strategy is made with."""
        return {"beta": self.cut}


class FlowerKrum(FlowerFedAvg):
    """Flower's ``Krum``: the model of the client that is nearest to its neighbours (Blanchard et al., 2017).

    Parameters
    ----------
    num_malicious_nodes : int
        How many clients may attack, ``f``.
    """

    rule: ClassVar[type[flower.FedAvg]] = flower.Krum

    num_malicious_nodes: int = 0


class FlowerMultiKrum(FlowerKrum):
    """Flower's ``MultiKrum``: the mean of the models of the clients that Krum ranks first.

    Parameters
    ----------
    num_nodes_to_select : int
        How many models are averaged; 1 is Krum.
    num_malicious_nodes
        See `FlowerKrum`.
    """

    rule = flower.MultiKrum

    num_nodes_to_select: int = 1


class FlowerBulyan(FlowerKrum):
    """Flower's ``Bulyan``: a trimmed mean of models that Multi-Krum selects (El Mhamdi et al., ICML 2018).

    It needs 4f + 3 clients, with `FlowerKrum`'s ``f``.
    """

    rule = flower.Bulyan
