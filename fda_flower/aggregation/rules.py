"""The aggregation rules: FedDA, FedGP and their baselines; means of sources, and averages of models.

Each rule is linear in the updates once their inner products are known:
``θ ← θ + c_T Δ_T + Σ_i c_i Δ_i``, with coefficients that may differ from layer to layer. A rule
therefore computes coefficients from the round's `Geometry`, and one function, `combine`, applies them.

References
----------
Jiang et al., "Principled Federated Domain Adaptation: Gradient Projection and Auto-Weighting",
ICLR 2024. FedDA is Definition 4.1, FedGP is Definition 4.3.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.updates import (
    BLOCK,
    Geometry,
    Layers,
    Update,
    Vector,
    blocks,
    cosine,
    weighted_sum,
)

LEAST_COLUMNS = 64
"""Numbers of each source in a block of very many: fewer would take longer to gather than to sort."""


@dataclass(frozen=True)
class Coefficients:
    """A rule's coefficients for one round, for `N` sources and `L` layers.

    `target` is ``c_T``, the same for every layer, and `sources` ``c_i`` of each layer, shape ``(N, L)``.
    `buffers` has the weights of the sources' buffers, shape ``(N,)``; the target's has the rest of 1.
    """

    target: float
    sources: Vector
    buffers: Vector


@dataclass(frozen=True)
class FedDA:
    """``θ ← θ + Σ_i α_i [(1−β_i) Δ_T + β_i Δ_i]`` (Definition 4.1).

    Parameters
    ----------
    updates : {"raw", "aligned"}
        ``"raw"`` combines the sources' updates unchanged, as the authors' code does; ``"aligned"``
        rescales each to the target's steps and learning rate, ``Δ_i · (K_T η_T)/(K_i η_i)``.
    """

    updates: Literal["raw", "aligned"] = "raw"

    needs_batch_size: ClassVar[bool] = False
    """Whether the rule needs every client's batch size."""

    @property
    def needs_scale(self) -> bool:
        """Whether the rule needs every client's steps and learning rate."""
        return self.updates == "aligned"

    def coefficients(
        self, target: Update, sources: Sequence[Update], geometry: Geometry, alphas: Vector, betas: Vector
    ) -> Coefficients:
        """Return the coefficients of a round; `alphas` and `betas` have shape ``(N,)``."""
        shares = alphas * betas
        scale = alignment(target, sources) if self.updates == "aligned" else 1.0
        per_layer = np.repeat((shares * scale)[:, None], geometry.products.shape[1], axis=1)
        return Coefficients(1.0 - float(shares.sum()), per_layer, shares)


@dataclass(frozen=True)
class FedGP:
    """``θ ← θ + Σ_i α_i [(1−β_i) Δ_T + β_i P₊(Δ_T | Δ_i)]`` (Definition 4.3).

    ``P₊(a|b) = max(⟨a,b⟩, 0) · b / ‖b‖²``, and zero where ``b = 0``.

    Parameters
    ----------
    granularity : {"layer", "model"}
        Project layer by layer (the authors' implementation) or the model as one vector (the definition).
    filter : bool
        Drop projections that disagree with the target, ``⟨a,b⟩ < 0``. False is the ablation of Figure 4.
    magnitude : {"projection", "cosine", "reference-code"}
        ``"projection"`` is the definition. ``"cosine"`` is ``max(cos(a,b), 0)`` times the source's update
        aligned to the target's steps and learning rate. ``"reference-code"``, the authors' code, is the same
        with the steps of a pass computed from the number of samples; see `alignment_by_size`.
    """

    granularity: Literal["layer", "model"] = "layer"
    filter: bool = True
    magnitude: Literal["projection", "cosine", "reference-code"] = "projection"

    @property
    def needs_scale(self) -> bool:
        """Whether the rule needs every client's steps and learning rate."""
        return self.magnitude != "projection"

    @property
    def needs_batch_size(self) -> bool:
        """Whether the rule needs every client's batch size."""
        return self.magnitude == "reference-code"

    def coefficients(
        self, target: Update, sources: Sequence[Update], geometry: Geometry, alphas: Vector, betas: Vector
    ) -> Coefficients:
        """Return the coefficients of a round; `alphas` and `betas` have shape ``(N,)``."""
        products, squared, own = geometry.products, geometry.source_squared, geometry.target_squared
        if self.granularity == "model":
            products, squared = (each.sum(axis=1, keepdims=True) for each in (products, squared))
            own = own.sum(keepdims=True)
        if self.filter:
            products = np.maximum(products, 0.0)
        if self.magnitude == "projection":
            factors = np.divide(products, squared, out=np.zeros_like(products), where=squared > 0)
        else:
            align = alignment_by_size if self.magnitude == "reference-code" else alignment
            factors = cosine(products, own, squared) * align(target, sources)[:, None]
        shares = alphas * betas
        per_layer = np.broadcast_to(shares[:, None] * factors, geometry.products.shape)
        return Coefficients(1.0 - float(shares.sum()), per_layer, shares)


