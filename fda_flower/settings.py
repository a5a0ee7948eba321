"""Settings that are declared once: fields of a dataclass from which everything else about them follows."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import groupby
from typing import Any, get_args, get_type_hints

from fda_flower.errors import ConfigError

OptionPairs = tuple[tuple[str, Any], ...]
Options = Mapping[str, Any] | OptionPairs
"""Options by name of a data set, a method, ...; as text ``"angle=45 invert=false"``."""


@dataclass(frozen=True)
class Setting:
    """The declaration of one setting.

    Attributes
    ----------
    group : str
        Its heading in ``--help`` and in the guide.
    default
        Its default.
    help : str
        One line that says what it is.
    shown : str
        The default in words, where the value does not tell it.
    flag : str
        Its name on the command line. Default: the field's, in kebab case.
    envvar : str, optional
        An environment variable that the command line reads.
    defines_run : bool
        Whether two runs that differ in it are different runs.
    strategy : bool
        Whether it is an option of every strategy.
    at_least : int, optional
        The smallest value.
    seconds : bool
        Whether it is a time, which must be above 0.
    name, hint : str, type
        The field's name and its type; `settings_of` fills them in.
    """

    group: str
    default: Any
    help: str
    shown: str = ""
    flag: str = ""
    envvar: str | None = None
    defines_run: bool = True
    strategy: bool = False
    at_least: int | None = None
    seconds: bool = False
    name: str = ""
    hint: Any = None

    @property
    def key(self) -> str:
        """Its name in Flower's configuration."""
        return self.name.replace("_", "-")

    @property
    def option(self) -> str:
        """Its name on the command line, where each of several options is given by itself."""
        return f"--{self.flag or (self.key.removesuffix('s') if self.has_options else self.key)}"

    @property
    def has_options(self) -> bool:
        """Whether it holds options by name."""
        return bool(self.hint == Options)

    @property
    def optional(self) -> bool:
        """Whether it may be None; in Flower's configuration that is empty text."""
        return type(None) in get_args(self.hint)

    def check(self, value: Any) -> None:
        """Raise a `ConfigError` if a number is out of bounds."""
        if self.seconds and not value > 0:
            raise ConfigError(f"{self.key} is {value:g} seconds, it must be above 0")
        if self.at_least is not None and value is not None and value < self.at_least:
            called = f"{self.key} or {self.flag}" if self.flag else self.key
            raise ConfigError(f"{called} is {value}, it must be at least {self.at_least}")

    @property
    def plain(self) -> bool:
        """Whether it is a number or text, and nothing else."""
        return self.hint in (int, float, str, bool, int | None, float | None, str | None)


def setting(group: str, default: Any, help: str, **more: Any) -> Any:
    """Declare a field of a dataclass as a setting; the arguments are the attributes of `Setting`."""
    return field(default=default, metadata={"setting": Setting(group, default, help, **more)})


@cache
def settings_of(cls: type[Any]) -> tuple[Setting, ...]:
    """Return the settings that a dataclass declares, in the order of its fields."""
    hints = get_type_hints(cls)
    return tuple(replace(f.metadata["setting"], name=f.name, hint=hints[f.name]) for f in fields(cls))


def as_flower(value: Any) -> Any:
    """Return a setting's value as Flower's configuration takes it: text, a number or a truth value."""
    if value is None:
        return ""
    if not isinstance(value, tuple):
        return value
    if value and isinstance(value[0], tuple):
        return " ".join(f"{name}={option}" for name, option in value)
    return ",".join(map(str, value))


def command_options(settings: Iterable[Setting], values: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line that give settings the values that are not the default.

    Parameters
    ----------
    settings : iterable of Setting
        Those to give.
    values : Mapping
        The fields of the dataclass, by name.
    """
    words = []
    for each in settings:
        value = values[each.name]
        if value in (each.default, ()):
            continue
        if each.has_options:
            words += [word for name, one in value for word in (each.option, f"{name}={_word(one)}")]
        elif isinstance(value, bool):
            words.append(each.option if value else f"--no-{each.option.removeprefix('--')}")
        else:
            words += [each.option, "all" if value is None else str(as_flower(value))]
    return words


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def flower_table(settings: Iterable[Setting]) -> str:
    """Return what ``[tool.flwr.app.config]`` of ``pyproject.toml`` holds: the default of each setting."""
    of_server_app = {"output": "", "resume": False}
    table = {**{each.key: as_flower(each.default) for each in settings}, **of_server_app}
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


def markdown_table(settings: Iterable[Setting]) -> str:
    """Return a Markdown table of settings, as the guide has it."""
    rows = [("command line", "Flower", "default", "meaning", "defines the run"), ("---",) * 5]
    for group, members in groupby(settings, lambda each: each.group):
        rows.append((f"**{group}**", "", "", "", ""))
        for each in members:
            default = each.shown or ("" if each.default in (None, ()) else f"`{each.default}`")
            defines = "yes" if each.defines_run else "no"
            rows.append((f"`{each.option}`", f"`{each.key}`", default, each.help, defines))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
