"""The maths of personal methods (FedDAF, FedDWA, kNN-Per) and the penalties of domain generalisation.

kNN-Per uses the kernel and mixture of the authors' code, but mixes probabilities, where the code mixes logits
by default. The paper's text writes a kernel of the distance (unverified).

References
----------
Sen et al., "FedDAF: Federated Domain Adaptation Using Model Functional Distance".
Liu et al., "FedDWA: Personalized Federated Learning with Dynamic Weight Adjustment", IJCAI 2023.
Marfoq et al., "Personalized Federated Learning through Local Memorization", ICML 2022.
"""

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.mixture import log_softmax
from fda_flower.aggregation.rules import total, weighted_mean
from fda_flower.aggregation.units import Units
from fda_flower.aggregation.updates import BLOCK, Geometry, Layers, Vector, blocks, inner_products


def gradient_similarity(source: Layers, target: Layers) -> float:
    """Return ``sim = cos(g^S, g^T)`` of two mean gradients (Algorithm 3, step 2), accumulated in float64.

    It is 0 if a gradient is not finite, or is zero and thus has no direction.

    Examples
    --------
    >>> gradient_similarity({"w": np.array([2.0, 0.0])}, {"w": np.array([3.0, 4.0])})
    0.6
    """
    own = product = squared = 0.0
    for name, layer in target.items():
        t, p, s = inner_products(layer, [source[name]])
        own, product, squared = own + t, product + float(p[0]), squared + float(s[0])
    norms = math.sqrt(own) * math.sqrt(squared)
    if not (math.isfinite(norms) and math.isfinite(product)) or norms == 0:
        return 0.0
    return min(1.0, max(-1.0, product / norms))


def functional_distance(similarity: float, mu: float = 5.0) -> tuple[float, float]:
    """Return the angle ``θ`` of the gradients, and ``α``, its Gompertz normalisation (steps 3 and 4).

    ``θ = arccos(sim)`` and ``α = 1 − exp(−exp(−μ(θ−1)))`` in [0, 1]. The larger ``μ``, the more sharply α
    falls from 1 to 0 as θ passes 1; for negative ``μ``, α rises.

    Examples
    --------
    >>> theta, alpha = functional_distance(math.cos(1.0))
    >>> round(theta, 12), round(alpha, 4)  # 1 - 1/e, whatever μ
    (1.0, 0.6321)
    """
    theta = math.acos(similarity)
    with np.errstate(over="ignore"):
        alpha = float(-np.expm1(-np.exp(-mu * (theta - 1))))
    return theta, alpha


def blend(source: Layers, target: Layers, alpha: float, buffers: Collection[str]) -> dict[str, NDArray[Any]]:
    """Return ``w = α w^S + (1 − α) w^T`` (equation 2), accumulated in float64.

    `buffers` names the buffers: floats are blended like parameters, integers are the target's.

    Examples
    --------
    >>> blend({"w": np.array([4.0, 0.0, 1.0])}, {"w": np.array([0.0, 8.0, 1.0])}, 0.25, ())
    {'w': array([1., 6., 1.])}
    """
    weights = [1 - alpha, alpha]
    return {
        name: (weighted_mean if name in buffers else total)([array, source[name]], weights)
        for name, array in target.items()
    }


def nearness_weights(geometry: Geometry) -> Vector:
    """Return ``softmax_i(−‖Δ_i − Δ_T‖)``, shape ``(N,)``: the sources' weights in FedDAF's code.

    Examples
    --------
    >>> updates = Geometry(np.ones(1), np.array([[0.0], [9.0]]), np.array([[0.0], [3.0]]))  # 1; 0 and 3
    >>> nearness_weights(updates).round(4)
    array([0.7311, 0.2689])
    """
    products, squares = geometry.products.sum(axis=1), geometry.source_squared.sum(axis=1)
    distances = np.sqrt(np.maximum(squares - 2 * products + geometry.target_squared.sum(), 0))
    weights = np.exp(distances.min() - distances)
    return np.asarray(weights / weights.sum())


