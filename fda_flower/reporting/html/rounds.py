"""What the records say of rounds: who took part, what was not used and why, bytes and seconds."""

import math
from collections.abc import Sequence
from itertools import groupby

from fda_flower.metrics import METRICS
from fda_flower.records import Record, curve
from fda_flower.reporting.html import charts
from fda_flower.reporting.html.page import Chart
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
