"""The mean losses of a model's outputs, by task, in float64."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fda_flower.names.tasks import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray


def mean_loss(outputs: "NDArray[Any]", y: "NDArray[Any]", task: Task) -> float:
    """Return the mean loss of outputs, ``(n, C)``, over samples and, without classes, over outputs.

    Of classes it is the cross entropy of logits, of several labels the binary one, else the squared error;
    for survival `y` has the pseudo-values. It is not finite if an output is not.

    Examples
    --------
    >>> import numpy as np
    >>> round(mean_loss(np.zeros((2, 4)), np.array([0, 3]), "classes"), 4), round(float(np.log(4)), 4)
    (1.3863, 1.3863)
    """
    import numpy as np

    with np.errstate(all="ignore"):
        return float(np.mean(LOSSES[task](np.asarray(outputs, np.float64), y)))


def _of_classes(outputs: "NDArray[Any]", y: "NDArray[Any]") -> "NDArray[Any]":
    import numpy as np

    from fda_flower.aggregation.mixture import log_softmax

    losses: NDArray[Any] = -log_softmax(outputs)[np.arange(len(y)), y]
    return losses


def _of_labels(outputs: "NDArray[Any]", y: "NDArray[Any]") -> "NDArray[Any]":
    import numpy as np

    return np.logaddexp(0, outputs) - outputs * y  # type: ignore[no-any-return]


def _of_numbers(outputs: "NDArray[Any]", y: "NDArray[Any]") -> "NDArray[Any]":
    return (outputs - y) ** 2  # type: ignore[no-any-return]


LOSSES: "Mapping[Task, Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]]" = {
    "classes": _of_classes,
    "regression": _of_numbers,
    "survival": _of_numbers,
    "multilabel": _of_labels,
}
"""The losses of each sample, by task."""
