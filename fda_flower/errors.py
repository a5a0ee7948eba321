"""The errors of this package; the command line prints them without a traceback."""

from collections.abc import Iterable


class FdaError(Exception):
    """An error that a person can correct; its message names the thing, its value and the remedy."""


class ConfigError(FdaError, ValueError):
    """An invalid setting; raised before any training."""


class RunError(FdaError, RuntimeError):
    """A run that cannot continue; what it has written stays valid."""


def unknown(what: str, name: str, valid: Iterable[str]) -> ConfigError:
    """Return the error for a name that is not in a registry; the message lists the valid names."""
    return ConfigError(f"unknown {what} '{name}': choose one of {', '.join(sorted(valid))}")


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise a `ConfigError` unless an option's value is one of its words."""
    words = tuple(choices)
    if value not in words:
        raise ConfigError(f"{name} is '{value}': choose {' or '.join(words)}")
