"""Who has what: the statistics of the sites as a table, sentences, a picture and a file."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fda_flower.aggregation.apart import is_share
from fda_flower.files import json_safe, write_atomically, writing
from fda_flower.names.words import count_of, counted
from fda_flower.records.alike import DESCRIBED, MEASURED
from fda_flower.records.record import Record
from fda_flower.reporting.tables import Table

FILE, PICTURE = "describe.json", "sites-alike.png"

MOST_COLUMNS, MOST_PAIRS = 30, 12
"""The most columns in a table, and the most sentences; the file has all."""

Described = Mapping[str, Any]
"""The content of `FILE`; see `fda_flower.records.alike.Alike`."""


def described_in(history: Sequence[Record]) -> Described:
    """Return what the sites say in the last record that has it; empty without one."""
    return next((record[DESCRIBED] for record in reversed(history) if record.get(DESCRIBED)), {})


def alike_table(described: Described) -> Table:
    """Return a table of the sites: rows, classes, and each column's mean, deviation and missing values."""
    sites = described["sites"]
    rows: list[list[object]] = [
        ["rows", *(count_of(each["rows"], each["units"], "row") for each in sites.values())]
    ]
    classes = dict.fromkeys(label for each in sites.values() for label in each.get("classes", ()))
    rows += [
        [f"outcome {c}", *(each.get("classes", {}).get(c, "") for each in sites.values())] for c in classes
    ]
    columns = dict.fromkeys(column for each in sites.values() for column in each.get("columns", ()))
    for column in [*columns][:MOST_COLUMNS]:
        cells = {name: each.get("columns", {}).get(column) for name, each in sites.items()}
        are_shares = all(is_share(cell["mean"], cell["deviation"]) for cell in cells.values() if cell)
        rows.append([column, *(_shown(sites[name], cell, are_shares) for name, cell in cells.items())])
    if (more := len(columns) - MOST_COLUMNS) > 0:
        rows.append([f"({counted(more, 'more column')} in {FILE})", *("" for _ in sites)])
    multiples = sorted({each["min-cell"] for each in sites.values() if "min-cell" in each})
    what = f"; counts are multiples of {' or '.join(map(str, multiples))}" if multiples else ""
    return Table(["", *sites], rows, f"Who has what: mean ± deviation, about the quartiles{what}")


def _shown(site: Mapping[str, Any], column: Mapping[str, Any] | None, are_shares: bool) -> str:
    """Return a cell, of zeros and ones with the share alone."""
    if column is None:
        return "too few values"
    mean, deviation = column["mean"], column["deviation"]
    text = f"{mean:.0%}" if are_shares else f"{mean:.4g} ± {deviation:.3g}"
    if quartiles := column.get("quartiles"):
        text += f" ({', '.join(f'{each:.3g}' for each in quartiles)})"
    missing = min(column["missing"] / site["units"], 1.0)
    return text + (f", {missing:.0%} missing" if missing else "")


def alike_lines(described: Described) -> list[str]:
    """Return a sentence on each pair of sites, of many the first."""
    sentences = [pair["sentence"] for pair in described["pairs"] if "sentence" in pair]
    more = len(sentences) - MOST_PAIRS
    lines = sentences[:MOST_PAIRS] + ([f"({counted(more, 'more pair')} in {FILE})"] if more > 0 else [])
    if sentences and not described["all"]:
        lines.insert(0, "Nearest first, by the features of the network:")
    return lines


def alike_notes(described: Described) -> list[str]:
    """Return what the output says of itself, if there is any; its last line says how help is measured."""
    return [*described["not-claimed"], MEASURED] if described else []


def write_alike(folder: Path, described: Described) -> None:
    """Write the file and the picture into a folder, if the sites say something.

    Raise a `ConfigError` if they cannot be written.
    """
    if not described:
        return
    from fda_flower.reporting.figures import save_figure
    from fda_flower.reporting.plots import plot_alike  # loads matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    with writing("statistics", folder / FILE):
        write_atomically(folder / FILE, f"{json.dumps(json_safe(dict(described)), indent=2)}\n".encode())
        save_figure(folder / PICTURE, plot_alike(described))
