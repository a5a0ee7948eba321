"""The results of an experiment, as tables and pictures take them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from fda_flower.records import Record
from fda_flower.reporting.summary import summarise

Place = tuple[str, str, str]
"""Where a cell stands: group (empty if there are none), row, column."""


@dataclass(frozen=True)
class CellResult:
    """One run of an experiment.

    Attributes
    ----------
    place : Place
        Where it stands in the table.
    seed : int
        Its seed.
    history : list[dict]
        The record of each round.
    parameters : int
        Parameters of the model.
    """

    place: Place
    seed: int
    history: Sequence[Record]
    parameters: int = 0

    def score(self, key: str) -> float:
        """``last5`` or ``best`` in percent; NaN if the target never evaluated."""
        value = summarise(self.history)[key]
        return np.nan if value is None else float(value)


@dataclass(frozen=True)
class Results:
    """What an experiment measured, beside what the paper prints.

    Attributes
    ----------
    name : str
        Of the experiment's file; names the files written.
    title, source, note : str
        What it is, the paper's table, and what is not as there.
    axis : str
        What the columns are.
    group_axis : str
        What the groups are; empty if there are none.
    groups, rows, columns : sequence of str
        Labels in order.
    values, group_values : mapping of str to float
        Position of a column, of a group, on a figure's axis, where it has one.
    paper : mapping of Place to float
        The paper's value, in percent.
    cells : sequence of CellResult
        What was run.
    rounds : int
        Rounds asked for, beside the initial ones.
    figures : sequence of str
        The pictures to draw.
    average : bool
        Whether the table ends with the mean over columns.
    cuts : sequence of str
        What a cut-down run left out, a sentence each.
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

    @property
    def places(self) -> list[Place]:
        """Where cells stand, row by row."""
        return list(product(self.groups, self.rows, self.columns))

    def at(self, place: Place) -> list[CellResult]:
        """The cells of a place, by seed."""
        return sorted((cell for cell in self.cells if cell.place == place), key=lambda cell: cell.seed)

    def scores(self, place: Place, key: str) -> tuple[float, ...]:
        """``last5`` or ``best`` of the seeds that have it, in percent."""
        return known_scores(self.at(place), key)


def known_scores(cells: Iterable[CellResult], key: str) -> tuple[float, ...]:
    """``last5`` or ``best`` of the cells that have it, in percent."""
    return tuple(score for cell in cells if not np.isnan(score := cell.score(key)))
