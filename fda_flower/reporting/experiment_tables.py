"""The tables of experiments, with measured and published values, and of comparisons, with their scores."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from fda_flower.metrics import METRICS, Metric
from fda_flower.names.words import counted
from fda_flower.reporting.results import RecordedRun, Results
from fda_flower.reporting.summary import (
    ACCURACY,
    BALANCED,
    FAIR,
    REFUSED,
    Sampling,
    baseline_of,
    describe_interval,
    interval_of,
    is_uneven,
    name_of_baseline,
    sampling_interval,
    scores,
)
from fda_flower.reporting.summary import AVERAGE as AVERAGED
from fda_flower.reporting.tables import (
    Cell,
    Heading,
    Part,
    Table,
    escaped,
    marked,
    mean_and_std,
    mean_std,
    top,
)
from fda_flower.reporting.words import describe_few
from fda_flower.runs.methods import METHODS

AVERAGE = "Avg"
TARGET_ONLY = METHODS["target-only"].label

LEAST_SEEDS = 3
"""The fewest seeds from which the spread over draws is estimated."""

HEADER = (
    *("group", "row", "column", "seeds", "rounds"),
    *("last5", "last5_std", "best", "best_std", "paper", "difference", "interval", "inside"),
)


@dataclass(frozen=True)
class Column:
    """A column: its name and figure, each row's scores by seed, the baseline's, and the paper's values."""

    name: str
    metric: Metric
    scores: Mapping[str, Sequence[float]]
    baseline: Sequence[float] = ()
    paper: Mapping[str, float] = field(default_factory=dict)
    refused: Collection[str] = ()

    @property
    def best(self) -> float:
        """The best mean."""
        return top(self.scores.values(), self.metric)

    def cell(self, row: str, usual: int | None) -> Cell | str:
        """Return ``71.0 (0.4, 3 seeds)`` and below it ``paper 71.1, -0.1, inside``; seeds only if unusual."""
        if row in self.refused:
            return REFUSED
        values, decimals, paper = self.scores[row], self.metric.decimals, self.paper.get(row)
        text = mean_std(values, decimals)
        if values and len(values) != (usual or len(values)):
            seeds = counted(len(values), "seed")
            text = f"{text} ({seeds})" if len(values) == 1 else f"{text[:-1]}, {seeds})"
        if paper is None:
            return marked(text, values, self.best)
        if not values:
            return Cell(text, below=f"paper {paper:.{decimals}f}")
        difference, interval = np.mean(values) - paper, half_width(values)
        verdict = "" if interval is None else ", inside" if abs(difference) <= interval else ", outside"
        return marked(
            text, values, self.best, f"paper {paper:.{decimals}f}, {difference:+z.{decimals}f}{verdict}"
        )


def report(results: Results) -> list[Part]:
    """Return, for each group, a table of ``last5`` with the paper's values, and one of ``best``.

    The best mean of each column is marked; the text lists what a cut-down run left out. A comparison has one
    table with a column for each score.
    """
    design = results.design
    counts = sorted({len(results.scores(place, "last5")) for place in results.places} - {0})
    measured = f"{_describe(counts)}, {counted(results.rounds, 'round')}."
    parts: list[Part] = [
        f"{design.source}. {measured}" if design.source else measured,
        design.note.strip(),
        "" if results.is_comparison else results.marks,
        *(f"**Cut down:** {escaped(cut)}" for cut in results.cuts),
        *(f"**Refused:** {escaped(reason)}." for reason in dict.fromkeys(results.refused.values())),
    ]
    if results.is_comparison:
        parts += [table_of_scores(results), caption(results)] if results.runs else []
        return [part for part in parts if part]
    parts.append(_legend(results, counts if results.paper else ()))
    for group in results.groups:
        if group:
            parts.append(Heading(f"{design.group_axis}: {group}" if design.group_axis else group))
        parts += _tables(results, group, max(counts, default=0))
    return [part for part in parts if part]


