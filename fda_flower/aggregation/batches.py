"""Encodings of the target's local steps, as sent to the estimators.

The server requests one of three. For ``B`` steps of a model of ``m`` numbers the target replies with
``norms``, ``‖δ_j‖²`` of shape ``(B,)`` in float64, which suffice for FedDA; with ``sketch`` also a sketch of
each step, ``(B, k)`` in float64, for FedGP with an error of order ``1/√k``; or with ``full`` also the steps,
``(B, m)`` in float32.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.updates import Layers, Vector, blocks, inner_products, received

_PURPOSE = 0x5CE7C4


@dataclass(frozen=True)
class CountSketch:
    """A random linear map from ``m`` numbers to `size` buckets that keeps inner products on average.

    Each element goes to one bucket with one sign, both drawn from `seed`, which server and target share in a
    round. ``E⟨Cx, Cy⟩ = ⟨x, y⟩`` and ``Var⟨Cx, Cy⟩ ≤ (‖x‖²‖y‖² + ⟨x, y⟩²) / size``.

    Examples
    --------
    >>> CountSketch(size=4, seed=0)({"w": np.ones((2, 3), np.float32)}).shape
    (4,)
    """

    size: int
    seed: int

    def places(self, length: int) -> NDArray[np.int32]:
        """Return the place of each element: ``bucket`` if its sign is plus, ``bucket + size`` if minus."""
        return _places(self.size, self.seed, length)

    def __call__(self, update: Layers) -> Vector:
        """Sketch an update as one vector, in the order of its layers; shape ``(size,)``."""
        places, start = self.places(sum(layer.size for layer in update.values())), 0
        signed = np.zeros(2 * self.size)
        for layer in update.values():
            place = places[start : start + layer.size]
            signed += np.bincount(place, weights=layer.reshape(-1), minlength=2 * self.size)
            start += layer.size
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


Encoding = Literal["norms", "sketch", "full"]
"""How the target sends its batch updates: only norms, also a sketch of each, or each in full."""

ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
"""The values of `Encoding`."""

FIRST_QUESTION = "does your client begin with the model that it received?"
"""For a client that sets or averages a part of the model before it trains."""
TOLERANCE = 1e-3
"""Relative error that rounding to float32 may cause in a sum of steps."""


@dataclass(frozen=True)
class BatchUpdates:
    """``δ_j``, the target's update in its ``j``-th local step, ``j = 1..B``.

    `squared_norms` has ``‖δ_j‖²``, shape ``(B,)``; `sketches` has `sketch` of each ``δ_j``, shape ``(B, k)``;
    `full` has each ``δ_j`` as one vector in the order of the model's parameters, shape ``(B, m)``.
    """

    squared_norms: Vector
    sketches: Vector | None = None
    sketch: CountSketch | None = None
    full: NDArray[Any] | None = None

    @classmethod
    def from_arrays(
        cls,
        arrays: Layers,
        encoding: Encoding,
        steps: int,
        parameters: int,
        sketch: CountSketch | None = None,
    ) -> "BatchUpdates":
        """Read the arrays from a target, by name: ``norms``, and those of the encoding.

        `steps` and `parameters` are ``B`` and ``m``; encoding ``"sketch"`` needs the requested map. Raise a
        `ValueError` if an array is missing, has another shape or is not finite, or a squared norm is
        negative.
        """
        if encoding not in ENCODINGS:
            raise ValueError(f"encoding is '{encoding}': choose one of {', '.join(ENCODINGS)}")
        if encoding == "sketch" and sketch is None:
            raise ValueError("encoding 'sketch' needs the sketch that the server requested")
        width = sketch.size if encoding == "sketch" and sketch else parameters
        received(arrays, {encoding: (steps, width), "norms": (steps,)}, "batch-updates")
        if (arrays["norms"] < 0).any():
            raise ValueError("batch-updates 'norms' hold a negative squared norm")
        norms = arrays["norms"].astype(np.float64)
        if encoding == "sketch":
            return cls(norms, sketches=arrays["sketch"].astype(np.float64), sketch=sketch)
        return cls(norms, full=arrays.get("full") if encoding == "full" else None)

    def check_sum(self, update: Layers) -> None:
        """Raise a `ValueError` unless the steps fit the target's update: ``Σ_j δ_j = Δ``.

        With norms alone, the check is ``Σ_j ‖δ_j‖ ≥ ‖Δ‖``. Sketches, which are linear, and full steps must
        sum to the update and have the norms that were sent (sketches within 10 standard deviations).
        """
        lengths = np.sqrt(self.squared_norms)
        slack = TOLERANCE * lengths.sum()
        length = math.sqrt(sum(inner_products(layer, [])[0] for layer in update.values()))
        if length > lengths.sum() + slack:
            raise ValueError(
                f"batch-updates do not fit the target's update: Σ‖δ_j‖ < ‖Δ_T‖; {FIRST_QUESTION}"
            )
        if self.full is not None:
            tolerance, (squared, gap) = TOLERANCE, _full_gap(self.full, update)
        elif self.sketches is not None and self.sketch is not None:
            tolerance = 10 * math.sqrt(2 / self.sketch.size)
            squared = np.einsum("jk,jk->j", self.sketches, self.sketches)
            gap = float(np.linalg.norm(self.sketches.sum(axis=0) - self.sketch(update)))
        else:
            return
        if (np.abs(squared - self.squared_norms) > tolerance * self.squared_norms).any():
            raise ValueError("batch-updates do not have the norms that were sent with them")
        if not gap <= slack:
            raise ValueError(
                f"batch-updates do not fit the target's update: they do not sum to it; {FIRST_QUESTION}"
            )

    @property
    def steps(self) -> int:
        """``B``, the number of local steps."""
        return len(self.squared_norms)

    @property
    def noise(self) -> float:
        """Relative variance of one inner product: ``1/k`` from sketches, 0 if exact."""
        return 0.0 if self.sketch is None else 1.0 / self.sketch.size

    def products(self, update: Layers) -> Vector | None:
        """Return ``⟨δ_j, update⟩`` for each step, shape ``(B,)``; None if only norms were sent."""
        if self.full is not None:
            products = np.zeros(self.steps)
            for part, block in _blocks_of(self.full, update):
                products += np.einsum("jm,m->j", part, block.astype(np.float64))
            return products
        if self.sketches is not None and self.sketch is not None:
            return np.asarray(np.einsum("jk,k->j", self.sketches, self.sketch(update)))
        return None


def _blocks_of(rows: NDArray[Any], update: Layers) -> Iterator[tuple[Vector, NDArray[Any]]]:
    """Yield rows of shape ``(B, m)``, in float64, with a layered vector of ``m`` numbers, block by block."""
    start = 0
    for layer in update.values():
        flat = layer.reshape(-1)
        for s in blocks(flat.size):
            yield rows[:, start + s.start : start + s.stop].astype(np.float64), flat[s]
        start += flat.size


def _full_gap(rows: NDArray[Any], update: Layers) -> tuple[Vector, float]:
    """Return the squared norms of the rows, and ``‖Σ_j row_j − update‖``."""
    squared, gap = np.zeros(len(rows)), 0.0
    for part, block in _blocks_of(rows, update):
        squared += np.einsum("jm,jm->j", part, part)
        difference = part.sum(axis=0) - block
        gap += float(difference @ difference)
    return squared, math.sqrt(gap)
