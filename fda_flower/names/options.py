"""Options as annotated fields, read by their types, and as text."""

import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, wraps
from numbers import Integral
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, dataclass_transform

from fda_flower.errors import ConfigError, check_choice, invalid, near
from fda_flower.names.registry import check_alike

EVERY_SITE = "all"
"""The value of a run's `target` that makes every site a target."""


Options = Mapping[str, Any]

Built = TypeVar("Built", bound=Callable[..., Any])


class Bounds(NamedTuple):
    """The bounds of an option's number, in words and as a test, for the ``Annotated`` of a field."""

    words: str
    hold: Callable[[float], bool]

    def __repr__(self) -> str:
        return f"Bounds({self.words!r})"


Count = Annotated[int, Bounds("at least 1", lambda number: number >= 1)]


Natural = Annotated[int, Bounds("at least 0", lambda number: number >= 0)]


AboveZero = Annotated[float, Bounds("above 0 and finite", lambda number: 0 < number < math.inf)]


Positive = Annotated[float, Bounds("a number above 0", lambda number: 0 < number < math.inf)]


NotNegative = Annotated[float, Bounds("a number of at least 0", lambda number: 0 <= number < math.inf)]


MOST_EPOCHS = 10_000


Epochs = Annotated[int, Bounds(f"from 1 to {MOST_EPOCHS:,}", lambda number: 1 <= number <= MOST_EPOCHS)]


MoreEpochs = Annotated[int, Bounds(f"from 0 to {MOST_EPOCHS:,}", lambda number: 0 <= number <= MOST_EPOCHS)]


Share = Annotated[float, Bounds("a number in [0, 1]", lambda number: 0 <= number <= 1)]


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class WithOptions:
    """A class whose annotated attributes are its options.

    ``top: Count = 5`` is a keyword argument `top`: a whole number of at least 1, by default 5. A `Literal`
    lists words. A subclass fixes an option with ``field(default=..., init=False)``. Further checks belong in
    ``__post_init__``, after a call of the base's. A value of another type or out of bounds raises a
    `ConfigError`; so does a subclass that sets an inherited option without a type, which has no effect.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        for name in option_names(cls):
            if name in vars(cls) and name not in inspect.get_annotations(cls):
                value, remedy = vars(cls)[name], f"annotate it, as in '{name}: TYPE = VALUE'"
                raise invalid(f"{cls.__name__}.{name}", value, remedy, "which changes no option")

    def __post_init__(self) -> None:
        names = option_names(type(self))
        values = {name: getattr(self, name) for name in names}
        for name, value in read_fields(type(self), values, {name: name for name in names}).items():
            setattr(self, name, value)


def option_names(owner: type[WithOptions]) -> tuple[str, ...]:
    """Return the names of a class's options, including fixed ones."""
    return tuple(each.name for each in fields(owner))  # type: ignore[arg-type]


def read_fields(kind: type, values: Mapping[str, Any], called: Mapping[str, str] = {}) -> dict[str, Any]:
    """Convert values, by the names of a dataclass's fields, to the types of the fields.

    Raise a `ConfigError` on a value of another type or out of its `Bounds`; it names the field as `called`
    does, or else by its own name with ``-`` for ``_``.
    """
    hints = _hints_of(kind)
    return {
        name: read_value(called.get(name, name.replace("_", "-")), value, hints[name])
        for name, value in values.items()
    }


Kind = TypeVar("Kind", bound=type)


def built_from(read: Callable[[type, dict[str, Any]], Mapping[str, Any]]) -> Callable[[Kind], Kind]:
    """Decorate a dataclass whose fields hold what `read` makes of the constructor's arguments.

    `read` takes the class and all arguments by name, such as `read_fields`.

    Examples
    --------
    >>> @built_from(read_fields)
    ... @dataclass(frozen=True)
    ... class Point:
    ...     x: float
    ...     y: float = 0.0
    >>> Point("1")
    Point(x=1.0, y=0.0)
    """

    def decorate(kind: Kind) -> Kind:
        build, parameters = kind.__init__, inspect.signature(kind)  # type: ignore[misc]

        @wraps(build)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            arguments = parameters.bind(*args, **kwargs)
            arguments.apply_defaults()
            build(self, **read(kind, arguments.arguments))

        kind.__init__ = init  # type: ignore[misc]
        return kind

    return decorate


