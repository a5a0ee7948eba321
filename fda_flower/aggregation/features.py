"""Linear heads on features, and Gaussians of the features of each class: pFedFDA.

References
----------
McLaughlin and Su, "Personalized Federated Learning via Feature Distribution Adaptation", NeurIPS 2024
(unverified: the formulas are known from the authors' code and from summaries of the paper).
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.mixture import log_softmax, stratified_folds
from fda_flower.aggregation.units import Units
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
    """Return the relative frequencies of the classes, each smoothed by `SMALL`."""
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
    the least sum of ``−log p(y)`` over the folds, the lowest of several. `groups`, the unit of each sample,
    are dealt whole, and each counts as one, by its mean. With fewer samples, or groups, than folds it is 0.
    """
    labels = np.asarray(labels)
    units = Units.of(len(labels), groups)
    if units.count < folds:
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
            losses[i] -= chosen.sum() if units.single else units.shares[out] @ chosen
    return float(losses.argmin() / (GRID - 1))
