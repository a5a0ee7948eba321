"""The questions that methods ask of nodes beyond plain training, and the answers.

A question is a class with typed fields, and so is its answer. A message with a question has Flower's type
``train.ACTION`` or ``evaluate.ACTION``. Fields that are numbers, words or lists of them are entries of the
record ``question``; each other field is a record of its own: ``question/FIELD`` for arrays, or for numbers by
domain; ``question/FIELD/DOMAIN`` for arrays by domain. The answer joins the reply's model and metrics, in
records whose names begin with ``answer``. Both are read once, whole: a missing or unknown field, a value of
another type or out of bounds, and a number that is not finite are errors.
"""

import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal, Self, dataclass_transform

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fda_flower.aggregation import ClassGaussians, Columns, Layers, Paths, is_finite, shape_of_head
from fda_flower.errors import ConfigError, unknown
from fda_flower.names.options import Bounds, Count, Epochs, MoreEpochs, Natural, NotNegative, Positive, Share
from fda_flower.wire.arrays import to_layers, to_record
from fda_flower.wire.internals import filled
from fda_flower.wire.releases import Release
from fda_flower.wire.secure_sums import Stage

Sent = ArrayRecord | ConfigRecord
Note = typing.TypeVar("Note")
Role = Literal["source", "target"]


@dataclass(frozen=True)
class Like:
    """The names, shapes and types of a field's arrays: as the message's model, its parameters, or a function.

    The function takes the model and returns arrays, whose values do not matter.
    """

    form: Literal["model", "parameters"] | Callable[[Layers], Layers]

    def of(self, model: Layers, parameters: Layers) -> Layers:
        """Return arrays of this form."""
        if callable(self.form):
            return self.form(model)
        return model if self.form == "model" else parameters


