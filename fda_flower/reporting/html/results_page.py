"""The page of a table of runs: a comparison or an experiment."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from fda_flower.records.record import curve
from fda_flower.reporting.figures import styles_of
from fda_flower.reporting.html import charts
from fda_flower.reporting.html.page import Chart, Code, Page, Section, settings_table, show
from fda_flower.reporting.html.run_page import faults, sizes_table, weight_series
from fda_flower.reporting.plots import member_weights
from fda_flower.reporting.results import CellResult, Place, Results, RunView
from fda_flower.reporting.tables import Part, Table


def results_page(
    results: Results,
    parts: Sequence[Part],
    numbers: Mapping[str, Table],
    views: Mapping[str, RunView],
    commands: Sequence[str],
    state: str = "",
) -> Page:
    """Return the page of a comparison or an experiment.

    Parameters
    ----------
    results : Results
        The measurements.
    parts : sequence of Part
        Its report, as `fda report` or `fda compare` writes it, without the title.
    numbers : Mapping
        Tables of all numbers, by title.
    views : Mapping
        By the name of the cell, each run, also those that are not done.
    commands : sequence of str
        Commands that repeat it.
    state : str
        How far it is.
    """
    all_numbers = [replace(table, title=title, folded=True) for title, table in numbers.items()]
    sections = [
        Section("Results", [*parts, *all_numbers]),
        Section("Mean over seeds", _chart(results, _dots)),
        Section("By round", _chart(results, _curves)),
        Section("Weights of the sources", _weights(results)),
        Section("Members of the mixture", _members(results)),
        Section("Runs", [_runs(views)]),
        Section("Dropped, missing and other trouble", _faults(views)),
        Section("Samples", _sizes(views)),
        Section("Settings", _settings(views)),
        Section("Repeat it", [Code(commands)]),
    ]
    about = results.about().splitlines()[-1] if results.cells else "Nothing measured yet"
    return Page(results.title, about, [each for each in sections if each.parts], state)


def _chart(results: Results, draw: Callable[[Results, str, str], str]) -> list[Chart]:
    """Return a chart of each group and column that has a run."""
    run = {(group, column) for group, _, column in (cell.place for cell in results.cells)}
    places = [place for place in product(results.groups, results.columns) if place in run]
    names = [title.replace("\n", ", ") or "all" for title in results.titles(places)]
    figures = {name: draw(results, *place) for name, place in zip(names, places, strict=True)}
    return [Chart(figures)] if figures else []


def _curves(results: Results, group: str, column: str) -> str:
    series = {row: [_values(cell) for cell in results.at((group, row, column))] for row in results.rows}
    return charts.curves(
        {row: each for row, each in series.items() if each},
        styles_of(results.rows),
        results.metric(group, column).axis,
    )


def _dots(results: Results, group: str, column: str) -> str:
    values = {row: results.scores((group, row, column), "last5") for row in results.rows}
    printed = {row: results.paper[p] for row in results.rows if (p := (group, row, column)) in results.paper}
    label = f"{results.metric(group, column).axis}, mean ± std of the last 5 rounds"
    return charts.dots(values, styles_of(results.rows), label, printed)


def _values(cell: CellResult) -> list[float]:
    """Return the run's headline by round."""
    return curve(cell.history, cell.metric, cell.ending)


def _weights(results: Results) -> list[Chart]:
    """Return the weight of each source by round, for each place that has any."""
    found = {
        place: series
        for place in results.places
        if (series := weight_series([cell.history for cell in results.at(place)]))
    }
    styles = styles_of(sorted({source for series in found.values() for source in series}))
    figures = {
        name: charts.curves(series, styles, "Weight (β) of the source", from_zero=True)
        for name, series in zip(_names(results, found), found.values(), strict=True)
    }
    return [Chart(figures)] if figures else []


def _members(results: Results) -> list[Table]:
    """Return the mean weight over seeds of each member of each mixture, from the last records with them."""
    rows: list[list[object]] = []
    for place in results.places:
        for member, weights in member_weights([cell.history for cell in results.at(place)]).items():
            mean = sum(weights) / len(weights)
            rows.append([*_names(results, [place]), member, f"{mean:.3f}", len(weights)])
    return [Table(["run", "member", "mean weight", "seeds"], rows)] if rows else []


def _names(results: Results, places: Any) -> list[str]:
    ordered: list[Place] = list(places)
    titles = results.titles((group, column, row) for group, row, column in ordered)
    return [title.replace("\n", ", ") for title in titles]


def _runs(views: Mapping[str, RunView]) -> Table:
    """Return a folded table of all runs: how far each is, what it cost."""
    rows = [
        [
            name,
            view.seed,
            "done" if view.done else "not done",
            len(view.history),
            sum(len(record["dropped"]) for record in view.history),
            sum(record["held"] is not None for record in view.history),
            f"{sum(record.get('bytes-received', 0) for record in view.history) / 1e6:.1f}",
            f"{sum(sum(record['seconds'].values()) for record in view.history):.1f}",
        ]
        for name, view in views.items()
    ]
    header = ["run", "seed", "state", "rounds", "dropped", "held", "MB received", "seconds"]
    return Table(header, rows, f"{len(rows)} runs", folded=True)


def _faults(views: Mapping[str, RunView]) -> list[Table | str]:
    """Return what was dropped in which run and why."""
    found = [(name, faults(view.history)) for name, view in views.items()]
    rows = [[name, *row] for name, table in found if isinstance(table, Table) for row in table.rows]
    if not rows:
        return ["Nothing: every reply was used in every round."]
    counts = Counter((str(what), str(reason)) for _, what, _, reason, *_ in rows)
    short = [[what, reason, count] for (what, reason), count in counts.most_common()]
    header = ["run", "what", "domain", "reason", "times", "rounds"]
    return [
        Table(["what", "reason", "runs and domains"], short),
        Table(header, rows, f"By run and domain: {len(rows)} lines", folded=True),
    ]


def _sizes(views: Mapping[str, RunView]) -> list[Table]:
    """Return the samples of each domain, once for all runs in which they are the same."""
    tables = {name: sizes_table(view.history) for name, view in views.items() if view.history}
    columns = list(dict.fromkeys(key for table in tables.values() for key in table.header))
    rows = {
        tuple(dict(zip(table.header, row, strict=True)).get(key, "") for key in columns)
        for table in tables.values()
        for row in table.rows
    }
    ordered = sorted(rows, key=lambda row: tuple(map(str, row)))
    return [Table(columns, ordered, folded=len(rows) > 12, title="Samples of each domain")] if rows else []


def _settings(views: Mapping[str, RunView]) -> list[Table]:
    """Return the settings that all runs share, and those in which they differ."""
    given = {name: view.settings for name, view in views.items() if view.settings}
    if not given:
        return []
    first = next(iter(given.values()))
    names = list(dict.fromkeys(key for settings in given.values() for key in settings))
    shared = [n for n in names if all(n in s and s[n] == first.get(n) for s in given.values())]
    own = [name for name in names if name not in shared]
    rows = [[name, *(show(settings.get(key)) for key in own)] for name, settings in given.items()]
    notes = next((view.notes for view in views.values() if view.notes), {})
    header = ["run", *(key.replace("_", "-") for key in own)]
    differ = Table(header, rows, "In which settings the runs differ", folded=True)
    return [*settings_table({name: first[name] for name in shared}, notes), *([differ] if own else [])]
