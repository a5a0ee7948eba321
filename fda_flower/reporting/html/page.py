"""The parts of an HTML page, and its rendering."""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from fda_flower.reporting.tables import Cell, Heading, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATE = "report.html.j2"
HIDDEN, ESCAPED = 0xF0000, re.compile(r"\\([!-/:-@\[-`{-~])")
"""The place of an escaped mark while others are read, among characters for private use."""
METADATA = ("Creator", "Date", "Format", "Type")
"""Entries that matplotlib would write into each figure."""


@dataclass(frozen=True)
class Chart:
    """Charts by name; one at a time is shown, chosen by its name."""

    figures: "Mapping[str, Figure]"
    title: str = ""


@dataclass(frozen=True)
class Code:
    """Commands for the reader to copy."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading; a string is a paragraph."""

    title: str
    parts: Sequence[Table | Chart | Heading | Code | str]


@dataclass(frozen=True)
class Page:
    """The page of a run, a comparison or an experiment: its title, subtitle, sections and progress."""

    title: str
    about: str
    sections: Sequence[Section]
    state: str = ""


def render(pages: Sequence[Page], made: str) -> str:
    """Return pages as one self-contained HTML file; `made` has the date and the version."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("fda_flower.reporting.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"text": _text, "paragraph": _paragraph, "svg": _svg}
    environment.tests |= {
        kind.__name__.lower(): lambda part, kind=kind: isinstance(part, kind)
        for kind in (Table, Chart, Heading, Code, Cell)
    }
    return environment.get_template(TEMPLATE).render(pages=pages, made=made, markup=Markup)


def _text(value: object) -> str:
    """Return a table's value as text, numbers with four significant digits."""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.4g}"
    return "" if value is None else str(value)


def _svg(figure: "Figure") -> str:
    """Return a figure as an element of a page, and empty it; its words stay words, which can be searched."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=dict.fromkeys(METADATA))
    figure.clear()
    text = buffer.getvalue()
    return text[text.find("<svg") :]


def _paragraph(text: str) -> str:
    """Return text as HTML, with Markdown's bold words and code; a backslash keeps the next mark."""
    hidden = ESCAPED.sub(lambda mark: chr(HIDDEN + ord(mark[1])), text)
    bold = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escape(hidden))
    html = re.sub(r"`(.+?)`", r"<code>\1</code>", bold)
    marks = {HIDDEN + number: escape(chr(number)) for number in range(128)}
    return html.translate(marks)
