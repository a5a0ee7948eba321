"""The tables of experiments, with measured and published values, and of comparisons, with one column."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np

from fda_flower.metrics import METRICS, Metric
from fda_flower.names.words import counted
from fda_flower.reporting.results import Place, RecordedRun, Results
from fda_flower.reporting.summary import (
    ACCURACY,
    BALANCED,
    FAIR,
    REFUSED,
    Sampling,
    baseline_in,
    baseline_of,
    describe_interval,
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
from fda_flower.runs.methods import METHODS

AVERAGE = "Avg"
TARGET_ONLY = METHODS["target-only"].label

LEAST_SEEDS = 3
"""The fewest seeds from which the spread over draws is estimated."""

HEADER = (
    *("group", "row", "column", "seeds", "rounds"),
    *("last5", "last5_std", "best", "best_std", "paper", "difference", "interval", "inside"),
)


def report(results: Results) -> list[Part]:
    """Return, for each group, a table of ``last5`` with the paper's values, and one of ``best``.

    The best mean of each column is marked; the text lists what a cut-down run left out.
    """
    counts = sorted({len(results.scores(place, "last5")) for place in results.places} - {0})
    usual = max(counts, default=0)
    measured = f"{_describe(counts)}, {counted(results.rounds, 'round')}."
    parts: list[Part] = [
        f"{results.source}. {measured}" if results.source else measured,
        results.note.strip(),
        results.marks,
        *(f"**Cut down:** {escaped(cut)}" for cut in results.cuts),
        *(f"**Refused:** {escaped(reason)}." for reason in dict.fromkeys(results.refused.values())),
        _legend(results, counts if results.paper else ()),
    ]
    for group in results.groups:
        if group:
            parts.append(Heading(f"{results.group_axis}: {group}" if results.group_axis else group))
        parts.append(_table(results, group, "last5", usual, _paper(results, group)))
        if any(np.isfinite(run.curve).sum() > 1 for run in results.all_runs):
            parts += [
                "The same for the best round on the test set, which is **optimistic**: the test labels chose "
                "it.",
                _table(results, group, "best", usual),
            ]
        if (balanced := _balanced(results, group)).columns:
            parts += [
                "Where one class has most of the test samples, the balanced accuracy (%) over the last 5 "
                "rounds: the mean recall of the classes.",
                _table(balanced, group, "last5", usual),
            ]
        if any(_scores(results, group, "selected").values()):
            parts += [
                "The same for the round that held-out labels chose, without any test label.",
                _table(results, group, "selected", usual),
            ]
    return [part for part in parts if part]


def numbers(results: Results) -> Table:
    """Return one line for each place, with unrounded numbers; unknown ones are empty.

    Columns of the averaged model and of the chosen round exist if any run has them, and the column
    ``centralised`` if any row is a centralised reference.
    """
    by_key = _by_key(results)
    more = [key for key in ("last5 average", "selected") if key in by_key]
    lines = []
    for i, place in enumerate(results.places):
        last5, best = by_key["last5"][i], by_key["best"][i]
        rounds = max((len(run.history) for run in results.at(place)), default=None)
        paper = results.paper.get(place)
        difference = np.mean(last5) - paper if last5 and paper is not None else None
        interval = half_width(last5)
        inside = None if interval is None or difference is None else bool(abs(difference) <= interval)
        known = [*mean_and_std(last5), *mean_and_std(best), paper, difference, interval, inside]
        known += [number for key in more for number in mean_and_std(by_key[key][i])]
        known += [place[1] in results.centralised] if results.centralised else []
        lines.append([*place, len(last5), rounds, *known])
    return Table([*HEADER, *_named(more), *(["centralised"] if results.centralised else [])], lines)


def comparison_table(results: Results) -> Table:
    """Return the table of a comparison; the best mean of each column is marked.

    With uneven classes it has the means of further figures over the last 5 rounds; with a row of Target Only,
    each method's lead over it by seed, on labels held out if all runs have some.
    """
    headline = results.all_runs[0].metric
    metric, constant = METRICS[headline], results.baseline("", "")
    columns = [(name, metric, values, constant) for name, values in _by_key(results).items()]
    columns += _fair(results)
    unit = {m: " (%)" if m.percent else "" for _, m, *_ in columns}
    lines = [
        [
            place[1],
            *(marked(mean_std(v[i], m.decimals), v[i], top(v, m)) for _, m, v, _ in columns),
            *(str(len(columns[0][2][i])), "-".join(map(str, sorted({least, most})))),
        ]
        for i, (place, (least, most)) in enumerate(_rounds(results).items())
    ]
    if constant:
        of_constant = [mean_std(values, m.decimals) for _, m, _, values in columns]
        lines.append([name_of_baseline(headline), *of_constant, str(len(constant)), "-"])
    header = ["Method", *(f"{name}{unit[m]}" for name, m, *_ in columns), "seeds", "rounds"]
    what, gains = _gains(results)
    if gains:
        header.append(f"{'points ' if metric.percent else ''}{what}")
        for line in lines:
            line.append(mean_std(gains.get(str(line[0]), ()), metric.decimals))
    return Table(header, lines)


def _fair(results: Results) -> list[tuple[str, Metric, list[tuple[float, ...]], tuple[float, ...]]]:
    """Return the figures that are fair to rare classes: name, metric, values by place, the baseline's."""
    histories = {place: [run.history for run in results.at(place)] for place in results.places}
    known = [each for runs in histories.values() for each in runs if baseline_of(each)]
    if results.all_runs[0].metric != ACCURACY or not any(map(is_uneven, map(baseline_of, known))):
        return []
    return [
        (
            METRICS[name].title,
            METRICS[name],
            [_known(scores(each, name)["last5"] for each in runs) for runs in histories.values()],
            _known(baseline_in(each, name) for each in known[:1]),
        )
        for name in FAIR
    ]


