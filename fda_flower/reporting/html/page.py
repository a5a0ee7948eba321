"""What a page consists of, and its rendering by the template."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from fda_flower.reporting.tables import Cell, Heading, Table
from fda_flower.runs.settings import SETTINGS

TEMPLATE = "report.html.j2"


@dataclass(frozen=True)
class Chart:
    """Charts of plotly by name, as JSON; one at a time is shown, chosen by its name."""

    figures: Mapping[str, str]
    title: str = ""


@dataclass(frozen=True)
class Code:
    """Commands to copy."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading; text is a paragraph."""

    title: str
    parts: Sequence[Table | Chart | Heading | Code | str]


@dataclass(frozen=True)
class Page:
    """The page of a run, a comparison or an experiment.

    Attributes
    ----------
    title, about : str
        Its heading, and a line below it.
    sections : sequence of Section
        Its parts; those without content are left out.
    state : str
        How far it is.
    """

    title: str
    about: str
    sections: Sequence[Section]
    state: str = ""


@dataclass(frozen=True)
class _Numbered:
    """What the template numbers: charts, so that each finds its data."""

    count: list[int] = field(default_factory=lambda: [0])

    def __call__(self) -> int:
        self.count[0] += 1
        return self.count[0]


def render(pages: Sequence[Page], made: str) -> str:
    """Return pages as one HTML file with everything that it needs.

    Parameters
    ----------
    pages : sequence of Page
        At least one.
    made : str
        When and by which version it was made.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=PackageLoader("fda_flower.reporting.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    content: dict[str, Any] = {"pages": pages, "made": made}
    environment.filters["text"] = _text
    environment.filters["paragraph"] = _paragraph
    environment.tests |= {
        kind.__name__.lower(): lambda part, kind=kind: isinstance(part, kind)
        for kind in (Table, Chart, Heading, Code, Cell)
    }
    tools: dict[str, Any] = {"number": _Numbered(), "markup": Markup, "plotly": Markup(get_plotlyjs())}
    return environment.get_template(TEMPLATE).render(**content, **tools)


def _text(value: object) -> str:
    """Return a table's value as text, a number with four digits."""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.4g}"
    return "" if value is None else str(value)


def _paragraph(text: str) -> str:
    """Return text in HTML, with the words that Markdown has in bold or as code.

    Examples
    --------
    >>> _paragraph("**Cut** <b> `x`")
    '<strong>Cut</strong> &lt;b&gt; <code>x</code>'
    """
    marked = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escape(text))
    return re.sub(r"`(.+?)`", r"<code>\1</code>", marked)


def settings_table(settings: Mapping[str, Any], notes: Mapping[str, Any]) -> list[Table]:
    """Return a table of the settings that are not the default, a folded one of all, and one of versions."""
    if not settings:
        return []
    known = {each.name: each for each in SETTINGS}
    rows = {
        name: [
            name.replace("_", "-"),
            show(value),
            show(known[name].default) if name in known else "",
            known[name].help if name in known else "",
        ]
        for name, value in settings.items()
    }
    changed = [row for row in rows.values() if row[1] != row[2]]
    header = ["setting", "value", "default", "meaning"]
    more = [[name, show(value)] for name, value in _flat(notes)]
    tables = [
        Table(header, changed, "Settings that are not the default"),
        Table(header, [*rows.values()], f"All {len(rows)} settings", folded=True),
        Table(["what", "value"], more, "Versions and machine", folded=True),
    ]
    return [table for table in tables if table.rows]


def show(value: Any) -> str:
    """Return a setting's value as text: options by name, lists with commas, nothing for none.

    Examples
    --------
    >>> show({"std": 0.4}), show(["a", "b"]), show(None), show(True)
    ('std=0.4', 'a, b', '', 'yes')
    """
    if isinstance(value, Mapping):
        return " ".join(f"{name}={show(option)}" for name, option in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(show, value))
    return "" if value is None else ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _flat(notes: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [
        pair
        for name, value in notes.items()
        for pair in (value.items() if isinstance(value, Mapping) else [(name, value)])
    ]
