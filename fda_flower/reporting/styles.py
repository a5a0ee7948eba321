"""How curves and dots are told apart: a colour, a marker and a dash for each."""

from dataclasses import dataclass

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a7a7a")
"""Okabe and Ito's palette for all kinds of colour vision; its black is a grey that a dark page shows too."""
MARKERS = {
    **{"o": "circle", "s": "square", "D": "diamond", "^": "triangle-up", "v": "triangle-down", "P": "cross"},
    **{"*": "star", "X": "x", "<": "triangle-left", ">": "triangle-right", "h": "hexagon"},
}
DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
"""Markers and dashes by matplotlib's names, with plotly's."""


@dataclass(frozen=True)
class Style:
    """The look of one curve; marker and dash by matplotlib's names."""

    color: str
    marker: str
    dash: str


def style(number: int) -> Style:
    """Return the look of a curve by its number; the first 77 differ in colour or marker, and most in both.

    The numbers of colours, markers and dashes share no divisor but 1, so that neighbours differ in all three.

    Examples
    --------
    >>> style(0)
    Style(color='#0072b2', marker='o', dash='-')
    >>> style(7)
    Style(color='#0072b2', marker='X', dash=':')
    """
    colors, markers, dashes = COLORS, [*MARKERS], [*DASHES]
    return Style(colors[number % len(colors)], markers[number % len(markers)], dashes[number % len(dashes)])
