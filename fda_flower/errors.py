"""The errors of this package; the command line prints them without a traceback."""

from collections.abc import Iterable
from difflib import get_close_matches


class FdaError(Exception):
    """An error that a person can correct; its message names the thing, its value and the remedy."""


class ConfigError(FdaError, ValueError):
    """An invalid setting; raised before any training."""


class RefusedError(ConfigError):
    """A method refuses a federation; a table of runs says so where a number would be."""


class RunError(FdaError, RuntimeError):
    """A run that cannot continue; what it has written stays valid."""


def unknown(what: str, name: str, valid: Iterable[str]) -> ConfigError:
    """Return the error for a name that is not in a registry; the message lists the valid names.

    Examples
    --------
    >>> str(unknown("method", "fedpg", ["fedavg", "fedgp", "ditto"]))
    "unknown method 'fedpg' (did you mean 'fedgp'?): choose one of ditto, fedavg, fedgp"
    """
    names = sorted(valid)
    return ConfigError(f"unknown {what} '{name}'{near(name, names)}: choose one of {', '.join(names)}")


def near(name: str, valid: Iterable[str]) -> str:
    """Return a question in brackets that has the valid name nearest to a name; nothing if none is near.

    Examples
    --------
    >>> near("magnitute", ["magnitude", "granularity"]), near("size", ["magnitude"])
    (" (did you mean 'magnitude'?)", '')
    """
    found = get_close_matches(name, valid, n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise a `ConfigError` unless an option's value is one of its words."""
    words = tuple(choices)
    if value not in words:
        raise ConfigError(f"{name} is '{value}': choose {' or '.join(words)}")
