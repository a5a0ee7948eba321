"""The results of runs, as tables, figures and pages take them; which test samples each got right."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.metrics import METRICS, Metric
from fda_flower.records.record import VALIDATION, Record, chosen_round, curve, headline
from fda_flower.reporting.summary import (
    ACCURACY,
    LAST,
    PARAMETERS,
    REFUSED,
    baseline_in,
    name_of_baseline,
    samples_of,
    scores,
)

Outcomes = NDArray[np.float64]
"""For each test sample, the share of rounds in which it was classified correctly; shape ``(n,)``."""


def mean_outcomes(history: Sequence[Record], ending: str = "") -> Outcomes | None:
    """Return the outcomes over those of the last 5 rounds that recorded them; None if none did.

    A round's ``outcomes`` are the packed bits of its ``test-examples`` samples in hexadecimal digits. Warm-up
    rounds do not count. `ending` ends both names: ``-average`` for the averaged model.
    """
    last = [record for record in history if not record.get("warmup")][-LAST:]
    rounds = [
        np.unpackbits(np.frombuffer(bytes.fromhex(bits), np.uint8), count=record[f"test-examples{ending}"])
        for record in last
        if (bits := record.get(f"outcomes{ending}"))
    ]
    return np.mean(rounds, axis=0) if rounds else None


def paired_error(first: Outcomes | None, second: Outcomes | None) -> float | None:
    """Return the standard error of the difference of two accuracies over test samples, in points.

    The difference is taken on each sample, so that its difficulty cancels. None unless there are outcomes of
    the same number of samples, at least two.
    """
    if first is None or second is None or len(first) != len(second) or len(first) < 2:
        return None
    return float(100 * np.std(first - second, ddof=1) / np.sqrt(len(first)))


def about(
    data: Sequence[str | None], seeds: Sequence[int], spread: bool = True, everywhere: bool = True
) -> str:
    """Return a figure's sub-title: the data, the seeds, and what is shown of several.

    `spread` says whether the standard deviation is shown, `everywhere` whether each cell has all seeds.

    Examples
    --------
    >>> about(["digits", "rotate"], [0, 1, 2])
    'digits, rotate; seeds 0 to 2; mean ± std over seeds'
    >>> about(["pacs", None], [1, 4], spread=False, everywhere=False)
    'pacs; seeds 1, 4 (fewer in some cells); mean over seeds'
    """
    shown = f"mean{' ± std' * spread} over seeds" if len(seeds) > 1 else ""
    named = ", ".join(map(str, seeds))
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        named = f"{seeds[0]} to {seeds[-1]}"
    named = f"seed{'s' * (len(seeds) > 1)} {named}" if seeds else ""
    named += " (fewer in some cells)" * (not everywhere)
    return "; ".join(filter(None, [", ".join(filter(None, data)), named, shown]))


def named_baseline(name: str, sizes: Sequence[int]) -> str:
    """Return the label of the line of a model that knows nothing of a sample.

    Examples
    --------
    >>> named_baseline("most frequent class", [45, 45]), named_baseline("mean of the labels", [36, 45])
    ('most frequent class, 45 test samples', 'mean of the labels, 36 to 45 test samples')
    """
    if not sizes:
        return name
    least, most = min(sizes), max(sizes)
    return f"{name}, {least if least == most else f'{least} to {most}'} test samples"


Place = tuple[str, str, str]
"""The place of a cell: group (empty if there are none), row, column."""

MOST = 3
"""The most data sets that a sub-title names."""

ENSEMBLE, CENTRALISED = "†", "‡"
"""Marks of rows in tables and figures."""


@dataclass(frozen=True)
class CellResult:
    """One run of an experiment: its place in the table, its seed, and the record of each round.

    `parameters` is the number of the model's; `epochs` are those that a source and the target trained, by
    role, if known. `metric` is the figure that the run is judged by, a name of `fda_flower.metrics.METRICS`,
    and `ending` how its field of a round's record ends: ``-average`` for the averaged model.
    """

    place: Place
    seed: int
    history: Sequence[Record]
    parameters: int = 0
    epochs: Mapping[str, int] = field(default_factory=dict)
    metric: str = ACCURACY
    ending: str = ""

    def score(self, key: str, ending: str | None = None) -> float:
        """Return ``last5``, ``best`` or ``selected`` of the headline, in the unit of tables; NaN without one.

        `ending` is that of the field. Default: the run's own.
        """
        value = scores(self.history, self.metric, self.ending if ending is None else ending).get(key)
        return np.nan if value is None else value

    @property
    def validation(self) -> float | None:
        """The figure on labels held out in the round that they have chosen, in the unit of tables, if any."""
        chosen = chosen_round(self.history)
        return None if chosen is None else METRICS[self.metric].scaled(self.history[chosen - 1][VALIDATION])

    @property
    def points(self) -> float:
        """``last5`` in hundredths, the more the better, to compare runs; NaN without an evaluation."""
        shown = METRICS[self.metric]
        return (1 if shown.higher_is_better else -1) * 100 / shown.scaled(1) * self.score("last5")

    @property
    def curve(self) -> list[float]:
        """The headline by round, in the unit of tables; NaN where it is unknown."""
        return curve(self.history, self.metric, self.ending)

    @property
    def outcomes(self) -> Outcomes | None:
        """Which test samples the headline's model gets right; None where the headline is another figure."""
        return mean_outcomes(self.history, self.ending) if self.metric == ACCURACY else None


