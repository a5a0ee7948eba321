"""Weights of sources from their losses, for domain generalisation: V-REx and GroupDRO."""

from collections.abc import Sequence

import numpy as np

from fda_flower.aggregation.layers import Vector

Numbers = Sequence[float] | Vector


def vrex_weights(losses: Numbers, strength: float, clip: bool = False) -> Vector:
    """Return ``ω_i = (1 + 2λ(L_i − L̄))/N``, the gradient's weights in V-REx (Krueger et al., ICML 2021).

    They are the derivatives of ``mean_i L_i + λ/N Σ_i (L_i − L̄)²`` by the losses: with ``g_i`` the gradient
    of ``L_i``, the objective's is ``Σ_i ω_i g_i``. They sum to 1, and a source with a small loss may have a
    negative one. Equal losses give exactly ``1/N``.

    Parameters
    ----------
    losses : sequence or Vector
        ``L_i``, at least one.
    strength : float
        ``λ``.
    clip : bool
        Take 0 for negative weights, and divide the others by their sum.

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

    Equal ``q`` and equal losses, or ``η_q`` of 0, give exactly ``1/N``.

    Parameters
    ----------
    q : sequence or Vector
        The weights before, at least one; they need not sum to 1.
    losses : sequence or Vector
        ``L_i``.
    step_size : float
        ``η_q``.

    Examples
    --------
    >>> groupdro_weights([1, 1, 1], [1, 2, 3], 0.5).round(4)
    array([0.1863, 0.3072, 0.5065])
    """
    logits = np.log(np.maximum(q, np.finfo(np.float64).tiny)) + step_size * np.asarray(losses, np.float64)
    weights: Vector = np.exp(logits - logits.max())
    weights /= weights.sum()
    return weights
