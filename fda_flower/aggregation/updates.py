"""Updates of clients, as layers and as vectors: float32 input, float64 accumulation, block by block.

No function here makes a float64 copy of a model or stacks the models of several clients: the only temporaries
are two blocks of `BLOCK` elements.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

Layers = Mapping[str, NDArray[Any]]
"""Arrays by name, in the order of the model's state dictionary."""

Vector = NDArray[np.float64]

BLOCK = 8192
"""Elements in a block: few enough to fit the first-level cache, and for BLAS not to split an inner product
over threads, so that sums are equal bit for bit with any number of threads."""

FLAGS = 16 * BLOCK
"""Elements to check at a time; their flags take as much memory as two blocks."""


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
    if array.size <= FLAGS:
        return bool(np.isfinite(array).all())
    flat = array.reshape(-1)
    return all(bool(np.isfinite(flat[start : start + FLAGS]).all()) for start in range(0, flat.size, FLAGS))


def received(arrays: Layers, shapes: Mapping[str, tuple[int, ...]], what: str) -> list[NDArray[Any]]:
    """Return arrays that somebody has sent, in the order of `shapes`; `what` names them in errors.

    Raise a `ValueError` with the reason unless all are finite floats of these shapes.

    Examples
    --------
    >>> received({"norms": np.ones(3)}, {"norms": (2,)}, "batch-updates")
    Traceback (most recent call last):
        ...
    ValueError: 'norms' of batch-updates is float64 of shape [3], expected floats of shape [2]
    """
    for name, shape in shapes.items():
        if name not in arrays:
            raise ValueError(f"{what} have no '{name}'")
        array = arrays[name]
        if array.shape != shape or array.dtype.kind != "f":
            form = f"{array.dtype} of shape {list(array.shape)}"
            raise ValueError(f"'{name}' of {what} is {form}, expected floats of shape {list(shape)}")
        if not is_finite(array):
            raise ValueError(f"'{name}' of {what} holds NaN or infinity")
    return [arrays[name] for name in shapes]


def inner_products(target: NDArray[Any], sources: Sequence[NDArray[Any]]) -> tuple[float, Vector, Vector]:
    """Return ``‖t‖²``, ``⟨t, s_i⟩`` and ``‖s_i‖²`` of one layer, the last two of shape ``(N,)``, in one pass.

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


_BUFFER_NAMES = ("running_mean", "running_var", "num_batches_tracked")


def find_buffers(model: Layers) -> frozenset[str]:
    """Return the names of arrays that are not parameters.

    These are BatchNorm's running statistics, by their PyTorch names, and all arrays of a non-float type.

    Examples
    --------
    >>> model = {"fc.weight": np.ones(2), "bn.running_var": np.ones(2), "steps": np.array(3)}
    >>> sorted(find_buffers(model))
    ['bn.running_var', 'steps']
    """
    return frozenset(
        name
        for name, array in model.items()
        if name.rsplit(".", 1)[-1] in _BUFFER_NAMES or not np.issubdtype(array.dtype, np.floating)
    )


@dataclass(frozen=True)
class Update:
    """One client's local training in one round; unreported values are 0.

    `parameters` are ``Δ = θ_client − θ`` by layer, in the type of the model, and `buffers` the client's
    buffers after training (values, not differences). `examples` is ``n``, the number trained on, `steps`
    ``K``, of the optimizer, `learning_rate` is ``η``, and `batch_size` the samples in a full batch.
    """

    parameters: Layers
    buffers: Layers
    examples: int
    steps: int = 0
    learning_rate: float = 0.0
    batch_size: int = 0

    @property
    def scale(self) -> float:
        """``K η``: dividing the update by it estimates the client's gradient, up to sign."""
        return self.steps * self.learning_rate

    @property
    def norm(self) -> float:
        """``‖Δ‖`` of all parameters."""
        return math.sqrt(sum(inner_products(layer, [])[0] for layer in self.parameters.values()))

    def scaled(self, factor: float) -> Self:
        """Return this update with its parameters multiplied by `factor`."""
        parameters = {
            name: np.multiply(layer, factor, dtype=layer.dtype) for name, layer in self.parameters.items()
        }
        return replace(self, parameters=parameters)

    @classmethod
    def between(
        cls,
        before: Layers,
        after: Layers,
        examples: int,
        steps: int = 0,
        learning_rate: float = 0.0,
        buffers: Collection[str] | None = None,
        overwrite: bool = False,
        batch_size: int = 0,
    ) -> Self:
        """Return the update from the global model `before` to the client's model `after`, of the same layers.

        `buffers` names the buffers; `find_buffers` finds them by default. With `overwrite` the differences
        replace the writable arrays of `after`, which saves a model's memory.
        """
        names = find_buffers(before) if buffers is None else buffers
        reused = {name for name, array in after.items() if overwrite and array.flags.writeable}
        return cls(
            {
                name: np.subtract(after[name], before[name], out=after[name] if name in reused else None)
                for name in before
                if name not in names
            },
            {name: after[name] for name in before if name in names},
            examples,
            steps,
            learning_rate,
            batch_size,
        )


SourceWeights = Literal["examples", "uniform"]
"""Weights among clients: by number of examples, or uniform."""


def source_weights(sources: Sequence[Update], weights: SourceWeights = "examples") -> Vector:
    """Return ``α_i``, the weights of the sources, which sum to 1.

    ``"examples"``: ``n_i / Σn`` (the authors' implementation, Flower's default). ``"uniform"``: ``1/N``
    (Definitions 4.1 and 4.3 of FedGP, ICLR 2024).
    """
    if weights == "uniform":
        return np.full(len(sources), 1 / len(sources))
    examples = np.array([source.examples for source in sources], dtype=np.float64)
    return np.asarray(examples / examples.sum())


@dataclass(frozen=True)
class Geometry:
    """Inner products of the target's update with each source's, for `N` sources and `L` layers.

    ``‖Δ_T‖²`` of each layer, shape ``(L,)``; ``‖Δ_i‖²`` and ``⟨Δ_T, Δ_i⟩`` of each layer, shape ``(N, L)``.
    """

    target_squared: Vector
    source_squared: Vector
    products: Vector

    @classmethod
    def of(cls, target: Update, sources: Sequence[Update]) -> "Geometry":
        """Compute the geometry of a round in one pass over its updates."""
        own, products, squared = zip(
            *(
                inner_products(layer, [source.parameters[name] for source in sources])
                for name, layer in target.parameters.items()
            ),
            strict=True,
        )
        return cls(np.array(own), np.stack(squared, axis=1), np.stack(products, axis=1))

    @property
    def cosines(self) -> Vector:
        """Cosine between the target's and each source's whole update, shape ``(N,)``; 0 where either is 0."""
        return cosine(self.products.sum(axis=1), self.target_squared.sum(), self.source_squared.sum(axis=1))


def cosine(products: Vector, a_squared: Vector | float, b_squared: Vector) -> Vector:
    """Return ``⟨a,b⟩ / (‖a‖ ‖b‖)`` in [-1, 1], elementwise; 0 where ``a`` or ``b`` is 0."""
    norms = np.sqrt(a_squared) * np.sqrt(b_squared)
    cosines = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return np.asarray(np.clip(cosines, -1, 1))
