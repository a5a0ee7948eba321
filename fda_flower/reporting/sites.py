"""The gain that each site has from the others, in a run where every site is a target."""

from collections.abc import Mapping, Sequence
from typing import Any

from fda_flower.metrics import METRICS, Metric
from fda_flower.names.words import of_units
from fda_flower.records.record import Record
from fda_flower.reporting.tables import Table

Sites = Mapping[str, Mapping[str, Any]]
"""A record's sites by domain; see `fda_flower.strategies.RidgeEverySite`."""

HELD_OUT = "held-out"
MARK = "*"
"""Of a site that is judged by its labels."""


def sites_in(history: Sequence[Record]) -> Sites:
    """Return the sites of the last record that has any; empty without one."""
    return next((record["sites"] for record in reversed(history) if record.get("sites")), {})


def metric_of(history: Sequence[Record]) -> Metric:
    """Return the metric that sites are judged by: the accuracy, or R²."""
    return METRICS["r2" if any("r2" in record for record in history) else "accuracy"]


def sites_table(history: Sequence[Record]) -> Table:
    """Return a table of the sites: labels, without and with the others, the gain, and the others' share."""
    metric, sites = metric_of(history), sites_in(history)
    unit = " (%)" if metric.percent else ""
    header = ["site", "labels", f"alone{unit}", f"with the others{unit}", "gain", "95% interval", "a"]
    rows = []
    for name, site in sites.items():
        mark = MARK if site.get("judged-by") == HELD_OUT else ""
        values = (_shown(metric, site.get(key)) for key in ("alone", "with-others"))
        low, high = site.get("interval", (None, None))
        ends = "" if low is None else f"{_shown(metric, low, '+')} to {_shown(metric, high, '+')}"
        share = f"{site['share']:.2f}" if "share" in site else ""
        gain = _shown(metric, site.get("gain"), "+")
        labels = (
            f"{site['labels']}{of}" if (of := of_units(site["labels"], site.get("units"))) else site["labels"]
        )
        rows.append([f"{name}{mark}", labels, *values, gain, ends, share])
    return Table(header, rows, "What the others bring to each site")


def sites_note(history: Sequence[Record]) -> str:
    """Return the explanation of the table's columns and marks."""
    sites = sites_in(history).values()
    note = "a is the share of the others' layer in the site's own."
    if any(site.get("judged-by") == HELD_OUT for site in sites):
        each = "those of each patient" if any("units" in site for site in sites) else "each"
        note += f" {MARK} has no test samples and is judged by its labels, {each} left out in turn."
    few = [name for name, site in sites_in(history).items() if "alone" not in site and "with-others" in site]
    if few:
        note += f" Too few labels for a layer of its own: {', '.join(few)}."
    return note


def _shown(metric: Metric, value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{metric.scaled(value):{sign}.{metric.decimals}f}"