@dataclass_transform(kw_only_default=True, frozen_default=True)
@dataclass(frozen=True, kw_only=True)
class Fields:
    """A class whose fields travel in records: numbers, words, arrays, and mappings of these by domain.

    Its annotated attributes are the fields, keyword arguments of the class, which cannot change. A type is
    ``bool``, ``int``, ``float``, ``str``, a `Literal` of words, a tuple of one of these, `Layers`,
    or a mapping of one of these from a domain or another name; ``Annotated`` adds `Bounds` to numbers and
    `Like` to arrays. A field that may be None is absent if it is.
    """

    record_name: ClassVar[str]
    """The record with the numbers and words, and the first part of the names of the others."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(frozen=True, kw_only=True)(cls)

    def records(self) -> dict[str, Sent]:
        """Return the records, by name."""
        numbers: dict[str, Any] = {}
        others: dict[str, Sent] = {}
        for name, kind in _kinds(type(self)).items():
            value, record = getattr(self, name), f"{self.record_name}/{name}"
            if value is None:
                continue
            if kind.shape == "number":
                numbers |= {name: list(value) if isinstance(value, tuple) else value} if value != () else {}
            elif kind.shape == "numbers":
                others[record] = filled(ConfigRecord(), value)
            elif kind.shape == "layers":
                others[record] = to_record(value)
            else:
                others |= {f"{record}/{key}": to_record(layers) for key, layers in value.items()}
        return {self.record_name: filled(ConfigRecord(), numbers), **others}

    @classmethod
    def read(cls, content: RecordDict) -> Self:
        """Return the fields in a message; raise a `ConfigError` that names the first one that is wrong."""
        kinds, values = _kinds(cls), dict[str, Any]()
        sent = {name: record for name, record in content.items() if name.partition("/")[0] == cls.record_name}
        numbers: Any = sent.pop(cls.record_name, {})
        for name, kind in kinds.items():
            record = f"{cls.record_name}/{name}"
            if kind.shape == "number":
                found = numbers.get(name, [] if typing.get_origin(kind.hint) is tuple else None)
            elif kind.shape == "layers-by-name":
                prefix = f"{record}/"
                found = {
                    key.removeprefix(prefix): sent.pop(key) for key in list(sent) if key.startswith(prefix)
                }
            else:
                found = sent.pop(record, None)
            if found is not None:
                values[name] = kind.read(f"{cls.record_name} {name}", found)
            elif not kind.optional:
                raise ConfigError(f"its {cls.record_name} has no '{name}'", thing=name)
        for name in (*sent, *(name for name in numbers if kinds.get(name) is None)):
            raise unknown(f"part of its {cls.record_name}", name.removeprefix(f"{cls.record_name}/"), kinds)
        return cls(**values)

    def in_form(self, model: Layers, parameters: Layers) -> Self:
        """Return a copy with all arrays in the order of their form, given the message's model.

        Raises a `ConfigError` if one has another form.
        """
        changed: dict[str, Any] = {}
        for name, kind in _kinds(type(self)).items():
            value, what = getattr(self, name), f"{self.record_name} {name}"
            if kind.like is None or value is None:
                continue
            like = kind.like.of(model, parameters)
            if kind.shape == "layers-by-name":
                changed[name] = {key: _in_form(what, layers, like) for key, layers in value.items()}
            else:
                changed[name] = _in_form(what, value, like)
        return replace(self, **changed)


@dataclass(frozen=True)
class _Kind:
    """How a field travels: the shape of its value, the type of a number in it, its bounds and its form."""

    shape: Literal["number", "numbers", "layers", "layers-by-name"]
    hint: Any
    optional: bool
    bounds: tuple[Bounds, ...] = ()
    like: Like | None = None
    release: Release | None = None

    @property
    def may_lack(self) -> bool:
        """Whether some messages have no such field: it is None, or an empty list."""
        return self.optional or (self.shape == "number" and typing.get_origin(self.hint) is tuple)

    @classmethod
    def of(cls, hint: Any) -> "_Kind":
        optional = typing.get_origin(hint) in (types.UnionType, typing.Union)
        if optional:
            hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
        release = _note(hint, Release)
        bounds, like, hint = _parted(hint)
        if typing.get_origin(hint) is not Mapping:
            return cls("number", hint, optional, bounds, release=release)
        if hint == Layers:
            return cls("layers", hint, optional, like=like, release=release)
        of_inner, like_inner, inner = _parted(typing.get_args(hint)[1])
        if inner == Layers:
            return cls("layers-by-name", inner, optional, like=like_inner, release=release)
        return cls("numbers", inner, optional, of_inner, release=release)

    def read(self, what: str, found: Any) -> Any:
        """Return the value of a field; raise a `ConfigError` on `what` if it is wrong."""
        if self.shape == "number":
            return _number(what, found, self.hint, self.bounds)
        if self.shape == "layers":
            return _layers(what, found)
        if self.shape == "layers-by-name":
            return {name: _layers(f"{what} of '{name}'", record) for name, record in found.items()}
        if not isinstance(found, ConfigRecord):
            raise ConfigError(f"its {what} is no ConfigRecord", thing=what)
        return {
            name: _number(f"{what} of '{name}'", value, self.hint, self.bounds)
            for name, value in found.items()
        }


def _kinds(cls: type[Fields]) -> dict[str, _Kind]:
    """Return how the fields of a class travel, by name."""
    if cls not in _KINDS:
        hints = typing.get_type_hints(cls, include_extras=True)
        _KINDS[cls] = {each.name: _Kind.of(hints[each.name]) for each in fields(cls)}
    return _KINDS[cls]


_KINDS: dict[type[Fields], dict[str, _Kind]] = {}


def _parted(hint: Any) -> tuple[tuple[Bounds, ...], Like | None, Any]:
    """Return the bounds and the form in an ``Annotated`` type, and the type."""
    if typing.get_origin(hint) is not Annotated:
        return (), None, hint
    plain, *notes = typing.get_args(hint)
    bounds = tuple(note for note in notes if isinstance(note, Bounds))
    return bounds, _note(hint, Like), plain


def _note(hint: Any, kind: type[Note]) -> Note | None:
    """Return the note of a kind in an ``Annotated`` type, if there is one."""
    notes = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    return next((note for note in notes if isinstance(note, kind)), None)


def check_settings(settings: Mapping[str, Any], types: Mapping[str, Any], called: str = "setting") -> None:
    """Raise a `ConfigError` if a setting is not of its type among `types`; others are not this package's."""
    for name in sorted(types.keys() & settings.keys()):
        _Kind.of(types[name]).read(f"{called} '{name}'", settings[name])


