"""Named options: fields of a class that says what they may be, or text checked against a signature."""

import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, dataclass_transform

from fda_flower.errors import ConfigError, check_choice, near

Options = Mapping[str, Any]


class Bounds(NamedTuple):
    """What an option's number must be, in words and as a test; it stands in the ``Annotated`` of a field."""

    words: str
    hold: Callable[[float], bool]


Count = Annotated[int, Bounds("at least 1", lambda number: number >= 1)]
Natural = Annotated[int, Bounds("at least 0", lambda number: number >= 0)]
Positive = Annotated[float, Bounds("a number above 0", lambda number: 0 < number < math.inf)]
NotNegative = Annotated[float, Bounds("a number of at least 0", lambda number: 0 <= number < math.inf)]
Share = Annotated[float, Bounds("a number in [0, 1]", lambda number: 0 <= number <= 1)]


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class WithOptions:
    """A class whose annotated attributes are its options.

    ``top: Count = 5`` is a keyword argument `top`: a whole number of at least 1, by default 5. A `Literal`
    lists words. An option that a subclass fixes is a ``field(default=..., init=False)``. What else there is
    to check or to prepare stands in ``__post_init__``, after that of the base.

    Raises
    ------
    ConfigError
        If an option's value is not of its type, or out of its bounds.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(kw_only=True, eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self), include_extras=True)
        for name in option_names(type(self)):
            setattr(self, name, _checked(name, getattr(self, name), hints[name]))


def option_names(owner: type[WithOptions]) -> tuple[str, ...]:
    """Return the names of a class's options, those among them that it has fixed."""
    return tuple(each.name for each in fields(owner))  # type: ignore[arg-type]


def _checked(name: str, value: Any, hint: Any) -> Any:
    """Return an option's value as its type has it; raise a `ConfigError` if it cannot be one."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        own = [each for each in typing.get_args(hint) if each is not types.NoneType]
        # Where several types are possible, the class reads the value itself.
        return value if value is None or len(own) > 1 else _checked(name, value, own[0])
    bounds: list[Bounds] = []
    if typing.get_origin(hint) is Annotated:
        hint, *bounds = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        check_choice(name, value, typing.get_args(hint))
    try:
        value = value if hint is str else _convert(value, hint)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} is {value!r}: {error}") from error
    for each in bounds:
        if not each.hold(value):
            raise ConfigError(f"{name} is {value}, it must be {each.words}")
    return value


def read_options(what: str, build: Callable[..., Any], options: Options, hidden: set[str]) -> Options:
    """Convert options to the types that `build` declares for its keyword arguments.

    Parameters
    ----------
    what : str
        How to call the thing in an error, such as ``"method 'fedgp'"``.
    build : callable
        A function or class; its keyword arguments, with their annotations, are the options.
    options : Mapping
        By name, as text (``"90"``, ``"true"``) or already of the right type; a list stands for text with
        commas between its entries.
    hidden : set[str]
        Arguments that are not options.

    Raises
    ------
    ConfigError
        If an option is unknown, or its value is not of its type; it lists the valid ones.

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
        key = name.replace("-", "_")
        if key not in valid:
            remedy = f"choose one of {', '.join(valid)}" if valid else "it has no options, leave it out"
            raise ConfigError(f"unknown option '{name}' of {what}{near(key, valid)}: {remedy}")
        try:
            read[key] = _convert(value, hints[key])
        except (TypeError, ValueError) as error:
            raise ConfigError(f"option '{name}' of {what} is {value!r}: {error}") from error
    return read


def split_options(text: str) -> dict[str, str]:
    """``"angle=90 domains=a,New York"`` as a dictionary; a `ConfigError` if a part has no name or value."""
    options = {}
    for part in re.split(r"\s+(?=\S*=)", text.strip()) if text.strip() else ():
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"option '{part}' is not of the form NAME=VALUE")
        options[name] = value
    return options


def split_names(what: str, text: str) -> tuple[str, ...]:
    """``"a, b"`` as names; a `ConfigError` that calls them `what` if one is empty or there twice."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ConfigError(f"{what} is '{text}': give names separated by commas, each of them once")
    return names


@cache
def _declared(build: Callable[..., Any]) -> dict[str, Any]:
    """The types of its keyword arguments, by name; kept, as an experiment has thousands of configurations."""
    parameters = inspect.signature(build).parameters.values()
    while hasattr(build, "func"):
        build = build.func
    hints = typing.get_type_hints(build.__init__ if isinstance(build, type) else build)  # type: ignore[misc]
    named = [each.name for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD]
    return {name: hints.get(name, Any) for name in named}


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
        return _read_bool(value)
    if hint is int and isinstance(value, float) and not value.is_integer():
        raise ValueError("give a whole number")
    if hint is str and isinstance(value, list | tuple):
        return _joined(value)
    if hint in (int, float):
        try:
            return hint(value)
        except (TypeError, ValueError):
            raise ValueError(f"give a {'whole ' if hint is int else ''}number") from None
    if hint is str:
        return str(value)
    return value


def _joined(values: Collection[Any]) -> str:
    """Return a list as the text that a command line would have for it."""
    words = [str(value) for value in values if isinstance(value, str | int | float)]
    if len(words) < len(values) or any("," in word for word in words):
        raise ValueError("give a list of numbers, or of words without commas")
    return ",".join(words)


def _read_bool(value: Any) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(value).lower() not in words:
        raise ValueError("say true or false")
    return words[str(value).lower()]
