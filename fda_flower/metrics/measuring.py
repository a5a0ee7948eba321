"""The metrics of a model's outputs, by task."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from fda_flower.errors import ConfigError
from fda_flower.metrics.classes import measure_classes
from fda_flower.metrics.labels import measure_labels
from fda_flower.metrics.regression import dice, measure_numbers
from fda_flower.metrics.survival import measure_survival
from fda_flower.names.tasks import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

Judge: TypeAlias = "Callable[[NDArray[Any]], Mapping[str, float]]"
"""Returns the metrics of outputs for some samples, by their names in `METRICS`."""

MEASURES: Mapping[Task, "Callable[[NDArray[Any], Any], dict[str, float]]"] = {
    "classes": measure_classes,
    "regression": measure_numbers,
    "multilabel": measure_labels,
    "survival": measure_survival,
}
"""By task, what computes the metrics of outputs and labels, without the loss."""


def measure(outputs: "NDArray[Any]", y: Any, task: Task = "classes", mask: bool = False) -> dict[str, float]:
    """Return the metrics of a model on samples, by their names in `METRICS`, without the loss.

    For classes, `outputs` are logits or log-probabilities, ``(n, classes)``, and `y` integers, ``(n,)``. The
    metrics are ``accuracy``; ``balanced-accuracy``, the mean recall; ``macro-f1``, the mean F1; ``auroc``,
    the mean area under the ROC curves of one class against the rest; ``auprc``, the mean `average_precision`;
    ``brier``, the mean of `brier_losses`; ``ece``, see `calibration_error`. Means are over the classes with
    samples; with fewer than two there is no ``auroc``. If an output is not finite, metrics of probabilities,
    from ``auroc`` on, are missing.

    In a regression, both are numbers, ``(n, outputs)``; `y` may be ``(n,)``. The metrics are ``r2``,
    ``1 − Σ(y − f(x))² / Σ(y − ȳ)²`` over all outputs, or, if all labels are equal, 1 for an exact model and
    else 0; ``rmse``; ``mae``. If an output is not finite, all are missing. Numbers that are a
    `mask` have ``dice``, too.

    For several labels, `outputs` are the logits of each, ``(n, L)``, and `y` 0 or 1, ``(n, L)``. The metrics
    are means over the labels that some of the samples have and others have not: ``auroc``; ``auprc``, the
    average precision; ``brier``, the mean of ``(p − y)²``; ``ece`` of ``p``. ``exact`` is the share of
    samples all of whose labels are right, each at ``p > 1/2``. If an output is not finite, all are missing.

    For survival, `outputs` are of shape ``(n, horizons)``, and `y` is `fda_flower.aggregation.Outcomes`; see
    `fda_flower.metrics.survival.measure_survival`.

    Raise a `ConfigError` if there are no samples.

    Examples
    --------
    >>> import numpy as np
    >>> metrics = measure(np.array([[2.0, 1], [3, 0], [1, 2]]), np.array([0, 1, 1]))
    >>> round(metrics["accuracy"], 3), metrics["balanced-accuracy"]
    (0.667, 0.75)
    """
    if not len(y):
        raise ConfigError("there are no samples to measure: give at least one", thing="samples", value=0)
    return MEASURES[task](outputs, y) | ({"dice": dice(outputs, y)} if mask else {})
