"""The Gaussian mechanism: clip to a norm, add noise, count what was released."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import Layers
from fda_flower.errors import RunError

Randomness = Callable[[int], bytes]
"""Returns so many random bytes: ``os.urandom``, or in a simulation a generator's ``bytes``."""

DRAWS = 4
"""Normal numbers that are added up, and divided by √4, for one; see `gaussian`."""


class PrivacyError(RunError):
    """Why a reply does not leave the site."""


class BudgetError(PrivacyError):
    """A reply that would spend more than is left of the site's privacy budget."""


def gaussian(count: int, draw: Randomness) -> NDArray[np.float64]:
    """Return standard normal numbers.

    Each is the sum of four draws over 2, so that the gaps between floating-point numbers, by which a single
    draw can be told from another, give no hold (Holohan and Braghin, 2021).

    Parameters
    ----------
    count : int
        How many.
    draw : callable
        Where the random bytes come from.
    """
    pairs = -(-count // 2)
    words = np.frombuffer(draw(8 * 2 * pairs * DRAWS), np.uint64).reshape(DRAWS, 2, pairs)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 1) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log(uniform[:, 0])), 2 * np.pi * uniform[:, 1]
    normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    result: NDArray[np.float64] = normal.sum(axis=0)[:count] / np.sqrt(DRAWS)
    return result


@dataclass
class Mechanism:
    """What a site does to all that leaves it in one reply.

    Two data sets of a site count as neighbours if all of the site's data are replaced by others: vectors of a
    norm up to ``C`` may then differ by ``2 C``, which is their sensitivity, and the standard deviation of the
    noise is ``2 z C``.

    Attributes
    ----------
    clip, noise : float
        ``C`` and ``z``.
    draw : callable
        Where the random bytes come from.
    releases : int
        How many times the mechanism was used; all of them compose.

    Examples
    --------
    >>> mechanism = Mechanism(1.0, 0.0, bytes)
    >>> mechanism.vectors({"w": np.array([3.0, 4.0])})["w"].round(3).tolist()
    [0.6, 0.8]
    """

    clip: float
    noise: float
    draw: Randomness
    releases: int = 0

    @property
    def deviation(self) -> float:
        """``2 z C``, the standard deviation of the noise of a vector."""
        return 2 * self.noise * self.clip

    def vectors(self, layers: Layers) -> dict[str, NDArray[np.float64]]:
        """Release arrays as one vector, clipped to the norm ``C``.

        Raises
        ------
        PrivacyError
            If a number is not finite.
        """
        factor = factor_to(self.clip, norm_of(layers))
        released = {
            name: factor * array.astype(np.float64) + self._noise(array.shape, self.deviation)
            for name, array in layers.items()
        }
        self.releases += 1
        return released

    def parts(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Release numbers of at least 0, scaled down to a sum of ``C²``; afterwards none is negative.

        Two such vectors differ by at most ``√2 C²``.
        """
        total, most = float(finite(values).sum(dtype=np.float64)), self.clip**2
        scaled = values.astype(np.float64) * (1.0 if total <= most else most / total)
        self.releases += 1
        return np.maximum(scaled + self._noise(values.shape, np.sqrt(2) * self.noise * most), 0)

    def number(self, value: float) -> float:
        """Release a number, cut to ``[0, C²]``, with the sensitivity ``C²``; it is never negative."""
        most = self.clip**2
        cut = float(np.clip(finite(np.array(value)), 0, most))
        self.releases += 1
        return max(cut + float(self._noise((), self.noise * most)), 0.0)

    def _noise(self, shape: tuple[int, ...], deviation: float) -> NDArray[np.float64]:
        if deviation == 0:
            return np.zeros(shape)
        return deviation * gaussian(int(np.prod(shape)), self.draw).reshape(shape)


def norm_of(layers: Mapping[str, NDArray[Any]]) -> float:
    """Return the norm of arrays as one vector; raise a `PrivacyError` if it is not finite."""
    squares = (np.square(finite(array), dtype=np.float64).sum() for array in layers.values())
    return float(np.sqrt(finite(np.array(sum(squares)))))


def factor_to(limit: float, norm: float) -> float:
    """Return what scales a vector down to a norm; 1 within it."""
    return 1.0 if norm <= limit else limit / norm


def finite(array: NDArray[Any]) -> NDArray[Any]:
    """Return the same array; raise a `PrivacyError` if it holds NaN or infinity, which no clipping limits."""
    if not np.isfinite(array).all():
        raise PrivacyError("it holds NaN or infinity, which cannot be clipped: nothing of the reply is sent")
    return array