def alignment(target: Update, sources: Sequence[Update]) -> Vector:
    """Return ``(K_T η_T) / (K_i η_i)``, the factor from ``Δ_i`` to ``Δ̃_i``, shape ``(N,)``.

    Raise a `ValueError` if a client did not report its steps or its learning rate.
    """
    scales = np.array([source.scale for source in sources])
    if target.scale <= 0 or (scales <= 0).any():
        raise ValueError("aligning updates needs num-steps and learning-rate from every client")
    return target.scale / scales


def alignment_by_size(target: Update, sources: Sequence[Update]) -> Vector:
    """Return the authors' factor from ``Δ_i`` to ``Δ̃_i``, shape ``(N,)``.

    It is ``(r_T · n_T/b_T · η_T) / (r_i · ⌊n_i/b_i⌋ · η_i)``, with ``r`` passes (see `passes`) over ``n``
    samples in batches of ``b``: the target's steps in a pass are not rounded, and a source's incomplete batch
    does not count unless it is the only one. Raise a `ValueError` if a client did not report its steps, its
    batch size or its learning rate.
    """
    if any(client.batch_size <= 0 or client.scale <= 0 for client in (target, *sources)):
        needed = "num-steps, batch-size and learning-rate"
        raise ValueError(f"aligning updates by size needs {needed} from every client")
    steps = np.array([passes(source) * max(source.examples // source.batch_size, 1) for source in sources])
    rates = np.array([source.learning_rate for source in sources])
    own = passes(target) * target.examples / target.batch_size
    return np.asarray(own * target.learning_rate / (steps * rates))


def passes(client: Update) -> float:
    """Return how often a client has passed over its samples, from its steps.

    A pass has ``⌈n/b⌉`` steps, or ``⌊n/b⌋`` if only these divide the client's steps: it then drops its
    incomplete batch.

    Examples
    --------
    >>> [passes(Update({}, {}, examples=11, batch_size=5, steps=steps)) for steps in (3, 6, 2, 4)]
    [1.0, 2.0, 1.0, 2.0]
    """
    full, rest = divmod(client.examples, client.batch_size)
    every = full + (rest > 0)
    drops = full > 0 and client.steps % every > 0 and client.steps % full == 0
    return client.steps / (full if drops else every)


def combine(
    model: Layers, target: Update, sources: Sequence[Update], coefficients: Coefficients
) -> dict[str, NDArray[Any]]:
    """Apply a rule's coefficients to the global model ``θ``, whose order of names the result keeps.

    Float buffers become a weighted mean of the clients' buffers (always within their range, so a
    running variance stays positive); integer buffers are the target's.
    """
    clients = (target, *sources)
    layers = {name: layer for layer, name in enumerate(target.parameters)}
    weights = [1.0 - float(coefficients.buffers.sum()), *coefficients.buffers]
    new: dict[str, NDArray[Any]] = {}
    for name, array in model.items():
        if name in layers:
            factors = [coefficients.target, *coefficients.sources[:, layers[name]]]
            updates = [client.parameters[name] for client in clients]
            new[name] = weighted_sum(array, list(zip(factors, updates, strict=True)))
        else:
            new[name] = weighted_mean([client.buffers[name] for client in clients], weights)
    return new


def weighted_mean(arrays: Sequence[NDArray[Any]], weights: Sequence[float]) -> NDArray[Any]:
    """Return the mean of buffers with weights that sum to 1; a copy of the first if they are not floats."""
    if not np.issubdtype(arrays[0].dtype, np.floating):
        return arrays[0].copy()
    return np.asarray(np.clip(total(arrays, weights), np.min(arrays, axis=0), np.max(arrays, axis=0)))


def total(arrays: Sequence[NDArray[Any]], weights: Sequence[float]) -> NDArray[Any]:
    """Return ``Σ_i w_i x_i`` in the arrays' type, accumulated in float64 in the given order."""
    return weighted_sum(np.zeros_like(arrays[0]), list(zip(weights, arrays, strict=True)))


def mean_update(model: Layers, clients: Sequence[Update], weights: Vector) -> dict[str, NDArray[Any]]:
    """Return ``θ + Σ_i w_i Δ_i``, with weights of shape ``(len(clients),)`` that sum to 1.

    Source Only takes this mean over the sources, FedAvg over all clients, Target Only over the target
    alone. Integer buffers are the first client's. An array that no client has changed keeps its bits.
    """
    new: dict[str, NDArray[Any]] = {}
    for name, array in model.items():
        if name in clients[0].parameters:
            updates = [client.parameters[name] for client in clients]
            terms = zip(weights.tolist(), updates, strict=True) if any(u.any() for u in updates) else ()
            new[name] = weighted_sum(array, list(terms))
        else:
            values = [client.buffers[name] for client in clients]
            same = all(np.array_equal(value, array) for value in values)
            new[name] = array.copy() if same else weighted_mean(values, weights.tolist())
    return new


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
        for s in columns(base.size, len(flat)):
            block = np.empty((len(flat), s.stop - s.start))
            for row, array in zip(block, flat, strict=True):
                row[:] = array[s]
            block += 0.0  # turns -0 into 0, which compares as equal
            flat_out[s] = flat_base[s] + self.centre(block)
        return out


def columns(size: int, sources: int) -> Iterator[slice]:
    """Return slices that cover `range(size)`, with about `BLOCK` numbers of all sources together in each.

    No block's slice is a single column, which NumPy would sum in another order than several.
    """
    for block in blocks(size):
        length = block.stop - block.start
        parts = math.ceil(length / max(LEAST_COLUMNS, BLOCK // sources))
        edges = [block.start + length * part // parts for part in range(parts + 1)]
        yield from map(slice, edges[:-1], edges[1:])


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


Kept = tuple[Layers, ...]
"""The models that an average remembers, the newest last."""


@dataclass(frozen=True)
class MovingAverage:
    """The exponential moving average ``avg ← c·avg + (1−c)·θ``, from the first model on; ``0 < c < 1``."""

    factor: float

    def __post_init__(self) -> None:
        if not 0 < self.factor < 1:
            raise ValueError(f"factor is {self.factor}, it must be between 0 and 1, such as 0.9")

    def add(self, models: Kept, model: Layers) -> Kept:
        """Return the updated memory after a further model: the average."""
        return (mean_of_models((*models, model), (self.factor, 1 - self.factor)) if models else model,)

    def average(self, models: Kept) -> Layers:
        """Return the average of the models so far."""
        return models[-1]


@dataclass(frozen=True)
class TailAverage:
    """The mean of the last `length` models, at least 1; of fewer at first."""

    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"length is {self.length}, it must be at least 1")

    def add(self, models: Kept, model: Layers) -> Kept:
        """Return the updated memory after a further model: the last models."""
        return (*models, model)[-self.length :]

    def average(self, models: Kept) -> Layers:
        """Return the average of the models so far."""
        return mean_of_models(models, [1 / len(models)] * len(models))


Average = MovingAverage | TailAverage
"""An average of the rounds' models."""


def mean_of_models(models: Sequence[Layers], weights: Sequence[float]) -> dict[str, NDArray[Any]]:
    """Return ``Σ_i w_i θ_i`` in the models' types, accumulated in float64 in the given order.

    The models have the same names, shapes and types, and the weights sum to 1. BatchNorm's running statistics
    are averaged like the parameters; arrays that hold no floats, such as its counters, are the last model's.
    """
    return {
        name: total([model[name] for model in models], weights)
        if np.issubdtype(array.dtype, np.floating)
        else array
        for name, array in models[-1].items()
    }
