"""Means of the sources' updates: the weighted mean, and two that a few bad sources cannot move far."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.rules import mean_update
from fda_flower.aggregation.updates import BLOCK, Layers, Update, Vector, blocks


@dataclass(frozen=True)
class Mean:
    """The mean with the sources' weights, ``θ + Σ_i w_i Δ_i``, which one bad source can move arbitrarily."""

    def __call__(self, model: Layers, sources: Sequence[Update], weights: Vector) -> dict[str, NDArray[Any]]:
        """Return the new model; see `mean_update`."""
        return mean_update(model, sources, weights)


class CoordinateWise(ABC):
    """``θ + c``, where each coordinate of ``c`` is a centre of the sources' values.

    Parameters of the model get the centre of the updates, floating-point buffers the centre of the values, in
    float64; integer buffers get the lower median, in their type. The sources' order and weights have no
    effect, so no source gains by claiming more examples. An array that no source has changed keeps its bits.
    """

    @abstractmethod
    def centre(self, stack: Vector) -> Vector:
        """Return the centre of each column of the sources' numbers, shape ``(sources, numbers)``."""

    def __call__(self, model: Layers, sources: Sequence[Update], weights: Vector) -> dict[str, NDArray[Any]]:
        """Return the new model, from at least one source."""
        new: dict[str, NDArray[Any]] = {}
        for name, array in model.items():
            is_parameter = name in sources[0].parameters
            given = [(s.parameters if is_parameter else s.buffers)[name] for s in sources]
            unchanged = np.zeros_like(array) if is_parameter else array
            if all(np.array_equal(each, unchanged) for each in given):
                new[name] = array.copy()
            elif np.issubdtype(array.dtype, np.floating):
                new[name] = self._centred(array if is_parameter else np.zeros_like(array), given)
            else:
                new[name] = np.asarray(np.sort(given, axis=0)[(len(given) - 1) // 2])
        return new

    def _centred(self, base: NDArray[Any], arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the base plus the centre of the arrays, in the base's type."""
        out = np.empty_like(base, order="C")
        flat_out, flat_base = out.reshape(-1), base.reshape(-1)
        flat = [array.reshape(-1) for array in arrays]
        stack = np.empty((len(flat), min(base.size, BLOCK)))
        for s in blocks(base.size):
            block = stack[:, : s.stop - s.start]
            for row, array in zip(block, flat, strict=True):
                row[:] = array[s]
            block += 0.0  # turns -0 into 0, which compares as equal
            flat_out[s] = flat_base[s] + self.centre(block)
        return out


@dataclass(frozen=True)
class Median(CoordinateWise):
    """The coordinate-wise median (Yin et al., ICML 2018); for an even number, the mean of the middle two.

    Examples
    --------
    >>> Median().centre(np.array([[1.0, -2.0], [3.0, 0.0], [1000.0, 1.0]]))
    array([3., 0.])
    """

    def centre(self, stack: Vector) -> Vector:
        """Return the median of each column."""
        return np.asarray(np.median(stack, axis=0))


@dataclass(frozen=True)
class TrimmedMean(CoordinateWise):
    """The coordinate-wise mean without the largest and smallest numbers (Yin et al., ICML 2018).

    At each end the `share` of the sources, between 0 and 0.5 and rounded up, is cut, so the mean tolerates up
    to this share of bad sources. At least one of an odd number of sources remains, and two of an even number.

    Examples
    --------
    >>> TrimmedMean(0.25).centre(np.array([[1.0], [2.0], [4.0], [1000.0]]))
    array([3.])
    """

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share < 0.5:
            raise ValueError(f"share is {self.share}, it must be between 0 and 0.5, such as 0.2")

    def cut(self, sources: int) -> int:
        """Return how many sources are cut at each end.

        Examples
        --------
        >>> [TrimmedMean(0.2).cut(n) for n in (1, 2, 3, 5, 9)]
        [0, 0, 1, 1, 2]
        """
        # Use the decimal share: 0.1 of 30 sources is 3, but more in binary.
        wanted = -(-Fraction(str(self.share)) * sources // 1)
        return min(int(wanted), (sources - 1) // 2)

    def centre(self, stack: Vector) -> Vector:
        """Return the trimmed mean of each column."""
        cut = self.cut(len(stack))
        return np.asarray(np.sort(stack, axis=0)[cut : len(stack) - cut].mean(axis=0))


SourceMean = Mean | Median | TrimmedMean
"""Averages of the sources' updates."""