def _known(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(value for value in values if value is not None)


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
    """Return the caption of a comparison: its contents, and the sampling error of its best figure."""
    name = results.all_runs[0].metric
    text = f"{METRICS[name].axis}: mean (std) over seeds."
    tests = max((Sampling.of(run.history) for run in results.all_runs), key=attrgetter("samples"))
    size = describe_interval(top(_by_key(results)["last5"], METRICS[name]), tests, name)
    return " ".join(filter(None, (text, size and f"{'The best last5: ' if '±' in size else ''}{size}.")))


def comparison(results: Results) -> list[Part]:
    """Return the table of a comparison, and its caption."""
    return [comparison_table(results), caption(results)] if results.runs else ["No round is done yet."]


def comparison_numbers(results: Results) -> Table:
    """Return the table of a comparison with unrounded numbers, each in its own column."""
    by_key = _by_key(results)
    lines = [
        [place[1], *(number for v in values for number in mean_and_std(v)), len(values[0]), most]
        for (place, (_, most)), *values in zip(_rounds(results).items(), *by_key.values(), strict=True)
    ]
    return Table(["method", *_named(by_key), "seeds", "rounds"], lines)


def shares_of(results: Results, table: Table) -> list[dict[str, object]]:
    """Return each row of `numbers` or `comparison_numbers` by column, with shares in place of percent."""
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


def _rounds(results: Results) -> dict[Place, tuple[int, int]]:
    """Return the fewest and the most rounds of each row's runs."""
    counts = {place: [len(run.history) for run in results.at(place)] for place in results.places}
    return {place: (min(each), max(each)) for place, each in counts.items()}


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


def _scores(results: Results, group: str, key: str) -> Mapping[tuple[str, str], Sequence[float]]:
    """Return the scores of each row and column, and of the average, over seeds that have all columns."""
    scores: dict[tuple[str, str], Sequence[float]] = {
        place[1:]: results.scores(place, key) for place in results.places if place[0] == group
    }
    for row in results.rows if results.average else ():
        by_column = [
            {run.seed: run.score(key) for run in results.at((group, row, column))}
            for column in results.columns
        ]
        seeds = sorted(set.intersection(*map(set, by_column)))
        means = [float(np.mean([column[seed] for column in by_column])) for seed in seeds]
        scores[row, AVERAGE] = [mean for mean in means if not np.isnan(mean)]
    return scores


def _paper(results: Results, group: str) -> Mapping[tuple[str, str], float]:
    """Return the paper's values, with the average of its columns if it prints none."""
    values = {(row, column): value for (where, row, column), value in results.paper.items() if where == group}
    for row in results.rows:
        columns = [values[row, column] for column in results.columns if (row, column) in values]
        if len(columns) == len(results.columns):
            values.setdefault((row, AVERAGE), float(np.mean(columns)))
    return values


def _table(
    results: Results, group: str, key: str, usual: int, paper: Mapping[tuple[str, str], float] | None = None
) -> Table:
    scores, printed = _scores(results, group, key), paper or {}
    columns = [*results.columns, *([AVERAGE] if results.average else [])]
    metrics = {column: results.metric(group, column) for column in results.columns}
    metrics[AVERAGE] = metrics[results.columns[0]]
    tops = {column: top([scores[row, column] for row in results.rows], metrics[column]) for column in columns}
    rows = [
        [
            results.label(row),
            *(
                REFUSED
                if (group, row, c) in results.refused
                else _cell(scores[row, c], tops[c], printed.get((row, c)), usual, metrics[c].decimals)
                for c in columns
            ),
        ]
        for row in results.rows
    ]
    return Table([results.axis, *columns], rows + _baseline(results, group, columns))


def _balanced(results: Results, group: str) -> Results:
    """Return a group's columns in which one class has most of the test samples, by balanced accuracy.

    A column is left out if a run in it has no balanced accuracy.
    """
    runs = {
        place: [replace(run, metric=BALANCED) for run in runs]
        for place, runs in results.runs.items()
        if place[0] == group
    }
    fair = replace(results, runs=runs, average=False)
    columns = [
        c
        for c in results.columns
        if any(map(_of_one_class, results.column(group, c)))
        and not any(np.isnan(run.score("last5")) for run in fair.column(group, c))
    ]
    return replace(fair, columns=columns, metrics={(group, c): BALANCED for c in columns})


def _of_one_class(run: RecordedRun) -> bool:
    constant = baseline_of(run.history)
    return run.metric == ACCURACY and is_uneven(constant) and constant["accuracy"] > 0.5


def _baseline(results: Results, group: str, columns: Sequence[str]) -> list[list[str | Cell]]:
    """Return a row of the baseline, if any column has one."""
    by_column = {c: results.baseline(group, c) for c in columns}
    if not any(by_column.values()):
        return []
    name = name_of_baseline(results.metrics.get((group, results.columns[0]), ACCURACY))
    return [[name, *(Cell(mean_std(v, results.metric(group, c).decimals)) for c, v in by_column.items())]]


def _cell(values: Sequence[float], best: float, paper: float | None, usual: int, decimals: int) -> Cell:
    """Return ``71.0 (0.4, 3 seeds)`` and below it ``paper 71.1, -0.1, inside``; seeds only if unusual."""
    text = mean_std(values, decimals)
    if values and len(values) != usual:
        seeds = counted(len(values), "seed")
        text = f"{text} ({seeds})" if len(values) == 1 else f"{text[:-1]}, {seeds})"
    if paper is None:
        return marked(text, values, best)
    if not values:
        return Cell(text, below=f"paper {paper:.{decimals}f}")
    difference, interval = np.mean(values) - paper, half_width(values)
    verdict = "" if interval is None else ", inside" if abs(difference) <= interval else ", outside"
    return marked(text, values, best, f"paper {paper:.{decimals}f}, {difference:+z.{decimals}f}{verdict}")


def _legend(results: Results, counts: Sequence[int]) -> str:
    paper = ", then the paper's value and how far ours is from it" if results.paper else ""
    text = (
        f"{results.value_label} over the last 5 rounds: mean (standard deviation) over seeds{paper}."
        f"{_test_sets(results)}"
    )
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
