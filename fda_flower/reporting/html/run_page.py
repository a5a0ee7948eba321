"""The page of one run: the target by round, each source's weight, who took part, what was dropped and why."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fda_flower.metrics import METRICS, Metric
from fda_flower.records import Record, headline, source_weight
from fda_flower.reporting.curves import styles_of
from fda_flower.reporting.html import charts
from fda_flower.reporting.html.page import Chart, Code, Page, Section
from fda_flower.reporting.html.rounds import describe_rounds, faults, presence, rounds_table
from fda_flower.reporting.html.settings import settings_table
from fda_flower.reporting.summary import ACCURACY, scores
from fda_flower.reporting.tables import Table

NO_FIGURES = {"round", "bytes-received", "test-examples", "test-examples-average", "selected"}
"""Numbers of a record that are no measurement of the target."""


@dataclass(frozen=True)
class RunView:
    """What a page needs of one run.

    Attributes
    ----------
    label : str
        The method.
    seed : int
        The seed.
    history : list[dict]
        The records so far.
    settings, notes : mapping
        All settings of the run; versions, device and what else its ``config.json`` says.
    rounds : int
        Rounds asked for, warm-up rounds included; 0 if unknown.
    done : bool
        Whether the run has ended.
    commands : sequence of str
        Commands that repeat it.
    metric : str
        The headline, a name of `fda_flower.metrics.METRICS`.
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


def run_page(view: RunView, title: str) -> Page:
    """Return the page of a run."""
    history = view.history
    sections = [
        Section("Results", [_headlines(view), *_figures(history, view.metric)]),
        Section("Weights of the sources", _weights(history)),
        Section("Members of the mixture", _members(history)),
        Section("Who took part", [*presence(history), *describe_rounds(history)]),
        Section("Dropped, missing and other trouble", [faults(history)]),
        Section("Samples", [sizes_table(history)] if history else []),
        Section("Rounds", [rounds_table(history, view.metric)] if history else []),
        Section("Settings", settings_table(view.settings, view.notes)),
        Section("Repeat it", [Code(view.commands)] if view.commands else []),
    ]
    about = "; ".join(filter(None, [view.label, view.data, f"seed {view.seed}"]))
    return Page(title, about, [each for each in sections if each.parts], view.state)


def sizes_table(history: Sequence[Record]) -> Table:
    """Return how many samples each domain has, as far as the records say."""
    sizes: dict[str, dict[str, object]] = {}
    for record in history:
        target = record.get("target") or {}
        for role, entry in [("target", target), *(("source", each) for each in record["sources"].values())]:
            if "domain" in entry and "examples" in entry:
                sizes.setdefault(entry["domain"], {"role": role})["trained on"] = entry["examples"]
        if "test-examples" in record and "domain" in target:
            sizes[target["domain"]]["test"] = record["test-examples"]
        for domain, told in record.get("sizes", {}).items():
            sizes.setdefault(domain, {}).update(told)
    silent = [domain for domain, each in sizes.items() if "role" not in each]
    if len(silent) == 1 and all(each.get("role") != "target" for each in sizes.values()):
        sizes[silent[0]]["role"] = "target"  # of a method that trains the sources alone
    columns = list(dict.fromkeys(key for each in sizes.values() for key in each))
    rows = [[domain, *(each.get(key, "") for key in columns)] for domain, each in sizes.items()]
    return Table(["domain", *columns], rows)


def _headlines(view: RunView) -> Table:
    """Return ``last5``, ``best`` and what else `scores` tells, and what the run cost."""
    metric = METRICS[view.metric]
    found = {
        f"{key}, {metric.label}": "-" if value is None else f"{value:.{metric.decimals}f}"
        for key, value in scores(view.history, view.metric).items()
    }
    seconds = sum(sum(record["seconds"].values()) for record in view.history)
    received = sum(record.get("bytes-received", 0) for record in view.history)
    cost = {"rounds": len(view.history), "seconds": f"{seconds:.1f}", "MB received": f"{received / 1e6:.1f}"}
    shown = {**found, **cost}
    return Table(["method", "seed", *shown], [[view.label, view.seed, *shown.values()]])


def _figures(history: Sequence[Record], headline: str) -> list[Chart]:
    """Return every number that was measured of the target by round: the headline's together, others alone."""
    names = list(
        dict.fromkeys(
            key
            for record in history
            for key, value in record.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and key not in NO_FIGURES
        )
    )
    together = [name for name in names if _metric_of(name) == METRICS[headline]]
    charted = {METRICS[headline].axis: together} if together else {}
    charted |= {name: [name] for name in names if name not in together}
    figures = {
        label: charts.curves(
            {name: [_by_round(history, name)] for name in shown},
            styles_of(shown),
            label,
        )
        for label, shown in charted.items()
    }
    return [Chart(figures, "The target by round; a click on a name shows or hides it.")] if figures else []


def _weights(history: Sequence[Record]) -> list[Chart | Table]:
    """Return β or the weight of each source by round, and how far each was trusted."""
    series = weight_series([history])
    if not series:
        return []
    figure = charts.curves(series, styles_of([*series]), "Weight (β) of the source", from_zero=True)
    rows = [
        [source, *_trust([v for v in values[0] if not math.isnan(v)])] for source, values in series.items()
    ]
    table = Table(
        ["source", "mean", "lowest", "highest", "last"], rows, "How far each source was trusted: its weight"
    )
    return [Chart({"weights": figure}), table]


def weight_series(histories: Sequence[Sequence[Record]]) -> dict[str, list[list[float]]]:
    """Return by source, for each history, β or its weight by round; only sources with any."""
    sources = sorted({name for history in histories for record in history for name in record["sources"]})
    series = {
        source: [
            [_number(source_weight(record["sources"].get(source, {}))) for record in history]
            for history in histories
        ]
        for source in sources
    }
    return {source: each for source, each in series.items() if any(v == v for values in each for v in values)}


def _members(history: Sequence[Record]) -> list[Chart | Table]:
    """Return what the last record says of each member, and the weights by round if there are several."""
    mixtures = {
        record["round"]: record["mixture"]["members"]
        for record in history
        if record.get("mixture", {}).get("members")
    }
    if not mixtures:
        return []
    last = mixtures[max(mixtures)]
    columns = list(dict.fromkeys(key for each in last.values() for key in each))
    rows = [[name, *(_shown(each.get(key)) for key in columns)] for name, each in last.items()]
    table = Table(["member", *columns], rows, f"The members in round {max(mixtures)}")
    if len(mixtures) < 2:
        return [table]
    by_round = [mixtures.get(number, {}) for number in range(1, max(mixtures) + 1)]
    series = {name: [[_number(each.get(name, {}).get("weight")) for each in by_round]] for name in last}
    figure = charts.curves(series, styles_of([*series]), "Weight of the member", from_zero=True)
    return [Chart({"members": figure}), table]


def _by_round(history: Sequence[Record], name: str) -> list[float]:
    """Return a number of the records by round, in the unit of tables."""
    metric = _metric_of(name)
    values = [_number(record.get(name)) for record in history]
    return values if metric is None else [metric.scaled(value) for value in values]


def _metric_of(name: str) -> Metric | None:
    """Return the figure that an entry of a record is, as ``accuracy-average`` is an accuracy."""
    return next((each for key, each in METRICS.items() if name == key or name.startswith(f"{key}-")), None)


def _trust(values: Sequence[float]) -> list[str]:
    numbers = sum(values) / len(values), min(values), max(values), values[-1]
    return [f"{number:.3f}" for number in numbers]


def _shown(value: object) -> object:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else value


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