def _tables(results: Results, group: str, usual: int) -> list[Part]:
    """Return a group's tables, one for each score, with its columns."""

    def table(key: str, of: Results = results) -> Table:
        return _table(of, group, _columns(of, group, key), usual)

    parts: list[Part] = [table("last5")]
    if any(np.isfinite(run.curve).sum() > 1 for run in results.all_runs):
        parts += [
            "The same for the best round on the test set, which is **optimistic**: the test labels chose it.",
            table("best"),
        ]
    if (balanced := _balanced(results, group)).columns:
        parts += [
            "Where one class has most of the test samples, the balanced accuracy (%) over the last 5 rounds: "
            f"the mean recall of the classes.{f' {describe_few(few)}.' if (few := results.few) else ''}",
            table("last5", balanced),
        ]
    if any(any(column.scores.values()) for column in _columns(results, group, "selected")):
        parts += [
            "The same for the round that held-out labels chose, without any test label.",
            table("selected"),
        ]
    return parts


def _table(results: Results, group: str, columns: Sequence[Column], usual: int | None = None) -> Table:
    """Return a table of scores, with a last row of the baseline if any column has one."""
    named = str if results.is_comparison else results.label
    rows: list[list[str | Cell]] = [
        [named(row), *(column.cell(row, usual) for column in columns)] for row in results.rows
    ]
    if any(column.baseline for column in columns):
        name = name_of_baseline(results.metrics.get((group, results.columns[0]), ACCURACY))
        rows.append([name, *(Cell(mean_std(c.baseline, c.metric.decimals)) for c in columns)])
    return Table([results.design.axis, *(column.name for column in columns)], rows)


def numbers(results: Results) -> Table:
    """Return one line for each place, with unrounded numbers; unknown ones are empty.

    Columns of the averaged model and of the chosen round exist if any run has them, and the column
    ``centralised`` if any row is a centralised reference. The place in a comparison is the ``method``.
    """
    by_key = _by_key(results)
    more = [key for key in by_key if key not in ("last5", "best")]
    lines = []
    for i, place in enumerate(results.places):
        last5, best = by_key["last5"][i], by_key["best"][i]
        rounds = max((len(run.history) for run in results.at(place)), default=None)
        others = [number for key in more for number in mean_and_std(by_key[key][i])]
        scores = [*mean_and_std(last5), *mean_and_std(best)]
        if results.is_comparison:
            lines.append([place[1], *scores, *others, len(last5), rounds])
            continue
        paper = results.paper.get(place)
        difference = np.mean(last5) - paper if last5 and paper is not None else None
        interval = half_width(last5)
        inside = None if interval is None or difference is None else bool(abs(difference) <= interval)
        known = [len(last5), rounds, *scores, paper, difference, interval, inside, *others]
        lines.append([*place, *known, *([place[1] in results.centralised] if results.centralised else [])])
    if results.is_comparison:
        return Table(["method", *_named(by_key), "seeds", "rounds"], lines)
    return Table([*HEADER, *_named(more), *(["centralised"] if results.centralised else [])], lines)


def table_of_scores(results: Results) -> Table:
    """Return the table of a comparison, with a column for each score.

    With uneven classes it has the means of further figures over the last 5 rounds; with a row of Target Only,
    each method's lead over it by seed, on labels held out if all runs have some.
    """
    metric, places = results.metric("", ""), results.places
    columns = [
        replace(column, name=f"{name}{' (%)' * column.metric.percent}{results.mark(column.metric)}")
        for name, judged, key, ending in _scores_of(results)
        for column in _columns(judged, "", key, ending)
    ]
    table = _table(results, "", columns)
    header, lines = ["Method", *table.header[1:], "seeds", "rounds"], [[*row] for row in table.rows]
    for line, place in zip(lines, places, strict=False):
        rounds = [len(run.history) for run in results.at(place)]
        ends = sorted({min(rounds), max(rounds)}) if rounds else ["-"]
        line += [str(len(results.scores(place, "last5"))), "-".join(map(str, ends))]
    for line in lines[len(places) :]:
        line += [str(len(columns[0].baseline)), "-"]
    what, gains = _gains(results)
    if gains:
        header.append(f"{'points ' if metric.percent else ''}{what}")
        for line in lines:
            line.append(mean_std(gains.get(str(line[0]), ()), metric.decimals))
    return Table(header, lines)


def _scores_of(results: Results) -> list[tuple[str, Results, str, str | None]]:
    """Return the scores of a comparison: their names, and by what they are judged.

    With uneven classes they include figures that are fair to rare ones.
    """
    own = [(name, results, name.split()[0], AVERAGED if " " in name else None) for name in _by_key(results)]
    uneven = any(is_uneven(baseline_of(run.history)) for run in results.all_runs)
    fair = FAIR if uneven and results.metric("", "") == METRICS[ACCURACY] else ()
    return [*own, *((METRICS[name].title, results.judged_by(name), "last5", None) for name in fair)]


