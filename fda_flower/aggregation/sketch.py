"""CountSketch: estimate inner products of long vectors from short ones.

References
----------
Charikar, Chen, Farach-Colton, "Finding frequent items in data streams", 2002; used for model updates by
Rothchild et al., "FetchSGD", 2020, which the FedGP paper (Section C.4) names as future work.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.layers import Layers, Vector, blocks

_PURPOSE = 0x5CE7C4


@dataclass(frozen=True)
class CountSketch:
    """A random linear map from ``m`` numbers to `size` buckets that keeps inner products on average.

    Each element goes to one bucket with one sign, both drawn from `seed`. For vectors ``x``, ``y``:
    ``E⟨Cx, Cy⟩ = ⟨x, y⟩`` and ``Var⟨Cx, Cy⟩ ≤ (‖x‖²‖y‖² + ⟨x, y⟩²) / size``.

    Attributes
    ----------
    size : int
        ``k``, the number of buckets.
    seed : int
        Server and target must use the same one in a round.

    Examples
    --------
    >>> sketch = CountSketch(size=4, seed=0)
    >>> x = {"w": np.ones((2, 3), np.float32)}
    >>> sketch(x).shape
    (4,)
    """

    size: int
    seed: int

    def places(self, length: int) -> NDArray[np.int32]:
        """Return where each element goes: ``bucket`` if its sign is plus, ``bucket + size`` if minus."""
        return _places(self.size, self.seed, length)

    def __call__(self, update: Layers) -> Vector:
        """Sketch an update as one vector, in the order of its layers; shape ``(size,)``."""
        places = self.places(sum(layer.size for layer in update.values()))
        signed = np.zeros(2 * self.size)
        for layer, place in zip(update.values(), _split(places, update), strict=True):
            signed += np.bincount(place, weights=layer.reshape(-1), minlength=2 * self.size)
        return signed[: self.size] - signed[self.size :]


@lru_cache(maxsize=1)
def _places(size: int, seed: int, length: int) -> NDArray[np.int32]:
    """Return the places, cached for the round's other vectors; callers must not write to them."""
    # NumPy keeps the raw stream the same in all versions; the constant sets it apart from other uses
    # of the same seed.
    stream, places = np.random.PCG64((_PURPOSE, seed)), np.empty(length, np.int32)
    for s in blocks(length):
        places[s] = stream.random_raw(s.stop - s.start) % np.uint64(2 * size)
    return places


def _split(vector: NDArray[Any], like: Layers) -> Iterator[NDArray[Any]]:
    """Cut a vector into pieces as long as the layers of `like`."""
    start = 0
    for layer in like.values():
        yield vector[start : start + layer.size]
        start += layer.size
