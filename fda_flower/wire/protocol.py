"""The wire contract of strategies and clients: names of records, requests and replies.

``docs/wire.md`` explains each name for authors of other clients. What single methods ask for is in
`fda_flower.wire.asked`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, MetricRecordValues, RecordDict

from fda_flower.aggregation import CountSketch, Layers
from fda_flower.errors import invalid
from fda_flower.names.options import Bounds, Epochs, Natural, NotNegative, Positive
from fda_flower.wire.arrays import copied
from fda_flower.wire.arrays import to_layers as to_layers
from fda_flower.wire.arrays import to_record as to_record
from fda_flower.wire.internals import filled
from fda_flower.wire.questions import Answer, MetricName, Question, check_settings

ROLE_QUERY = "query.role"
ASKS, OPEN_SUMS, MASKED_SUMS, FEATURES = "asks", "sums", "masked-sums", "features"
"""Record of the role query: by role, the per-batch data, sums or features of samples that the run will
request; and the words for the latter."""
PROBLEM, REFUSED = "problem", "refused"
"""Entries of the answer's ``info``: why the node cannot take part, and whether its site refuses the run."""
GATED = "gated"
"""Entry of the answer's ``info``, which is false if the node has rules that only its app holds; and of a node
configuration, to which a SuperNode adds it that holds them itself (`fda_flower.supernode`)."""

TRAIN, EVALUATE = "train", "evaluate"
"""Message types."""

ARRAYS, CONFIG, METRICS, INFO = "arrays", "config", "metrics", "info"
"""Records of every message or reply."""

BATCH_UPDATES, GRADIENTS = "batch-updates", "gradients"
"""Records of arrays that some methods request together with the model."""

OUTCOMES, CONFUSION = "outcomes", "confusion"
"""Names of both the settings that request, and the records that hold: which test samples a model classifies
correctly, and its confusion matrix."""

AGGREGATE, AGGREGATED_ON = "aggregate", "aggregated-on"
"""Record that asks a target to aggregate, and the entry of ``info`` that confirms it."""

ADABN, BESIDE = "adabn", "beside"
"""Settings of an evaluate message: recompute BatchNorm's statistics on the target's samples; the model is a
further one, not the one the target uses."""

SERVER_ROUND, LEARNING_RATE_FACTOR = "server-round", "rate-factor"
SKETCH_SIZE, SKETCH_SEED = "sketch-size", "sketch-seed"
TUNE, PROXIMAL = "tune", "proximal"
EPOCHS = "epochs"
"""Settings of a train message."""

VALIDATION = "validation"
"""Prefix of metrics on the validation samples."""

Size = Annotated[int, Bounds("from 1 to 2^24", lambda number: 1 <= number <= 1 << 24)]

USUAL_SKETCH = 1024
"""Numbers of a sketch that a model with fewer numbers may be asked for, too."""

SETTINGS: Mapping[str, Any] = {
    SERVER_ROUND: Natural,
    LEARNING_RATE_FACTOR: Positive,
    EPOCHS: Epochs,
    PROXIMAL: NotNegative,
    TUNE: Literal["all", "body", "head"],
    BATCH_UPDATES: Literal["norms", "sketch", "full"],
    GRADIENTS: Literal["sketch"],
    SKETCH_SIZE: Size,
    SKETCH_SEED: Natural,
    **dict.fromkeys((OUTCOMES, CONFUSION, ADABN, BESIDE), bool),
}
"""The types of the settings in a message that this package's clients know."""

NUM_EXAMPLES, NUM_STEPS, LEARNING_RATE = "num-examples", "num-steps", "learning-rate"
BATCH_SIZE = "batch-size"
TRAIN_LOSS = "train-loss"
"""Metrics of a train reply."""

LABELLED, UNLABELLED, TEST = "examples", "unlabelled", "test-examples"
VALIDATION_EXAMPLES, REGRESSION, TASK = "validation-examples", "regression", "task"
GROUPS, TEST_GROUPS, VALIDATION_GROUPS = "groups", "test-groups", "validation-groups"
HEADLINE, FEW_EVENTS = "headline", "few-events"
CLASS_NAMES, FEATURES, COLUMNS = "class-names", "features", "columns"
FROZEN, RUNTIME, EVALUATES = "frozen-weights", "runtime-of-features", "evaluates"
"""Properties that a client reports with its role: numbers of samples of each kind, whether the task is a
regression, the groups, such as patients, of samples with labels, of the test set and for validation, the
metric that a rare class among the target's labels asks for, whether its patients have too few events to leave
one out, the names of the classes and of a table's
columns, the number of the features that are columns, the digest of the network's frozen weights, the
package that computes its features unless it is PyTorch, and false if its app has no evaluate function."""

