"""The results of runs for tables, figures and pages, and the test samples that each run gets right."""

import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product, zip_longest
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.metrics import METRICS, UNITS, Metric, few_cases
from fda_flower.records.record import VALIDATION, Record, chosen_round, curve, headline
from fda_flower.reporting.run_tables import sizes_table
from fda_flower.reporting.summary import (
    ACCURACY,
    LAST,
    PARAMETERS,
    REFUSED,
    Sampling,
    baseline_in,
    cases_of,
    last_evaluation,
    name_of_baseline,
    scores,
)
from fda_flower.reporting.tables import Table

Outcomes = NDArray[np.float64]
"""For each test sample, the share of rounds in which it was classified correctly; shape ``(n,)``."""


def mean_outcomes(history: Sequence[Record], ending: str = "") -> Outcomes | None:
    """Return the mean outcomes of the last 5 rounds, as far as recorded; None if there are none.

    There are none, too, if several samples are of one patient, since the records do not tell of which.

    A round's ``outcomes`` are the bits of its ``test-examples`` samples as hexadecimal digits. Warm-up rounds
    do not count. `ending` is appended to both names: ``-average`` for the averaged model.
    """
    last = deque((record for record in history if not record.get("warmup")), maxlen=LAST)
    rounds = [
        np.unpackbits(np.frombuffer(bytes.fromhex(bits), np.uint8), count=record[f"test-examples{ending}"])
        for record in last
        if UNITS not in record and (bits := record.get(f"outcomes{ending}"))
    ]
    return np.mean(rounds, axis=0) if rounds else None


def paired_error(first: Outcomes | None, second: Outcomes | None) -> float | None:
    """Return the standard error of the difference of two accuracies over test samples, in points.

    Differences are taken per sample, which cancels its difficulty. None unless both have outcomes of the same
    samples, at least two.
    """
    if first is None or second is None or len(first) != len(second) or len(first) < 2:
        return None
    return float(100 * np.std(first - second, ddof=1) / np.sqrt(len(first)))


def about(
    data: Sequence[str | None], seeds: Sequence[int], spread: bool = True, everywhere: bool = True
) -> str:
    """Return a figure's sub-title: data, seeds and the statistic over seeds.

    `spread` is true if the standard deviation is shown, `everywhere` if each cell has all seeds.

    Examples
    --------
    >>> about(["digits", "rotate"], [0, 1, 2])
    'digits, rotate; seeds 0 to 2; mean ± std over seeds'
    >>> about(["pacs", None], [1, 4], spread=False, everywhere=False)
    'pacs; seeds 1, 4 (fewer in some cells); mean over seeds'
    """
    statistic = f"mean{' ± std' * spread} over seeds" if len(seeds) > 1 else ""
    named = ", ".join(map(str, seeds))
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        named = f"{seeds[0]} to {seeds[-1]}"
    named = f"seed{'s' * (len(seeds) > 1)} {named}" if seeds else ""
    named += " (fewer in some cells)" * (not everywhere)
    return "; ".join(filter(None, [", ".join(filter(None, data)), named, statistic]))


def named_baseline(name: str, histories: Iterable[Sequence[Record]]) -> str:
    """Return the label of a baseline's line, with the number of test samples of runs.

    Examples
    --------
    >>> runs = [[{"test-examples": 45}], [{"test-examples": 45}], [{"test-examples": 36}]]
    >>> named_baseline("most frequent class", runs[:2]), named_baseline("mean of the labels", runs)
    ('most frequent class, 45 test samples', 'mean of the labels, 36 to 45 test samples')
    """
    tests = {each for history in histories if (each := Sampling.of(history)).samples}
    if len(tests) < 2:
        return ", ".join([name, *map(str, tests)])
    least, most = (end(each.samples for each in tests) for end in (min, max))
    return f"{name}, {least if least == most else f'{least} to {most}'} test samples"


Place = tuple[str, str, str]
"""The place of a cell: group (empty if there are none), row, column."""

