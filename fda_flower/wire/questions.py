"""Questions that methods ask of nodes beyond plain training, and their answers.

`fda_flower.wire.asked` has the ones of this package's methods.

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
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, dataclass_transform

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fda_flower.aggregation import Layers, is_finite
from fda_flower.errors import ConfigError, unknown
from fda_flower.metrics import METRICS
from fda_flower.names.options import Bounds, Share
from fda_flower.wire.arrays import to_layers, to_record
from fda_flower.wire.internals import filled
from fda_flower.wire.releases import Release

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


@dataclass(frozen=True)
class InRecord:
    """The name of a field's record in the reply to a plain message, in place of ``answer/FIELD``."""

    name: str


@dataclass_transform(kw_only_default=True, frozen_default=True)
@dataclass(frozen=True, kw_only=True)
class Fields:
    """A class whose fields travel in records: numbers, words, arrays, and mappings of these by domain.

    Its annotated attributes are the fields, keyword arguments of the class, which cannot change. A type is
    ``bool``, ``int``, ``float``, ``str``, a `Literal` of words, a tuple of one of these, `Layers`,
    or a mapping of one of these from a domain or another name; ``Annotated`` adds `Bounds` to numbers, and
    `Like` and `InRecord` to arrays. A field that may be None is absent if it is.
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
            value = getattr(self, name)
            if value is None:
                continue
            if kind.shape == "number":
                numbers |= {name: list(value) if isinstance(value, tuple) else value} if value != () else {}
            elif kind.shape == "numbers":
                others[kind.record] = filled(ConfigRecord(), value)
            elif kind.shape == "layers":
                others[kind.record] = to_record(value)
            else:
                others |= {f"{kind.record}/{key}": to_record(layers) for key, layers in value.items()}
        return {self.record_name: filled(ConfigRecord(), numbers), **others}

    @classmethod
    def read(cls, content: RecordDict) -> Self:
        """Return the fields in a message; raise a `ConfigError` that names the first one that is wrong."""
        kinds, record_name = _kinds(cls), cls.record_name
        own = {kind.record for kind in kinds.values()}
        sent: dict[str, Any] = {
            name: record
            for name, record in content.items()
            if name in own or name.partition("/")[0] == record_name
        }
        entries = sent.pop(record_name, ConfigRecord())
        if not isinstance(entries, ConfigRecord | MetricRecord):
            raise ConfigError(f"its {record_name} is no ConfigRecord", thing=record_name)
        numbers = dict(entries)
        values = {name: kind.taken(name, numbers, sent) for name, kind in kinds.items()}
        for name in (*sent, *numbers):
            raise unknown(f"part of its {record_name}", name.removeprefix(f"{record_name}/"), kinds)
        return cls(**{name: value for name, value in values.items() if value is not None})

    def in_form(self, model: Layers, parameters: Layers) -> Self:
        """Return a copy with all arrays in the order of their form, given the message's model.

        Raises a `ConfigError` if one has another form.
        """
        changed: dict[str, Any] = {}
        for name, kind in _kinds(type(self)).items():
            value = getattr(self, name)
            if kind.like is None or value is None:
                continue
            like = kind.like.of(model, parameters)
            if kind.shape == "layers-by-name":
                changed[name] = {key: _in_form(kind.words, layers, like) for key, layers in value.items()}
            else:
                changed[name] = _in_form(kind.words, value, like)
        return replace(self, **changed)


SHAPES = {
    "number": "an entry of the record",
    "numbers": "a record of numbers",
    "layers": "a record of arrays",
    "layers-by-name": "a record of arrays for each name",
}
"""By shape of a field, how it travels."""


@dataclass(frozen=True)
class _Kind:
    """How a field travels: shape, type of a number in it, record, bounds, form, and what it releases."""

    shape: Literal["number", "numbers", "layers", "layers-by-name"]
    hint: Any
    record: str
    optional: bool
    bounds: tuple[Bounds, ...] = ()
    like: Like | None = None
    release: Release | None = None

    @property
    def may_lack(self) -> bool:
        """Whether some messages have no such field: it is None, or an empty list."""
        return self.optional or (self.shape == "number" and typing.get_origin(self.hint) is tuple)

    @classmethod
    def of(cls, hint: Any, record: str = "") -> "_Kind":
        optional = typing.get_origin(hint) in (types.UnionType, typing.Union)
        if optional:
            hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
        release, in_record = _note(hint, Release), _note(hint, InRecord)
        record = in_record.name if in_record else record
        bounds, like, hint = _parted(hint)
        if typing.get_origin(hint) is not Mapping:
            return cls("number", hint, record, optional, bounds, release=release)
        if hint == Layers:
            return cls("layers", hint, record, optional, like=like, release=release)
        of_inner, like_inner, inner = _parted(typing.get_args(hint)[1])
        if inner == Layers:
            return cls("layers-by-name", inner, record, optional, like=like_inner, release=release)
        return cls("numbers", inner, record, optional, of_inner, release=release)

    @property
    def words(self) -> str:
        """The field in an error, such as ``answer share``."""
        return self.record.replace("/", " ")

    def taken(self, name: str, numbers: dict[str, Any], sent: dict[str, Any]) -> Any:
        """Remove a field from a message's numbers or records, and return its value; None if it may lack.

        Raises a `ConfigError` if it is missing, wrong, or in the place of a field of another shape.
        """
        if self.shape == "number":
            value = numbers.pop(name, [] if typing.get_origin(self.hint) is tuple else None)
        elif self.shape == "layers-by-name":
            names = [key for key in sent if key.startswith(f"{self.record}/")]
            value = {key.removeprefix(f"{self.record}/"): sent.pop(key) for key in names}
        else:
            value = sent.pop(self.record, None)
        if name in numbers or self.record in sent:
            raise ConfigError(f"its {self.words} is not {SHAPES[self.shape]}", thing=self.words)
        if value is not None:
            return self.read(self.words, value)
        if self.optional:
            return None
        folder = self.record.rpartition("/")[0]
        lacking = f"its {folder} has no '{name}'" if folder else f"it has no ArrayRecord '{self.record}'"
        raise ConfigError(lacking, thing=name)

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


_kind_of = cache(_Kind.of)
"""A setting's kind, by its type."""


