"""What personal methods share: models beside the global one, and the target's own model as the headline."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Unpack

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fda_flower.aggregation import Layers, Update, is_finite
from fda_flower.records import Record
from fda_flower.strategies.base import DomainAdaptationStrategy
from fda_flower.strategies.common_options import CommonOptions
from fda_flower.strategies.node import Node
from fda_flower.strategies.replies import BadReplyError, check_finite, read_arrays, read_number


class KeepsModels(DomainAdaptationStrategy):
    """Nodes train from models that the strategy keeps by name; the global model is what the target uses."""

    def __init__(self, **common: Unpack[CommonOptions]) -> None:
        super().__init__(**common)
        self._kept: dict[str, ArrayRecord] = {}

    @abstractmethod
    def name_of(self, node: Node) -> str:
        """The name of the model that a node trains from; it is the global one until `keep` has it."""

    def keep(self, models: Mapping[str, Layers]) -> None:
        """Keep models from now on; a `BadReplyError`, and none is kept, unless all are finite."""
        for layers in models.values():
            check_finite(layers)
        kept = {name: to_record(layers) for name, layers in models.items()}
        self._kept |= kept

    def start_of(self, node: Node, model: ArrayRecord) -> ArrayRecord:
        """The model that is kept for the node."""
        return self._kept.get(self.name_of(node), model)

    def before(self, node: Node) -> Layers:
        """The arrays of `start_of`."""
        kept = self._kept.get(self.name_of(node))
        return self.model if kept is None else to_layers(kept)

    def kept(self) -> dict[str, Layers]:
        """All that is kept."""
        return {name: to_layers(record) for name, record in self._kept.items()}

    def restore(self, kept: Mapping[str, Layers]) -> None:
        """Keep the models of a checkpoint."""
        self._kept = {name: to_record(layers) for name, layers in kept.items()}


class EvaluatesTrained(DomainAdaptationStrategy):
    """The headline is the target's model after its local training, which the train reply tells.

    ``accuracy`` and ``loss`` of a round's record are those; the global model's are ``accuracy-global`` and
    ``loss-global``. Off with ``evaluates_trained = False``.
    """

    evaluates_trained: bool = True

    def extra_config(self, server_round: int, node: Node) -> ConfigRecord:
        """Have the target evaluate what it has trained."""
        asked = super().extra_config(server_round, node)
        if node.is_target and self.evaluates_trained:
            asked["evaluate-trained"] = True
        return asked

    def read_extra(self, reply: RecordDict, node: Node, update: Update, record: Record) -> None:
        """Read the target's evaluation."""
        super().read_extra(reply, node, update, record)
        if node.is_target and self.evaluates_trained:
            metrics = reply.metric_records["metrics"]
            for key in ("accuracy", "loss"):
                if f"eval-{key}" in metrics:
                    record[key] = read_number(reply, f"eval-{key}")
            if "accuracy" not in record:
                raise BadReplyError(
                    "its metrics have no 'eval-accuracy': the target has to evaluate what it has trained, "
                    "where the train message's config has 'evaluate-trained'"
                )

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The global model's metrics on the target's test set; the record has both."""
        metrics = super().aggregate_evaluate(server_round, replies)
        if self.evaluates_trained and not self.record["warmup"]:
            trained = self.record.get("target") or {}
            for key in ("accuracy", "loss"):
                if key in self.record:
                    self.record[f"{key}-global"] = self.record.pop(key)
                if key in trained:
                    self.record[key] = trained[key]
        return metrics


def to_record(layers: Layers) -> ArrayRecord:
    """Arrays as Flower's."""
    return ArrayRecord({name: Array(array) for name, array in layers.items()})


def to_layers(record: ArrayRecord) -> Layers:
    """Flower's arrays as NumPy's."""
    return {name: array.numpy() for name, array in record.items()}


def read_model_like(reply: RecordDict, key: str, model: Layers, remedy: str) -> Layers:
    """Arrays of a reply's record that are finite and like those of `model`, whose names decide.

    Raises
    ------
    BadReplyError
        If they are not there or not so; `remedy` says what to do about the former.
    """
    if key not in reply.array_records:
        raise BadReplyError(f"it has no ArrayRecord '{key}': {remedy}")
    arrays = read_arrays(reply, key)
    for name, array in model.items():
        found = arrays.get(name)
        if found is None or (found.shape, found.dtype) != (array.shape, array.dtype):
            raise BadReplyError(f"array '{name}' of its '{key}' is missing, or not like the model's")
        if not is_finite(found):
            raise BadReplyError(f"array '{name}' of its '{key}' holds NaN or infinity")
    return {name: arrays[name] for name in model}
