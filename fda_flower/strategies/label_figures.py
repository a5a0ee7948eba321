"""Figures of several labels in a reply, read into a record."""

from collections.abc import Sequence

import numpy as np

from fda_flower.aggregation import Layers
from fda_flower.metrics import by_label, of_shares
from fda_flower.metrics.labels import BY_LABEL
from fda_flower.records.record import FREQUENCIES, LABELS, Record

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
    return {LABELS: {"labels": by_label(figures, labels), FREQUENCIES: frequencies}}
