"""The pages of a run and of a table of runs (a comparison or an experiment)."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from fda_flower.metrics import METRICS, Metric
from fda_flower.names.words import counted
from fda_flower.records.record import Record
from fda_flower.reporting.alike import alike_lines, alike_notes, alike_table, described_in
from fda_flower.reporting.figures import Ends, are_single, styles_of
from fda_flower.reporting.html import charts
from fda_flower.reporting.html.page import Chart, Code, Page, Section
from fda_flower.reporting.labels import table_of_labels
from fda_flower.reporting.plots import (
    MEMBER,
    WEIGHT,
    baseline_line,
    last_confusion,
    member_weights,
    plot_alike,
    plot_sites,
    weights,
    with_deviation,
)
from fda_flower.reporting.results import Place, RecordedRun, Results
from fda_flower.reporting.run_tables import (
    cost,
    faults,
    left_out,
    rounds_table,
    settings_table,
    short,
    show,
)
from fda_flower.reporting.sites import sites_in, sites_note, sites_table
from fda_flower.reporting.summary import (
    TEST_SAMPLES,
    interval_of,
    last_evaluation,
    name_of_baseline,
    scores,
    summarise,
)
from fda_flower.reporting.tables import Part, Table, escaped
from fda_flower.reporting.words import describe_theory, judge, support_of

BY_ROUND, CONFUSION = "The target by round", "confusion matrix, last round"
NO_FIGURES = ("round", "bytes-received", "test-", "selected")
"""How numbers in a record begin that do not measure the target."""
TOOK_PART, NOT_USED, COULD_NOT, NO_REPLY = charts.STATES
ROLES = ("target", "source", "")
"""The roles of domains in the order of tables; a domain that never replied has none."""


def run_page(run: RecordedRun, title: str, card: Sequence[Part] = (), conclusion: Sequence[str] = ()) -> Page:
    """Return the page of a run; `card` is its model card, `conclusion` what its method concludes."""
    history = run.history
    summary = summarise(history, run.metric)
    judged = map(escaped, [*conclusion, *judge(summary), *describe_theory(summary)])
    sections = [
        Section("Results", [_headlines(run), *judged, *_labels(summary), *_figures(history, run.metric)]),
        Section("Who has what", _alike(history)),
        Section("What the others bring to each site", _sites(history)),
        Section("Weights of the sources", _trust(history)),
        Section("Members of the mixture", _members(history)),
        Section("Who took part", _presence(history)),
        Section("Dropped, missing and other trouble", [faults(history)]),
        Section("Samples", [run.sizes] if history else []),
        Section("Rounds", [rounds_table(history, run.metric)] if history else []),
        Section("Settings", settings_table(run.settings, run.notes)),
        Section("Repeat it", [Code(run.commands)] if run.commands else []),
        Section("Model card", card),
    ]
    about = "; ".join(filter(None, [run.label, run.data, f"seed {run.seed}"]))
    return Page(title, about, [each for each in sections if each.parts], run.state)


def _labels(summary: Mapping[str, Any]) -> list[Table]:
    labels = summary.get("labels")
    return [table_of_labels(labels, summary.get(TEST_SAMPLES, 0))] if labels else []


def results_page(
    results: Results,
    parts: Sequence[Part],
    numbers: Mapping[str, Table],
    runs: Mapping[str, RecordedRun],
    commands: Sequence[str],
    state: str = "",
) -> Page:
    """Return the page of a comparison or an experiment.

    `parts` are its report without the title, `numbers` the tables of all numbers by title, `runs` the runs
    by name, unfinished ones included; `commands` repeat it, and `state` describes its progress.
    """
    all_numbers = [replace(table, title=title, folded=True) for title, table in numbers.items()]
    sections = [
        Section("Results", [*parts, *all_numbers]),
        Section("Mean over seeds", _charts(results, _dots)),
        Section("By round", _charts(results, _curves)),
        Section("Weights of the sources", _weights_of(results)),
        Section("Members of the mixture", _members_of(results)),
        Section("Runs", [_runs(runs)]),
        Section("Dropped, missing and other trouble", _faults_of(runs)),
        Section("Samples", _sizes_of(runs)),
        Section("Settings", _settings_of(runs)),
        Section("Repeat it", [Code(commands)]),
    ]
    about = results.about().splitlines()[-1] if results.runs else "Nothing measured yet"
    return Page(results.design.title, about, [each for each in sections if each.parts], state)


# A run


def _figures(history: Sequence[Record], headline: str) -> list[Chart]:
    """Return charts of all measurements of the target: the headline's together, each other one alone."""
    by_name = _measured(history)
    together = [name for name in by_name if _metric_of(name) == METRICS[headline]]
    charted = {METRICS[headline].axis: together} if together else {}
    charted |= {name: [name] for name in by_name if name not in together}
    figures, once = dict[str, Figure](), are_single({name: [values] for name, values in by_name.items()})
    matrix = last_confusion(history)
    if matrix and once:
        figures[CONFUSION] = charts.matrix(matrix)
    for label, group in charted.items():
        series = {name: by_name[name] for name in group}
        known = headline if group == together else group[0]
        line = baseline_line([history], known) if known in METRICS else None
        if once:
            figures[label] = charts.bars(_with_intervals(series, history), label, line)
        else:
            curves = {name: [values] for name, values in series.items()}
            figures[label] = charts.curves(curves, styles_of(group), label, line)
    if matrix and not once:
        figures[CONFUSION] = charts.matrix(matrix)
    title = "The target, evaluated once; a black line is a 95% interval" if once else BY_ROUND
    return [Chart(figures, title)] if figures else []