@cache
def _hints_of(kind: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields; cached, as every training of a round checks its settings."""
    return typing.get_type_hints(kind, include_extras=True)


def read_value(name: str, value: Any, hint: Any) -> Any:
    """Convert an option's value to its type; raise a `ConfigError` if that fails."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        own = [each for each in typing.get_args(hint) if each is not types.NoneType]
        # With several types, the class reads the value itself.
        return value if value is None or len(own) > 1 else read_value(name, value, own[0])
    bounds: list[Bounds] = []
    if typing.get_origin(hint) is Annotated:
        hint, *bounds = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        check_choice(name, value, typing.get_args(hint))
    try:
        value = as_text(value) if hint is str else _convert(value, hint)
    except (TypeError, ValueError) as error:
        raise invalid(name, value, f"{error}") from error
    for each in bounds:
        if not each.hold(value):
            raise invalid(name, value, f"it must be {each.words}")
    return value


def read_list(name: str, values: Any, example: str) -> list[Any]:
    """Return the entries of a list; raise a `ConfigError` on a text, or another value that is no list.

    Examples
    --------
    >>> read_list("seeds", range(2), "range(3)")
    [0, 1]
    >>> read_list("seeds", "12", "range(3)")
    Traceback (most recent call last):
    fda_flower.errors.ConfigError: seeds is '12': give a list, such as range(3)
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise invalid(name, values, f"give a list, such as {example}")
    return list(values)


def as_text(value: Any) -> str:
    """Return text; a whole number, such as a partition id, is its digits. Raise a `TypeError` on all else."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(int(value))
    if not isinstance(value, str):
        raise TypeError("give text")
    return value


def read_options(what: str, build: Callable[..., Any], options: Options, hidden: set[str]) -> Options:
    """Convert options to the types that `build`, a function or class, declares for its keyword arguments.

    `options` are by name, as text (``"90"``, ``"true"``; a list is joined by commas) or of the right type,
    and `hidden` are arguments that are not options. A `ConfigError`, which names the owner by `what`, such as
    ``"method 'fedgp'"``, says that an option is unknown, or its value not of its type.

    Examples
    --------
    >>> def rotate(angle: float = 90.0, invert: bool = True): ...
    >>> read_options("shift 'rotate'", rotate, {"angle": "45", "invert": "no"}, set())
    {'angle': 45.0, 'invert': False}
    """
    hints = _declared(build)
    valid = [name for name in hints if name not in hidden]
    read: dict[str, Any] = {}
    for name, value in options.items():
        key = str(name).replace("-", "_")
        if key not in valid:
            remedy = f"choose one of {', '.join(valid)}" if valid else "it has no options, leave it out"
            message = f"unknown option '{name}' of {what}{near(key, valid)}"
            raise ConfigError(message, thing="option", value=name, remedy=remedy)
        try:
            read[key] = _convert(value, hints[key])
        except (TypeError, ValueError) as error:
            message = f"option '{name}' of {what} is {value!r}"
            raise ConfigError(message, thing="option", value=name, remedy=str(error)) from error
    return read


def with_options(kind: type) -> Callable[[Built], Built]:
    """Return a decorator of a class or function whose ``**options`` are the fields of the dataclass `kind`.

    Its signature names them, for `read_options`.
    """

    def declare(build: Built) -> Built:
        signature, hints = inspect.signature(build), typing.get_type_hints(kind)
        *named, _ = signature.parameters.values()
        for name, each in inspect.signature(kind).parameters.items():
            named.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))
        build.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
        return build

    return declare


def split_options(text: str) -> dict[str, str]:
    """Parse ``"angle=90 domains=a,New York"``; raise a `ConfigError` for a part without name or value.

    A part whose value looks like further parts is put in quotation marks.
    """
    options = {}
    for pair in _pairs(text.strip()) if text.strip() else ():
        part = unquoted(pair)
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"option '{part}' is not of the form NAME=VALUE", thing="option", value=part)
        if name in options:
            raise twice(name)
        options[name] = value
    return options


def twice(name: str) -> ConfigError:
    """Return the error of an option that is given more than once."""
    remedy = "give it once, and separate the names in a list by commas"
    return ConfigError(f"option '{name}' is given twice", thing="option", value=name, remedy=remedy)


def join_options(options: Iterable[tuple[str, Any]]) -> str:
    """Return options as text, for `split_options`."""
    pairs = [f"{name}={value}" for name, value in options]
    return " ".join(quoted(pair) if pair.count('"') % 2 or len(_pairs(pair)) > 1 else pair for pair in pairs)


def _pairs(text: str) -> list[str]:
    return split_quoted(text, r"\s+(?=\S*=)")


def split_names(what: str, text: str) -> tuple[str, ...]:
    """Parse the names in ``'a, "b, c"'``; raise a `ConfigError` on `what` if one is empty or repeated."""
    names = tuple(map(unquoted, split_quoted(text, ",")))
    if not all(names) or len(set(names)) < len(names):
        remedy = "give names separated by commas, each of them once; put one with a comma in quotation marks"
        raise invalid(what, text, remedy)
    return names


