"""The wire contract of strategies and clients: names of records, requests and replies.

``docs/wire.md`` explains each name to authors of other clients; a name that one method alone uses stands
in the two files of the method.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.app.typing import MetricRecordValues
from numpy.typing import NDArray

from fda_flower.aggregation import Layers
from fda_flower.wire.arrays import as_array, copied, to_read
from fda_flower.wire.internals import filled

ROLE_QUERY = "query.role"
ASKS = "asks"
"""The record of the role query that says, by role, how much of single batches the run will ask for."""
PROBLEM, REFUSED = "problem", "refused"
"""Entries of the answer's ``info``: why the node cannot take part, and whether its site refuses the run."""

TRAIN, EVALUATE = "train", "evaluate"
"""Types of messages."""

ARRAYS, CONFIG, METRICS, INFO = "arrays", "config", "metrics", "info"
"""Records of every message or reply."""

BATCH_UPDATES, GRADIENTS, GUIDANCE = "batch-updates", "gradients", "guidance"
"""Records of arrays that some methods ask for with a client's model."""

OUTCOMES, CONFUSION = "outcomes", "confusion"
"""The settings that ask for, and the records that hold, which test samples a model gets right, and how many
samples of each class it takes for each class."""

GLOBAL = "global"
"""The record of arrays with a second model to evaluate."""

AGGREGATE, AGGREGATED_ON = "aggregate", "aggregated-on"
"""The record that asks a target to aggregate, and the entry of ``info`` that says it has."""

ADABN, BESIDE, FINAL_HEAD = "adabn", "beside", "final-head"
"""Settings of an evaluate message: take BatchNorm's running statistics of the target's own samples; the model
is a second one, not the one that the target uses. The last is how names of metrics of a trained head end."""

SERVER_ROUND, LEARNING_RATE_FACTOR = "server-round", "rate-factor"
SKETCH_SIZE, SKETCH_SEED = "sketch-size", "sketch-seed"
EVALUATE_TRAINED, TUNE, PROXIMAL = "evaluate-trained", "tune", "proximal"
EPOCHS, HEAD_EPOCHS = "epochs", "head-epochs"
"""Settings of a train message."""

LOCAL_PART = "local-part"
"""The setting of a train or evaluate message that names the part of the model that the client keeps for
itself, and the metric of the train reply with the round whose part it began with, 0 for none."""

VALIDATION = "validation"
"""How the names of metrics of the samples held out begin; the setting of an evaluate message that, with
``only``, asks a source for these alone."""

FRESH_START = "fresh-start"
"""The metric of a train reply that is 1 if the target had no model of its own to begin with, else 0."""

NUM_EXAMPLES, NUM_STEPS, LEARNING_RATE = "num-examples", "num-steps", "learning-rate"
BATCH_SIZE = "batch-size"
TRAIN_LOSS, LOSS_AT_START, EVAL = "train-loss", "loss-at-start", "eval-"
"""Metrics of a train reply; `EVAL` begins the names of those of an evaluation. `LOSS_AT_START` is also the
setting that asks for it."""

LABELLED, UNLABELLED, TEST = "examples", "unlabelled", "test-examples"
HELD_OUT, REGRESSION, CLASS_NAMES = "validation-examples", "regression", "class-names"
FROZEN = "frozen-weights"
"""Properties that a client tells with its role: how many samples it has of each kind, whether its labels are
numbers, the names of its classes, and the digest of what is frozen in its network."""

EPSILON, DELTA, UNCOVERED = "epsilon", "delta", "uncovered"
"""Entries of ``info`` in the replies of a site that adds noise: its privacy so far, and what of the reply it
does not cover."""

SUMS, CHANGE, OF_PATIENTS = "sums", "change", "of-patients"
"""The setting that asks for Ridge's sums, and the record with them; in it the most by which a patient changes
them, which stays at the site; and the setting by which the site's own mod asks the client for that, and the
entry of ``info`` that tells that ``ε`` is each patient's."""

BUDGET_CODE = 106
"""The code of an error reply of a site whose privacy budget is spent; Flower's own codes are below 100."""

Config = Mapping[str, Any]
Like = Literal["model", "parameters", "any"] | Callable[[Layers], Layers]
Record = ArrayRecord | ConfigRecord


@dataclass(frozen=True)
class Keys:
    """Names of the records that hold the model and the settings, for clients that use other names."""

    arrays: str = ARRAYS
    config: str = CONFIG


@dataclass(frozen=True)
class EvaluateRequest:
    """What the target is asked to evaluate: a model, settings, and further records, such as `GLOBAL`."""

    arrays: ArrayRecord
    config: Config = field(default_factory=dict)
    records: Mapping[str, Record] = field(default_factory=dict)

    def content(self, keys: Keys) -> RecordDict:
        """Return the content of a message, which has records of its own."""
        config = filled(ConfigRecord(), self.config)
        return filled(RecordDict(), {keys.arrays: copied(self.arrays), keys.config: config, **self.records})