def _number(what: str, value: Any, hint: Any, bounds: tuple[Bounds, ...]) -> Any:
    """Return a number, word or list of them; raise a `ConfigError` on `what` if it has another type."""
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"its {what} is {value!r}, not a list", thing=what, value=value)
        inner_bounds, _, inner = _parted(typing.get_args(hint)[0])
        return tuple(_number(what, each, inner, inner_bounds) for each in value)
    if typing.get_origin(hint) is Literal:
        if value not in typing.get_args(hint) or isinstance(value, bool):
            raise unknown(f"word for its {what}", str(value), map(str, typing.get_args(hint)))
        return value
    allowed = (int, float) if hint is float else (hint,)
    if type(value) not in allowed or not (isinstance(value, str) or math.isfinite(value)):
        raise ConfigError(f"its {what} is {value!r}, not {WORDS[hint]}", thing=what, value=value)
    for each in bounds:
        if not each.hold(value):
            raise ConfigError(f"its {what} is {value!r}, not {each.words}", thing=what, value=value)
    return hint(value)


WORDS = {bool: "a truth value", int: "a whole number", float: "a finite number", str: "text"}


def _layers(what: str, record: Any) -> Layers:
    if not isinstance(record, ArrayRecord):
        raise ConfigError(f"its {what} is no ArrayRecord", thing=what)
    layers = {}
    for name, array in record.items():
        try:
            layers[name] = to_layers(ArrayRecord({name: array}))[name]
        except Exception as error:  # bytes from another program may raise anything
            raise ConfigError(f"array '{name}' of its {what} cannot be read: {error}", thing=what) from error
        if layers[name].dtype.kind not in "fiub" or not is_finite(layers[name]):
            raise ConfigError(
                f"array '{name}' of its {what} holds other values than finite numbers", thing=what
            )
    return layers


def _in_form(what: str, layers: Layers, like: Layers) -> Layers:
    for name in layers.keys() | like.keys():
        found, known = layers.get(name), like.get(name)
        if found is None or known is None or (found.shape, found.dtype) != (known.shape, known.dtype):
            shown = "missing" if found is None else f"{found.dtype} of shape {list(found.shape)}"
            expected = "none" if known is None else f"{known.dtype} of shape {list(known.shape)}"
            raise ConfigError(
                f"array '{name}' of its {what} is {shown}, expected {expected}", thing=what, value=name
            )
    return {name: layers[name] for name in like}


class Answer(Fields):
    """The answer to a question, next to the reply's model, number of examples and metrics.

    The type of each field names its `Release`: ``Annotated[Share, Release.FIGURES]``. A site that holds a
    rule on what leaves refuses a field without one.
    """

    record_name = "answer"

    @classmethod
    def releases(cls) -> dict[str, Release | None]:
        """Return what each field releases."""
        return {name: kind.release for name, kind in _kinds(cls).items()}

    @classmethod
    def array_names(cls) -> list[str]:
        """Return the fields that are arrays."""
        return [name for name, kind in _kinds(cls).items() if kind.shape.startswith("layers")]

    @classmethod
    def may_lack(cls, field: str) -> bool:
        """Return whether a field is absent from some answers."""
        return field in _kinds(cls) and _kinds(cls)[field].may_lack

    @classmethod
    def always(cls) -> frozenset[Release | None]:
        """Return what each answer releases: its fields that cannot be absent."""
        return frozenset(kind.release for kind in _kinds(cls).values() if not kind.may_lack)