def _measured(history: Sequence[Record]) -> dict[str, list[float]]:
    """Return the numbers of the records by name, with a value for each round, in the tables' unit."""
    by_name: dict[str, list[float]] = {}
    for number, record in enumerate(history):
        for name, value in record.items():
            if (
                not name.startswith(NO_FIGURES)
                and isinstance(value, int | float)
                and not isinstance(value, bool)
            ):
                values = by_name.setdefault(name, [math.nan] * len(history))
                metric = _metric_of(name)
                values[number] = value if metric is None else metric.scaled(value)
    return by_name


def _with_intervals(
    series: Mapping[str, Sequence[float]], history: Sequence[Record]
) -> dict[str, tuple[float, Ends]]:
    """Return the last value of each name, with its interval for the test samples."""
    last = {name: next(v for v in reversed(values) if not math.isnan(v)) for name, values in series.items()}
    metrics = {name: key for name in series for key in METRICS if name == key or name.startswith(f"{key}-")}
    bars: dict[str, tuple[float, Ends]] = {}
    for name, value in last.items():
        key, ends = metrics.get(name), None
        if key is not None:
            unit = METRICS[key].scaled(1)
            ends = interval_of(value / unit, history, key, name.removeprefix(key))
            ends = ends and (unit * ends[0], unit * ends[1])
        bars[name] = value, ends
    return bars


def _metric_of(name: str) -> Metric | None:
    """Return the metric of a record's entry: ``accuracy-average`` is an accuracy."""
    return next((each for key, each in METRICS.items() if name == key or name.startswith(f"{key}-")), None)


def _trust(history: Sequence[Record]) -> list[Chart | Table]:
    """Return each source's β or weight by round, and a summary."""
    rows, series = [], weights([history])
    for source, (values,) in series.items():
        known = [value for value in values if not math.isnan(value)]
        trust = sum(known) / len(known), min(known), max(known), known[-1]
        rows.append([source, *(f"{number:.3f}" for number in trust)])
    header = ["source", "mean", "lowest", "highest", "last"]
    table = Table(header, rows, "Weight of each source")
    return [Chart({"weights": charts.shares(series, WEIGHT)}), table] if rows else []


def _sites(history: Sequence[Record]) -> list[Chart | Table | str]:
    """Return the sites of a run in which each site is a target, and their gains with intervals."""
    if not sites_in(history):
        return []
    figure, note = plot_sites(history), sites_note(history)
    parts: list[Chart | Table | str] = [Chart({"sites": figure}), replace(sites_table(history), title="")]
    return [*parts, *([escaped(note)] if note else [])]


def _alike(history: Sequence[Record]) -> list[Chart | Table | str]:
    """Return what sites say of their rows, and sentences on how alike they are."""
    if not (described := described_in(history)):
        return []
    lines = [*alike_lines(described), *alike_notes(described)]
    return [Chart({"sites": plot_alike(described)}), alike_table(described), *map(escaped, lines)]


