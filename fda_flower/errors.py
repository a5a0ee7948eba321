"""The errors of this package, which are printed without a traceback, and safe printing of foreign text."""

import codecs
import logging
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from os import PathLike
from typing import Any
from unicodedata import combining, normalize
from unicodedata import name as name_of

LONGEST = 1000
"""The most characters of a printed text."""
LONGEST_MESSAGE = 10_000
"""The most characters of a message, which may list texts of many machines."""
FORMULA = re.compile(r"[=+\-@\t\r](?!$|[\d.,]+(?:[eE][-+]?\d+)?$)")
"""The beginning of a text, but of no number, that a spreadsheet may run."""
MOST_CHOICES = 60
"""The most names that a message offers in place of an unknown one: columns may be thousands."""
RULE = "it must be "
"""The beginning of a remedy that says which values are valid."""


class FdaError(Exception):
    """An error that a person can correct: it names the thing, its value and the remedy.

    Parameters
    ----------
    message : str
        The problem, such as ``"rounds is 0"``.
    thing : str
        The setting, file, column or client that is wrong; empty if there is no single one.
    value : object
        Its value.
    remedy : str
        What to do, appended to the message after a colon. Default: the text after the message's last colon.

    Attributes
    ----------
    may_leave : bool, optional
        Whether a site may say it to others: true if it follows from no data, false if it names the site's own
        files (`own_files`). Default: `fda_flower.site.words` decides.
    """

    may_leave: bool | None = None

    def __init__(self, message: str, *, thing: str = "", value: object = None, remedy: str = "") -> None:
        super().__init__(f"{message}: {remedy}" if remedy else message)
        self.thing, self.value = thing, value
        self.remedy = remedy or (message.rpartition(": ")[2] if ": " in message else "")


class ConfigError(FdaError, ValueError):
    """An invalid setting; raised before any training."""


class RefusedError(ConfigError):
    """A method refuses a federation; tables of runs show the refusal in place of a number."""


class RunError(FdaError, RuntimeError):
    """A run that cannot continue; its files stay valid."""


@contextmanager
def own_files() -> Iterator[None]:
    """Keep the words of errors in the block at a site: they name its own files, and what is in them."""
    try:
        yield
    except FdaError as error:
        error.may_leave = False
        raise


FIRST, LAST = 7, 3
"""How many of many names a message has, the first and the last ones."""


def some(names: Iterable[str], mark: str = ", ", first: int = FIRST, last: int = LAST) -> str:
    """Return names, of many the first and the last ones and how many are between them.

    Examples
    --------
    >>> some(["a", "b"]), some((f"g{number}" for number in range(2000)), first=2, last=1)
    ('a, b', 'g0, g1, ... (1,997 more), g1999')
    """
    every = [*names]
    if (more := len(every) - first - last) <= 0:
        return mark.join(every)
    return mark.join([*every[:first], f"... ({more:,} more)", *every[len(every) - last :]])


def unknown(what: str, name: str, valid: Iterable[str]) -> ConfigError:
    """Return the error for a name that is not in a registry; the message lists the valid names."""
    names = sorted(valid)
    remedy = f"choose one of {some(names, first=MOST_CHOICES - LAST)}"
    return ConfigError(f"unknown {what} '{name}'{near(name, names)}", thing=what, value=name, remedy=remedy)


def invalid(thing: str, value: object, remedy: str, why: str = "") -> ConfigError:
    """Return the error for an invalid value of a setting; `why` explains it if the remedy does not.

    Examples
    --------
    >>> print(invalid("rounds", 0, "it must be at least 1"))
    rounds must be at least 1, not 0
    >>> print(invalid("target-samples", "many", "give a number, or a share such as 15%"))
    target-samples is 'many': give a number, or a share such as 15%
    """
    text = repr(str(value)) if isinstance(value, (str, PathLike)) else str(value)
    if remedy.startswith(RULE) and not why:
        error = ConfigError(f"{thing}{remedy.removeprefix('it')}, not {text}", thing=thing, value=value)
        error.remedy = remedy
        return error
    message = f"{thing} is {text}{', ' if why else ''}{why}"
    return ConfigError(message, thing=thing, value=value, remedy=remedy)


