"""FADA's dynamic attention: a source weighs by how much its update tightens the target's clusters.

References
----------
Peng, Huang, Zhu and Saenko, "Federated Adversarial Domain Adaptation", ICLR 2020, section 4, Eq. 2. We
have the formulas from public notes on the paper; its equations' numbers, and the order of Algorithm 1, are
unverified.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.updates import Layers, Vector

HIDDEN = 64
"""Width of a domain identifier's hidden layer."""

MOST_PASSES = 100
"""Passes of k-means after which it ends."""

Clusters = NDArray[np.int64]


def attention(gains: Vector) -> Vector:
    """Return the softmax of gains, shape ``(N,)``: the sources' weights, whatever their order.

    Examples
    --------
    >>> attention(np.array([0.2, 0.0, -0.1])).round(4)
    array([0.3907, 0.3199, 0.2894])
    """
    shares = np.exp(gains - gains.max())
    return np.asarray(shares / math.fsum(shares))


def dispersion(features: NDArray[Any], clusters: Clusters) -> float:
    """Return ``I = Σ_r 1/(2 n_r) Σ_{i,j∈C_r} ‖f_i − f_j‖``, which the paper calls gap statistics (Eq. 2).

    `features` has the shape ``(n, d)``, `clusters` the cluster of each sample, ``(n,)``. The sum runs over
    ordered pairs; its order does not matter.

    Examples
    --------
    >>> dispersion(np.array([[0.0], [2.0]]), np.array([0, 0]))
    1.0
    """
    rows, terms = np.asarray(features, np.float64), list[float]()
    for cluster in np.unique(clusters):
        members = rows[clusters == cluster]
        distances = (np.sqrt(np.square(members[i + 1 :] - row).sum(axis=1)) for i, row in enumerate(members))
        terms.append(math.fsum(distance for each in distances for distance in each) / len(members))
    return math.fsum(terms)


def cluster(features: NDArray[Any], number: int, seed: int) -> Clusters:
    """Return the clusters of samples by k-means, whose first centres k-means++ draws by `seed`.

    There are `number` clusters, or fewer if there are fewer different samples.
    """
    rows, generator = np.asarray(features, np.float64), np.random.default_rng(seed)
    chosen = [int(generator.integers(len(rows)))]
    nearest = np.square(rows - rows[chosen[0]]).sum(axis=1)
    while len(chosen) < number and nearest.any():
        chosen.append(int(generator.choice(len(rows), p=nearest / nearest.sum())))
        nearest = np.minimum(nearest, np.square(rows - rows[chosen[-1]]).sum(axis=1))
    return _k_means(rows, rows[chosen])


def cluster_again(features: NDArray[Any], clusters: Clusters) -> Clusters:
    """Return the clusters of other features of the same samples: k-means begins with `clusters`.

    Two dispersions then differ by the features, not by k-means' draws.
    """
    rows = np.asarray(features, np.float64)
    return _k_means(rows, np.stack([rows[clusters == each].mean(axis=0) for each in np.unique(clusters)]))


def _k_means(rows: Vector, centres: Vector) -> Clusters:
    """Return Lloyd's clusters from the first centres; one that is left empty keeps its centre."""
    clusters = np.full(len(rows), -1)
    for _ in range(MOST_PASSES):
        new = (np.square(centres).sum(axis=1) - 2 * rows @ centres.T).argmin(axis=1)
        if np.array_equal(new, clusters):
            break
        clusters = new
        for each in np.unique(clusters):
            centres[each] = rows[clusters == each].mean(axis=0)
    return clusters


def identifier_form(features: int) -> Layers:
    """Return arrays of the form of a domain identifier: a hidden layer on features, and one output.

    Its output is the logarithm of the odds that features are a source's, not the target's.
    """
    shapes = {"0.weight": (HIDDEN, features), "0.bias": (HIDDEN,), "2.weight": (1, HIDDEN), "2.bias": (1,)}
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