class Question(Fields):
    """A question to a node, next to the model and the settings of a plain message.

    Attributes
    ----------
    action : str
        The second part of the message's type, an identifier.
    kind : {"train", "evaluate"}
        The first part: the reply is a model, or the metrics of one.
    roles : tuple of {"source", "target"}
        The roles of the nodes that it is asked of; by default both.
    answer : type of Answer
        What the reply holds in addition.
    model : Release
        What the model in the reply releases; `Release.NOTHING` if it is the one received.
    answered_by : str
        The function ``"module:name"`` with which a node of this package answers: it takes the client, the
        request and the question, and returns a `TrainReply` or `EvaluateReply`. It is imported when needed.
    """

    record_name = "question"
    action: ClassVar[str]
    kind: ClassVar[Literal["train", "evaluate"]] = "train"
    roles: ClassVar[tuple[Role, ...]] = ("source", "target")
    answer: ClassVar[type[Answer]] = Answer
    model: ClassVar[Release] = Release.MODEL
    answered_by: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "action" not in vars(cls):
            return
        known = QUESTIONS.setdefault(cls.message_type(), cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            why = f"the question '{cls.action}' of {cls.__module__} has the name of one of {known.__module__}"
            raise ConfigError(why, thing="action", value=cls.action, remedy="choose another action")
        QUESTIONS[cls.message_type()] = cls

    def settings(self) -> dict[str, Any]:
        """Return the question as settings for clients of Flower's older API, for `in_settings`.

        Raises a `ConfigError` if its class has other fields than single numbers and words.
        """
        for name, kind in _kinds(type(self)).items():
            if kind.shape != "number" or typing.get_origin(kind.hint) is tuple:
                why = f"the method sends its clients '{name}', which Flower's older clients cannot receive"
                raise ConfigError(why, thing=name, remedy="use the Message API")
        numbers = self.records()[self.record_name]
        fields = {f"{self.record_name}.{name}": value for name, value in numbers.items()}
        return {self.record_name: self.message_type(), **fields}

    @classmethod
    def message_type(cls) -> str:
        """Return the type of its messages, for Flower."""
        return f"{cls.kind}.{cls.action}"


QUESTIONS: dict[str, type[Question]] = {}
"""The questions by type of message, in this process: those below, and those of imported methods."""


def in_settings(settings: Mapping[str, Any]) -> tuple[Question | None, dict[str, Any]]:
    """Return the question in settings, if there is one (see `Question.settings`), and the other settings."""
    if (kind := settings.get(Question.record_name)) is None:
        return None, dict(settings)
    if kind not in QUESTIONS:
        raise unknown("question", str(kind), QUESTIONS)
    prefix = f"{Question.record_name}."
    fields = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    others = {name: settings[name] for name in settings if name.partition(".")[0] != Question.record_name}
    return QUESTIONS[kind].read(RecordDict({Question.record_name: ConfigRecord(fields)})), others


def in_metrics(answer: Answer | None) -> tuple[dict[str, Any], dict[str, Layers]]:
    """Return an answer for `NumPyClient`: numbers as metrics ``RECORD.NAME``, and arrays by record."""
    numbers, arrays = dict[str, Any](), dict[str, Layers]()
    for name, record in ({} if answer is None else answer.records()).items():
        if isinstance(record, ArrayRecord):
            arrays[name] = to_layers(record)
        else:
            numbers |= {f"{name}.{key}": value for key, value in record.items()}
    return numbers, arrays


def answer_in(metrics: Mapping[str, Any]) -> tuple[dict[str, ConfigRecord], dict[str, Any]]:
    """Return the records with the numbers of an answer in metrics (see `in_metrics`), and the others."""
    records, others = dict[str, ConfigRecord](), dict[str, Any]()
    for name, value in metrics.items():
        record, _, key = name.partition(".")
        if key and record.partition("/")[0] == Answer.record_name and not isinstance(value, bytes):
            records.setdefault(record, ConfigRecord())[key] = value
        else:
            others[name] = value
    return records, others


Figure = Annotated[float, Release.FIGURES]
ShareFigure = Annotated[Share, Release.FIGURES]
Figures = Annotated[Mapping[str, float], Release.FIGURES]
OfHead = Annotated[float, Release.HEAD]


class Distilled(Answer):
    """The outcome of KD3A's votes.

    `mask_share` is the share of samples with a vote above the gate, `contribution` that of each source, and
    `head` names the arrays of the target's head.
    """

    mask_share: Annotated[Share, Release.COUNTS]
    contribution: Annotated[Mapping[str, NotNegative], Release.FIGURES]
    head: Annotated[tuple[str, ...], Release.NOTHING]


class Distil(Question):
    """KD3A's target: let the sources' `models` vote on all training samples, and train on the votes.

    `gate` is the confidence from which a vote counts; with `mixup` the target trains on mixed pairs of
    images; `teacher_bn` selects the statistics with which BatchNorm votes.
    """

    action = "distil"
    roles = ("target",)
    answer = Distilled
    answered_by = "fda_flower.clients.kd3a:distil"

    gate: NotNegative
    mixup: bool
    teacher_bn: Literal["batch", "eval"]
    models: Mapping[str, Annotated[Layers, Like("model")]]


class PartKept(Answer):
    """What a client that keeps a part of the model began from.

    `began_in` is the round of its own part with which the training began, 0 for the part received.
    """

    began_in: Annotated[Natural, Release.NOTHING]


class KeepPart(Question):
    """FedPer, FedRep, FedBN: train the received model with the client's own part, and keep that part.

    `part` is ``head``, ``batch-norm``, or a pattern of names. With `head_epochs` the head alone trains first,
    for this many epochs. The reply's model has the part as it was received.
    """

    action = "keep_part"
    answer = PartKept
    answered_by = "fda_flower.clients.personal_layers:keep_part"

    part: str
    head_epochs: MoreEpochs = 0


class EvaluateWithPart(Question):
    """FedPer, FedRep, FedBN: evaluate the received model with the target's own `part`.

    With `final_head_epochs` the head first trains this many epochs longer, and is discarded afterwards.
    """

    action = "with_part"
    roles = ("target",)
    kind = "evaluate"
    answered_by = "fda_flower.clients.personal_layers:evaluate_with_part"

    part: str
    final_head_epochs: MoreEpochs = 0


class Penalised(Answer):
    """IRM's `penalty`, the mean of ``D`` over the training samples; it may be negative."""

    penalty: Figure


class Penalise(Question):
    """IRM: train on the loss plus `strength` (λ) times the penalty ``D`` of each batch."""

    action = "penalise"
    roles = ("source",)
    answer = Penalised
    answered_by = "fda_flower.clients.generalisation:penalise"

    strength: NotNegative


class LossMeasured(Answer):
    """`loss_at_start`, the mean loss of the received model on the training samples."""

    loss_at_start: Figure


class MeasureLoss(Question):
    """V-REx: measure the loss of the received model on the training samples, then train."""

    action = "measure_loss"
    roles = ("source",)
    answer = LossMeasured
    answered_by = "fda_flower.clients.generalisation:measure_loss"


class FineTune(Question):
    """FedAvg FT, Ditto without a global branch: train the model or its `part`, and keep the result."""

    action = "fine_tune"
    roles = ("target",)
    answered_by = "fda_flower.clients.personal:fine_tune"

    part: Literal["all", "head"] = "all"


class EvaluatePersonal(Question):
    """FedAvg FT, Ditto, FedDWA: evaluate the model that the target keeps, not the one received."""

    action = "personal"
    roles = ("target",)
    kind = "evaluate"
    answered_by = "fda_flower.clients.personal:evaluate_personal"


class OwnModelTrained(Answer):
    """Whether the target had no model of its own (`fresh_start`), and began from the one received."""

    fresh_start: Annotated[bool, Release.NOTHING]


class Personalised(OwnModelTrained):
    """Ditto's `distance`, ``‖v − θ‖`` before the training."""

    distance: Annotated[NotNegative, Release.FIGURES]


class Personalise(Question):
    """Ditto: train the model received, then `v` with the `penalty` (λ) ``λ/2 ‖v − θ‖²``, and keep `v`."""

    action = "personalise"
    roles = ("target",)
    answer = Personalised
    answered_by = "fda_flower.clients.personal:personalise"

    penalty: NotNegative


class TrainedToMix(OwnModelTrained):
    """APFL's weight `alpha` of the target's own model after the round."""

    alpha: ShareFigure


class TrainToMix(Question):
    """APFL: train the model received, and `v` for the mixture of both; keep `v` and its weight.

    `mixing` is the weight of a new `v`, which moves if it is `adaptive`, drawn to 0 by `alpha_decay`.
    """

    action = "train_to_mix"
    roles = ("target",)
    answer = TrainedToMix
    answered_by = "fda_flower.clients.personal:train_to_mix"

    mixing: Share
    mix: Literal["outputs", "parameters"]
    adaptive: bool
    alpha_decay: NotNegative


class EvaluateMix(Question):
    """APFL: evaluate the mixture, of outputs or parameters, of the model received and the target's own."""

    action = "mix"
    roles = ("target",)
    kind = "evaluate"
    answered_by = "fda_flower.clients.personal:evaluate_mix"

    mix: Literal["outputs", "parameters"]


class Blended(OwnModelTrained):
    """FedDAF's `adapted` model, and with a model of the target's own what it follows from.

    `sim` is the cosine of the gradients, `theta` their angle in radians, `alpha` the sources' weight.
    """

    adapted: Annotated[Layers, Like("model"), Release.MODEL]
    sim: Figure | None = None
    theta: Figure | None = None
    alpha: ShareFigure | None = None


class Blend(Question):
    """FedDAF: blend the sources' model with the target's own, train from the blend, and keep the result.

    `mu` is μ of the Gompertz function. The gradients are of both models in training mode on the same draw, or
    `apart`: of the target's own in evaluation mode. The `penalty` (λ) draws to the sources' model.
    """

    action = "blend"
    roles = ("target",)
    answer = Blended
    answered_by = "fda_flower.clients.personal:blend_models"

    mu: float
    gradients: Literal["alike", "apart"]
    statistics: Literal["blended", "own"]
    penalty: NotNegative


class Guided(Answer):
    """FedDWA's `guidance`: the parameters after training twice as long."""

    guidance: Annotated[Layers, Like("parameters"), Release.MODEL]


class Guide(Question):
    """FedDWA: train, then as long again for the guidance; the first model is the reply's.

    With `keep` the target keeps that, for `EvaluatePersonal`.
    """

    action = "guide"
    answer = Guided
    answered_by = "fda_flower.clients.personal:guide"

    keep: bool


class NeighboursUsed(Answer):
    """kNN-Per's `weight` (λ) of the neighbours; of an oracle also the best on the test set.

    None where a site keeps it.
    """

    weight: ShareFigure | None = None
    oracle_weight: ShareFigure | None = None
    oracle_accuracy: ShareFigure | None = None


class EvaluateNeighbours(Question):
    """kNN-Per: evaluate the model received, mixed with the labels of the target's `k` nearest samples.

    `scale` is the kernel's. Without a `weight` (λ) the target chooses it by leave-one-out on its
    training labels; an `oracle` also reports the best on the test set.
    """

    action = "neighbours"
    roles = ("target",)
    kind = "evaluate"
    answer = NeighboursUsed
    answered_by = "fda_flower.clients.personal:evaluate_neighbours"

    k: Count
    scale: Positive
    mix: Literal["probabilities", "logits"]
    weight: Share | None = None
    oracle: bool = False


def _like_gaussians(model: Layers) -> Layers:
    return ClassGaussians.initial(*shape_of_head(model)).layers()


Folds = Annotated[int, Bounds("from 2 to 100", lambda number: 2 <= number <= 100)]


class WithGaussians(Question):
    """pFedFDA: the global `gaussians`, if there are any, cross-validation's `folds`, and the `ridge`."""

    gaussians: Annotated[Layers, Like(_like_gaussians)] | None = None
    folds: Folds
    ridge: NotNegative


class GaussiansMixed(Answer):
    """A client's Gaussians mixed with the global ones, and `own_share`, the weight of its own."""

    gaussians: Annotated[Layers, Like(_like_gaussians), Release.SUMS]
    own_share: ShareFigure


class MixGaussians(WithGaussians):
    """pFedFDA: mix the global Gaussians with the client's own, and leave the model."""

    action = "mix_gaussians"
    model = Release.NOTHING
    answer = GaussiansMixed
    answered_by = "fda_flower.clients.features:mix_gaussians"


class EvaluateGaussians(WithGaussians):
    """pFedFDA: evaluate Bayes' rule with the target's mixture of Gaussians on the body received."""

    action = "gaussians"
    roles = ("target",)
    kind = "evaluate"
    answered_by = "fda_flower.clients.features:evaluate_gaussians"


def _like_columns(model: Layers) -> Layers:
    return Columns.plain(shape_of_head(model)[1]).to_arrays()


OfColumns = Annotated[Layers, Like(_like_columns)] | None


class Summed(Answer):
    """A source's `sums` over its rows; of a table also the `columns` with which it standardised them.

    The arrays are the ones of `fda_flower.aggregation.Sums`, of each kind of rows (see `with_kinds`), or of
    `PrivateSums` at a site that protects its patients, and of `Columns`.
    """

    sums: Annotated[Layers, Release.SUMS]
    columns: Annotated[Layers, Like(_like_columns), Release.SUMS] | None = None


class SumRows(Question):
    """Ridge: send sums over your rows, and leave the model; `noise` tells whether they may have noise."""

    action = "sum_rows"
    roles = ("source",)
    model = Release.NOTHING
    answer = Summed
    answered_by = "fda_flower.clients.ridge:sum_rows"

    noise: bool


class Masked(Answer):
    """What a source sends in a stage of masked sums: its `entries`; see `fda_flower.wire.secure_sums`."""

    entries: Annotated[Layers, Release.MASKED]


class MaskSums(Question):
    """Ridge with masked sums: answer a `stage`, and leave the model.

    `entries` are what the other sources have sent to this one, by source. `active` lists the sources whose
    masked sums have arrived.
    """

    action = "mask_sums"
    roles = ("source",)
    model = Release.NOTHING
    answer = Masked
    answered_by = "fda_flower.clients.ridge:mask_sums"

    stage: Stage
    entries: Layers | None = None
    active: tuple[str, ...] = ()


class HeadFitted(Answer):
    """Numbers of the target's head; a model sent with them is the received one with this head.

    `temperature` is the factor on its outputs, and `weights` are the ones of the averaged heads. `share` is
    the share of the sources' solution in the heads that shrink it, `shares` the shares of single sources'
    own, and `source_weight` the weight of the sources' rows in the heads that pool. `kinds` are the weights
    of several kinds of rows; `unlabelled` counts the samples without labels, whose fit has the weight
    `unlabelled_share`. `held_out` is the
    leave-one-out accuracy, for a regression R², on the target's labels; `held_out_target` and
    `held_out_sources` are the same with one side alone. `fewest_labels` counts the rarest class.
    """

    temperature: Annotated[Positive, Release.HEAD]
    weights: Annotated[Mapping[str, NotNegative], Release.HEAD]
    share: OfHead | None = None
    shares: Annotated[Mapping[str, float], Release.HEAD] | None = None
    source_weight: OfHead | None = None
    held_out: OfHead | None = None
    held_out_target: OfHead | None = None
    held_out_sources: OfHead | None = None
    fewest_labels: Annotated[Natural, Release.COUNTS] | None = None
    kinds: Annotated[tuple[Share, ...], Release.HEAD] = ()
    unlabelled: Annotated[Natural, Release.COUNTS] | None = None
    unlabelled_share: Annotated[Share, Release.HEAD] | None = None


class FitHead(Question):
    """Ridge's target: fit the linear layer to your rows, starting from the sources' sums.

    `start` has the arrays of `fda_flower.aggregation.Sums.start`, of each kind of rows; `solutions` are the
    ones of single sources; `columns` standardise the rows of all sources. `unlabelled` asks for a fit to the
    samples without labels, too.
    """

    action = "fit_head"
    roles = ("target",)
    model = Release.HEAD
    answer = HeadFitted
    answered_by = "fda_flower.clients.ridge:fit_head"

    paths: Paths
    start: Layers
    solutions: Layers | None = None
    columns: OfColumns = None
    unlabelled: bool = False


class SiteFitted(Answer):
    """Whether the site has `kept` its head, and figures, if it reports them.

    `alone` and `with_others` are accuracies, for a regression R², and `gain_low` and `gain_high` the interval
    of the difference. `share` is the share of the others' solution. `test` has all metrics on
    `test_examples` samples.
    """

    kept: Annotated[bool, Release.NOTHING]
    alone: OfHead | None = None
    with_others: OfHead | None = None
    gain_low: OfHead | None = None
    gain_high: OfHead | None = None
    share: OfHead | None = None
    test: Annotated[Mapping[str, float], Release.HEAD] | None = None
    test_examples: Annotated[Natural, Release.COUNTS] | None = None


class FitSiteHead(Question):
    """Ridge where every site is a target: subtract your own sums from the `total`, fit a layer, and keep it.

    `columns` standardise the rows of all sites. If the sums were `masked`, yours are the ones in fixed point.
    Without a `report` the answer has no figures.
    """

    action = "fit_site_head"
    roles = ("source",)
    model = Release.NOTHING
    answer = SiteFitted
    answered_by = "fda_flower.clients.ridge:fit_site_head"

    paths: Paths
    report: Literal["full", "none"]
    total: Layers
    columns: OfColumns = None
    masked: bool = False
    unlabelled: bool = False


class MixtureReport(Answer):
    """Mixture's numbers by member; all may be absent.

    `held_out` and `test` are accuracies, of a regression R², on held-out labels and the test set. Members in
    `left_out` have outputs that are not finite. `folds` are their sizes, and `alone` counts the classes with
    one label. `held_out_mixture` and `held_out_target` are the held-out figures of the whole mixture, and of
    one without the sources. `taught` and `teacher` are a student's number of unlabelled samples and the
    mixture's accuracy.
    """

    weights: Annotated[Mapping[str, Share], Release.FIGURES] | None = None
    temperatures: Annotated[Mapping[str, Positive], Release.FIGURES] | None = None
    held_out: Figures | None = None
    test: Figures | None = None
    left_out: Annotated[tuple[str, ...], Release.FIGURES] = ()
    folds: Annotated[tuple[Natural, ...], Release.COUNTS] = ()
    alone: Annotated[Natural, Release.COUNTS] | None = None
    held_out_mixture: Figure | None = None
    held_out_target: Figure | None = None
    taught: Annotated[Natural, Release.COUNTS] | None = None
    teacher: Figure | None = None


class EvaluateMixture(Question):
    """Mixture: evaluate the sources' model, which is sent, mixed with models that the target trains.

    `folds`, `epochs`, `members` and `views` are as in `MixturePlan`. The target's own model begins as
    `first` in the round `first_round`. Without a `report` the answer is empty, and the reply has only the
    number of test samples; with `student` one network evaluates in place of the mixture.
    """

    action = "mixture"
    roles = ("target",)
    kind = "evaluate"
    answer = MixtureReport
    answered_by = "fda_flower.clients.mixture:evaluate_mixture"

    folds: Folds
    epochs: tuple[Epochs, ...]
    members: tuple[str, ...]
    views: Literal["all", "full"]
    first: Annotated[Layers, Like("model")]
    first_round: Count
    report: Literal["full", "none"]
    student: bool
