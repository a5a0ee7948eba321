"""What an error names, for `pytest.raises`: its kind, thing and value are a promise, its sentence is not."""

from collections.abc import Callable
from unittest.mock import ANY

from fda_flower.errors import FdaError


def names(thing: str, value: object = ANY, remedy: str = "") -> Callable[[FdaError], bool]:
    """Return the check that an error names a thing, its value, and a word of the remedy.

    Examples
    --------
    >>> with pytest.raises(ConfigError, check=names("rounds", 0)):
    ...     RunConfig(rounds=0)
    """

    def check(error: FdaError) -> bool:
        named = (error.thing, error.value)
        assert named == (thing, value), f"the error names {named}: {error}"
        assert remedy in error.remedy, f"the remedy is {error.remedy!r}"
        return True

    return check