Classes = Annotated[int, Bounds("from 0 to 2^16", lambda number: 0 <= number <= 1 << 16)]
Side = Annotated[int, Bounds("from 0 to 2^24", lambda number: 0 <= number <= 1 << 24)]
Samples = Annotated[int, Bounds("from 0 to 2^40", lambda number: 0 <= number <= 1 << 40)]

PROPERTIES: Mapping[str, Any] = {
    **dict.fromkeys(("domain", "role", PROBLEM, FROZEN, RUNTIME), str),
    **dict.fromkeys((LABELLED, UNLABELLED, TEST, VALIDATION_EXAMPLES), Samples),
    **dict.fromkeys((GROUPS, TEST_GROUPS, VALIDATION_GROUPS), Samples),
    "classes": Classes,
    **dict.fromkeys((REGRESSION, EVALUATES, GATED, REFUSED, FEW_EVENTS), bool),
    **dict.fromkeys((CLASS_NAMES, FEATURES), tuple[str, ...]),
    "shape": tuple[Side, ...],
    COLUMNS: Side,
    HEADLINE: MetricName,
}
"""The types of the entries in a role answer's ``info`` that this package's strategies know."""

EPSILON, DELTA, UNCOVERED = "epsilon", "delta", "uncovered"
"""Entries of ``info`` from a site that adds noise: the privacy spent so far, and the parts of the reply
without protection."""

SUMS, MEAN_NOISE, CHANGE, OF_PATIENTS = f"{Answer.record_name}/sums", "mean-noise", "change", "of-patients"
"""Record of an answer with Ridge's sums. `MEAN_NOISE` is the record in which the site's own mod gives its
client the noise of the mean around which the sums are taken. `CHANGE` is the largest change that one patient
makes to them; it never leaves the site. `OF_PATIENTS` is the setting with which the mod requests it, and the
entry of ``info`` that says that ``ε`` is per patient."""

LOGGED, FEWEST = "site-log", "fewest-units"
"""Record in which a node's client tells the site's own rules and log what its reply follows from, which never
leaves, and its entry with the fewest units, such as patients, of a class."""

BUDGET_CODE = 106
"""Error code of a site whose privacy budget is spent; Flower's own codes are below 100."""

Config = Mapping[str, Any]
Record = ArrayRecord | ConfigRecord


@dataclass(frozen=True)
class Keys:
    """Names of the records for model and settings, for clients with other names."""

    arrays: str = ARRAYS
    config: str = CONFIG


@dataclass(frozen=True)
class EvaluateRequest:
    """A request to evaluate: a model, settings, further records of arrays, and perhaps a question."""

    arrays: ArrayRecord
    config: Config = field(default_factory=dict)
    records: Mapping[str, Record] = field(default_factory=dict)
    question: Question | None = None

    def message_type(self, kind: str) -> str:
        """Return the type of the message, given the one of a message without a question."""
        return kind if self.question is None else self.question.message_type()

    def content(self, keys: Keys) -> RecordDict:
        """Return the content of a message, with its own copies of the records."""
        config = filled(ConfigRecord(), self.config)
        asked = {} if self.question is None else self.question.records()
        model = {keys.arrays: copied(self.arrays), keys.config: config}
        return filled(RecordDict(), {**model, **self.records, **asked})


@dataclass(frozen=True)
class TrainRequest(EvaluateRequest):
    """A request to train, and how the server reads the reply.

    Attributes
    ----------
    plain_answer : type of Answer, optional
        What the reply to a plain message holds beyond the model.
    requires : Mapping[str, str]
        Names of metrics or entries of ``info`` without which the reply is dropped, each with the remedy.
        `NUM_STEPS`, `LEARNING_RATE` and `BATCH_SIZE` must be above 0.
    with_model : bool
        Whether the update also has the reply's model itself, and not only its difference from the one sent.
    """

    plain_answer: type[Answer] | None = None
    requires: Mapping[str, str] = field(default_factory=dict)
    with_model: bool = False

    @property
    def answer(self) -> type[Answer] | None:
        """What the reply holds beyond a model and metrics."""
        return self.plain_answer if self.question is None else self.question.answer

    def adding(self, **more: Mapping[str, Any]) -> "TrainRequest":
        """Return a copy of the request with entries added to its mappings."""
        added: Any = {name: {**getattr(self, name), **entries} for name, entries in more.items()}
        return replace(self, **added)


