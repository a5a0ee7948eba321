"""A run in tables: its samples, rounds, faults and settings."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from fda_flower.metrics import METRICS, UNITS
from fda_flower.names.words import counted, of_units
from fda_flower.records.record import OF_UNITS, Record, curve
from fda_flower.reporting.tables import Table
from fda_flower.runs.settings import SETTINGS


def cost(history: Sequence[Record]) -> tuple[str, str]:
    """Return the megabytes that the server received, and the seconds."""
    costs = [(record.get("bytes-received", 0), sum(record["seconds"].values())) for record in history]
    received, seconds = (sum(numbers) for numbers in zip((0, 0.0), *costs, strict=True))
    return f"{received / 1e6:.1f}", f"{seconds:.1f}"


def left_out(record: Record) -> list[Record]:
    """Return the entries of dropped replies and missing domains."""
    return [each | {"kind": key} for key in ("dropped", "missing") for each in record.get(key, ())]


def faults(history: Sequence[Record]) -> Table | str:
    """Return a table of everything dropped, missing, held or replaced, with reasons and rounds."""
    by_round = sorted((*fault, record["round"]) for record in history for fault in _faults(record))
    if not by_round:
        return "Nothing: every reply was used in every round."
    rows = []
    for fault, group in groupby(by_round, key=lambda fault: fault[:3]):
        rounds = [number for *_, number in group]
        rows.append([*fault, len(rounds), name_rounds(rounds)])
    return Table(["what", "domain", "reason", "times", "rounds"], rows)


def _faults(record: Record) -> list[tuple[str, str, str]]:
    faults = [(each["kind"], each["domain"], each["reason"]) for each in left_out(record)]
    for key in ("held", "evaluation-failed", "evaluation-failed-average"):
        if record.get(key):
            faults.append((key.replace("-", " "), "", record[key]))
    for entry in [record.get("target") or {}, *record["sources"].values()]:
        if entry.get("fallback"):
            faults.append(("fallback", entry.get("domain", ""), entry["fallback"]))
    return faults


def name_rounds(rounds: Sequence[int]) -> str:
    """Return numbers of rounds as text, consecutive ones as a span.

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


SIZES = ("role", "train", "labelled", "unlabelled", "validation", "test")
"""The columns of a table of samples, in order."""


def sources_in(record: Record) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the role and the entry of each source; it is a target, too, where every site is one."""
    role = "source and target" if "sites" in record else "source"
    return [(role, entry) for entry in record["sources"].values()]


def sizes_table(history: Sequence[Record]) -> Table:
    """Return the number of samples of each domain, as far as the records have it.

    The samples to ``train`` are the labelled and the unlabelled ones.
    """
    sizes: dict[str, dict[str, object]] = {}
    for record in history:
        target = record.get("target") or {}
        for role, entry in [("target", target), *sources_in(record)]:
            if "domain" in entry and "examples" in entry:
                sizes.setdefault(entry["domain"], {"role": role}).setdefault("train", entry["examples"])
        if "test-examples" in record and "domain" in target:
            tests = {"test": record["test-examples"]} | ({UNITS: record[UNITS]} if UNITS in record else {})
            sizes.setdefault(target["domain"], {"role": "target"}).update(_with_units(tests))
        for domain, known in record.get("sizes", {}).items():
            sizes.setdefault(domain, {}).update(_with_units(known))
    silent = [domain for domain, each in sizes.items() if "role" not in each]
    if len(silent) == 1 and all(each.get("role") != "target" for each in sizes.values()):
        sizes[silent[0]]["role"] = "target"  # the method trains only the sources
    known = {key: None for each in sizes.values() for key in each}
    columns = [key for key in SIZES if key in known] + [key for key in known if key not in SIZES]
    rows = [[domain, *(each.get(key, "") for key in columns)] for domain, each in sizes.items()]
    return Table(["domain", *columns], rows)


def _with_units(sizes: Mapping[str, int]) -> dict[str, object]:
    """Return numbers of samples, with those of patients where some have several."""
    counts = {name: number for name, number in sizes.items() if not name.endswith(OF_UNITS)}
    units = {name: of_units(number, sizes.get(f"{name}{OF_UNITS}")) for name, number in counts.items()}
    return {name: f"{number}{units[name]}" if units[name] else number for name, number in counts.items()}


def rounds_table(history: Sequence[Record], headline: str) -> Table:
    """Return a folded table with a line for each round."""
    metric, values = METRICS[headline], curve(history, headline)
    phases = list(dict.fromkeys(phase for record in history for phase in record["seconds"]))
    header = ["round", metric.label, "loss", "sources", "dropped", "kB received"]
    rows = [
        [
            record["round"],
            "" if math.isnan(value) else f"{value:.{metric.decimals}f}",
            short(record.get("loss")),
            len(record["sources"]),
            len(record["dropped"]),
            f"{record.get('bytes-received', 0) / 1e3:.0f}",
            *(f"{record['seconds'].get(phase, 0):.3f}" for phase in phases),
            "warm-up" if record.get("warmup") else "held" if record["held"] else "",
        ]
        for record, value in zip(history, values, strict=True)
    ]
    titles = [*header, *(f"seconds, {phase}" for phase in phases), "kind"]
    return Table(titles, rows, f"{counted(len(rows), 'round')}, with bytes and seconds", folded=True)


def short(value: object) -> object:
    """Return a number with four digits, and nothing for None."""
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else value


def settings_table(settings: Mapping[str, Any], notes: Mapping[str, Any]) -> list[Table]:
    """Return a table of the changed settings, a folded one of all settings, and one of versions."""
    if not settings:
        return []
    known = {each.name: (show(each.default), each.help) for each in SETTINGS}
    rows = [
        [name.replace("_", "-"), show(value), *known.get(name, ("", ""))] for name, value in settings.items()
    ]
    header = ["setting", "value", "default", "meaning"]
    changed = [row for row in rows if row[1] != row[2]]
    flat = (value if isinstance(value, Mapping) else {name: value} for name, value in notes.items())
    more = [[name, show(value)] for each in flat for name, value in each.items()]
    tables = [
        Table(header, changed, "Settings that differ from the default"),
        Table(header, rows, f"All {len(rows)} settings", folded=True),
        Table(["what", "value"], more, "Versions and machine", folded=True),
    ]
    return [table for table in tables if table.rows]


def show(value: Any) -> str:
    """Return a setting's value as text: options as NAME=VALUE, lists with commas, None as nothing.

    Examples
    --------
    >>> show({"std": 0.4}), show(["a", "b"]), show(None), show(True)
    ('std=0.4', 'a, b', '', 'yes')
    """
    if isinstance(value, Mapping):
        return " ".join(f"{name}={show(option)}" for name, option in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(show, value))
    return "" if value is None else ("no", "yes")[value] if isinstance(value, bool) else str(value)
