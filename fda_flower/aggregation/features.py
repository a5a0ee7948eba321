"""Linear heads on features, and statistics of features by class: pFedFDA, FedPFT, MPFT.

References
----------
McLaughlin and Su, "Personalized Federated Learning via Feature Distribution Adaptation", NeurIPS 2024
(unverified, as the others: the formulas are known from the authors' code and from summaries of the paper).
Beitollahi et al., "Parametric Feature Transfer: One-shot Federated Learning with Foundation Models",
arXiv 2402.01862, and Flower's baseline ``fedpft``. Zhang et al., "Enhancing Federated Domain Adaptation with
Multi-Domain Prototype-Based Federated Fine-Tuning", ICLR 2025.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.mixture import log_softmax, stratified_folds
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


SMALL = 1e-4
"""Share of the mean variance added before inverting a covariance, and the count of a class without labels."""

GRID = 11
"""Candidate shares of the own Gaussians: 0, 0.1, ..., 1."""


@dataclass(frozen=True)
class ClassGaussians:
    """Gaussians of ``C`` classes in ``d`` features: means ``(C, d)``, one covariance ``(d, d)``, float64."""

    means: Vector
    covariance: Vector

    @classmethod
    def initial(cls, classes: int, features: int) -> Self:
        """Return uninformative Gaussians: means 0, variances 1."""
        return cls(np.zeros((classes, features)), np.eye(features))

    @classmethod
    def of(cls, features: NDArray[Any], labels: NDArray[Any], known: Self, ridge: float) -> Self:
        """Return the Gaussians of samples: class means, and ``S/(n−1) + ε I`` with a `ridge` ``ε``.

        ``S`` is the scatter around these means. A class without samples keeps its `known` mean.

        Examples
        --------
        >>> x, y = np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 1])
        >>> found = ClassGaussians.of(x, y, ClassGaussians.initial(3, 1), ridge=0)
        >>> found.means.ravel(), found.covariance.round(2)
        (array([1., 5., 0.]), array([[1.]]))
        """
        rows = np.asarray(features, np.float64)
        means = known.means.copy()
        for label in np.unique(labels):
            means[label] = rows[labels == label].mean(axis=0)
        centred = rows - means[labels]
        scatter = centred.T @ centred / max(len(rows) - 1, 1)
        return cls(means, scatter + ridge * np.eye(rows.shape[1]))

    @classmethod
    def from_layers(cls, layers: Layers) -> Self:
        """Return the Gaussians of two arrays, ``means`` and ``covariance``, which is made symmetric."""
        covariance = np.asarray(layers["covariance"], np.float64)
        return cls(np.asarray(layers["means"], np.float64), (covariance + covariance.T) / 2)

    def layers(self) -> dict[str, NDArray[np.float32]]:
        """Return the two arrays that travel, in float32."""
        return {"means": self.means.astype(np.float32), "covariance": self.covariance.astype(np.float32)}

    def mixed(self, known: Self, share: float) -> Self:
        """Mix means and covariance: ``β`` of these and ``1 − β`` of the `known` ones."""
        return type(self)(
            share * self.means + (1 - share) * known.means,
            share * self.covariance + (1 - share) * known.covariance,
        )

    def discriminant(self, priors: Vector) -> tuple[Vector, Vector]:
        """Return the linear layer of Bayes' rule, shapes ``(C, d)`` and ``(C,)``.

        ``w_c = Σ⁻¹ μ_c`` and ``b_c = −½ ⟨μ_c, w_c⟩ + log π_c``, where ``Σ`` has a share `SMALL` of
        ``tr(Σ)/d · I``. A singular covariance raises a `numpy.linalg.LinAlgError`.

        Examples
        --------
        >>> gaussians = ClassGaussians(np.array([[1.0], [-1.0]]), np.array([[0.5]]))
        >>> weight, bias = gaussians.discriminant(np.full(2, 0.5))
        >>> weight.round(3).ravel(), bias.round(3)
        (array([ 2., -2.]), array([-1.693, -1.693]))
        """
        size = len(self.covariance)
        mean = np.trace(self.covariance) / size
        inner = (1 - SMALL) * self.covariance + SMALL * mean * np.eye(size)
        weight = np.linalg.solve(inner, self.means.T).T
        return weight, np.log(priors) - (self.means * weight).sum(axis=1) / 2


def class_priors(labels: NDArray[Any], classes: int) -> Vector:
    """Return the shares of classes among labels, each with `SMALL` more, of sum 1."""
    shares = np.bincount(labels, minlength=classes) / len(labels) + SMALL
    return np.asarray(shares / shares.sum())


def choose_share(
    features: NDArray[Any],
    labels: NDArray[Any],
    known: ClassGaussians,
    folds: int,
    ridge: float,
    groups: NDArray[Any] | None = None,
) -> float:
    """Return ``β``, the share of a client's own Gaussians, by cross-validation.

    The Gaussians of all samples but a fold's are mixed with the `known` ones, and ``β`` of 0, 0.1, ..., 1 has
    the least sum of ``−log p(y)`` over the folds, the lowest of several. `groups` are dealt whole. With
    fewer samples, or groups, than folds it is 0.
    """
    labels, groups = np.asarray(labels), np.arange(len(labels)) if groups is None else groups
    if len(np.unique(groups)) < folds:
        return 0.0
    dealt = stratified_folds(labels, folds, seed=0, groups=groups)
    priors, losses = class_priors(labels, len(known.means)), np.zeros(GRID)
    for fold in range(folds):
        out = dealt == fold
        own = ClassGaussians.of(features[~out], labels[~out], known, ridge)
        rows = np.asarray(features[out], np.float64)
        for i, share in enumerate(np.linspace(0, 1, GRID)):
            weight, bias = own.mixed(known, float(share)).discriminant(priors)
            chosen = log_softmax(rows @ weight.T + bias)[np.arange(len(rows)), labels[out]]
            losses[i] -= chosen.sum()
    return float(losses.argmin() / (GRID - 1))


TOLERANCE = 1e-3
"""Tolerance on the sum of a class's weights, which travel as float32."""

