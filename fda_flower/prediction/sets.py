"""The metrics of sets of classes, or intervals, on labelled samples."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import sets_of
from fda_flower.aggregation.mixture import log_softmax
from fda_flower.metrics import measure_intervals, measure_sets

Array = NDArray[Any]

UNPROMISED: Mapping[str, str] = {
    "mask": "the model predicts the pixels of a mask, and no share of pixels can be promised",
    "multilabel": "the model predicts several labels, of each its probability, and no sets of classes",
    "survival": "the label of a patient last seen alive is not known, so no share of labels can be promised",
}
"""By task, why there are no sets and intervals."""


def metrics_of_sets(
    thresholds: Array,
    outputs: Array,
    y: Array,
    to_labels: Callable[[Array], Array],
    units: Array | None = None,
) -> dict[str, float]:
    """Return the metrics of sets, by their names in a record.

    Parameters
    ----------
    thresholds : array
        The largest score of each class in a set, or of each number in an interval, shape ``(C,)``.
    outputs, y : array
        A model's outputs, shape ``(n, C)``, and the labels: classes, ``(n,)``, or numbers in the outputs'
        unit, ``(n,)`` or ``(n, C)``.
    to_labels : callable
        Converts a regression's outputs to the labels' unit, for the width.
    units : array, optional
        Units of samples, such as patients, integers, shape ``(n,)``. Default: each is its own.
    """
    exact = np.asarray(outputs, np.float64)
    if y.dtype.kind != "f":
        return measure_sets(sets_of(np.exp(log_softmax(exact)), thresholds), y, units)
    ends = exact - thresholds, exact + thresholds, np.asarray(y, np.float64).reshape(exact.shape)
    low, high, labels = map(to_labels, ends)
    return measure_intervals(low, high, labels, units)