@dataclass(frozen=True)
class TrainRequest(EvaluateRequest):
    """What a client is asked to train, and what its reply has to hold.

    `arrays`, `config` and `records` travel; the other attributes tell the server how to read the reply.

    Attributes
    ----------
    expects : Mapping[str, {"model", "parameters", "any"} or callable]
        Records of arrays to read from the reply into ``update.extra``, each like the model that the client is
        sent (in names, shapes and types, all finite), like its parameters, like what a function of the model
        returns, or of any kind.
    requires : Mapping[str, str]
        Names of records, metrics or entries of ``info`` without which the reply is dropped, each with the
        remedy. `NUM_STEPS`, `LEARNING_RATE` and `BATCH_SIZE` must be above 0.
    measures : Mapping[str, str]
        Metrics to copy into the round's record, by their names there. They must be finite.
    """

    expects: Mapping[str, Like] = field(default_factory=dict)
    requires: Mapping[str, str] = field(default_factory=dict)
    measures: Mapping[str, str] = field(default_factory=dict)

    def adding(self, **more: Mapping[str, Any]) -> "TrainRequest":
        """Return the same request with entries added to its mappings."""
        added: Any = {name: {**getattr(self, name), **entries} for name, entries in more.items()}
        return replace(self, **added)


@dataclass(frozen=True)
class TrainReply:
    """What a client sends after training: model, number of examples, other numbers, and arrays by record."""

    arrays: Layers
    examples: int
    metrics: Mapping[str, MetricRecordValues] = field(default_factory=dict)
    records: Mapping[str, Layers] = field(default_factory=dict)

    def content(self, names: Iterable[str]) -> RecordDict:
        """Return the content of the reply, with the model's arrays by the names that the request has."""
        metrics = filled(MetricRecord(), {NUM_EXAMPLES: self.examples, **self.metrics})
        model = dict(zip(names, self.arrays.values(), strict=True))
        records = {name: to_record(layers) for name, layers in {ARRAYS: model, **self.records}.items()}
        return filled(RecordDict(), {**records, METRICS: metrics})


@dataclass(frozen=True)
class EvaluateReply:
    """What a client sends of an evaluation: number of test samples, figures if any, and arrays by record."""

    examples: int
    metrics: Mapping[str, MetricRecordValues] = field(default_factory=dict)
    records: Mapping[str, Layers] = field(default_factory=dict)

    @property
    def in_train_reply(self) -> dict[str, float]:
        """The metrics by their names in a train reply."""
        figures, held_out = split_held_out(self.metrics)
        own = {f"{EVAL}{key}": float(str(value)) for key, value in figures.items()}
        own |= {f"{EVAL}{VALIDATION}-{key}": value for key, value in held_out.items()}
        return {**own, f"{EVAL}{NUM_EXAMPLES}": self.examples}

    def with_second(self, second: Mapping[str, MetricRecordValues]) -> "EvaluateReply":
        """Return the same evaluation with the metrics of a second model, whose names end in ``-global``."""
        others = {f"{key}-{GLOBAL}": value for key, value in second.items()}
        return replace(self, metrics={**self.metrics, **others})

    def judged_by(self, held_out: Mapping[str, MetricRecordValues]) -> "EvaluateReply":
        """Return the same with the figures on the samples held out, ``validation-accuracy`` and so on."""
        figures = {f"{VALIDATION}-{key}": value for key, value in held_out.items()}
        return replace(self, metrics={**self.metrics, **figures})

    def content(self) -> RecordDict:
        """Return the content of the reply."""
        metrics = filled(MetricRecord(), {**self.metrics, NUM_EXAMPLES: self.examples})
        records = {name: to_record(layers) for name, layers in self.records.items()}
        return filled(RecordDict(), {**records, METRICS: metrics})


def split_held_out(
    metrics: Mapping[str, Any], prefix: str = f"{VALIDATION}-"
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the metrics of a test set, and separately the figures of the samples held out."""
    held_out = {k.removeprefix(prefix): float(str(v)) for k, v in metrics.items() if k.startswith(prefix)}
    return {k: v for k, v in metrics.items() if not k.startswith(prefix)}, held_out


def read_request(content: RecordDict) -> TrainRequest:
    """Return the request in a message, as the client sees it."""
    records: dict[str, Any] = dict(content.items())
    arrays, config = records.pop(ARRAYS), records.pop(CONFIG, {})
    return TrainRequest(arrays, dict(config), records)


def settings_in(content: RecordDict, name: str) -> ConfigRecord:
    """Return a record of settings, empty if there is none; Flower's own view copies all records."""
    found = content.get(name)
    return found if isinstance(found, ConfigRecord) else ConfigRecord()


def to_record(layers: Layers) -> ArrayRecord:
    """Return arrays as Flower's record, with the values that they have now; see `LazyArray`."""
    return filled(ArrayRecord(), {name: as_array(array) for name, array in layers.items()})


def to_layers(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Return the arrays of Flower's record to read: they may refuse to be written into."""
    return {name: to_read(array) for name, array in record.items()}
