"""Fixed features of samples, and rows of them, for a linear layer; on arrays of NumPy or tensors of torch.

`xp` is the module of the arrays, ``numpy`` or ``torch``. What is drawn is the same at every site.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 512
"""Columns that have hinges: with more, sums over products of features would take tens of megabytes."""

KNOTS = (-0.7, 0.0, 0.7)
"""Where the hinges of a column begin, in deviations from its mean."""

SEED = 7
"""Of all that is drawn."""

FREQUENCIES, SCALES = 256, (0.5, 1.0, 2.0, 4.0)
"""Random frequencies at each scale, and the scales, in units of ``√d`` for rows of ``d`` numbers."""

SHORTEST = 1e-12
"""The least length that divides a row."""


def knots_of(columns: int) -> NDArray[np.float32]:
    """Return the knots of a table's columns: none for more than `MOST`."""
    return np.array(KNOTS if columns <= MOST else (), np.float32)


def bends(x: Any, knots: Any, xp: Any) -> Any:
    """Return ``(z, max(z − knot, 0), ...)`` of ``d`` columns ``z``, over ``√(3d)``; shape ``(n, 4d)``.

    All ``z`` come first, then knot by knot. Each number follows from one other alone.
    """
    columns, number = x.shape[1], knots.shape[0]
    above = x[:, None] - knots[:, None]
    bent = xp.where(above <= 0, 0, above).reshape(x.shape[0], number * columns)
    return xp.concat((x, bent), 1) / (max(number, 1) * columns) ** 0.5


def frequencies_of(numbers: int) -> NDArray[np.float32]:
    """Return Gaussian frequencies for samples of a length of `numbers`, shape ``(1024, numbers)``."""
    drawn = np.random.default_rng(SEED).standard_normal((len(SCALES), FREQUENCIES, numbers))
    scaled = drawn / np.array(SCALES)[:, None, None] / numbers**0.5
    frequencies: NDArray[np.float32] = scaled.reshape(-1, numbers).astype(np.float32)
    return frequencies


def waves(z: Any, xp: Any) -> Any:
    """Return cosines and sines of projections, shape ``(n, 2 projections)``."""
    return xp.concat((xp.cos(z), xp.sin(z)), 1)


def plain_columns(x: Any) -> Any:
    """Return ``d`` columns over ``√d``: standardised ones then have a mean squared length of 1."""
    return x / x.shape[1] ** 0.5


def unit_rows(x: Any, power: Any, xp: Any) -> Any:
    """Return ``sign(φ) |φ|^power`` over its length, of features ``φ``; zeros stay zeros."""
    scaled = xp.sign(x) * abs(x) ** power
    return scaled / xp.linalg.vector_norm(scaled, axis=1, keepdims=True).clip(SHORTEST)
