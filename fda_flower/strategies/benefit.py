"""What the sources bring, by the target's held-out labels."""

from fda_flower.names.words import of_units
from fda_flower.records.record import Record
from fda_flower.strategies.nodes import Node
from fda_flower.wire.protocol import GROUPS, LABELLED

HELD_OUT, TARGET_ALONE, UNITS = "held-out", "held-out-target", "units"
"""Entries of a method's own part of the record: metrics by held-out labels, and without the sources; the
number of units, such as patients, of the labels, if some have several."""


def benefit_of_sources(entry: Record, regression: bool) -> list[str]:
    """Return a line on what the sources bring, by held-out labels; none if a metric is unknown.

    Examples
    --------
    >>> benefit_of_sources({"held-out": 0.76, "held-out-target": 0.7}, regression=False)
    ['The sources bring +6.0 points here, by held-out labels: 76.0 with them, 70.0 without']
    >>> benefit_of_sources({"held-out": 0.8, "held-out-target": 0.8, "units": 6}, regression=False)
    ['The sources bring +0.0 points here, by held-out labels of 6 patients: 80.0 with them, 80.0 without']
    """
    both, alone = (entry.get(name) for name in (HELD_OUT, TARGET_ALONE))
    if both is None or alone is None:
        return []
    unit, digits, factor = ("", ".2f", 1) if regression else (" points", ".1f", 100)
    gain = f"{'R² ' * regression}{factor * (both - alone):+z{digits}}{unit}"
    shares = f"{factor * both:{digits}} with them, {factor * alone:{digits}} without"
    of = of_units(0, entry.get(UNITS))
    return [f"The sources bring {gain} here, by held-out labels{of}: {shares}"]


def units_of(node: Node | None) -> dict[str, int]:
    """Return the entry with the units, such as patients, of a node's labels; empty if each is of its own."""
    labels, units = (None if node is None else node.info.get(key) for key in (LABELLED, GROUPS))
    return {UNITS: units} if isinstance(units, int) and units != labels else {}
