"""Metrics of several labels: a sample has or lacks each.

NumPy is imported only to compute a metric.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fda_flower.metrics.classes import calibration_error
from fda_flower.metrics.ranking import ranked

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BY_LABEL = ("support", "auroc", "auprc", "brier", "ece")
"""The columns of `figures_of_labels`; the first is the number of samples that have the label."""


def probabilities_of_labels(logits: "NDArray[Any]") -> "NDArray[np.float64]":
    """Return ``1 / (1 + exp(−z))`` of logits, in float64."""
    import numpy as np

    with np.errstate(invalid="ignore"):  # of what is not finite
        return np.asarray(np.exp(-np.logaddexp(0.0, -np.asarray(logits, np.float64))))


def figures_of_labels(outputs: "NDArray[Any]", y: "NDArray[Any]") -> "NDArray[np.float64]":
    """Return the metrics `BY_LABEL` of each label, shape ``(L, 5)``, from logits and labels, ``(n, L)``.

    Those of a label that all samples have, or none, are NaN but for its support; so are all of a label with
    an output that is not finite. ``brier`` is the mean of ``(p − y)²``, and ``ece`` the `calibration_error`
    of ``p``, the probability that a sample has the label.
    """
    import numpy as np

    p, held = probabilities_of_labels(outputs), np.asarray(y) > 0
    figures = np.full((held.shape[1], len(BY_LABEL)), np.nan)
    figures[:, 0] = held.sum(axis=0)
    for label in np.flatnonzero(held.any(axis=0) & ~held.all(axis=0) & np.isfinite(outputs).all(axis=0)):
        share, has = p[:, label], held[:, label]
        figures[label, 1:] = (
            *ranked(share, has),
            np.mean(np.square(share - has)),
            calibration_error(share, has),
        )
    return figures


def measure_labels(outputs: "NDArray[Any]", y: "NDArray[Any]") -> dict[str, float]:
    """Return the metrics of several labels; see `fda_flower.metrics.measure`.

    Examples
    --------
    >>> import numpy as np
    >>> outputs, y = np.array([[2.0, -1], [1, 3], [-4, -2]]), np.array([[1, 0], [0, 1], [0, 0]])
    >>> metrics = measure_labels(outputs, y)
    >>> metrics["auroc"], round(metrics["exact"], 3)
    (1.0, 0.667)
    """
    import numpy as np

    if not np.isfinite(outputs).all():
        return {}
    figures = figures_of_labels(outputs, y)
    known = figures[~np.isnan(figures[:, 1]), 1:]
    exact = {"exact": float(((outputs > 0) == (y > 0)).all(axis=1).mean())}
    if not len(known):
        return exact
    return {**dict(zip(BY_LABEL[1:], known.mean(axis=0).tolist(), strict=True)), **exact}


def units_by_label(y: "NDArray[Any]", units: "NDArray[Any] | None") -> "dict[str, NDArray[np.int64]]":
    """Return as ``units`` the number of units with each label; nothing if each sample is its own unit.

    Examples
    --------
    >>> import numpy as np
    >>> units_by_label(np.array([[1, 0], [1, 1], [0, 1]]), np.array([7, 7, 8]))
    {'units': array([1, 2])}
    """
    import numpy as np

    from fda_flower.aggregation.units import Units

    known = Units.of(len(y), units)
    return {} if known.single else {"units": np.array([len(set(known.numbers[of])) for of in y.T > 0])}


def by_label(
    figures: "NDArray[Any]", names: Sequence[str], units: Sequence[int] | None = None
) -> dict[str, dict[str, float | int | None]]:
    """Return the `figures_of_labels` by the names of labels and metrics; None for one that is not known.

    With `units` each label has the number of its ``units``, see `units_by_label`.
    """
    table = dict[str, dict[str, float | int | None]]()
    for name, row in zip(names, figures.tolist(), strict=True):
        known = [None if value != value else value for value in row]
        table[name] = {**dict(zip(BY_LABEL, known, strict=True)), "support": int(row[0])}
    for name, each in zip(names, () if units is None else units, strict=False):
        table[name]["units"] = int(each)
    return table


def of_shares(supports: Sequence[int], samples: int) -> dict[str, float]:
    """Return the metrics of the model that gives each sample the shares of the labels in the test set.

    Labels that all samples have, or none, do not count. `supports` are the numbers of samples with each.

    Examples
    --------
    >>> of_shares([1, 2, 0], 4)
    {'auroc': 0.5, 'auprc': 0.375, 'brier': 0.21875}
    """
    shares = [support / samples for support in supports if 0 < support < samples]
    if not shares:
        return {}
    brier = sum(share * (1 - share) for share in shares) / len(shares)
    return {"auroc": 0.5, "auprc": sum(shares) / len(shares), "brier": brier}
