"""FedDWA: a client's personal model is a mean of all models, weighted by closeness to its guidance model.

References
----------
Liu et al., "FedDWA: Personalized Federated Learning with Dynamic Weight Adjustment", IJCAI 2023.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.layers import BLOCK, Layers, blocks, weighted_sum

Matrix = NDArray[np.float64]

NO_DISTANCE = 1e-12
"""A squared distance of up to this share of the model's squared norm counts as zero."""


def guidance_distances(guidances: Sequence[Layers], models: Sequence[Layers]) -> tuple[Matrix, Matrix]:
    """Return ``d_ij² = ‖g_i − w_j‖²`` over all parameters as one vector, accumulated in float64.

    Parameters
    ----------
    guidances, models : sequences of Layers
        ``g_i`` and ``w_j`` of ``N`` clients, parameters only.

    Returns
    -------
    tuple[Matrix, Matrix]
        ``d²`` of shape ``(N, N)``, and ``‖w_j‖²`` of shape ``(N,)``.

    Examples
    --------
    >>> squared, norms = guidance_distances([{"w": np.array([1.0, 1.0])}], [{"w": np.array([0.0, 3.0])}])
    >>> squared, norms
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


def distance_weights(squared: Matrix, norms: Matrix, top: int) -> Matrix:
    """Return ``p_ij = d_ij⁻² / Σ_k d_ik⁻²``, with only the `top` largest of each row, rescaled to sum to 1.

    Parameters
    ----------
    squared, norms : Matrix
        From `guidance_distances`.
    top : int
        ``K``, the weights kept in each row; a client's own weight counts.

    Returns
    -------
    Matrix
        Shape ``(N, N)``. If clients are at distance zero from ``g_i``, they share row ``i`` equally.

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


def personal_model(models: Sequence[Layers], weights: Matrix) -> dict[str, NDArray[Any]]:
    """Return ``u_i = Σ_j p_ij w_j``, parameters only, accumulated in float64.

    Parameters
    ----------
    models : sequence of Layers
        ``w_j``: the local models, not the guidance.
    weights : Matrix
        ``p_ij`` for one ``i``, shape ``(N,)``.
    """
    return {
        name: weighted_sum(
            np.zeros_like(first), [(w, m[name]) for w, m in zip(weights.tolist(), models, strict=True)]
        )
        for name, first in models[0].items()
    }
