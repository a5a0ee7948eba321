"""Figures of several labels, and of survival, in a reply, read into a record."""

from collections.abc import Sequence

import numpy as np

from fda_flower.aggregation import Layers
from fda_flower.metrics import by_label, of_shares
from fda_flower.metrics.labels import BY_LABEL
from fda_flower.records.record import CURVE, EVENTS, FOLLOWED, FREQUENCIES, LABELS, Record

MOST_LABELS = 1000
"""Largest number of labels in a record; more would make records megabytes long."""


def read_labels(arrays: Layers, names: Sequence[str]) -> Record:
    """Return the entry with the figures of each label, and of their frequencies; empty if unreadable.

    `arrays` has ``figures``, of `fda_flower.metrics.figures_of_labels`, and the number of ``examples``.
    """
    figures, examples = (arrays.get(name, np.zeros(0)) for name in ("figures", "examples"))
    if figures.ndim != 2 or figures.shape[1] != len(BY_LABEL) or figures.dtype.kind != "f":
        return {}
    if examples.size != 1 or not np.issubdtype(examples.dtype, np.integer) or len(figures) > MOST_LABELS:
        return {}
    count, supports = int(examples.item()), figures[:, 0]
    if not ((supports >= 0) & (supports <= count) & (supports == np.round(supports))).all():
        return {}
    known = figures[:, 1:][~np.isnan(figures[:, 1:])]
    if not ((known >= 0) & (known <= 1)).all():
        return {}
    labels = list(names) if len(names) == len(figures) else [str(i) for i in range(len(figures))]
    frequencies = of_shares(supports.astype(int).tolist(), count)
    units = arrays.get("units", np.zeros(0))
    known_units = units.shape == supports.shape and units.dtype.kind == "i"
    possible = known_units and bool(((units >= 0) & (units <= supports)).all())
    table = by_label(figures, labels, units.tolist() if possible else None)
    return {LABELS: {"labels": table, FREQUENCIES: frequencies}}


def read_followed(arrays: Layers) -> Record:
    """Return the entry with the number of events, and of the test set's own curve; empty if unreadable.

    `arrays` is as of `fda_flower.metrics.survival.figures_of_curve`.
    """
    events, examples, brier = (arrays.get(name, np.zeros(0)) for name in ("events", "examples", "brier"))
    if events.size != 1 or examples.size != 1 or brier.size != 1 or brier.dtype.kind != "f":
        return {}
    if not (np.issubdtype(events.dtype, np.integer) and 0 <= events.item() <= examples.item()):
        return {}
    known = {"brier": float(brier.item())} if 0 <= brier.item() <= 1 else {}
    return {FOLLOWED: {EVENTS: int(events.item()), CURVE: known}}
