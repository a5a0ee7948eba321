"""Texts of other machines, which logs, records and terminals show."""

LONGEST = 1000
"""Characters of a text that is shown."""


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