def _gains(results: Results) -> tuple[str, dict[str, list[float]]]:
    """Return the column's name and, by row, the leads over Target Only by seed."""
    alone = {run.seed: run for run in results.at(("", TARGET_ONLY, ""))}
    rows = [row for row in results.rows if row != TARGET_ONLY]
    judged = all(run.validation is not None for run in results.all_runs)

    def figure(run: RecordedRun) -> float:
        return run.validation if judged and run.validation is not None else run.score("last5")

    gains = {
        row: [figure(r) - figure(alone[r.seed]) for r in results.at(("", row, "")) if r.seed in alone]
        for row in rows
    }
    name = f"over {TARGET_ONLY}{', labels held out' * judged}"
    return name, {row: known for row, values in gains.items() if (known := [v for v in values if v == v])}


def caption(results: Results) -> str:
    """Return the caption of a comparison's table: its contents, and the sampling error of its best figure."""
    name = results.metrics.get(("", ""), ACCURACY)
    text = f"{results.value_label}: mean (std) over seeds."
    tests = max((Sampling.of(run.history) for run in results.all_runs), key=attrgetter("samples"))
    size = describe_interval(top(_by_key(results)["last5"], METRICS[name]), tests, name)
    marked = any(judged.mark(judged.metric("", "")) for _, judged, *_ in _scores_of(results))
    few = f"{describe_few(results.few)}." if marked else ""
    best = size and f"{'The best last5: ' if '±' in size else ''}{size}{_ends_of_best(results)}."
    return " ".join(filter(None, (text, best, few)))


def _ends_of_best(results: Results) -> str:
    """Return the ends of the intervals of the best row's runs, if they follow from more than its figure."""
    metric = results.metric("", "")
    best = top(_by_key(results)["last5"], metric)
    for place in results.places:
        values = results.scores(place, "last5")
        if metric.share or not values or float(np.mean(values)) != best:
            continue
        runs = results.at(place)
        ends = [interval_of(run.score("last5") / metric.scaled(1), run.history, run.metric) for run in runs]
        known = [pair for pair in ends if pair is not None]
        if len(known) < len(ends):
            continue
        low, high = min(pair[0] for pair in known), max(pair[1] for pair in known)
        between = f"{metric.show(low)} and {metric.show(high)}"
        return f"; {place[1]} is best, and the 95% intervals of its runs lie between {between}"
    return ""


def shares_of(results: Results, table: Table) -> list[dict[str, object]]:
    """Return each row of `numbers` by column, with shares in place of percent."""
    rows = table.records()
    units = [results.metric(str(row.get("group", "")), str(row.get("column", ""))).scaled(1) for row in rows]
    return [
        {name: value / unit if isinstance(value, float) else value for name, value in row.items()}
        for row, unit in zip(rows, units, strict=True)
    ]


def _by_key(results: Results) -> dict[str, list[tuple[float, ...]]]:
    """Return each place's scores by kind, without kinds that no run has."""
    by_key = {key: [results.scores(p, key) for p in results.places] for key in ("last5", "best", "selected")}
    by_key["last5 average"] = [results.scores(place, "last5", AVERAGED) for place in results.places]
    return {name: values for name, values in by_key.items() if name in ("last5", "best") or any(values)}


def _named(keys: Iterable[str]) -> list[str]:
    return [name.replace(" ", "_") for key in keys for name in (key, f"{key}_std")]


def half_width(values: Sequence[float]) -> float | None:
    """Return half the width of the 95% prediction interval of one further value; None for fewer than 3.

    The interval is ``mean ± t s √(1 + 1/n)``, with the sample standard deviation ``s`` of the ``n`` values
    and the 97.5% quantile ``t`` of Student's distribution with ``n − 1`` degrees of freedom.

    Examples
    --------
    >>> round(half_width([70.0, 72.0, 74.0]), 2)  # 4.303 · 2 · √(4/3)
    9.94
    """
    if (n := len(values)) < LEAST_SEEDS:
        return None
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, 0.975) * np.std(values, ddof=1) * math.sqrt(1 + 1 / n))