def _members(history: Sequence[Record]) -> list[Chart | Table]:
    """Return the members of the last record's mixture, and their weights by round if there are several."""
    by_number = {record["round"]: record.get("mixture", {}).get("members") for record in history}
    mixtures = {number: members for number, members in by_number.items() if members}
    if not mixtures:
        return []
    last = mixtures[max(mixtures)]
    columns = list(dict.fromkeys(key for each in last.values() for key in each))
    rows = [[name, *(short(each.get(key)) for key in columns)] for name, each in last.items()]
    table = Table(["member", *columns], rows, f"The members in round {max(mixtures)}")
    if len(mixtures) < 2:
        weights = {name: with_deviation([each["weight"]]) for name, each in last.items() if "weight" in each}
        return [*([Chart({"members": charts.bars(weights, MEMBER)})] if weights else []), table]
    by_round = [mixtures.get(number, {}) for number in range(1, max(mixtures) + 1)]
    series = {name: [[_number(each.get(name, {}).get("weight")) for each in by_round]] for name in last}
    figure = charts.shares(series, MEMBER)
    return [Chart({"members": figure}), table]


def _presence(history: Sequence[Record]) -> list[Chart | Table]:
    """Return who took part in which round, and counts of rounds and replies."""
    domains: dict[str, _Domain] = {}
    for number, record in enumerate(history):
        for role, name, entry in _entries(record):
            domains.setdefault(name, _Domain(len(history))).add(number, role, entry)
        for each in left_out(record):
            states = domains.setdefault(each["domain"], _Domain(len(history))).states
            states[number] = {"dropped": NOT_USED, "missing": COULD_NOT}[each["kind"]]
    listed = sorted(domains.items(), key=lambda item: ROLES.index(item[1].role))
    rows = [
        [name, each.role, *map(each.states.count, (TOOK_PART, NOT_USED, COULD_NOT)), *each.numbers]
        for name, each in listed
    ]
    header = ["domain", "role", "took part", "not used", "could not", "steps", "last train loss", "clipped"]
    table = Table(header, rows, "Rounds by domain, and its replies")
    if not rows:
        return []
    figure = charts.presence({name: each.states for name, each in listed})
    return [Chart({"presence": figure}), table]


def _entries(record: Record) -> Iterator[tuple[str, str, Record]]:
    """Yield the role, the domain and the reply of each client that took part in a round."""
    target = record.get("target") or {}
    if target.get("domain"):
        yield "target", target["domain"], target
    for name, entry in sorted(record["sources"].items()):
        yield "source", name, entry


class _Domain:
    """A domain's states by round, and the sums over its replies."""

    def __init__(self, rounds: int) -> None:
        self.states = [NO_REPLY] * rounds
        self.role, self.loss = "", ""
        self.steps = self.clipped = 0

    def add(self, number: int, role: str, entry: Record) -> None:
        """Add the reply of a round."""
        self.states[number], self.role = TOOK_PART, role
        self.steps += entry.get("steps", 0)
        self.clipped += "clipped" in entry
        if entry.get("train-loss") is not None:
            self.loss = f"{entry['train-loss']:.4g}"

    @property
    def numbers(self) -> tuple[int, str, int]:
        """The steps, the last training loss, and the replies that were clipped."""
        return self.steps, self.loss, self.clipped


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


# A table of runs


def _charts(results: Results, draw: Callable[[Results, str, str], Figure | None]) -> list[Chart]:
    """Return a chart for each group and column with a run; `draw` returns None where there is none."""
    names = [title.replace("\n", ", ") or "all" for title in results.titles(results.measured)]
    drawn = {name: draw(results, *at) for name, at in zip(names, results.measured, strict=True)}
    figures = {name: figure for name, figure in drawn.items() if figure is not None}
    return [Chart(figures)] if figures else []


def _curves(results: Results, group: str, column: str) -> Figure | None:
    series = {row: [run.curve for run in results.at((group, row, column))] for row in results.rows}
    known = {row: curves for row, curves in series.items() if curves}
    if are_single(known):
        return None
    line = results.line(group, column)
    return charts.curves(known, styles_of(results.rows), results.metric(group, column).axis, line)


def _dots(results: Results, group: str, column: str) -> Figure:
    values = {row: results.scores((group, row, column), "last5") for row in results.rows}
    printed = {row: results.paper[p] for row in results.rows if (p := (group, row, column)) in results.paper}
    label = f"{results.metric(group, column).axis}, mean ± std of the last 5 rounds"
    return charts.dots(values, styles_of(results.rows), label, printed, results.line(group, column))


def _weights_of(results: Results) -> list[Chart]:
    """Return each source's weight by round, for each place with weights."""
    by_place = {place: weights([run.history for run in results.at(place)]) for place in results.places}
    figures = {_name(results, p): charts.shares(series, WEIGHT) for p, series in by_place.items() if series}
    return [Chart(figures)] if figures else []


