"""What a user can get wrong. The command line prints these without a traceback."""

from collections.abc import Iterable


class FdaError(Exception):
    """A mistake or a fault that a person can mend; its message names the thing, its value and the remedy."""


class ConfigError(FdaError, ValueError):
    """A setting that cannot work; raised before any training."""


class RunError(FdaError, RuntimeError):
    """A run that cannot go on; what it has written stays valid."""


def unknown(what: str, name: str, valid: Iterable[str]) -> ConfigError:
    """The error for a name that is not in a registry; it lists the valid names."""
    return ConfigError(f"unknown {what} '{name}': choose one of {', '.join(sorted(valid))}")