def _kinds(cls: type[Fields]) -> dict[str, _Kind]:
    """Return how the fields of a class travel, by name."""
    if cls not in _KINDS:
        hints = typing.get_type_hints(cls, include_extras=True)
        names = [each.name for each in fields(cls)]
        _KINDS[cls] = {name: _Kind.of(hints[name], f"{cls.record_name}/{name}") for name in names}
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
        _kind_of(types[name]).read(f"{called} '{name}'", settings[name])


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
    """What a reply holds next to its model, number of examples and metrics, most often to a question.

    The type of each field names its `Release`: ``Annotated[Share, Release.FIGURES]``. A site that holds a
    rule on what leaves refuses a field without one.

    Attributes
    ----------
    needed : bool
        Whether a reply without it is dropped; else the update has the reason in its place.
    """

    record_name = "answer"
    needed: ClassVar[bool] = True

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
    reads_inputs : bool
        Whether a node answers from what its network reads of its samples.
    answered_by : str
        The function ``"module:name"`` with which a node of this package answers: it takes the client, the
        request and the question, and returns a `TrainReply` or `EvaluateReply`. It is imported when needed.
    remedy : str
        What a run can do if a site does not answer.
    """

    record_name = "question"
    action: ClassVar[str]
    kind: ClassVar[Literal["train", "evaluate"]] = "train"
    roles: ClassVar[tuple[Role, ...]] = ("source", "target")
    answer: ClassVar[type[Answer]] = Answer
    model: ClassVar[Release] = Release.MODEL
    reads_inputs: ClassVar[bool] = True
    answered_by: ClassVar[str]
    remedy: ClassVar[str] = "choose a method that does not ask for them"

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
"""The questions of this process by type of message; `fda_flower.wire.asked` has the package's own."""

Figure = Annotated[float, Release.FIGURES]
ShareFigure = Annotated[Share, Release.FIGURES]
Figures = Annotated[Mapping[str, float], Release.FIGURES]
Folds = Annotated[int, Bounds("from 2 to 100", lambda number: 2 <= number <= 100)]
MetricName = Annotated[str, Bounds("the name of a metric", METRICS.__contains__)]
"""Types of fields that several families have."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a question or answer of a method, which projects may import from here."""
        families = () if name.startswith("_") else import_module("fda_flower.wire.asked").FAMILIES
        for family in families:
            if name in vars(family):
                return vars(family)[name]
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
