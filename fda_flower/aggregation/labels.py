"""Labels of samples for linear heads: one of several classes, or several labels that each hold or not."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.mixture import log_softmax
from fda_flower.aggregation.sums import Array

TO_LOGITS = 2.0
"""``2 F`` is the logit of a label whose output is ``F``, since ``F`` and ``−F`` are two classes' outputs."""


def factor_for(several: bool) -> float:
    """Return what turns outputs times their temperature into a network's: logits, if labels are `several`."""
    return TO_LOGITS if several else 1.0


def targets_of_labels(labels: NDArray[Any]) -> Array:
    """Return ``Y`` of several labels, 0 or 1: ``y − 1/2``, shape ``(n, L)``.

    Examples
    --------
    >>> targets_of_labels(np.array([[0, 1]]))
    array([[-0.5,  0.5]])
    """
    return np.asarray(labels, np.float64) - 0.5


def log_likelihood(outputs: Array, labels: NDArray[Any]) -> Array:
    """Return the logarithm of the probability of each sample's labels, shape ``(..., n)``.

    Classes, shape ``(n,)``, have the softmax of `outputs`, ``(..., n, C)``. Several labels, 0 or 1, shape
    ``(n, L)``, are each a pair of classes with the outputs ``−F`` and ``F``, and their logarithms add up.

    Examples
    --------
    >>> log_likelihood(np.array([[0.0, 2.0]]), np.array([1])).round(3)
    array([-0.127])
    >>> log_likelihood(np.array([[1.0, 0.0]]), np.array([[1, 0]])).round(3)  # -0.127 and -0.693
    array([-0.82])
    """
    if labels.ndim == 1:
        return np.asarray(log_softmax(outputs)[..., np.arange(len(labels)), labels])
    logits = TO_LOGITS * np.asarray(outputs, np.float64)
    return np.asarray(-np.logaddexp(0.0, np.where(labels > 0, -logits, logits)).sum(axis=-1))