@dataclass(frozen=True)
class TrainReply:
    """A client's reply to a train request: model, number of examples, metrics, arrays by record, answer."""

    arrays: Layers
    examples: int
    metrics: Mapping[str, MetricRecordValues] = field(default_factory=dict)
    records: Mapping[str, Layers] = field(default_factory=dict)
    answer: Answer | None = None

    def content(self, names: Iterable[str]) -> RecordDict:
        """Return the content of the reply, with the model's arrays under the names in the request."""
        metrics = filled(MetricRecord(), {NUM_EXAMPLES: self.examples, **self.metrics})
        model = dict(zip(names, self.arrays.values(), strict=True))
        records = {name: to_record(layers) for name, layers in {ARRAYS: model, **self.records}.items()}
        told = {} if self.answer is None else self.answer.records()
        return filled(RecordDict(), {**records, METRICS: metrics, **told})


@dataclass(frozen=True)
class EvaluateReply:
    """A client's reply to an evaluate request: number of test samples, metrics, arrays by record, answer."""

    examples: int
    metrics: Mapping[str, MetricRecordValues] = field(default_factory=dict)
    records: Mapping[str, Layers] = field(default_factory=dict)
    answer: Answer | None = None

    def judged_by(self, held_out: Mapping[str, MetricRecordValues]) -> "EvaluateReply":
        """Return a copy with the metrics on the validation samples, ``validation-accuracy`` and so on."""
        figures = {f"{VALIDATION}-{key}": value for key, value in held_out.items()}
        return replace(self, metrics={**self.metrics, **figures})

    def content(self) -> RecordDict:
        """Return the content of the reply."""
        metrics = filled(MetricRecord(), {**self.metrics, NUM_EXAMPLES: self.examples})
        records = {name: to_record(layers) for name, layers in self.records.items()}
        told = {} if self.answer is None else self.answer.records()
        return filled(RecordDict(), {**records, METRICS: metrics, **told})


def split_held_out(
    metrics: Mapping[str, Any], prefix: str = f"{VALIDATION}-"
) -> tuple[dict[str, Any], dict[str, float]]:
    """Separate the metrics of a test set from those of the validation samples."""
    held_out = {k.removeprefix(prefix): float(str(v)) for k, v in metrics.items() if k.startswith(prefix)}
    return {k: v for k, v in metrics.items() if not k.startswith(prefix)}, held_out


def read_request(content: RecordDict, question: type[Question] | None = None) -> TrainRequest:
    """Return the request in a message, as the client sees it.

    Raise a `ConfigError` if one of `SETTINGS` has another type or is out of bounds, or if it should hold a
    question, and does not hold it whole.
    """
    asked = None if question is None else question.read(content)
    records: dict[str, Any] = {
        name: record
        for name, record in content.items()
        if question is None or name.partition("/")[0] != question.record_name
    }
    arrays, config = records.pop(ARRAYS), dict(records.pop(CONFIG, {}))
    check_settings(config, SETTINGS)
    return TrainRequest(arrays, config, records, asked)


def sketch_in(config: Config, numbers: int) -> CountSketch:
    """Return the sketch that a train message requests of a vector with this many numbers.

    Raises a `ConfigError` if the sketch has more numbers than the vector and `USUAL_SKETCH`: it would only
    take memory, for each step.
    """
    size, seed = (int(config[name]) for name in (SKETCH_SIZE, SKETCH_SEED))
    check_sketch(size, numbers)
    return CountSketch(size, seed)


def check_sketch(size: int, numbers: int) -> None:
    """Raise a `ConfigError` if a sketch is larger than a model with this many numbers needs."""
    most = max(numbers, USUAL_SKETCH)
    if not 1 <= size <= most:
        why = f"but the model has {numbers} numbers"
        raise invalid(SKETCH_SIZE, size, f"give from 1 to {most} (method option sketch_size)", why)


def settings_in(content: RecordDict, name: str) -> ConfigRecord:
    """Return a record of settings, empty if absent; unlike Flower's own view, this copies no records."""
    found = content.get(name)
    return found if isinstance(found, ConfigRecord) else ConfigRecord()