MOST = 3
"""The most data sets that a sub-title names."""

ENSEMBLE, CENTRALISED = "†", "‡"
"""Marks of rows in tables and figures."""

FEW = "*"
"""Mark of a metric in which each class counts alike, where one has few test cases."""


@dataclass(frozen=True)
class RecordedRun:
    """A run, read from its folder or an experiment's records: its method, its seed, and its records so far.

    `notes` holds versions, the device and the other entries of ``config.json`` besides the `settings`;
    `fingerprint` identifies the run; `summary` is the content of ``summary.json``, or empty. `rounds` is the
    number requested, including warm-up rounds; 0 if unknown. `commands` repeat the run. `metric` is the
    headline, a name of `fda_flower.metrics.METRICS`, and `ending` the suffix of its field in a record:
    ``-average`` for the averaged model.
    """

    label: str
    seed: int
    history: Sequence[Record] = field(repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    notes: Mapping[str, Any] = field(default_factory=dict, repr=False)
    rounds: int = 0
    done: bool = True
    commands: Sequence[str] = field(default=(), repr=False)
    metric: str = ACCURACY
    ending: str = ""
    fingerprint: Mapping[str, Any] = field(default_factory=dict, repr=False)
    summary: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def whole(self) -> bool:
        """Whether the run has ended or was refused, by its summary."""
        ended = PARAMETERS in self.summary and self.summary["rounds"] == len(self.history)
        return ended or REFUSED in self.summary

    @property
    def epochs(self) -> Mapping[str, int]:
        """The trained epochs by role, by the summary, if known."""
        epochs: Mapping[str, int] = self.summary.get("epochs", {})
        return epochs

    @property
    def data(self) -> str:
        """The data set and its shift."""
        return ", ".join(str(self.settings[key]) for key in ("dataset", "shift") if self.settings.get(key))

    @property
    def state(self) -> str:
        """The run's progress, as text."""
        of = f" of {self.rounds}" if self.rounds else ""
        last = headline(self.history[-1], self.metric) if self.history else "no round is done yet"
        return f"{'Done' if self.done else 'Not done'}: {len(self.history)}{of} rounds; {last}."

    def score(self, key: str, ending: str | None = None) -> float:
        """Return ``last5``, ``best`` or ``selected`` of the headline, in the unit of tables; NaN without one.

        `ending` is the field's suffix, by default the run's.
        """
        ending = self.ending if ending is None else ending
        if ending not in self._scores:
            self._scores[ending] = scores(self.history, self.metric, ending)
        value = self._scores[ending].get(key)
        return np.nan if value is None else value

    @cached_property
    def _scores(self) -> dict[str, dict[str, float | None]]:
        """The scores so far computed, by `ending`: the records of a long run are read once."""
        return {}

    @cached_property
    def sizes(self) -> Table:
        """The number of samples of each domain, as far as the records have it."""
        return sizes_table(self.history)

    @property
    def validation(self) -> float | None:
        """The validation figure of the chosen round, in the unit of tables, if any."""
        chosen = chosen_round(self.history)
        return None if chosen is None else METRICS[self.metric].scaled(self.history[chosen - 1][VALIDATION])

    @property
    def points(self) -> float:
        """``last5`` in hundredths, higher is better, to compare runs; NaN without an evaluation."""
        metric = METRICS[self.metric]
        return (1 if metric.higher_is_better else -1) * 100 / metric.scaled(1) * self.score("last5")

    @property
    def curve(self) -> list[float]:
        """The headline by round, in the unit of tables; NaN where it is unknown."""
        return curve(self.history, self.metric, self.ending)

    @property
    def outcomes(self) -> Outcomes | None:
        """The outcomes of the headline's model; None if the headline is not the accuracy."""
        return mean_outcomes(self.history, self.ending) if self.metric == ACCURACY else None


@dataclass(frozen=True, kw_only=True)
class Design:
    """What an experiment's tables and figures show, and say besides the numbers.

    Attributes
    ----------
    name, title, source, note : str
        Name of the experiment's file and of its outputs; its title; the paper's table; the differences from
        the paper.
    axis, group_axis : str
        The quantity of the columns, and of the groups, if any.
    figures, report : tuple of str, str
        The figures to draw, and the kind of report, by their names in `FIGURES` and `REPORTS`.
    average : bool
        Whether the table ends with the mean over columns.
    rivals : tuple of str
        Labels of the rows that a regret is measured against; empty for all.
    """

    name: str
    title: str
    source: str = ""
    note: str = ""
    axis: str = ""
    group_axis: str = ""
    figures: tuple[str, ...] = ("columns", "rounds")
    average: bool = False
    report: str = "table"
    rivals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Results:
    """The measurements of an experiment, and the paper's values.

    Attributes
    ----------
    design : Design
        What the tables and figures show: the experiment itself.
    groups, rows, columns, runs
        Labels in order, and the runs by place.
    rounds : int
        Requested rounds, without warm-up rounds.
    values : mapping of str to float
        Positions of columns on a figure's axis, if they have any.
    paper, refused : mapping of Place
        The paper's values, in percent; why a method refuses the federation of a place.
    cuts : sequence of str
        What a cut-down run left out, a sentence each.
    ensembles, centralised : collection of str
        Labels of the rows of ensembles, and of centralised references.
    metrics, data
        By group and column, the figure that the runs are judged by, else the accuracy; names of data sets.
    """

    design: Design
    rows: Sequence[str]
    columns: Sequence[str]
    runs: Mapping[Place, Sequence[RecordedRun]] = field(repr=False)
    rounds: int
    groups: Sequence[str] = ("",)
    values: Mapping[str, float] = field(default_factory=dict)
    paper: Mapping[Place, float] = field(default_factory=dict)
    cuts: Sequence[str] = ()
    ensembles: Collection[str] = ()
    centralised: Collection[str] = ()
    metrics: Mapping[tuple[str, str], str] = field(default_factory=dict)
    data: Sequence[str] = ()
    refused: Mapping[Place, str] = field(default_factory=dict)

    @cached_property
    def few(self) -> dict[str, int]:
        """The classes or labels with few test cases in a run, by `few_cases`, and their number."""
        numbers = dict[str, int]()
        for run in self.all_runs:
            for name, number in few_cases(cases_of(last_evaluation(run.history))).items():
                numbers[name] = min(number, numbers.get(name, number))
        return numbers

    def mark(self, metric: Metric) -> str:
        """Return the mark of a metric in which each class counts alike, if one has few test cases."""
        return FEW if self.few and metric.over_classes else ""

    @property
    def is_comparison(self) -> bool:
        """Whether its only column has no name: the table then has a column for each score."""
        return not any(self.columns) and not any(self.groups)

    def about(self, spread: bool = True) -> str:
        """Return the sub-title of a figure: title, data sets, seeds, and whether it shows their spread."""
        data = self.data if len(self.data) <= MOST else [f"{len(self.data)} data sets"]
        seeds = sorted({run.seed for run in self.all_runs})
        everywhere = len(self.all_runs) == len(seeds) * len(self.runs)
        title = "" if self.is_comparison else self.design.title
        few = any(self.mark(metric) for metric in self.distinct_metrics)
        counts = ", ".join(f"{name} {number}" for name, number in self.few.items()) if few else ""
        said = about(data, seeds, spread, everywhere) + (f"; few test cases: {counts}" if few else "")
        return f"{title}\n{said}".strip()

    @property
    def places(self) -> list[Place]:
        """The places of the cells, row by row."""
        return list(product(self.groups, self.rows, self.columns))

    @property
    def measured(self) -> list[tuple[str, str]]:
        """The groups and columns that have a run."""
        known = {(group, column) for group, _, column in self.runs}
        return [place for place in product(self.groups, self.columns) if place in known]

    def titles(self, places: Iterable[Sequence[str]]) -> list[str]:
        """Return each place's title: lines for group and column with their axes, then the rest."""
        axes = [axis.split(" (")[0] for axis in (self.design.group_axis, self.design.axis)]
        return [
            "\n".join(
                f"{axis}: {label}" if axis else label
                for axis, label in zip_longest(axes[: len(place)], place, fillvalue="")
                if label
            )
            for place in places
        ]

    def judged_by(self, metric: str) -> "Results":
        """Return the results by another figure."""
        runs = {place: [replace(run, metric=metric) for run in runs] for place, runs in self.runs.items()}
        return replace(self, runs=runs, metrics=dict.fromkeys(product(self.groups, self.columns), metric))

    def metric(self, group: str, column: str) -> Metric:
        """Return the figure of a group and a column."""
        return METRICS[self.metrics.get((group, column), ACCURACY)]

    @property
    def distinct_metrics(self) -> list[Metric]:
        """The distinct figures."""
        return list(dict.fromkeys(self.metric(g, c) for g, c in product(self.groups, self.columns)))

    @property
    def value_label(self) -> str:
        """The label of the axis of the figures."""
        return " or ".join(dict.fromkeys(metric.axis for metric in self.distinct_metrics))

    def label(self, row: str) -> str:
        """Return a row's label, marked if its method is an ensemble or a centralised reference."""
        marked = {ENSEMBLE: self.ensembles, CENTRALISED: self.centralised}
        return " ".join([row, *(mark for mark, rows in marked.items() if row in rows)])

    @property
    def marks(self) -> str:
        """The explanation of each mark in use."""
        what = "a reference that is no federated method: centralised, pooled sources"
        ensembles = [f"{ENSEMBLE} marks an ensemble of several models."] if self.ensembles else []
        return " ".join([*ensembles, *([f"{CENTRALISED} marks {what}."] if self.centralised else [])])

    @property
    def all_runs(self) -> list[RecordedRun]:
        """The runs of all places."""
        return [run for runs in self.runs.values() for run in runs]

    def at(self, place: Place) -> list[RecordedRun]:
        """Return the runs of a place, by seed."""
        return sorted(self.runs.get(place, ()), key=attrgetter("seed"))

    def column(self, group: str, column: str) -> list[RecordedRun]:
        """Return the runs of a group and a column, row by row."""
        return [run for row in self.rows for run in self.at((group, row, column))]

    def baseline(self, group: str, column: str) -> tuple[float, ...]:
        """Return the baseline's headline by seed, in the unit of tables; it is the same for each row.

        See `fda_flower.reporting.summary.baseline_of`.
        """
        values: dict[int, float] = {}
        for run in self.column(group, column):
            value = None if run.seed in values else baseline_in(run.history, run.metric)
            values |= {} if value is None else {run.seed: value}
        return tuple(values[seed] for seed in sorted(values))

    def line(self, group: str, column: str) -> tuple[float, str] | None:
        """Return the mean of `baseline`, and its label; None if unknown."""
        values = self.baseline(group, column)
        name = name_of_baseline(self.metrics.get((group, column), ACCURACY))
        histories = (run.history for run in self.column(group, column))
        return (float(np.mean(values)), named_baseline(name, histories)) if values else None

    def scores(self, place: Place, key: str, ending: str | None = None) -> tuple[float, ...]:
        """Return a score of all seeds that have it; see `RecordedRun.score`."""
        return tuple(score for run in self.at(place) if not np.isnan(score := run.score(key, ending)))

    def points(self, place: Place) -> dict[int, float]:
        """Return ``last5`` in points of all seeds that have it; see `RecordedRun.points`."""
        return {run.seed: points for run in self.at(place) if not np.isnan(points := run.points)}


def slug(label: str) -> str:
    """Return a label as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.+=-]+", "_", label)


def file_name(place: Place) -> str:
    """Return a place as part of the names of its files."""
    return "-".join(slug(label) for label in place if label)