NO_DISTANCE = 1e-12
"""Share of the model's squared norm up to which a squared distance counts as zero."""


def guidance_distances(guidances: Sequence[Layers], models: Sequence[Layers]) -> tuple[Vector, Vector]:
    """Return ``d_ij² = ‖g_i − w_j‖²``, shape ``(N, N)``, and ``‖w_j‖²``, shape ``(N,)``, in float64.

    ``g_i`` and ``w_j`` are the parameters of ``N`` clients, each as one vector.

    Examples
    --------
    >>> guidance_distances([{"w": np.array([1.0, 1.0])}], [{"w": np.array([0.0, 3.0])}])
    (array([[5.]]), array([9.]))
    """
    number = len(models)
    squared, norms = np.zeros((number, number)), np.zeros(number)
    for name, first in models[0].items():
        ours = [guidance[name].reshape(-1) for guidance in guidances]
        theirs = [model[name].reshape(-1) for model in models]
        columns = np.empty((number, min(first.size, BLOCK)))
        for s in blocks(first.size):
            block = columns[:, : s.stop - s.start]
            for j, model in enumerate(theirs):
                block[j] = model[s]
            norms += np.einsum("jk,jk->j", block, block)
            for i, guidance in enumerate(ours):
                difference = block - guidance[s].astype(np.float64)
                squared[i] += np.einsum("jk,jk->j", difference, difference)
    return squared, norms


def distance_weights(squared: Vector, norms: Vector, top: int) -> Vector:
    """Return ``p_ij = d_ij⁻² / Σ_k d_ik⁻²``, with only the `top` largest of each row, rescaled to sum to 1.

    A client's own weight counts among the `top`. Clients at distance zero from ``g_i`` share row ``i``
    equally. Distances and norms come from `guidance_distances`.

    Examples
    --------
    >>> distance_weights(np.array([[1.0, 4.0, 16.0]]), np.ones(3), top=3).round(4)
    array([[0.7619, 0.1905, 0.0476]])
    >>> distance_weights(np.array([[1.0, 4.0, 16.0]]), np.ones(3), top=2)
    array([[0.8, 0.2, 0. ]])
    """
    weights = np.empty_like(squared)
    for i, row in enumerate(squared):
        none = row <= NO_DISTANCE * norms
        nearness = none.astype(np.float64) if none.any() else row.min() / row
        nearness[np.argsort(-nearness, kind="stable")[top:]] = 0.0
        weights[i] = nearness / nearness.sum()
    return weights


def personal_model(models: Sequence[Layers], weights: Vector) -> dict[str, NDArray[Any]]:
    """Return ``u_i = Σ_j p_ij w_j`` of local models, parameters only; the weights have shape ``(N,)``."""
    return {name: total([model[name] for model in models], weights.tolist()) for name in models[0]}


GRID = np.arange(101) / 100
"""Candidate values of ``λ``."""


def neighbour_probabilities(
    distances: Vector, labels: NDArray[Any], classes: int, features: int, scale: float = 1.0
) -> Vector:
    """Return ``p(c) = Σ_{j: y_j = c} s_j / Σ_j s_j``, ``s_j = exp(−d_j² / (features · scale))``.

    ``d_j`` are the Euclidean distances of ``n`` queries from their ``k`` nearest keys, which have `features`
    numbers, and `labels` the classes of these keys, both of shape ``(n, k)``. The result has shape
    ``(n, C)``, and zeros for a query that is too far from all keys for any ``s_j`` above 0.

    Examples
    --------
    >>> neighbour_probabilities(np.array([[0.0, 1.0]]), np.array([[0, 1]]), 2, 2).round(4)
    array([[0.6225, 0.3775]])
    """
    kernels = np.exp(-np.square(np.asarray(distances, np.float64)) / (features * scale))
    sums = np.zeros((len(kernels), classes))
    np.add.at(sums, (np.arange(len(kernels))[:, None], labels), kernels)
    totals = sums.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0))