def _columns(results: Results, group: str, key: str, ending: str | None = None) -> list[Column]:
    """Return a score's columns in a group; their average is over the seeds that have all columns.

    The paper's values belong to ``last5``, of the figure that it prints.
    """
    paper = _paper(results, group) if key == "last5" else {}
    columns = [
        Column(
            column,
            results.metric(group, column),
            {row: results.scores((group, row, column), key, ending) for row in results.rows},
            results.baseline(group, column),
            {row: paper[row, column] for row in results.rows if (row, column) in paper},
            [row for row in results.rows if (group, row, column) in results.refused],
        )
        for column in results.columns
    ]
    if not results.design.average:
        return columns
    means: dict[str, Sequence[float]] = {}
    for row in results.rows:
        by_column = [
            {run.seed: run.score(key) for run in results.at((group, row, column))}
            for column in results.columns
        ]
        seeds = sorted(set.intersection(*map(set, by_column)))
        each = [float(np.mean([column[seed] for column in by_column])) for seed in seeds]
        means[row] = [mean for mean in each if not np.isnan(mean)]
    printed = {row: paper[row, AVERAGE] for row in results.rows if (row, AVERAGE) in paper}
    return [*columns, Column(AVERAGE, columns[0].metric, means, (), printed)]


def _paper(results: Results, group: str) -> Mapping[tuple[str, str], float]:
    """Return the paper's values, with the average of its columns if it prints none."""
    values = {(row, column): value for (where, row, column), value in results.paper.items() if where == group}
    for row in results.rows:
        columns = [values[row, column] for column in results.columns if (row, column) in values]
        if len(columns) == len(results.columns):
            values.setdefault((row, AVERAGE), float(np.mean(columns)))
    return values


def _balanced(results: Results, group: str) -> Results:
    """Return a group's columns in which one class has most of the test samples, by balanced accuracy.

    A column is left out if a run in it has no balanced accuracy.
    """
    fair = replace(results.judged_by(BALANCED), design=replace(results.design, average=False), paper={})
    columns = [
        c
        for c in results.columns
        if any(map(_of_one_class, results.column(group, c)))
        and not any(np.isnan(run.score("last5")) for run in fair.column(group, c))
    ]
    return replace(fair, columns=columns)


def _of_one_class(run: RecordedRun) -> bool:
    constant = baseline_of(run.history)
    return run.metric == ACCURACY and is_uneven(constant) and constant["accuracy"] > 0.5


def _legend(results: Results, counts: Sequence[int]) -> str:
    paper = ", then the paper's value and how far ours is from it" if results.paper else ""
    text = (
        f"{results.value_label} over the last 5 rounds: mean (standard deviation) over seeds{paper}."
        f"{_test_sets(results)}"
    )
    if any(map(results.mark, results.distinct_metrics)):
        text += f" {describe_few(results.few)}."
    if max(counts, default=0) < LEAST_SEEDS:
        return text
    return (
        f"{text} With {LEAST_SEEDS} seeds or more: whether the paper's value is inside the 95% prediction "
        "interval of one further seed, mean ± t s √(1 + 1/n)."
    )


def _test_sets(results: Results) -> str:
    """Describe the number of test samples and the sampling error."""
    counts = [(tests, run) for run in results.all_runs if (tests := Sampling.of(run.history)).samples]
    if not counts:
        return ""
    least, most = (end(tests.samples for tests, _ in counts) for end in (min, max))
    fewest = [(tests, run) for tests, run in counts if tests.samples == least]
    values = [(scores(run.history, run.metric)["last5"], tests, run.metric) for tests, run in fewest]
    widest = describe_interval(*max(values, key=lambda value: _width(*value)))
    return f" {widest}." if least == most else f" {least} to {most} test samples; the fewest: {widest}."


def _width(value: float | None, tests: Sampling, metric: str) -> float:
    ends = sampling_interval(value, tests, metric)
    return 0.0 if ends is None else ends[1] - ends[0]


def _describe(counts: Sequence[int]) -> str:
    """Describe the numbers of seeds in cells."""
    if len(counts) < 2:
        return counted(counts[0], "seed") if counts else "Nothing measured yet"
    return f"{counts[0]} to {counted(counts[-1], 'seed')} ({counts[-1]} where a cell does not say)"
