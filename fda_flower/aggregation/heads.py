"""Models that are one linear layer, the head on a frozen body, and their training on rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.mixture import log_softmax
from fda_flower.aggregation.updates import Layers, Vector, find_buffers


def linear_head(model: Layers) -> tuple[str, str] | None:
    """Return the names of weight ``(C, d)`` and bias ``(C,)`` if a model is just one linear layer.

    Otherwise return None; buffers and single numbers are ignored.

    Examples
    --------
    >>> linear_head({"head.weight": np.zeros((3, 5)), "head.bias": np.zeros(3)})
    ('head.weight', 'head.bias')
    """
    buffers = find_buffers(model)
    names = sorted(
        (name for name in model if model[name].ndim and name not in buffers),
        key=lambda name: -model[name].ndim,
    )
    shapes = [model[name].shape for name in names]
    if [len(shape) for shape in shapes] != [2, 1] or shapes[0][0] != shapes[1][0]:
        return None
    return names[0], names[1]


def head_in(model: Layers) -> tuple[Vector, Vector]:
    """Return weight and bias of a linear model, in float64; raise an error for any other model."""
    names = linear_head(model)
    if names is None:
        raise ValueError(f"a model with the arrays {list(model)[:3]} is no linear layer")
    weight, bias = (np.asarray(model[name], np.float64) for name in names)
    return weight, bias


def shape_of_head(model: Layers) -> tuple[int, int]:
    """Return the numbers of classes and features of a linear model."""
    classes, features = head_in(model)[0].shape
    return classes, features


def with_head(model: Layers, weight: Vector, bias: Vector) -> dict[str, NDArray[Any]]:
    """Return a model with new values in its linear layer, in the model's types."""
    names = linear_head(model)
    assert names is not None, "checked when the run begins"
    new = dict(zip(names, (weight, bias), strict=True))
    return {
        name: np.asarray(new[name]).astype(array.dtype) if name in new else array
        for name, array in model.items()
    }


BATCH, RATE, DECAY = 32, 1e-3, 0.01
"""Batch size and learning rate of `train_head`, and AdamW's weight decay (PyTorch's default)."""

MOMENTS, EPSILON = (0.9, 0.999), 1e-8
"""AdamW's other settings."""


def train_head(
    weight: Vector, bias: Vector, features: Vector, labels: NDArray[Any], epochs: int, seed: int
) -> tuple[Vector, Vector]:
    """Train a linear layer on rows by cross entropy with AdamW, and return it.

    Parameters
    ----------
    weight, bias : Vector
        The initial layer, shapes ``(C, d)`` and ``(C,)``.
    features, labels : Vector, array
        Rows, shape ``(n, d)``, and their classes, ``(n,)``.
    epochs : int
        Passes over the rows, each in a new random order.
    seed : int
        Seed of the orders.
    """
    layer = np.concatenate([weight, bias[:, None]], axis=1).astype(np.float64)
    rows = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    first, second, steps = np.zeros_like(layer), np.zeros_like(layer), 0
    rng = np.random.Generator(np.random.PCG64(seed))
    for _ in range(epochs):
        order = rng.permutation(len(rows))
        for begin in range(0, len(rows), BATCH):
            batch = order[begin : begin + BATCH]
            errors = np.exp(log_softmax(rows[batch] @ layer.T))
            errors[np.arange(len(batch)), labels[batch]] -= 1
            gradient, steps = errors.T @ rows[batch] / len(batch), steps + 1
            first += (1 - MOMENTS[0]) * (gradient - first)
            second += (1 - MOMENTS[1]) * (gradient**2 - second)
            moved = first / (1 - MOMENTS[0] ** steps)
            moved /= np.sqrt(second / (1 - MOMENTS[1] ** steps)) + EPSILON
            layer = (1 - RATE * DECAY) * layer - RATE * moved
    return layer[:, :-1], layer[:, -1]