def mixed_scores(logits: NDArray[Any], neighbours: Vector, weight: float) -> Vector:
    """Return the mixture of a model and its neighbours; its largest score is the predicted class.

    With ``λ`` the `weight`, ``p`` the neighbours and ``z`` the logits, both of shape ``(n, C)``, it is
    ``log(λ p + (1 − λ) softmax(z))``. Where a row of ``p`` is zero, the model decides alone.

    Examples
    --------
    >>> logits, neighbours = np.log([[0.3, 0.7]]), np.array([[0.6, 0.4]])
    >>> np.exp(mixed_scores(logits, neighbours, 0.5)).round(4)
    array([[0.45, 0.55]])
    """
    weights = weight * (neighbours.sum(axis=1, keepdims=True) > 0)
    mixed = weights * neighbours + (1 - weights) * np.exp(log_softmax(logits))
    return np.asarray(np.log(np.maximum(mixed, np.finfo(np.float64).tiny)))


def choose_weight(
    logits: NDArray[Any],
    neighbours: Vector,
    labels: NDArray[Any],
    groups: NDArray[Any] | None = None,
) -> float:
    """Return the ``λ`` of `GRID` with the highest accuracy; on a tie the likeliest, then the smallest.

    `logits` and `neighbours` are as in `mixed_scores`, for labelled samples, with neighbours among the
    samples of *other* units, of which `groups` has that of each sample, shape ``(n,)``; by default each is
    its own. Accuracy and likelihood are means over units.
    """
    by_weight = [mixed_scores(logits, neighbours, weight) for weight in GRID.tolist()]
    rows, units = np.arange(len(labels)), Units.of(len(labels), groups)
    ranks = [
        (
            round(units.sum(scores.argmax(axis=1) == labels), ndigits=9),
            units.sum(log_softmax(scores)[rows, labels]),
        )
        for scores in by_weight
    ]
    return float(GRID[ranks.index(max(ranks))])


Numbers = Sequence[float] | Vector


def vrex_weights(losses: Numbers, strength: float, clip: bool = False) -> Vector:
    """Return ``ω_i = (1 + 2λ(L_i − L̄))/N``, the weights in V-REx's gradient (Krueger et al., ICML 2021).

    They are the derivatives of ``mean_i L_i + λ/N Σ_i (L_i − L̄)²`` by the losses, and sum to 1. A source
    with a small loss may have a negative one; `clip` replaces it by 0 and normalises the others. Equal losses
    give exactly ``1/N``.

    Examples
    --------
    >>> vrex_weights([1, 2, 3], 0.25).round(4)
    array([0.1667, 0.3333, 0.5   ])
    >>> vrex_weights([1, 2, 3], 0.75), vrex_weights([1, 2, 3], 0.75, clip=True).round(4)
    (array([-0.16666667,  0.33333333,  0.83333333]), array([0.    , 0.2857, 0.7143]))
    """
    above = np.asarray(losses, np.float64) - np.min(losses)
    weights: Vector = (1 + 2 * strength * (above - above.mean())) / len(above)
    if clip and (weights < 0).any():
        weights = np.maximum(weights, 0)
        weights /= weights.sum()
    return weights


def groupdro_weights(q: Numbers, losses: Numbers, step_size: float) -> Vector:
    """Return ``q_i exp(η_q L_i) / Σ_j q_j exp(η_q L_j)`` (GroupDRO, Sagawa et al., ICLR 2020, Algorithm 1).

    The previous weights, `q`, need not sum to 1. Equal ``q`` and equal losses, or ``η_q`` of 0, give exactly
    ``1/N``.

    Examples
    --------
    >>> groupdro_weights([1, 1, 1], [1, 2, 3], 0.5).round(4)
    array([0.1863, 0.3072, 0.5065])
    """
    logits = np.log(np.maximum(q, np.finfo(np.float64).tiny)) + step_size * np.asarray(losses, np.float64)
    weights: Vector = np.exp(logits - logits.max())
    weights /= weights.sum()
    return weights