def join_names(names: Iterable[str]) -> str:
    """Return names as text, for `split_names`.

    Examples
    --------
    >>> join_names(["ward", "doctor, nurse"])
    'ward,"doctor, nurse"'
    """
    return ",".join(quoted(name) if "," in name or '"' in name else name for name in names)


def split_quoted(text: str, separator: str) -> list[str]:
    """Split text at a regular expression, but not within quotation marks; a single mark is a character."""
    parts, start, at, marks = [], 0, 0, 0
    paired = text.count('"') % 2 == 0
    for each in re.finditer(separator, text):
        marks += text.count('"', at, each.start())
        at = each.start()
        if not (paired and marks % 2):
            parts.append(text[start:at])
            start = each.end()
    return [*parts, text[start:]]


def quoted(name: str) -> str:
    """Return a name in quotation marks; its own are doubled."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def unquoted(text: str) -> str:
    """Return a name without spaces and, if it is `quoted`, quotation marks around it."""
    name = text.strip()
    whole = re.fullmatch('"((?:[^"]|"")*)"', name)
    return whole[1].replace('""', '"') if whole else name


def read_categories(text: str) -> dict[str, tuple[str, ...]]:
    """Parse an option's categories by column; a name with one of the separators is in quotation marks.

    Examples
    --------
    >>> read_categories('sex:f|m,"pain, if any":none|some|much')
    {'sex': ('f', 'm'), 'pain, if any': ('none', 'some', 'much')}
    """
    categories: dict[str, tuple[str, ...]] = {}
    for part in split_quoted(text, ",") if text else ():
        column, *values = split_quoted(part, ":")
        name, names = unquoted(column), tuple(map(unquoted, split_quoted(":".join(values), "[|]")))
        if not (name and all(names)) or name in categories or len(set(names)) < len(names):
            remedy = (
                "give columns with their categories, each of them once, such as sex:f|m,pain:none|some|much; "
                "put names that have a comma, colon or bar in quotation marks"
            )
            raise invalid("option 'categories'", text, remedy)
        check_alike(f"categories of '{name}'", names)
        categories[name] = names
    return categories


def join_categories(categories: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return categories by column as text, for `read_categories`.

    Examples
    --------
    >>> join_categories([("sex", ["f", "m"]), ("pain, if any", ["none", "some"])])
    'sex:f|m,"pain, if any":none|some'
    """

    def safe(name: str) -> str:
        return quoted(name) if {*',:|"'} & {*name} else name

    return ",".join(f"{safe(column)}:{'|'.join(map(safe, words))}" for column, words in categories)


@cache
def _declared(build: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of keyword arguments; cached, as an experiment has thousands of configurations."""
    parameters = inspect.signature(build).parameters.values()
    while hasattr(build, "func"):
        build = build.func
    hints = typing.get_type_hints(build.__init__ if isinstance(build, type) else build)  # type: ignore[misc]
    named = [each for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD]
    return {each.name: hints.get(each.name, each.annotation) for each in named}


WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _convert(value: Any, hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin is Literal:
        choices = {str(choice): choice for choice in typing.get_args(hint)}
        if str(value) not in choices:
            raise ValueError(f"choose one of {', '.join(choices)}")
        return choices[str(value)]
    if origin in (types.UnionType, typing.Union):
        return _convert(value, typing.get_args(hint)[0])
    if hint is bool:
        if (word := str(value).lower()) not in WORDS:
            raise ValueError("say true or false")
        return WORDS[word]
    if hint is str and isinstance(value, list | tuple):
        return _joined(value)
    if hint in (int, float):
        try:
            number = hint(as_written(value))
        except (TypeError, ValueError, OverflowError):
            number = None
        if number is None or (hint is int and not isinstance(value, str) and number != value):
            raise ValueError(f"give a {'whole ' if hint is int else ''}number")
        return number
    return str(value) if hint is str else value


def as_written(value: Any) -> Any:
    """Return a value; raise a `ValueError` on what people would not write as a number: "1_000", True."""
    is_truth = isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool"
    if is_truth or (isinstance(value, str) and ("_" in value or not value.isascii())):
        raise ValueError(value)
    return value


def _joined(values: Collection[Any]) -> str:
    """Return a list as text, in the form of the command line."""
    words = [str(value) for value in values if isinstance(value, str | int | float)]
    if len(words) < len(values):
        raise ValueError("give a list of numbers or words")
    return ",".join(word if '"' in word else join_names([word]) for word in words)
