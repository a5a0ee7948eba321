"""Metrics of classes.

NumPy is imported only to compute a metric.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fda_flower.metrics.ranking import ranked

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


ECE_BINS = 15
"""The number of bins of a `calibration_error`."""


def of_most_frequent(counts: "NDArray[Any]") -> dict[str, float]:
    """Return the metrics of the model that always predicts the most frequent class of the test set.

    It is the best model that ignores its input. Its ``ece`` and loss depend on its confidence, and are left
    out; ``auprc`` and ``brier`` follow from the classes' shares. `counts` is any model's `confusion` matrix
    on a test set that is not empty.

    Examples
    --------
    >>> import numpy as np
    >>> of_most_frequent(np.array([[8, 2], [14, 21]]))["accuracy"]  # 35 of 45 are of the second class
    0.7777777777777778
    """
    import numpy as np

    support = counts.sum(axis=1, dtype=np.float64)
    constant = np.zeros((len(support), len(support)))
    constant[:, support.argmax()] = support
    metrics = {"accuracy": float(support.max() / support.sum()), **_means_over_classes(constant)}
    classes = np.count_nonzero(support)
    shares = {"auprc": 1 / int(classes), "brier": float(1 - np.square(support / support.sum()).sum()) / 2}
    return metrics | ({"auroc": 0.5} if classes > 1 else {}) | shares


def _means_over_classes(counts: "NDArray[Any]") -> dict[str, float]:
    """Return a confusion matrix's metrics that are means over the classes with samples."""
    import numpy as np

    _, recall, f1, support = _scores(counts)
    present = support > 0
    return {
        "balanced-accuracy": float(np.mean(recall[present])),
        "macro-f1": float(np.mean(f1[present])),
    }


def _scores(counts: "NDArray[Any]") -> "tuple[NDArray[np.float64], ...]":
    """Return each class's precision, recall, F1 (0 without samples) and support, as scikit-learn does."""
    import numpy as np

    right, true, predicted = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    parts = ((right, predicted), (right, true), (2 * right, true + predicted))
    return (*(part / np.maximum(whole, 1) for part, whole in parts), true)


def calibration_error(confidence: "NDArray[Any]", right: "NDArray[np.bool_]") -> float:
    """Return ``ECE = Σ_b |B_b|/n |acc(B_b) − conf(B_b)|`` over 15 bins of equal width.

    ``B_b`` are the samples whose largest probability, `confidence`, is in ``((b−1)/15, b/15]``, ``acc`` their
    accuracy, by `right`, and ``conf`` the mean of these probabilities (Guo, Pleiss, Sun and Weinberger, On
    Calibration of Modern Neural Networks, ICML 2017, equation 3). Both arrays have shape ``(n,)``.
    """
    import numpy as np

    bins = np.digitize(confidence, np.arange(1, ECE_BINS) / ECE_BINS, right=True)
    return float(np.abs(np.bincount(bins, weights=right - confidence)).sum() / len(right))


def confusion(outputs: "NDArray[Any]", y: "NDArray[Any]") -> "NDArray[np.int64]":
    """Return the confusion matrix: true classes in rows, predicted ones in columns.

    `outputs` are logits or probabilities, ``(n, classes)``, and `y` the true classes, ``(n,)``.
    """
    return _counts(y, outputs.argmax(axis=1), outputs.shape[1])


def _counts(y: "NDArray[Any]", predicted: "NDArray[Any]", classes: int) -> "NDArray[np.int64]":
    import numpy as np

    places = y.astype(np.int64) * classes + predicted
    return np.bincount(places, minlength=classes**2).reshape(classes, classes)


