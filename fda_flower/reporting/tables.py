"""Tables as data, and their formats."""

import csv
import io
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fda_flower.errors import as_cell
from fda_flower.metrics import METRICS, Metric
from fda_flower.reporting.summary import ACCURACY

MARKS = re.compile(r"[\\`*<\[\]|~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|(?<!\S)#(?=#*$)")
"""What Markdown may read as a mark; an underscore within a word is none."""


def escaped(text: object) -> str:
    r"""Return a text from outside for Markdown, in one line.

    Examples
    --------
    >>> print(escaped("ward *north* | <b>"), escaped("FedDA_Auto"))
    ward \*north\* \| \<b> FedDA_Auto
    """
    return MARKS.sub(r"\\\g<0>", " ".join(str(text).splitlines()))


class Markdown(str):
    """A cell's text that is Markdown already."""

    __slots__ = ()


@dataclass(frozen=True)
class Cell:
    """A cell's text, marked as the best of its column or with a second line."""

    text: str
    best: bool = False
    below: str = ""

    def __str__(self) -> str:
        """Return the cell in Markdown."""
        text = f"**{escaped(self.text)}**" if self.best else escaped(self.text)
        return f"{text}<br>{escaped(self.below)}" if self.below else text


@dataclass(frozen=True)
class Heading:
    """A heading of a report; its title has level 1."""

    text: str
    level: int = 2

    def __str__(self) -> str:
        """Return the heading in Markdown."""
        return f"{'#' * self.level} {escaped(self.text)}"


@dataclass(frozen=True)
class Table:
    """A table: labels in the first column, text or numbers in the others; None is unknown.

    A page shows only the title of a `folded` table until it is clicked.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    folded: bool = False

    def __str__(self) -> str:
        """Return the table in Markdown."""
        rule = ["---", *["---:"] * (len(self.header) - 1)]
        header, *rows = (
            [str(cell) if isinstance(cell, Cell | Markdown) else escaped(cell) for cell in row]
            for row in (self.header, *self.rows)
        )
        return "".join(f"| {' | '.join(cells)} |\n" for cells in (header, rule, *rows))

    def csv(self) -> str:
        """Return the table in CSV, without formulas; None is left empty.

        Where a table has a column ``NAME_std``, that has two significant digits, and ``NAME`` as many
        decimals, both at least one; such a table's other numbers have six significant digits.
        """
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(
            map(as_cell, row) for row in (self.header, *map(self._rounded, self.rows))
        )
        return buffer.getvalue()

    def _rounded(self, row: Sequence[object]) -> Sequence[object]:
        values = dict(zip(self.header, row, strict=True))
        spreads = {
            name: values[f"{name.removesuffix('_std')}_std"] for name in self.header if self._has_std(name)
        }
        return [_digits(value, spreads.get(name)) for name, value in values.items()] if spreads else row

    def _has_std(self, name: str) -> bool:
        return f"{name.removesuffix('_std')}_std" in self.header

    def latex(self) -> str:
        """Return the table in LaTeX, for the package booktabs."""
        columns = f"l{'r' * (len(self.header) - 1)}"
        header, *rows = (" & ".join(map(_latex, row)) + r" \\" for row in (self.header, *self.rows))
        lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", header, r"\midrule", *rows, r"\bottomrule"]
        return "\n".join([*lines, r"\end{tabular}"])

    def records(self) -> list[dict[str, object]]:
        """Return each row as a dictionary by column."""
        return [dict(zip(self.header, row, strict=True)) for row in self.rows]


Part = Heading | Table | str
"""A part of a report; text is a paragraph, in which Markdown may mark words: names in it are `escaped`."""


def markdown(parts: Iterable[Part]) -> str:
    """Return a report in Markdown."""
    return "\n\n".join(str(part).rstrip() for part in parts) + "\n"


LATEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"†": r"$^\dagger$", "‡": r"$^\ddagger$", "±": r"$\pm$", "−": "$-$", "≤": r"$\le$", "≥": r"$\ge$"},
    **{letter: rf"$\{unicodedata.name(letter).split()[-1].lower()}$" for letter in "αβγδεηθκμστφω"},
    "λ": r"$\lambda$",
}
"""Marks and letters that LaTeX reads in another way."""

NEGATIVE = re.compile(r"(?<!\w)-(?=\d)")
"""The sign of a negative number, which LaTeX would print as a hyphen."""


def _latex(cell: object) -> str:
    text = "" if cell is None else str(getattr(cell, "text", cell))
    below = getattr(cell, "below", "")
    text = NEGATIVE.sub("−", f"{text}; {below}" if below else text)
    written = "".join(LATEX.get(letter, letter) for letter in text)
    return rf"\textbf{{{written}}}" if getattr(cell, "best", False) else written


def _digits(value: object, std: object) -> object:
    """Return a number with the digits that its standard deviation deserves, else with six."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    if not isinstance(std, float) or not std > 0:
        return f"{value:.6g}"
    return f"{value:.{max(1 - math.floor(math.log10(std)), 1)}f}"


def latex(parts: Iterable[Part]) -> str:
    """Return the tables of a report in LaTeX, its headings as comments; the text is left out."""
    written = [
        part.latex() if isinstance(part, Table) else f"% {part.text}"
        for part in parts
        if not isinstance(part, str)
    ]
    return "\n\n".join(written) + "\n"


def mean_std(values: Sequence[float], decimals: int = 1) -> str:
    """Return ``"77.3 (1.2)"``: the mean and, for several values, the sample standard deviation.

    Examples
    --------
    >>> mean_std([76.0, 78.0]), mean_std([0.5], decimals=3), mean_std([-0.01])
    ('77.0 (1.4)', '0.500', '0.0')
    """
    if not values:
        return "-"
    mean = f"{np.mean(values):z.{decimals}f}"
    return mean if len(values) == 1 else f"{mean} ({np.std(values, ddof=1):.{decimals}f})"


def mean_and_std(values: Sequence[float]) -> tuple[object, object]:
    """Return the unrounded mean and standard deviation; None if unknown."""
    return np.mean(values) if values else None, np.std(values, ddof=1) if len(values) > 1 else None


def top(column: Iterable[Sequence[float]], metric: Metric = METRICS[ACCURACY]) -> float:
    """Return the best mean of a table's column; NaN if there are no values."""
    return float(metric.best(float(np.mean(values)) for values in column if values))


def marked(text: str, values: Sequence[float], best: float, below: str = "") -> Cell:
    """Return a cell, marked if its mean is the column's best."""
    return Cell(text, bool(values and np.mean(values) == best), below)
