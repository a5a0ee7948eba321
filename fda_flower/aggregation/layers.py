"""Sums over named arrays: float32 in, float64 accumulation, a block at a time.

No function here makes a float64 copy of a model or stacks the models of several clients: the only
temporaries are two blocks of `BLOCK` elements.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Layers = Mapping[str, NDArray[Any]]
"""Arrays by name, in the order of the model's state dictionary."""

Vector = NDArray[np.float64]

BLOCK = 8192
"""Elements in a block: few enough to fit the first-level cache, and for BLAS not to split an inner product
over threads, so that a sum has the same bits with any number of threads."""

FLAGS = 16 * BLOCK
"""Elements that are checked at a time; the flags of so many take as much memory as two blocks."""


def blocks(size: int) -> Iterator[slice]:
    """Return slices that cover `range(size)` in blocks."""
    return (slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK))


def is_finite(array: NDArray[Any]) -> bool:
    """Return whether an array holds neither NaN nor infinity.

    Examples
    --------
    >>> is_finite(np.array([[1.0, 2.0]])), is_finite(np.array(np.nan))
    (True, False)
    """
    flat = array.reshape(-1)
    return all(bool(np.isfinite(flat[start : start + FLAGS]).all()) for start in range(0, flat.size, FLAGS))


def inner_products(target: NDArray[Any], sources: Sequence[NDArray[Any]]) -> tuple[float, Vector, Vector]:
    """Compute the inner products of one layer in one pass over its arrays, accumulated in float64.

    Parameters
    ----------
    target, sources
        Arrays of the same shape.

    Returns
    -------
    tuple[float, Vector, Vector]
        ``‖t‖²``, ``⟨t, s_i⟩`` of shape ``(N,)`` and ``‖s_i‖²`` of shape ``(N,)``.

    Examples
    --------
    >>> t, s = np.array([1, 2], np.float32), np.array([3, -1], np.float32)
    >>> inner_products(t, [s])
    (5.0, array([1.]), array([10.]))
    """
    flat_target, flat_sources = target.reshape(-1), [source.reshape(-1) for source in sources]
    own, products, squared = 0.0, np.zeros(len(sources)), np.zeros(len(sources))
    pair = np.empty((2, min(target.size, BLOCK)))
    for s in blocks(target.size):
        t, block = pair[:, : s.stop - s.start]
        t[:] = flat_target[s]
        own += float(np.dot(t, t))
        for i, source in enumerate(flat_sources):
            block[:] = source[s]
            products[i] += np.dot(t, block)
            squared[i] += np.dot(block, block)
    return own, products, squared


def weighted_sum(base: NDArray[Any], terms: Sequence[tuple[float, NDArray[Any]]]) -> NDArray[Any]:
    """Return ``base + Σ_i c_i · x_i`` in the type of `base`, accumulated in float64 in the given order.

    Terms with ``c_i = 0`` are not read.
    """
    out = np.empty_like(base, order="C")
    flat_out, flat_base = out.reshape(-1), base.reshape(-1)
    flat = [(c, x.reshape(-1)) for c, x in terms if c != 0.0]
    pair = np.empty((2, min(base.size, BLOCK)))
    for s in blocks(base.size):
        total, block = pair[:, : s.stop - s.start]
        total[:] = flat_base[s]
        for c, x in flat:
            block[:] = x[s]
            block *= c
            total += block
        flat_out[s] = total
    return out
