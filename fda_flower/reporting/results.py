"""The results of an experiment, in the form that tables and figures take."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product, zip_longest

import numpy as np

from fda_flower.records import Record
from fda_flower.reporting.outcomes import Outcomes, mean_outcomes
from fda_flower.reporting.summary import ACCURACY, scores
from fda_flower.reporting.words import about

Place = tuple[str, str, str]
"""The place of a cell: group (empty if there are none), row, column."""

MOST = 3
"""The most data sets that a sub-title names."""

ENSEMBLE, CENTRALISED = "†", "‡"
"""Marks of rows in tables and figures."""


@dataclass(frozen=True)
class CellResult:
    """One run of an experiment.

    Attributes
    ----------
    place : Place
        The run's place in the table.
    seed : int
        The run's seed.
    history : list[dict]
        The record of each round.
    parameters : int
        Number of the model's parameters.
    epochs : mapping of str to int
        Epochs that a source and the target trained, by role; empty if unknown.
    headline : str
        The field of a round's record that the run is judged by.
    """

    place: Place
    seed: int
    history: Sequence[Record]
    parameters: int = 0
    epochs: Mapping[str, int] = field(default_factory=dict)
    headline: str = ACCURACY

    def score(self, key: str, field: str | None = None) -> float:
        """Return ``last5``, ``best`` or ``selected`` of a record's field in percent; NaN if there is none.

        The default field is the headline.
        """
        value = scores(self.history, field or self.headline).get(key)
        return np.nan if value is None else value

    @property
    def outcomes(self) -> Outcomes | None:
        """Which test samples the headline's model gets right; see `mean_outcomes`."""
        return mean_outcomes(self.history, self.headline.removeprefix(ACCURACY))


@dataclass(frozen=True)
class Results:
    """The measurements of an experiment, beside the paper's values.

    Attributes
    ----------
    name : str
        Name of the experiment's file, and of the files written.
    title, source, note : str
        The experiment's title, the paper's table, and how the experiment differs from it.
    axis : str
        What the columns stand for.
    group_axis : str
        What the groups stand for; empty if there are none.
    groups, rows, columns : sequence of str
        Labels in order.
    values, group_values : mapping of str to float
        Positions of columns and of groups on a figure's axis, if they have any.
    paper : mapping of Place to float
        The paper's values, in percent.
    cells : sequence of CellResult
        The runs.
    rounds : int
        Rounds asked for, besides the warm-up rounds.
    figures : sequence of str
        The figures to draw.
    average : bool
        Whether the table ends with the mean over columns.
    cuts : sequence of str
        What a cut-down run left out, a sentence each.
    report : str
        The kind of report, a name of `REPORTS`.
    rivals : sequence of str
        Labels of the rows that a regret is measured against; empty for all rows.
    ensembles : collection of str
        Labels of the rows whose method is an ensemble.
    centralised : collection of str
        Labels of the rows of centralised references.
    regressions : collection of (str, str)
        Groups and columns whose labels are numbers, so that their scores are R².
    data : sequence of str
        Names of the data sets.
    """

    name: str
    title: str
    source: str
    note: str
    axis: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[CellResult]
    rounds: int
    groups: Sequence[str] = ("",)
    group_axis: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    group_values: Mapping[str, float] = field(default_factory=dict)
    paper: Mapping[Place, float] = field(default_factory=dict)
    figures: Sequence[str] = ()
    average: bool = False
    cuts: Sequence[str] = ()
    report: str = "table"
    rivals: Sequence[str] = ()
    ensembles: Collection[str] = ()
    centralised: Collection[str] = ()
    regressions: Collection[tuple[str, str]] = ()
    data: Sequence[str] = ()

    def about(self, spread: bool = True) -> str:
        """Return the sub-title of a figure: title, data sets, seeds, and whether it shows their spread."""
        data = self.data if len(self.data) <= MOST else [f"{len(self.data)} data sets"]
        return f"{self.title}\n{about(data, sorted({cell.seed for cell in self.cells}), spread)}".strip()

    @property
    def places(self) -> list[Place]:
        """The places of the cells, row by row."""
        return list(product(self.groups, self.rows, self.columns))

    def titles(self, places: Iterable[Sequence[str]]) -> list[str]:
        """Return each place's title, a line each: group and column, after their axes, then the rest."""
        axes = [axis.split(" (")[0] for axis in (self.group_axis, self.axis)]
        return [
            "\n".join(
                f"{axis}: {label}" if axis else label
                for axis, label in zip_longest(axes[: len(place)], place, fillvalue="")
                if label
            )
            for place in places
        ]

    def label(self, row: str) -> str:
        """Return a row's label, marked if its method is an ensemble or a centralised reference."""
        marked = {ENSEMBLE: self.ensembles, CENTRALISED: self.centralised}
        return " ".join([row, *(mark for mark, rows in marked.items() if row in rows)])

    @property
    def marks(self) -> str:
        """What the marks mean that occur, a sentence each."""
        sentences = []
        if self.ensembles:
            sentences.append(f"{ENSEMBLE} marks an ensemble of several models.")
        if self.centralised:
            sentences.append(
                f"{CENTRALISED} marks a reference that is no federated method: centralised, pooled sources."
            )
        return " ".join(sentences)

    def at(self, place: Place) -> list[CellResult]:
        """Return the cells of a place, by seed."""
        return sorted((cell for cell in self.cells if cell.place == place), key=lambda cell: cell.seed)

    def scores(self, place: Place, key: str, field: str | None = None) -> tuple[float, ...]:
        """Return ``last5`` or ``best`` of the seeds that have it, in percent."""
        return known_scores(self.at(place), key, field)


def known_scores(cells: Iterable[CellResult], key: str, field: str | None = None) -> tuple[float, ...]:
    """Return ``last5`` or ``best`` of the cells that have it, in percent."""
    return tuple(score for cell in cells if not np.isnan(score := cell.score(key, field)))
