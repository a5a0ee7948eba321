"""Averages of the models of several rounds, evaluated beside the last model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.layers import Layers, weighted_sum

Kept = tuple[Layers, ...]
"""What an average needs of the models so far, the newest last."""


@dataclass(frozen=True)
class MovingAverage:
    """The exponential moving average ``avg ← c·avg + (1−c)·θ``, which begins at the first model.

    Attributes
    ----------
    factor : float
        ``c``.

    Raises
    ------
    ValueError
        If the factor is not between 0 and 1.
    """

    factor: float

    def __post_init__(self) -> None:
        if not 0 < self.factor < 1:
            raise ValueError(f"factor is {self.factor}, it must be between 0 and 1, such as 0.9")

    def add(self, kept: Kept, model: Layers) -> Kept:
        """Return what to keep after a further model: the average."""
        return (weighted_mean((*kept, model), (self.factor, 1 - self.factor)) if kept else model,)

    def average(self, kept: Kept) -> Layers:
        """Return the average of the models so far."""
        return kept[-1]


@dataclass(frozen=True)
class TailAverage:
    """The mean of the last models; of fewer at the beginning.

    Attributes
    ----------
    length : int
        How many models.

    Raises
    ------
    ValueError
        If the length is below 1.
    """

    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"length is {self.length}, it must be at least 1")

    def add(self, kept: Kept, model: Layers) -> Kept:
        """Return what to keep after a further model: the last models."""
        return (*kept, model)[-self.length :]

    def average(self, kept: Kept) -> Layers:
        """Return the average of the models so far."""
        return weighted_mean(kept, [1 / len(kept)] * len(kept))


Average = MovingAverage | TailAverage
"""An average of the rounds' models."""


def weighted_mean(models: Sequence[Layers], weights: Sequence[float]) -> dict[str, NDArray[Any]]:
    """Return ``Σ_i w_i θ_i`` in the models' types, accumulated in float64 in the given order.

    BatchNorm's running statistics are averaged like the parameters; arrays that hold no floats, such as
    its counters, are the last model's.

    Parameters
    ----------
    models : sequence of Layers
        Models with the same names, shapes and types.
    weights : sequence of float
        A weight for each, summing to 1.
    """
    return {
        name: weighted_sum(np.zeros_like(array), [(w, m[name]) for w, m in zip(weights, models, strict=True)])
        if np.issubdtype(array.dtype, np.floating)
        else array
        for name, array in models[-1].items()
    }
