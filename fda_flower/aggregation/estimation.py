"""The estimators of auto-weighting.

References
----------
Jiang et al., ICLR 2024: equation 3 and Appendix A.5; the estimator of ``τ²d²`` is equation 105 of the earlier
version (misprinted in the ICLR text).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fda_flower.aggregation.batches import BatchUpdates
from fda_flower.aggregation.updates import Geometry, Update, Vector


@dataclass(frozen=True)
class Estimates:
    """Estimates for one source in one round, in units of squared gradients.

    `sigma2` is ``σ̂²``, the variance of the target's mean gradient ``ḡ``, and `target2` ``‖ḡ‖²``. `d2` is
    ``d̂²``, the squared distance of the source's true gradient from the target's; unbiased, it can be
    negative. `d2_target_rate` is the same with the source's mean step divided by the target's learning rate,
    ``g_i = Δ_i/(K_i η_T)``. `tau2_d2` is ``τ̂²d̂²``, the part of the target's true gradient that the source's
    direction does not explain, and `delta` ``δ̂``, the share of the target's batch gradients that agree with
    it; both are NaN if only norms were sent. `steps` is ``B``, the number of the target's steps; NaN if
    unknown.
    """

    sigma2: float
    d2: float
    target2: float
    tau2_d2: float = math.nan
    delta: float = math.nan
    d2_target_rate: float = math.nan
    steps: float = math.nan


def estimate(
    target: Update, sources: Sequence[Update], geometry: Geometry, batches: BatchUpdates
) -> list[Estimates]:
    """Estimate ``σ²``, ``d²``, ``τ²d²`` and ``δ`` for each source.

    The estimates use the identities ``d̂_i² = ‖g_i − ḡ‖² − σ̂²`` and
    ``τ̂²d̂_i² = ‖p̄‖² − (S² − Σ_j⟨g_j−ḡ,u_i⟩²) / (B(B−1))``, with gradients ``g_i = Δ_i/(K_i η_i)`` and
    ``g_j = δ_j/η_T``, so everything but ``⟨g_j−ḡ,u_i⟩`` is exact in every encoding of `batches`. With
    sketches, the bias of its square is removed. The estimates of a source that did not report its steps
    or its learning rate are NaN.

    Raise a `ValueError` if ``B < 2``, the target did not report its own, or the steps' norms are too small to
    sum to the target's update.
    """
    B = batches.steps
    if B < 2:
        raise ValueError(f"the estimators need at least 2 local steps of the target, got {B}")
    if target.scale <= 0:
        raise ValueError("the estimators need num-steps and learning-rate from the target")
    if target.steps != B:
        raise ValueError(f"{B} batch updates do not fit the target's {target.steps} steps")
    rate, mean_scale = np.float64(target.learning_rate), np.float64(target.scale)
    # Values out of range become NaN or infinity, and β is undefined.
    with np.errstate(all="ignore"):
        target2 = float(geometry.target_squared.sum() / mean_scale**2)
        scatter = _scatter(float(batches.squared_norms.sum() / rate**2), B * target2)
        sigma2 = scatter / (B * (B - 1))
        results = []
        for i, source in enumerate(sources):
            if source.scale <= 0:
                results.append(Estimates(sigma2, math.nan, target2, steps=B))
                continue
            scale = np.float64(source.scale)
            norm2 = float(geometry.source_squared[i].sum() / scale**2)
            product = float(geometry.products[i].sum() / (mean_scale * scale))
            distance2 = max(norm2 - 2 * product + target2, 0.0)
            ratio = source.learning_rate / rate
            step_distance2 = max(float(norm2 * ratio**2 - 2 * product * ratio + target2), 0.0)
            along = batches.products(source.parameters)
            tau2_d2 = delta = math.nan
            if along is not None and norm2 > 0:
                norm = math.sqrt(norm2)
                mean_along = np.float64(product / norm)
                deviations = along / (rate * scale * norm)
                deviations = deviations - deviations.mean()
                spread = _unbiased(deviations, scatter, batches.noise)
                residual2 = max(target2 - float(mean_along**2), 0.0)
                tau2_d2 = residual2 - (scatter - spread) / (B * (B - 1))
                # Exact products keep their own sign; sketched ones are more accurate around the exact mean.
                signs = along if batches.noise == 0 else deviations + mean_along
                delta = float(np.mean(signs > 0))
            d2, d2_target_rate = distance2 - sigma2, step_distance2 - sigma2
            results.append(Estimates(sigma2, d2, target2, tau2_d2, delta, d2_target_rate, B))
    return results


def _scatter(squares: float, mean_squares: float) -> float:
    """Return ``S² = Σ_j‖g_j‖² − B‖ḡ‖²``, which is negative only by rounding."""
    if squares < mean_squares * (1 - 1e-3):
        raise ValueError("batch-updates do not fit the target's update: B Σ‖δ_j‖² < ‖Δ_T‖²")
    return max(squares - mean_squares, 0.0)


def _unbiased(deviations: Vector, scatter: float, noise: float) -> float:
    """Return ``Σ_j⟨g_j−ḡ,u⟩²`` without the bias that sketching adds to a square, within ``[0, S²]``.

    The expected square of a sketched product of ``x`` with a unit vector is ``⟨x,u⟩²(1+1/k) + ‖x‖²/k``.
    """
    squares = float(np.sum(deviations**2))
    return min(max((squares - noise * scatter) / (1 + noise), 0.0), scatter)


def beta_fedda(e: Estimates) -> float:
    """Return ``β = σ̂² / (d̂² + σ̂²)`` (equation 3); NaN where it is undefined."""
    return _ratio(e.sigma2, e.d2 + e.sigma2)


def beta_fedda_reference(e: Estimates) -> float:
    """Return the ``β`` of FedDA as in the authors' code; NaN where it is undefined.

    It is equation 3 with mean steps in place of gradients. The code divides neither the source's nor the
    target's by its own learning rate, which amounts to dividing both by the target's.
    """
    return _ratio(e.sigma2, e.d2_target_rate + e.sigma2)


def beta_fedgp(e: Estimates) -> float:
    """Return ``β = σ̂² / (τ̂²d̂² + σ̂²)`` (equation 3); NaN where it is undefined."""
    return _ratio(e.sigma2, e.tau2_d2 + e.sigma2)


def beta_fedgp_filter_aware(e: Estimates) -> float:
    """Return the ``β`` of FedGP with its filter taken into account; NaN where it is undefined.

    ``σ̂² / (σ̂² + δ̂ τ̂²d̂² + (1−δ̂)(‖ḡ‖² − σ̂²))``: it minimises the approximation before equation 2 in
    Appendix A.4.
    """
    dropped = (1 - e.delta) * (e.target2 - e.sigma2)
    return _ratio(e.sigma2, e.sigma2 + e.delta * e.tau2_d2 + dropped)


def beta_fedgp_reference(e: Estimates) -> float:
    """Return the ``β`` of FedGP as in the authors' code; NaN where it is undefined.

    ``σ̂² / (σ̂² + δ max(τ̂²d̂², 0) + (1−δ)‖ḡ‖²)`` with ``δ = 1 − (1 − δ̂)/B``.
    """
    disagreeing = (1 - e.delta) / e.steps
    residual = e.tau2_d2 if math.isnan(e.tau2_d2) else max(e.tau2_d2, 0.0)
    return _ratio(e.sigma2, e.sigma2 + (1 - disagreeing) * residual + disagreeing * e.target2)


BetaRule = Callable[[Estimates], float]
"""A formula for β, in [0, 1]: NaN where the estimates do not define it."""


def _ratio(numerator: float, denominator: float) -> float:
    """Return a ratio as β, clipped to [0, 1]; NaN if it is not finite or the denominator not positive."""
    if not (math.isfinite(numerator) and math.isfinite(denominator)) or denominator <= 0:
        return math.nan
    return min(max(numerator / denominator, 0.0), 1.0)
