"""Texts of other machines, which logs, records and terminals show."""

import logging

LONGEST = 1000
"""Characters of a text that is shown."""
LONGEST_MESSAGE = 10_000
"""Characters of a whole message, which may list texts of many machines."""


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