def by_class(
    counts: "NDArray[np.int64]", names: Sequence[str] | None = None, units: Sequence[int] | None = None
) -> dict[str, dict[str, float | int | None]]:
    """Return ``precision``, ``recall``, ``f1`` and ``support`` of each class from its `confusion` matrix.

    A metric of no samples is None: the precision of a class that is never predicted, the recall of one
    without samples, and F1 if both hold. The default names are the classes' numbers. With `units` each has
    the number of its ``units``, see `units_by_class`.
    """
    names = [str(label) for label in range(len(counts))] if names is None else names
    predicted = counts.sum(axis=0)
    own = [{}] * len(counts) if units is None else [{"units": int(each)} for each in units]
    return {
        name: {
            "precision": float(p) if of else None,
            "recall": float(r) if n else None,
            "f1": float(f) if of or n else None,
            "support": int(n),
            **more,
        }
        for name, of, more, p, r, f, n in zip(names, predicted, own, *_scores(counts), strict=True)
    }


def units_by_class(
    y: "NDArray[Any]", classes: int, units: "NDArray[Any] | None"
) -> "dict[str, NDArray[np.int64]]":
    """Return as ``units`` the number of units with each class; nothing if each sample is its own unit.

    Examples
    --------
    >>> import numpy as np
    >>> units_by_class(np.array([1, 1, 0, 0]), 2, np.array([7, 7, 7, 8]))
    {'units': array([2, 1])}
    """
    from fda_flower.aggregation.units import Units

    known = Units.of(len(y), units)
    return {} if known.single else {"units": known.of_class(y, classes)}


def probabilities_of(outputs: "NDArray[Any]") -> "NDArray[np.float64] | None":
    """Return the softmax of logits or log-probabilities, a row per class; None if one is not finite.

    NumPy is ten times as fast along rows of samples.
    """
    import numpy as np

    rows = np.ascontiguousarray(outputs.T)
    if not np.isfinite(rows).all():
        return None
    probabilities = rows.astype(np.float64) - rows.max(axis=0)
    np.exp(probabilities, out=probabilities)
    return np.asarray(probabilities / probabilities.sum(axis=0))


def brier_losses(probabilities: "NDArray[np.float64]", y: "NDArray[Any]") -> "NDArray[np.float64]":
    """Return each sample's ``Σ_c (p_c − [y = c])² / 2``, of two classes the usual ``(p − y)²``."""
    import numpy as np

    right = probabilities[y, np.arange(len(y))]
    return np.asarray((np.square(probabilities).sum(axis=0) - 2 * right + 1) / 2)


class Classified:
    """Outputs for samples of classes, and what both their metrics and their intervals follow from."""

    def __init__(self, outputs: "NDArray[Any]", y: "NDArray[Any]") -> None:
        self.y, self.predicted, self.probabilities = y, outputs.argmax(axis=1), probabilities_of(outputs)
        self.right = self.predicted == y
        self.counts = _counts(y, self.predicted, outputs.shape[1])

    @cached_property
    def sides(self) -> "dict[int, NDArray[np.bool_]]":
        """Whether each sample is of a class, by the classes with samples."""
        return {label: self.y == label for label in self.counts.sum(axis=1).nonzero()[0].tolist()}

    @cached_property
    def rankings(self) -> list[tuple[float, float]]:
        """What `ranked` says of each class with samples; none without probabilities."""
        p = self.probabilities
        return [] if p is None else [ranked(p[label], side) for label, side in self.sides.items()]

    @cached_property
    def losses(self) -> "NDArray[np.float64] | None":
        """The `brier_losses`; None without probabilities."""
        return None if self.probabilities is None else brier_losses(self.probabilities, self.y)

    def metrics(self) -> dict[str, float]:
        """Return the metrics of classes; see `fda_flower.metrics.measure`."""
        import numpy as np

        metrics = {"accuracy": int(self.right.sum()) / len(self.y), **_means_over_classes(self.counts)}
        if self.probabilities is None or self.losses is None:
            return metrics
        areas, precisions = zip(*self.rankings, strict=True)
        if len(areas) > 1:
            metrics["auroc"] = float(np.mean(areas))
        metrics["auprc"] = float(np.mean(precisions))
        metrics["brier"] = float(self.losses.mean())
        metrics["ece"] = calibration_error(self.probabilities.max(axis=0), self.right)
        return metrics


def measure_classes(outputs: "NDArray[Any]", y: "NDArray[Any]") -> dict[str, float]:
    """Return the metrics of classes; see `fda_flower.metrics.measure`."""
    return Classified(outputs, y).metrics()
