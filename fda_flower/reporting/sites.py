"""The gain that each site has from the others, in a run where every site is a target."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from fda_flower.metrics import METRICS, Metric
from fda_flower.records.record import Record
from fda_flower.reporting.figures import PAGE, PRINT, SIZE, TEXT_LINE, add_about, add_legend, blank, style
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
    """Return the figure by which sites are judged: the accuracy, or R²."""
    return METRICS["r2" if any("r2" in record for record in history) else "accuracy"]


def sites_table(history: Sequence[Record]) -> Table:
    """Return a table of the sites: labels, without and with the others, the gain, and the others' share."""
    metric, sites = metric_of(history), sites_in(history)
    unit = " (%)" if metric.percent else ""
    header = ["site", "labels", f"alone{unit}", f"with the others{unit}", "gain", "95% interval", "a"]
    rows = []
    for name, site in sites.items():
        mark = MARK if site.get("judged-by") == HELD_OUT else ""
        figures = (_shown(metric, site.get(key)) for key in ("alone", "with-others"))
        low, high = site.get("interval", (None, None))
        ends = "" if low is None else f"{_shown(metric, low, '+')} to {_shown(metric, high, '+')}"
        share = f"{site['share']:.2f}" if "share" in site else ""
        gain = _shown(metric, site.get("gain"), "+")
        rows.append([f"{name}{mark}", site["labels"], *figures, gain, ends, share])
    return Table(header, rows, "What the others bring to each site")


def sites_note(history: Sequence[Record]) -> str:
    """Return the explanation of the table's columns and marks."""
    sites = sites_in(history).values()
    note = "a is how much of the others' layer is left in the site's own."
    if any(site.get("judged-by") == HELD_OUT for site in sites):
        note += f" {MARK} judged by its labels, each left out in turn: it has no test samples."
    few = [name for name, site in sites_in(history).items() if "alone" not in site and "with-others" in site]
    if few:
        note += f" Too few labels for a layer of its own: {', '.join(few)}."
    return note


def _shown(metric: Metric, value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{metric.scaled(value):{sign}.{metric.decimals}f}"


@matplotlib.rc_context(PRINT)
def plot_sites(history: Sequence[Record], about: str = "") -> Figure:
    """Plot two dots a site, without and with the others, the largest gain first; see `sites_table`."""
    metric = metric_of(history)
    sites = {name: site for name, site in sites_in(history).items() if "with-others" in site}
    if not sites:
        return blank("No site has told a figure.")
    names = sorted(sites, key=lambda name: -sites[name].get("gain", -np.inf))
    figure = Figure(figsize=(PAGE, 0.6 + 2 * TEXT_LINE * max(len(sites), 2)), layout="constrained")
    axis = figure.subplots()
    for label, key, look in (("alone", "alone", style(1)), ("with the others", "with-others", style(0))):
        told = [(i, sites[name][key]) for i, name in enumerate(names) if key in sites[name]]
        values = [metric.scaled(value) for _, value in told]
        axis.plot(values, [i for i, _ in told], look.marker, color=look.color, label=label, zorder=3)
    for i, name in enumerate(names):
        if "alone" in sites[name]:
            ends = [metric.scaled(sites[name][key]) for key in ("alone", "with-others")]
            axis.plot(ends, [i, i], color="0.7", linewidth=1)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_xlabel(metric.axis.replace("Target test", "Each site's own"))
    axis.tick_params(labelsize=SIZE)
    axis.grid(alpha=0.3, linewidth=0.5)
    add_legend(figure, [axis])
    add_about(figure, about)
    return figure