def near(name: str, valid: Iterable[str]) -> str:
    """Return " (did you mean 'NAME'?)" with the valid name nearest to `name`, in any case; empty if none is.

    A prefix before a colon may be missing.

    Examples
    --------
    >>> near("Hungary", ["cleveland", "hungary"]), near("x", ["hungary"])
    (" (did you mean 'hungary'?)", '')
    >>> near("dann", ["fada", "central:dann"])
    " (did you mean 'central:dann'?)"
    """
    names = [*valid]
    read = {_folded(each.rpartition(":")[2]): each for each in names} | {
        _folded(each): each for each in names
    }
    matches = get_close_matches(_folded(name), read, n=1)
    return f" (did you mean {read[matches[0]]!r}?)" if matches else ""


def _folded(name: str) -> str:
    return normalize("NFKC", str(name)).casefold()


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise a `ConfigError` unless an option's value is one of its choices."""
    words = tuple(choices)
    if value not in words:
        raise invalid(name, value, f"choose {' or '.join(words)}")


def printable(text: str, longest: int = LONGEST) -> str:
    """Return a text as one line of at most `longest` characters, with control characters escaped."""
    escaped = "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in text[: longest + 1]
    )
    return escaped if len(escaped) <= longest else f"{escaped[: longest - 1]}…"


def printable_lines(text: object) -> str:
    """Return a whole text with the control characters of its lines escaped."""
    return "\n".join(printable(line, len(line) * 10) for line in str(text).split("\n"))


LIKE = {
    **dict.fromkeys("−–—━─", "-"),
    **dict.fromkeys("│┃", "|"),
    **dict.fromkeys("‘’", "'"),
    **dict.fromkeys("“”„", '"'),
    **{"±": "+-", "×": "x", "≤": "<=", "≥": ">=", "≠": "!=", "√": "sqrt", "→": "->", "←": "<-"},
    **{"·": "*", "†": "+", "‡": "++", "°": "deg", "µ": "u", "€": "EUR", "£": "GBP"},
    **{"ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L"},
}
"""Characters that look like these in ASCII, other than by leaving out accents."""

LIKENESS = "fda-likeness"
"""The handler of encoding errors that writes `as_ascii`."""


def as_ascii(text: str) -> str:
    r"""Return what looks like a text in ASCII; escapes of characters that nothing looks like.

    Examples
    --------
    >>> as_ascii("Müller ±2 points, ε ≤ 1… 東")
    'Muller +-2 points, epsilon <= 1... \\u6771'
    """
    return "".join(char if char.isascii() else _likeness(char) for char in text)


def _likeness(char: str) -> str:
    letter = name_of(char, "").split()
    if letter[:1] == ["GREEK"] and "LETTER" in letter:
        return letter[letter.index("LETTER") + 1].lower()
    if char in LIKE or combining(char):
        return LIKE.get(char, "")
    like = normalize("NFKD", char).replace("⁄", "/").encode("ascii", "ignore").decode()
    return like or char.encode("ascii", "backslashreplace").decode()


def _of_error(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    return as_ascii(error.object[error.start : error.end]), error.end


codecs.register_error(LIKENESS, _of_error)


def print_anything() -> None:
    """Let standard output and error take any text: `as_ascii` where their encoding lacks a character."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors=LIKENESS)


def as_cell(value: Any) -> Any:
    """Return a cell that no spreadsheet runs as a formula: such a text gets an apostrophe in front.

    Examples
    --------
    >>> as_cell("=1+1"), as_cell("-1.5"), as_cell("healthy")
    ("'=1+1", '-1.5', 'healthy')
    """
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def keep_to_one_line(record: logging.LogRecord) -> bool:
    """Filter a logger's records to keep each message on one line: a node's text never starts a line."""
    try:
        record.msg, record.args = printable(record.getMessage(), LONGEST_MESSAGE), ()
    except (TypeError, ValueError):
        return True  # logging reports the broken message itself
    if record.exc_info:
        lines = logging.Formatter().formatException(record.exc_info).splitlines()
        record.exc_text = "\n".join(f"  {printable(line, LONGEST_MESSAGE)}" for line in lines)
    return True
