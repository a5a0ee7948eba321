"""The figures of several labels as a table."""

from collections.abc import Mapping
from typing import Any

from fda_flower.metrics import METRICS, few_cases
from fda_flower.metrics.labels import BY_LABEL
from fda_flower.reporting.tables import Table


def table_of_labels(labels: Mapping[str, Mapping[str, Any]], samples: int) -> Table:
    """Return each label's number of test samples that have it, and its figures; see `by_label`.

    Labels that all samples have, or none, have no figures, and few test samples are marked.
    """
    few = few_cases({name: each.get("units", each[BY_LABEL[0]]) for name, each in labels.items()})
    metrics = [METRICS[name] for name in BY_LABEL[1:]]
    of = f" of {samples:,}" if samples else ""
    rows = [
        [
            name,
            f"{each[BY_LABEL[0]]:,}{of}{' (few)' if name in few else ''}",
            *("-" if each[key] is None else METRICS[key].show(each[key]) for key in BY_LABEL[1:]),
        ]
        for name, each in labels.items()
    ]
    header = ["Label", "Test samples with it", *(metric.title for metric in metrics)]
    return Table(header, rows, "Each label on the test set")