@dataclass(frozen=True)
class RunView:
    """A run as tables and pages take it from its folder: its method, its seed, and the records so far.

    `notes` are versions, the device and what else its ``config.json`` says besides the `settings`, `run` is
    what makes two runs the same, and `summary` the content of ``summary.json``, empty without one. `rounds`
    are those asked for, warm-up rounds included; 0 if unknown. `commands` repeat it. The headline is
    `metric`, a name of `fda_flower.metrics.METRICS`.
    """

    label: str
    seed: int
    history: Sequence[Record]
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 0
    done: bool = True
    commands: Sequence[str] = ()
    metric: str = ACCURACY
    run: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether its summary is of its end, or of a refusal; not of an interrupt, or of rounds before."""
        ended = PARAMETERS in self.summary and self.summary["rounds"] == len(self.history)
        return ended or REFUSED in self.summary

    @property
    def data(self) -> str:
        """The data set and its shift."""
        return ", ".join(str(self.settings[key]) for key in ("dataset", "shift") if self.settings.get(key))

    @property
    def state(self) -> str:
        """How far the run is."""
        of = f" of {self.rounds}" if self.rounds else ""
        last = headline(self.history[-1], self.metric) if self.history else "no round is done yet"
        return f"{'Done' if self.done else 'Not done'}: {len(self.history)}{of} rounds; {last}."


@dataclass(frozen=True)
class Results:
    """The measurements of an experiment, and the paper's values.

    Attributes
    ----------
    name, title, source, note : str
        Name of the experiment's file, and of the files written; its title; the paper's table, and how the
        experiment differs from it.
    axis, group_axis : str
        What the columns and the groups stand for; empty if there are no groups.
    groups, rows, columns, cells
        Labels in order, and the runs.
    rounds : int
        Rounds asked for, besides the warm-up rounds.
    values : mapping of str to float
        Positions of columns on a figure's axis, if they have any.
    paper, refused : mapping of Place
        The paper's values, in percent; why a method refuses the federation of a place.
    figures, report, average, cuts
        The figures to draw, and the kind of report, by their names in `FIGURES` and `REPORTS`; whether the
        table ends with the mean over columns; what a cut-down run left out, a sentence each.
    rivals, ensembles, centralised : collection of str
        Labels of the rows that a regret is measured against (empty for all), of ensembles, and of
        centralised references.
    metrics, data
        By group and column, the figure that the runs are judged by, else the accuracy; names of data sets.
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
    paper: Mapping[Place, float] = field(default_factory=dict)
    figures: Sequence[str] = ()
    average: bool = False
    cuts: Sequence[str] = ()
    report: str = "table"
    rivals: Sequence[str] = ()
    ensembles: Collection[str] = ()
    centralised: Collection[str] = ()
    metrics: Mapping[tuple[str, str], str] = field(default_factory=dict)
    data: Sequence[str] = ()
    refused: Mapping[Place, str] = field(default_factory=dict)

    def about(self, spread: bool = True) -> str:
        """Return the sub-title of a figure: title, data sets, seeds, and whether it shows their spread."""
        data = self.data if len(self.data) <= MOST else [f"{len(self.data)} data sets"]
        seeds = sorted({cell.seed for cell in self.cells})
        everywhere = len(self.cells) == len(seeds) * len(self._at)
        return f"{self.title}\n{about(data, seeds, spread, everywhere)}".strip()

    @property
    def places(self) -> list[Place]:
        """The places of the cells, row by row."""
        return list(product(self.groups, self.rows, self.columns))

    @property
    def measured(self) -> list[tuple[str, str]]:
        """The groups and columns that have a run."""
        run = {(group, column) for group, _, column in self._at}
        return [place for place in product(self.groups, self.columns) if place in run]

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

    def metric(self, group: str, column: str) -> Metric:
        """Return the figure of a group and a column."""
        return METRICS[self.metrics.get((group, column), ACCURACY)]

    @property
    def shown(self) -> list[Metric]:
        """The figures that occur, each once."""
        return list(dict.fromkeys(self.metric(g, c) for g, c in product(self.groups, self.columns)))

    @property
    def value_label(self) -> str:
        """The label of the axis of the figures."""
        return " or ".join(dict.fromkeys(metric.axis for metric in self.shown))

    def label(self, row: str) -> str:
        """Return a row's label, marked if its method is an ensemble or a centralised reference."""
        marked = {ENSEMBLE: self.ensembles, CENTRALISED: self.centralised}
        return " ".join([row, *(mark for mark, rows in marked.items() if row in rows)])

    @property
    def marks(self) -> str:
        """What the marks mean that occur, a sentence each."""
        what = "a reference that is no federated method: centralised, pooled sources"
        ensembles = [f"{ENSEMBLE} marks an ensemble of several models."] if self.ensembles else []
        return " ".join([*ensembles, *([f"{CENTRALISED} marks {what}."] if self.centralised else [])])

    @cached_property
    def _at(self) -> Mapping[Place, list[CellResult]]:
        found: dict[Place, list[CellResult]] = {}
        for cell in sorted(self.cells, key=lambda cell: cell.seed):
            found.setdefault(cell.place, []).append(cell)
        return found

    def at(self, place: Place) -> list[CellResult]:
        """Return the cells of a place, by seed."""
        return self._at.get(place, [])

    def baseline(self, group: str, column: str) -> tuple[float, ...]:
        """Return the headline of a model that knows nothing of a sample, by seed, in the unit of tables.

        It is of the test set, and the same for each row; see `fda_flower.reporting.summary.baseline_of`.
        """
        found: dict[int, float] = {}
        for cell in (cell for row in self.rows for cell in self.at((group, row, column))):
            value = None if cell.seed in found else baseline_in(cell.history, cell.metric)
            found |= {} if value is None else {cell.seed: value}
        return tuple(found[seed] for seed in sorted(found))

    def line(self, group: str, column: str) -> tuple[float, str] | None:
        """Return the mean of `baseline` and its name with the number of test samples; None if unknown."""
        values = self.baseline(group, column)
        cells = (cell for row in self.rows for cell in self.at((group, row, column)))
        sizes = [size for cell in cells if (size := samples_of(cell.history))]
        name = name_of_baseline(self.metrics.get((group, column), ACCURACY))
        return (float(np.mean(values)), named_baseline(name, sizes)) if values else None

    def scores(self, place: Place, key: str, ending: str | None = None) -> tuple[float, ...]:
        """Return a score of the seeds that have it; see `CellResult.score`."""
        return tuple(score for cell in self.at(place) if not np.isnan(score := cell.score(key, ending)))

    def points(self, place: Place) -> dict[int, float]:
        """Return ``last5`` in points by seed, of the seeds that have it; see `CellResult.points`."""
        found = {cell.seed: cell.points for cell in self.at(place)}
        return {seed: points for seed, points in found.items() if not np.isnan(points)}
