"""kNN-Per: a model's predictions, mixed with the labels of the nearest known samples.

Marfoq et al., "Personalized Federated Learning through Local Memorization", ICML 2022. Kernel and mixture are
those of the authors' code, but for the probabilities: the code mixes logits by default. The paper's text
writes a kernel of the distance (unverified).
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.layers import Vector
from fda_flower.aggregation.mixture import log_softmax

Mix = Literal["probabilities", "logits"]

GRID = np.arange(101) / 100
"""The values of ``λ`` to choose from."""


def neighbour_probabilities(
    distances: Vector, labels: NDArray[Any], classes: int, features: int, scale: float = 1.0
) -> Vector:
    """Return ``p(c) = Σ_{j: y_j = c} s_j / Σ_j s_j``, ``s_j = exp(−d_j² / (features · scale))``.

    Parameters
    ----------
    distances : Vector
        Euclidean distances ``d_j`` of ``n`` queries from their ``k`` nearest keys, shape ``(n, k)``.
    labels : NDArray
        The classes of these keys, shape ``(n, k)``.
    classes : int
        ``C``.
    features : int
        Numbers in a key.
    scale : float
        Scale of the kernel, above 0.

    Returns
    -------
    Vector
        Probabilities, shape ``(n, C)``; zeros for a query so far from all keys that each ``s_j`` is 0.

    Examples
    --------
    >>> neighbour_probabilities(np.array([[0.0, 1.0]]), np.array([[0, 1]]), 2, 2).round(4)
    array([[0.6225, 0.3775]])
    """
    kernels = np.exp(-np.square(np.asarray(distances, np.float64)) / (features * scale))
    found = np.zeros((len(kernels), classes))
    np.add.at(found, (np.arange(len(kernels))[:, None], labels), kernels)
    totals = found.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(found, totals, out=np.zeros_like(found), where=totals > 0))


def mixed_scores(
    logits: NDArray[Any], neighbours: Vector, weight: float, mix: Mix = "probabilities"
) -> Vector:
    """Return the mixture of a model and its neighbours; its largest score is the predicted class.

    Parameters
    ----------
    logits : NDArray
        The model's outputs ``z``, shape ``(n, C)``.
    neighbours : Vector
        `neighbour_probabilities`, shape ``(n, C)``; where a row is zero, the model decides alone.
    weight : float
        ``λ``, the neighbours' weight, in [0, 1].
    mix : {"probabilities", "logits"}
        ``log(λ p + (1 − λ) softmax(z))``, or ``λ p + (1 − λ) z``, as the authors' code runs it: its ``λ``
        depends on the scale of the logits.

    Examples
    --------
    >>> logits, neighbours = np.log([[0.3, 0.7]]), np.array([[0.6, 0.4]])
    >>> np.exp(mixed_scores(logits, neighbours, 0.5)).round(4)
    array([[0.45, 0.55]])
    """
    weights = weight * (neighbours.sum(axis=1, keepdims=True) > 0)
    if mix == "logits":
        scores: Vector = weights * neighbours + (1 - weights) * np.asarray(logits, np.float64)
        return scores
    mixed = weights * neighbours + (1 - weights) * np.exp(log_softmax(logits))
    return np.asarray(np.log(np.maximum(mixed, np.finfo(np.float64).tiny)))


def choose_weight(
    logits: NDArray[Any], neighbours: Vector, labels: NDArray[Any], mix: Mix = "probabilities"
) -> float:
    """Return the ``λ`` of `GRID` that predicts most labels; of several the likeliest, then the smallest.

    Parameters
    ----------
    logits : NDArray
        The model's outputs for labelled samples, shape ``(n, C)``.
    neighbours : Vector
        Their `neighbour_probabilities` among the *other* samples, shape ``(n, C)``.
    labels : NDArray
        Their classes, shape ``(n,)``.
    mix : {"probabilities", "logits"}
        See `mixed_scores`. With logits the likelihood is that of the softmax of the scores.
    """
    found = [mixed_scores(logits, neighbours, weight, mix) for weight in GRID.tolist()]
    rows = np.arange(len(labels))
    ranks = [
        (int((scores.argmax(axis=1) == labels).sum()), float(log_softmax(scores)[rows, labels].sum()))
        for scores in found
    ]
    return float(GRID[ranks.index(max(ranks))])


def best_weight(
    logits: NDArray[Any], neighbours: Vector, labels: NDArray[Any], mix: Mix = "probabilities"
) -> tuple[float, float]:
    """Return the smallest ``λ`` of `GRID` with the highest accuracy on these labels, and this accuracy.

    On the labels of the test set this is an oracle, not a result; parameters as of `choose_weight`.
    """
    right = [
        int((mixed_scores(logits, neighbours, weight, mix).argmax(axis=1) == labels).sum())
        for weight in GRID.tolist()
    ]
    return float(GRID[int(np.argmax(right))]), max(right) / len(labels)
