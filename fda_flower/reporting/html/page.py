"""What a page consists of, and its rendering by the template."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fda_flower.reporting.html.markdown import to_html

TEMPLATE = "report.html.j2"


@dataclass(frozen=True)
class Table:
    """A table that sorts by the header that is clicked; a folded one opens by a click on its title."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    folded: bool = False
    kind: str = "table"

    @classmethod
    def from_csv(cls, text: str, title: str) -> "Table":
        """Make a folded table of a CSV file, with numbers rounded to four decimals."""
        header, *rows = csv.reader(io.StringIO(text))
        return cls(header, [[_rounded(value) for value in row] for row in rows], title, folded=True)


@dataclass(frozen=True)
class Chart:
    """Charts of plotly by name, as JSON; one at a time is shown, chosen by its name."""

    figures: Mapping[str, str]
    title: str = ""
    kind: str = "chart"


@dataclass(frozen=True)
class Text:
    """A text in Markdown, whose tables sort."""

    markdown: str
    kind: str = "text"

    @property
    def html(self) -> str:
        """The text in HTML."""
        return to_html(self.markdown)


@dataclass(frozen=True)
class Code:
    """Commands to copy."""

    lines: Sequence[str]
    kind: str = "code"


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading."""

    title: str
    parts: Sequence[Table | Chart | Text | Code]


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
    tools: dict[str, Any] = {"number": _Numbered(), "markup": Markup, "plotly": Markup(get_plotlyjs())}
    return environment.get_template(TEMPLATE).render(**content, **tools)


def _rounded(value: str) -> str:
    try:
        number = float(value)
    except ValueError:
        return value
    return value if number.is_integer() else f"{number:.4g}"
