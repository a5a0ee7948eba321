"""The settings that a search tries, and their values."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, get_args

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from fda_flower.errors import ConfigError, invalid, unknown
from fda_flower.names.options import split_names
from fda_flower.runs.settings import OPTION_FIELDS, SETTINGS

GROUPS = ("Method", "Training", "Limits")


OPTIONS = {name.replace("_", "-").removesuffix("s"): name for name in OPTION_FIELDS}
"""The settings that hold options, by the first part of a name such as ``method-option.mu``."""


TUNABLE = {
    each.key: each
    for each in SETTINGS
    if each.group in GROUPS and each.defines_run and not each.has_options and each.name != "beta"
}
"""The settings that a search may change, apart from options: data and seeds define the task itself."""


FORMS = "lowest..highest, log:lowest..highest, or a list such as 4,8,16"


Space = CategoricalDistribution | FloatDistribution | IntDistribution


Spaces = Mapping[str, Space]
"""Ranges, or lists of texts, by a name such as ``learning-rate`` or ``method-option.mu``."""


def read_space(text: str) -> tuple[str, Space]:
    """Read one ``--search``; raise a `ConfigError` if its setting or values are invalid.

    A range is of integers if both ends are; after ``log:`` it is sampled on a log scale.

    Examples
    --------
    >>> read_space("learning-rate=log:1e-4..1e-2")[1].log, read_space("batch-size=4,8")[1].choices
    (True, ('4', '8'))
    """
    name, equals, values = (part.strip() for part in text.partition("="))
    if not (name and equals and values):
        raise invalid("search", text, f"give NAME=VALUES, with VALUES as {FORMS}")
    group, dot, option = name.partition(".")
    if not (group in OPTIONS and dot and option) and name not in TUNABLE:
        raise unknown("setting to search", name, [*TUNABLE, *(f"{option}.NAME" for option in OPTIONS)])
    log, numbers = values.startswith("log:"), values.removeprefix("log:")
    if ".." not in numbers and not log:
        return name, CategoricalDistribution(split_names(f"search of {name}", values))
    low, high = _ends(name, values, numbers)
    if not low < high:
        raise invalid(f"search of {name}", values, "its lowest value must be below its highest")
    if log and low <= 0:
        raise invalid(f"search of {name}", values, "with log: its values must be above 0")
    if isinstance(low, int) and isinstance(high, int):
        return name, IntDistribution(low, high, log=log)
    return name, FloatDistribution(low, high, log=log)


def _ends(name: str, values: str, numbers: str) -> tuple[float, float]:
    """Return the ends of a range: integers if the setting is one, or if both are written as integers."""
    hint = TUNABLE[name].hint if name in TUNABLE else None
    searched, parts = f"search of {name}", numbers.split("..")
    try:
        low, high = map(float, parts)
    except ValueError:
        raise invalid(searched, values, "give two numbers, lowest..highest") from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise invalid(searched, values, "give two finite numbers")
    if hint is int or int in get_args(hint) or hint is None:
        if all(re.fullmatch(r"[+-]?\d+", part.strip()) for part in parts):
            return int(low), int(high)
        if hint is not None:
            raise invalid(searched, values, "give whole numbers")
    elif hint is not float and float not in get_args(hint):
        raise invalid(searched, values, "its values are words: give a list")
    return low, high


def read_spaces(texts: Sequence[str]) -> Spaces:
    """Read all ``--search`` options; raise a `ConfigError` if there are none, or a setting occurs twice."""
    spaces = [read_space(text) for text in texts]
    if not spaces:
        raise ConfigError(
            f"nothing to search: give --search NAME=VALUES, with VALUES as {FORMS}, for example "
            "--search learning-rate=log:1e-4..1e-2",
            thing="search",
        )
    for name, times in Counter(name for name, _ in spaces).items():
        if times > 1:
            raise invalid("search", name, "give it once", f"{times} times")
    return dict(spaces)


def grid(spaces: Spaces, most: int) -> list[dict[str, str]]:
    """Return all combinations of lists, or none if there are more than `most` or a space is a range.

    Examples
    --------
    >>> grid(read_spaces(["batch-size=4,8", "epochs=1,2"]), 4)[1]
    {'batch-size': '4', 'epochs': '2'}
    """
    lists = [getattr(space, "choices", ()) for space in spaces.values()]
    if not all(lists) or math.prod(map(len, lists)) > most:
        return []
    return [dict(zip(spaces, values, strict=True)) for values in product(*lists)]


def settings_of_trial(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's values as settings of a run.

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
