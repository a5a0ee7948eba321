"""What the records say of rounds: who took part, what was not used and why, bytes and seconds."""

import math
from collections.abc import Sequence
from itertools import groupby

from fda_flower.metrics import METRICS, Metric
from fda_flower.records.record import Record, curve, source_weight
from fda_flower.reporting.figures import styles_of
from fda_flower.reporting.html import charts
from fda_flower.reporting.html.page import Chart, Code, Page, Section, settings_table
from fda_flower.reporting.results import RunView
from fda_flower.reporting.summary import scores
from fda_flower.reporting.tables import Table

TOOK_PART, NOT_USED, COULD_NOT, NO_REPLY = charts.STATES


def presence(history: Sequence[Record]) -> list[Chart]:
    """Return a chart of which domain took part in which round."""
    states = _states(history)
    if not states:
        return []
    figure = charts.presence(
        {domain: [state for state, _ in each] for domain, each in states.items()},
        {domain: [reason for _, reason in each] for domain, each in states.items()},
    )
    return [Chart({"presence": figure})]


def describe_rounds(history: Sequence[Record]) -> list[Table]:
    """Return for each domain in how many rounds it took part, and what its replies said."""
    states = _states(history)
    rows = []
    for domain, each in states.items():
        entries = [entry for record in history if (entry := _entry(record, domain))]
        counts = [sum(state == one for state, _ in each) for one in (TOOK_PART, NOT_USED, COULD_NOT)]
        is_source = any(domain in record["sources"] for record in history)
        role = "source" if is_source else "target" if entries else ""
        steps = sum(entry.get("steps", 0) for entry in entries)
        losses = [entry["train-loss"] for entry in entries if entry.get("train-loss") is not None]
        clipped = sum("clipped" in entry for entry in entries)
        rows.append([domain, role, *counts, steps, f"{losses[-1]:.4g}" if losses else "", clipped])
    header = ["domain", "role", "took part", "not used", "could not", "steps", "last train loss", "clipped"]
    return [Table(header, rows, "Rounds in which each domain took part, and what it replied")] if rows else []


def faults(history: Sequence[Record]) -> Table | str:
    """Return what was dropped, missing, held or replaced, with the reason and the rounds."""
    found = [
        (kind, domain, reason, record["round"])
        for record in history
        for kind, domain, reason in _faults(record)
    ]
    if not found:
        return "Nothing: every reply was used in every round."
    found.sort(key=lambda fault: (fault[:3], fault[3]))
    rows = [
        [*fault, len(rounds), name_rounds(rounds)]
        for fault, group in groupby(found, key=lambda fault: fault[:3])
        for rounds in [[number for *_, number in group]]
    ]
    return Table(["what", "domain", "reason", "times", "rounds"], rows)


def rounds_table(history: Sequence[Record], headline: str) -> Table:
    """Return a folded table with a line for each round."""
    metric, values = METRICS[headline], curve(history, headline)
    phases = list(dict.fromkeys(phase for record in history for phase in record["seconds"]))
    header = ["round", metric.label, "loss", "sources", "dropped", "kB received"]
    rows = [
        [
            record["round"],
            "" if math.isnan(value) else f"{value:.{metric.decimals}f}",
            f"{record['loss']:.4g}" if record.get("loss") is not None else "",
            len(record["sources"]),
            len(record["dropped"]),
            f"{record.get('bytes-received', 0) / 1e3:.0f}",
            *(f"{record['seconds'].get(phase, 0):.3f}" for phase in phases),
            "warm-up" if record.get("warmup") else "held" if record["held"] else "",
        ]
        for record, value in zip(history, values, strict=True)
    ]
    titles = [*header, *(f"seconds, {phase}" for phase in phases), "kind"]
    return Table(titles, rows, f"{len(rows)} rounds, each with its bytes and seconds", folded=True)


def name_rounds(rounds: Sequence[int]) -> str:
    """Return rounds with spans.

    Examples
    --------
    >>> name_rounds([3, 5, 6, 7])
    '3, 5 to 7'
    """
    spans: list[list[int]] = []
    for number in rounds:
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in spans)


def _entry(record: Record, domain: str) -> Record:
    target = record.get("target") or {}
    return target if target.get("domain") == domain else record["sources"].get(domain, {})


def _states(history: Sequence[Record]) -> dict[str, list[tuple[str, str]]]:
    """Return each domain's state in each round with its reason, the target first."""
    targets = [record["target"]["domain"] for record in history if (record.get("target") or {}).get("domain")]
    others = [name for record in history for name in record["sources"]]
    listed = [
        each["domain"] for record in history for key in ("dropped", "missing") for each in record.get(key, ())
    ]
    return {
        domain: [_state(record, domain) for record in history]
        for domain in dict.fromkeys([*targets, *sorted(others), *listed])
    }


def _state(record: Record, domain: str) -> tuple[str, str]:
    for key, state in (("dropped", NOT_USED), ("missing", COULD_NOT)):
        for each in record.get(key, ()):
            if each["domain"] == domain:
                return state, each["reason"]
    return (TOOK_PART, "") if _entry(record, domain) else (NO_REPLY, "")


def _faults(record: Record) -> list[tuple[str, str, str]]:
    found = [
        (key, each["domain"], each["reason"])
        for key in ("dropped", "missing")
        for each in record.get(key, ())
    ]
    if record["held"]:
        found.append(("held", "", record["held"]))
    for key in ("evaluation-failed", "evaluation-failed-average"):
        if record.get(key):
            found.append((key.replace("-", " "), "", record[key]))
    for entry in [record.get("target") or {}, *record["sources"].values()]:
        if entry.get("fallback"):
            found.append(("fallback", entry.get("domain", ""), entry["fallback"]))
    return found


NO_FIGURES = {"round", "bytes-received", "test-examples", "test-examples-average", "selected"}
"""Numbers of a record that are no measurement of the target."""


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