def _members_of(results: Results) -> list[Table]:
    """Return each mixture member's mean weight over seeds, from the last record of a mixture."""
    rows = [
        [_name(results, place), member, f"{sum(of_seeds) / len(of_seeds):.3f}", len(of_seeds)]
        for place in results.places
        for member, of_seeds in member_weights([run.history for run in results.at(place)]).items()
    ]
    return [Table(["run", "member", "mean weight", "seeds"], rows)] if rows else []


def _name(results: Results, place: Place) -> str:
    group, row, column = place
    return results.titles([(group, column, row)])[0].replace("\n", ", ")


def _runs(runs: Mapping[str, RecordedRun]) -> Table:
    """Return a folded table of all runs, with the progress and cost of each."""
    rows = [
        [
            name,
            run.seed,
            "done" if run.done else "not done",
            len(run.history),
            sum(len(record["dropped"]) for record in run.history),
            sum(record["held"] is not None for record in run.history),
            *cost(run.history),
        ]
        for name, run in runs.items()
    ]
    header = ["run", "seed", "state", "rounds", "dropped", "held", "MB received", "seconds"]
    return Table(header, rows, counted(len(rows), "run"), folded=True)


def _faults_of(runs: Mapping[str, RecordedRun]) -> list[Table | str]:
    """Return a table of everything dropped, by run and reason."""
    by_run = [(name, faults(run.history)) for name, run in runs.items()]
    rows = [[name, *row] for name, table in by_run if isinstance(table, Table) for row in table.rows]
    if not rows:
        return ["Nothing: every reply was used in every round."]
    counts = Counter((what, reason) for _, what, _, reason, *_ in rows)
    short = [[*fault, times] for fault, times in counts.most_common()]
    header = ["run", "what", "domain", "reason", "times", "rounds"]
    return [
        Table(["what", "reason", "runs and domains"], short),
        Table(header, rows, f"By run and domain: {counted(len(rows), 'line')}", folded=True),
    ]


def _sizes_of(runs: Mapping[str, RecordedRun]) -> list[Table]:
    """Return the number of samples of each domain; runs share a row where their numbers agree."""
    records = [row for run in runs.values() if run.history for row in run.sizes.records()]
    columns = list(dict.fromkeys(key for record in records for key in record))
    known = [{key: value for key, value in record.items() if value != ""} for record in records]
    whole = [one for one in known if not any(one.items() < other.items() for other in known)]
    rows = {tuple(record.get(key, "") for key in columns) for record in whole}
    ordered = sorted(rows, key=lambda row: tuple(map(str, row)))
    return [Table(columns, ordered, folded=len(rows) > 12, title="Samples of each domain")] if rows else []


def _settings_of(runs: Mapping[str, RecordedRun]) -> list[Table]:
    """Return a table of the settings that all runs share, and one of the settings that differ."""
    given = {name: run.settings for name, run in runs.items() if run.settings}
    if not given:
        return []
    first: Mapping[str, Any] = next(iter(given.values()))
    names = list(dict.fromkeys(key for settings in given.values() for key in settings))
    shared = [n for n in names if all(n in s and s[n] == first.get(n) for s in given.values())]
    own = [name for name in names if name not in shared]
    rows = [[name, *(show(settings.get(key)) for key in own)] for name, settings in given.items()]
    notes = next((run.notes for run in runs.values() if run.notes), {})
    header = ["run", *(key.replace("_", "-") for key in own)]
    differ = Table(header, rows, "Settings that differ between runs", folded=True)
    return [*settings_table({name: first[name] for name in shared}, notes), *([differ] if own else [])]


def _headlines(run: RecordedRun) -> Table:
    """Return ``last5``, ``best`` and the other scores, and the cost of the run."""
    metric = METRICS[run.metric]
    received, seconds = cost(run.history)
    columns = {
        f"{key}, {metric.label}": "-" if value is None else f"{value:.{metric.decimals}f}"
        for key, value in scores(run.history, run.metric).items()
    }
    if line := baseline_line([run.history], run.metric):
        columns[f"{name_of_baseline(run.metric)}, {metric.label}"] = f"{line[0]:.{metric.decimals}f}"
    evaluation = last_evaluation(run.history, run.metric)
    if ends := evaluation.get("interval"):
        columns["95% interval"] = " to ".join(map(metric.show, ends))
    if support := support_of({**evaluation, "metric": run.metric}):
        columns["test samples"] = support
    columns |= {"rounds": str(len(run.history)), "seconds": seconds, "MB received": received}
    return Table(["method", "seed", *columns], [[run.label, run.seed, *columns.values()]])
