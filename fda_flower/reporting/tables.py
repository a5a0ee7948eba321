"""Tables as data, how they are written, and the table of a comparison: mean (std) over seeds."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fda_flower.metrics import METRICS, Metric
from fda_flower.reporting.results import CellResult, known_scores
from fda_flower.reporting.summary import ACCURACY, AVERAGE, describe_interval, samples_of


@dataclass(frozen=True)
class Cell:
    """The text of a cell that is the best of its column, or has a second line."""

    text: str
    best: bool = False
    below: str = ""

    def __str__(self) -> str:
        text = f"**{self.text}**" if self.best else self.text
        return f"{text}<br>{self.below}" if self.below else text


@dataclass(frozen=True)
class Heading:
    """A heading of a report; its title has level 1."""

    text: str
    level: int = 2

    def __str__(self) -> str:
        return f"{'#' * self.level} {self.text}"


@dataclass(frozen=True)
class Table:
    """A table: labels in the first column, in the others text or numbers; None is unknown.

    `folded` says whether a page shows the title alone until it is clicked.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    folded: bool = False

    def __str__(self) -> str:
        """Return the table in Markdown."""
        rule = ["---", *["---:"] * (len(self.header) - 1)]
        rows = [[str(cell).replace("|", "\\|") for cell in row] for row in self.rows]
        return "".join(f"| {' | '.join(cells)} |\n" for cells in (self.header, rule, *rows))

    def csv(self) -> str:
        """Return the table in CSV; None is left empty."""
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows((self.header, *self.rows))
        return buffer.getvalue()

    def records(self) -> list[dict[str, object]]:
        """Return each row by the names of the columns."""
        return [dict(zip(self.header, row, strict=True)) for row in self.rows]


Part = Heading | Table | str
"""A part of a report; text is a paragraph, in which Markdown may mark words."""


def markdown(parts: Iterable[Part]) -> str:
    """Return a report in Markdown."""
    return "\n\n".join(str(part).rstrip() for part in parts) + "\n"


@dataclass(frozen=True)
class Row:
    """A method's results: its headline in the unit of tables, one value for each seed.

    `average` is ``last5`` of the averaged models, and `selected` the figure of the round that samples held
    out have chosen, for the seeds that have one. `rounds` are the most of a seed, `fewest` the fewest.
    `metric` is the name of the headline, and `samples` the number of test samples, 0 if it is not known.
    """

    label: str
    last5: tuple[float, ...]
    best: tuple[float, ...]
    rounds: int
    average: tuple[float, ...] = ()
    selected: tuple[float, ...] = ()
    fewest: int | None = None
    metric: str = ACCURACY
    samples: int = 0

    @property
    def ran(self) -> str:
        """The rounds that were run, such as ``12-30`` where the seeds differ."""
        return str(self.rounds) if self.fewest in (None, self.rounds) else f"{self.fewest}-{self.rounds}"


def mean_std(values: Sequence[float], decimals: int = 1) -> str:
    """Return ``"77.3 (1.2)"``, with the sample standard deviation, which is left out for one value.

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
    """Return the mean and the standard deviation, unrounded; None for what is unknown."""
    return np.mean(values) if values else None, np.std(values, ddof=1) if len(values) > 1 else None


def top(column: Iterable[Sequence[float]], metric: Metric = METRICS[ACCURACY]) -> float:
    """Return the best mean of a table's column; NaN if there are no values."""
    return float(metric.best(float(np.mean(values)) for values in column if values))


def marked(text: str, values: Sequence[float], best: float, below: str = "") -> Cell:
    """Return a cell that is marked if the mean of its values is the column's best."""
    return Cell(text, bool(values and np.mean(values) == best), below)


def make_rows(runs: Mapping[str, Sequence[CellResult]]) -> list[Row]:
    """Return a row for each method, from the results of its seeds."""
    return [
        Row(
            label,
            known_scores(results, "last5"),
            known_scores(results, "best"),
            max(len(result.history) for result in results),
            known_scores(results, "last5", AVERAGE),
            known_scores(results, "selected"),
            min(len(result.history) for result in results),
            results[0].metric,
            max(samples_of(result.history) for result in results),
        )
        for label, results in runs.items()
    ]


def columns(rows: Sequence[Row]) -> dict[str, list[tuple[float, ...]]]:
    """Return the figures of a table by column; those that few runs have only if there are any."""
    shown = {"last5": [row.last5 for row in rows], "best": [row.best for row in rows]}
    more = {
        "selected": [row.selected for row in rows],
        "last5 average": [row.average for row in rows],
    }
    return {**shown, **{name: values for name, values in more.items() if any(values)}}


def comparison_table(rows: Sequence[Row]) -> Table:
    """Return the table of a comparison; the best mean of each column is marked."""
    shown, metric = columns(rows), METRICS[rows[0].metric]
    best = [top(values, metric) for values in shown.values()]
    lines = [
        [
            row.label,
            *(marked(mean_std(v, metric.decimals), v, b) for v, b in zip(values, best, strict=True)),
            *(str(len(row.last5)), row.ran),
        ]
        for row, *values in zip(rows, *shown.values(), strict=True)
    ]
    unit = " (%)" if metric.percent else ""
    return Table(["Method", *(f"{name}{unit}" for name in shown), "seeds", "rounds"], lines)


def caption(rows: Sequence[Row]) -> str:
    """Return what a table shows, and how far its best figure may be off for the size of the test set.

    Examples
    --------
    >>> caption([Row("FedGP", (86.0, 88.0), (90.0, 90.0), 30, samples=450)]).partition(". ")[2]
    'The best last5: ±3.1 points for 450 test samples at 95%.'
    """
    metric = METRICS[rows[0].metric]
    text = f"{metric.axis}: mean (std) over seeds."
    best = top([row.last5 for row in rows], metric)
    size = describe_interval(best, max(row.samples for row in rows), rows[0].metric)
    return " ".join(filter(None, (text, size and f"{'The best last5: ' if '±' in size else ''}{size}.")))


def comparison_numbers(rows: Sequence[Row]) -> Table:
    """Return the same with unrounded numbers, each in its own column."""
    shown = columns(rows)
    lines = [
        [row.label, *(number for v in values for number in mean_and_std(v)), len(row.last5), row.rounds]
        for row, *values in zip(rows, *shown.values(), strict=True)
    ]
    names = [name for column in shown for name in (column, f"{column}_std")]
    return Table(["method", *(name.replace(" ", "_") for name in names), "seeds", "rounds"], lines)
