"""FedDAF: the distance of two models on the target's objective, and their blend.

References
----------
Sen et al., "FedDAF: Federated Domain Adaptation Using Model Functional Distance".
"""

import math
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.layers import Layers, inner_products, weighted_sum
from fda_flower.aggregation.rules import weighted_mean


def gradient_similarity(source: Layers, target: Layers) -> float:
    """Return ``sim = cos(g^S, g^T)`` of two mean gradients (Algorithm 3, step 2), accumulated in float64.

    Parameters
    ----------
    source, target : Layers
        Gradients of the same names and shapes.

    Returns
    -------
    float
        In [-1, 1]; 0 if a gradient is zero, and so has no direction, or is not finite.

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

    Parameters
    ----------
    similarity : float
        ``sim`` in [-1, 1].
    mu : float
        ``μ``: the larger it is, the more sharply α falls from 1 to 0 as θ passes 1; if negative, α rises.

    Returns
    -------
    tuple[float, float]
        ``θ = arccos(sim)`` in [0, π], and ``α = 1 − exp(−exp(−μ(θ−1)))`` in [0, 1].

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

    Parameters
    ----------
    source, target : Layers
        Models of the same names and shapes.
    alpha : float
        The weight of `source`, in [0, 1].
    buffers : Collection[str]
        Names of the buffers: floats are blended like parameters, integers are the target's.

    Examples
    --------
    >>> blend({"w": np.array([4.0, 0.0, 1.0])}, {"w": np.array([0.0, 8.0, 1.0])}, 0.25, ())
    {'w': array([1., 6., 1.])}
    """
    weights = [1 - alpha, alpha]
    blended: dict[str, NDArray[Any]] = {}
    for name, array in target.items():
        pair = [array, source[name]]
        if name in buffers:
            blended[name] = weighted_mean(pair, weights)
        else:
            blended[name] = weighted_sum(np.zeros_like(array), list(zip(weights, pair, strict=True)))
    return blended
