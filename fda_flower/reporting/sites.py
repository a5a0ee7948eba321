"""The gain that each site has from the others, in a run where every site is a target."""

from collections.abc import Mapping, Sequence
from typing import Any

from fda_flower.metrics import METRICS, Metric, few_cases
from fda_flower.names.words import of_units
from fda_flower.records.record import Record, judged_in
from fda_flower.reporting.tables import Table

Sites = Mapping[str, Mapping[str, Any]]
"""A record's sites by domain; see `fda_flower.strategies.RidgeEverySite`."""

HELD_OUT, CASES = "held-out", "fewest-cases"
MARK = "*"
"""Of a site that is judged by its labels."""


def sites_in(history: Sequence[Record]) -> Sites:
    """Return the sites of the last record that has any; empty without one."""
    return next((record["sites"] for record in reversed(history) if record.get("sites")), {})


def metric_of(history: Sequence[Record]) -> Metric:
    """Return the metric that sites are judged by."""
    last = next((record for record in reversed(history) if record.get("sites")), {})
    return METRICS[judged_in(last)]


def sites_table(history: Sequence[Record]) -> Table:
    """Return a table of the sites: labels, without and with the others, the gain, and the others' share."""
    metric, sites = metric_of(history), sites_in(history)
    unit = " (%)" if metric.percent else ""
    counted_cases = any(CASES in site for site in sites.values())
    cases = ["rarest class"] if counted_cases else []
    shares = ["a"] if has_shares(sites) else []
    header = ["site", "labels", *cases, f"alone{unit}", f"with the others{unit}", "gain", "95% interval"]
    header += shares
    rows = []
    for name, site in sites.items():
        mark = MARK if site.get("judged-by") == HELD_OUT else ""
        values = (_shown(metric, site.get(key)) for key in ("alone", "with-others"))
        low, high = site.get("interval", (None, None))
        ends = "" if low is None else f"{_shown(metric, low, '+')} to {_shown(metric, high, '+')}"
        share = [f"{site['share']:.2f}" if "share" in site else ""] if shares else []
        gain = _shown(metric, site.get("gain"), "+")
        labels = (
            f"{site['labels']}{of}" if (of := of_units(site["labels"], site.get("units"))) else site["labels"]
        )
        cases = [site.get(CASES, "")] if counted_cases else []
        rows.append([f"{name}{mark}", labels, *cases, *values, gain, ends, *share])
    lower = "" if metric.higher_is_better else " (lower is better)"
    return Table(header, rows, f"What the others bring to each site: {metric.title}{lower}")


def sites_note(history: Sequence[Record]) -> str:
    """Return the explanation of the table's columns and marks; empty where all are plain."""
    sites = sites_in(history).values()
    note = "a is the share of the others' layer in the site's own." if has_shares(sites_in(history)) else ""
    if any(site.get("judged-by") == HELD_OUT for site in sites):
        each = "those of each patient" if any("units" in site for site in sites) else "each"
        note += f" {MARK} has no test samples and is judged by its labels, {each} left out in turn."
    if few := few_cases({name: site[CASES] for name, site in sites_in(history).items() if CASES in site}):
        counts = ", ".join(f"{name} {number}" for name, number in few.items())
        note += f" Few test cases of the rarest class ({counts}): do not rank these sites."
    without = [
        name for name, site in sites_in(history).items() if "alone" not in site and "with-others" in site
    ]
    if without:
        note += f" Too few labels for a layer of its own: {', '.join(without)}."
    return note.strip()


def has_shares(sites: Sites) -> bool:
    """Return whether the others' layer has a share in a site's own, as in heads of classes and numbers."""
    return any("share" in site for site in sites.values())


def _shown(metric: Metric, value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{metric.scaled(value):{sign}.{metric.decimals}f}"
