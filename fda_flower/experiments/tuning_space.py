"""The settings that a search varies: ``learning-rate=log:1e-4..1e-2``, ``batch-size=4,8,16``."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, get_args

from fda_flower.errors import ConfigError, unknown
from fda_flower.options import split_names
from fda_flower.run_settings import OPTION_FIELDS, SETTINGS

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

GROUPS = ("Method", "Training", "Limits")
OPTIONS = {name.replace("_", "-").removesuffix("s"): name for name in OPTION_FIELDS}
"""The settings that hold options, by the beginning of a name such as ``method-option.mu``."""
TUNABLE = {
    each.key: each
    for each in SETTINGS
    if each.group in GROUPS and each.defines_run and not each.has_options and each.name != "beta"
}
"""The settings that may be searched, besides options: data and seeds say what is asked, not how well."""
FORMS = "lowest..highest, log:lowest..highest, or a list such as 4,8,16"


@dataclass(frozen=True)
class Space:
    """The values of one setting.

    Attributes
    ----------
    name : str
        As it is given: ``learning-rate``, or ``method-option.mu`` for an option.
    low, high : int or float, optional
        The ends of a range, of whole numbers if both are; None for a list.
    log : bool
        Whether a range is searched by ratios.
    choices : tuple of str
        The values of a list.
    """

    name: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[str, ...] = ()

    @property
    def distribution(self) -> "BaseDistribution":
        """The same in Optuna's form."""
        from optuna.distributions import (
            CategoricalDistribution,
            FloatDistribution,
            IntDistribution,
        )

        if self.low is None or self.high is None:
            return CategoricalDistribution(self.choices)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    @property
    def samples(self) -> tuple[Any, ...]:
        """Values by which the space is checked: the ends of a range, or all of a list."""
        return self.choices or (self.low, self.high)


def read_space(text: str) -> Space:
    """Read a ``--search``.

    Raises
    ------
    ConfigError
        If it names no setting that can be searched, or its values cannot work.

    Examples
    --------
    >>> read_space("learning-rate=log:1e-4..1e-2").log, read_space("batch-size=4,8").choices
    (True, ('4', '8'))
    """
    name, equals, values = (part.strip() for part in text.partition("="))
    if not (name and equals and values):
        raise ConfigError(f"search is '{text}': give NAME=VALUES, with the values as {FORMS}")
    group, dot, option = name.partition(".")
    if not (group in OPTIONS and dot and option) and name not in TUNABLE:
        raise unknown("setting to search", name, [*TUNABLE, *(f"{option}.NAME" for option in OPTIONS)])
    log, numbers = values.startswith("log:"), values.removeprefix("log:")
    if ".." not in numbers:
        if log:
            raise ConfigError(f"search of {name} is '{values}': give log:lowest..highest")
        return Space(name, choices=split_names(f"search of {name}", values))
    low, high = _ends(name, values, numbers)
    if not low < high:
        raise ConfigError(f"search of {name} is '{values}': its lowest value must be below its highest")
    if log and low <= 0:
        raise ConfigError(f"search of {name} is '{values}': with log: its values must be above 0")
    return Space(name, low, high, log)


def _ends(name: str, values: str, numbers: str) -> tuple[float, float]:
    """Return the ends of a range: whole numbers if the setting is one, or if both are written so."""
    hint = TUNABLE[name].hint if name in TUNABLE else None
    parts = numbers.split("..")
    try:
        low, high = map(float, parts)
    except ValueError:
        raise ConfigError(f"search of {name} is '{values}': give two numbers, lowest..highest") from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ConfigError(f"search of {name} is '{values}': give two finite numbers")
    if hint is int or int in get_args(hint) or hint is None:
        whole = all(re.fullmatch(r"[+-]?\d+", part.strip()) for part in parts)
        if whole:
            return int(low), int(high)
        if hint is not None:
            raise ConfigError(f"search of {name} is '{values}': give whole numbers")
    elif hint is not float and float not in get_args(hint):
        raise ConfigError(f"search of {name} is '{values}': its values are words, give a list of them")
    return low, high


def read_spaces(texts: Sequence[str]) -> list[Space]:
    """Read all ``--search`` of a command; a `ConfigError` if there are none, or one setting twice."""
    spaces = [read_space(text) for text in texts]
    if not spaces:
        raise ConfigError(
            f"nothing to search: give --search NAME=VALUES, with the values as {FORMS}, such as "
            "--search learning-rate=log:1e-4..1e-2"
        )
    names = [space.name for space in spaces]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"search of {twice[0]} is given {names.count(twice[0])} times: give it once")
    return spaces


def grid(spaces: Sequence[Space], most: int) -> list[dict[str, str]]:
    """Return all combinations of lists if there are at most so many; none if a space is a range.

    Examples
    --------
    >>> grid([read_space("batch-size=4,8"), read_space("epochs=1,2")], 4)[1]
    {'batch-size': '4', 'epochs': '2'}
    """
    lists = [space.choices for space in spaces]
    if not all(lists) or math.prod(map(len, lists)) > most:
        return []
    return [dict(zip((space.name for space in spaces), values, strict=True)) for values in product(*lists)]


def settings_of_trial(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by the names of a search as settings of a run.

    Examples
    --------
    >>> settings_of_trial({"batch-size": "4", "method-option.mu": 0.5})
    {'batch_size': '4', 'method_options': {'mu': 0.5}}
    """
    settings: dict[str, Any] = {}
    for name, value in values.items():
        group, dot, option = name.partition(".")
        if dot:
            settings.setdefault(OPTIONS[group], {})[option] = value
        else:
            settings[name.replace("-", "_")] = value
    return settings


def merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with changes; options by name are changed one by one."""
    result = dict(settings)
    for name, value in changes.items():
        result[name] = {**dict(result.get(name, ())), **value} if name in OPTION_FIELDS else value
    return result