MOST_STEPS = 100
"""Steps of k-means and of expectation maximisation."""

FLOOR = 1e-6
"""Least variance of one of several components, as a share of the rows' mean variance."""


@dataclass(frozen=True)
class ClassMixtures:
    """Gaussian mixtures of ``K`` components, diagonal, for each of ``C`` classes in ``d`` features.

    ``counts`` has the number of samples of each class, ``(C,)``; ``weights`` ``(C, K)``, ``means`` and
    ``variances`` ``(C, K, d)``. A class without samples has zeros, and an unused component has weight 0.
    """

    counts: NDArray[np.int64]
    weights: Vector
    means: Vector
    variances: Vector

    @classmethod
    def empty(cls, classes: int, components: int, features: int) -> Self:
        """Return mixtures of no samples."""
        means = np.zeros((classes, components, features))
        return cls(np.zeros(classes, np.int64), np.zeros((classes, components)), means, np.zeros_like(means))

    @classmethod
    def of(cls, features: Vector, labels: NDArray[Any], classes: int, components: int, seed: int) -> Self:
        """Return the mixtures of samples; a class with fewer than ``K`` samples has one component for each.

        Examples
        --------
        >>> x, y = np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 1])
        >>> found = ClassMixtures.of(x, y, classes=3, components=1, seed=0)
        >>> found.counts, found.means.ravel(), found.variances.ravel()
        (array([2, 1, 0]), array([1., 5., 0.]), array([1., 0., 0.]))
        """
        whole = cls.empty(classes, components, features.shape[1])
        for label in np.unique(labels):
            rows = features[labels == label]
            whole.counts[label] = len(rows)
            parts = fit_mixture_of(rows, components, seed)
            for array, part in zip((whole.weights, whole.means, whole.variances), parts, strict=True):
                array[label, : len(part)] = part
        return whole

    @classmethod
    def from_layers(cls, layers: Layers, examples: int) -> Self:
        """Return the mixtures in received arrays; raise a `ValueError` unless they fit `examples`."""
        counts = layers["counts"]
        weights, means, variances = (
            np.asarray(layers[name], np.float64) for name in ("weights", "means", "variances")
        )
        if (counts < 0).any() or sum(map(int, counts)) != examples:
            raise ValueError(f"the numbers of its samples by class do not sum to {examples}")
        if (weights < 0).any() or (np.abs(weights[counts > 0].sum(axis=1) - 1) > TOLERANCE).any():
            raise ValueError("the weights of a class's components are negative, or do not sum to 1")
        if (variances < 0).any():
            raise ValueError("variances are negative")
        return cls(counts.astype(np.int64), weights, means, variances)

    def layers(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that travel: counts as int64, all else as float32."""
        others = {"weights": self.weights, "means": self.means, "variances": self.variances}
        return {"counts": self.counts, **{name: each.astype(np.float32) for name, each in others.items()}}

    def drawn(self, seed: int) -> tuple[Vector, NDArray[np.int64]]:
        """Return as many random rows of each class as it has samples, ``(n, d)``, and their classes."""
        rng = np.random.Generator(np.random.PCG64(seed))
        labels, size = np.repeat(np.arange(len(self.counts)), self.counts), self.means.shape[2]
        rows = np.zeros((len(labels), size))
        for label in np.flatnonzero(self.counts):
            shares = self.weights[label] / self.weights[label].sum()
            chosen = rng.choice(len(shares), self.counts[label], p=shares)
            noise = rng.standard_normal((len(chosen), size))
            deviations = np.sqrt(self.variances[label, chosen])
            rows[labels == label] = self.means[label, chosen] + deviations * noise
        return rows, labels


Fitted = tuple[Vector, Vector, Vector]
"""Weights ``(k,)``, means and variances ``(k, d)`` of a mixture."""


def fit_mixture_of(rows: Vector, components: int, seed: int) -> Fitted:
    """Fit a diagonal mixture to rows, by expectation maximisation from `k_means`.

    A single component has the rows' mean and variance. Of several, none has a variance below `FLOOR`.

    Examples
    --------
    >>> weights, means, variances = fit_mixture_of(np.array([[0.0], [1.0], [10.0], [11.0]]), 2, seed=0)
    >>> weights, np.sort(means.ravel()), variances.ravel()
    (array([0.5, 0.5]), array([ 0.5, 10.5]), array([0.25, 0.25]))
    """
    centres, of = k_means(rows, components, seed)
    floor = FLOOR * float(rows.var(axis=0).mean()) if len(centres) > 1 else 0.0
    shares = np.eye(len(centres))[of]
    for _ in range(MOST_STEPS):
        sizes = shares.sum(axis=0)
        means = shares.T @ rows / sizes[:, None]
        squares = np.stack([share @ (rows - mean) ** 2 for share, mean in zip(shares.T, means, strict=True)])
        variances = np.maximum(squares / sizes[:, None], floor)
        if floor == 0:
            break
        logs = [
            -((rows - m) ** 2 / v + np.log(v)).sum(axis=1) / 2 for m, v in zip(means, variances, strict=True)
        ]
        before, shares = shares, np.exp(log_softmax(np.stack(logs, axis=1) + np.log(sizes)))
        shares = np.maximum(shares, np.finfo(float).tiny)
        if np.abs(shares - before).max() < TOLERANCE:
            break
    return sizes / len(rows), means, variances


def k_means(rows: Vector, clusters: int, seed: int) -> tuple[Vector, NDArray[np.int64]]:
    """Return the centres of clusters, ``(k, d)``, and the cluster of each row, ``(n,)``; none is empty.

    The first centres are random rows, each far from the previous ones (k-means++). There are at most as many
    clusters as distinct rows.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    centres = rows[rng.integers(len(rows))][None]
    while len(centres) < clusters:
        nearest = _distances(rows, centres).min(axis=1)
        if nearest.sum() <= 0:
            break
        centres = np.vstack([centres, rows[rng.choice(len(rows), p=nearest / nearest.sum())]])
    of = _distances(rows, centres).argmin(axis=1)
    for _ in range(MOST_STEPS):
        kept = np.unique(of)
        centres = np.stack([rows[of == cluster].mean(axis=0) for cluster in kept])
        before, of = np.searchsorted(kept, of), _distances(rows, centres).argmin(axis=1)
        if (of == before).all():
            break
    return centres, before


def _distances(rows: Vector, centres: Vector) -> Vector:
    return np.stack([((rows - centre) ** 2).sum(axis=1) for centre in centres], axis=1)
