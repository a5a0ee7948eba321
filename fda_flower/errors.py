"""The errors of this package, printed without a traceback, and texts of other machines made printable."""

import logging
from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 1000
"""Characters of a text that is shown."""
LONGEST_MESSAGE = 10_000
"""Characters of a whole message, which may list texts of many machines."""


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


def printable(text: str, longest: int = LONGEST) -> str:
    r"""Return a text in one line without control characters: their escapes take their place.

    Parameters
    ----------
    text : str
        From a node, a file or a person.
    longest : int
        Characters after which it is cut off, with an ellipsis.

    Examples
    --------
    >>> printable("north\nINFO: all is well")
    'north\\nINFO: all is well'
    >>> printable("a long story", 7)
    'a long…'
    """
    shown = "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in text[: longest + 1]
    )
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def keep_to_one_line(record: logging.LogRecord) -> bool:
    """Make a message printable, as a filter of a logger; each line of a traceback gets an indent.

    So no line that begins in a log is made of what a node has sent.
    """
    try:
        record.msg, record.args = printable(record.getMessage(), LONGEST_MESSAGE), ()
    except (TypeError, ValueError):
        return True  # logging itself tells about a message without its values
    if record.exc_info:
        lines = logging.Formatter().formatException(record.exc_info).splitlines()
        record.exc_text = "\n".join(f"  {printable(line, LONGEST_MESSAGE)}" for line in lines)
    return True
