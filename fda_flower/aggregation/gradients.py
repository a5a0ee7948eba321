"""Gradients at the global model, which clients take before they train, and what they tell of the sources.

Each client sends the mean ``ḡ`` of its ``B`` mini-batch gradients ``g_j`` (the arrays: docs/wire.md), and
``v = Σ_j‖g_j − ḡ‖² / (B(B−1))``, which estimates ``E‖ḡ − g‖²``, the variance of ``ḡ`` around ``g``, the true
gradient of the client's domain. The clients' samples are independent, so for sources ``i ≠ j`` and the target
``T``

* ``E‖ḡ_i − ḡ_T‖² = ‖g_i − g_T‖² + v_T + v_i``,
* ``E⟨ḡ_i−ḡ_T, ḡ_j−ḡ_T⟩ = ⟨g_i−g_T, g_j−g_T⟩ + v_T``.

`StartGradients` subtracts the variances, and so its distances are unbiased. For updates of several steps
there is no such identity: their length follows the number of steps, and a source's own variance is not known.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.batches import CountSketch
from fda_flower.aggregation.estimation import Estimates
from fda_flower.aggregation.updates import Layers, Vector


@dataclass(frozen=True)
class MeanGradient:
    """One client's mean gradient: the sketch of ``ḡ``, shape ``(k,)``, ``‖ḡ‖²``, and ``v``."""

    values: Vector
    squared_norm: float
    variance: float

    @classmethod
    def from_arrays(cls, arrays: Layers, sketch: CountSketch) -> "MeanGradient":
        """Read what a client sent, when asked for this sketch.

        Raise a `ValueError` if something is missing, of another form, not finite or out of range, if there
        are fewer than two batches, or if the norm and the values disagree.
        """
        expected = (sketch.size, sketch.seed)
        sent = tuple(_number(arrays, key) for key in ("sketch-size", "sketch-seed"))
        if sent != expected:
            raise ValueError(
                f"gradients are a sketch of size {sent[0]:g} with seed {sent[1]:g}, but the server asked "
                f"for size {expected[0]} with seed {expected[1]}"
            )
        values = _array(arrays, "sketch")
        if values.shape != (sketch.size,):
            raise ValueError(f"gradients 'sketch' have shape {list(values.shape)}, expected {[sketch.size]}")
        norm, variance, batches = (_number(arrays, key) for key in ("norm", "variance", "batches"))
        if batches < 2:
            raise ValueError(f"the estimators need gradients of at least 2 batches, got {batches:g}")
        if norm < 0 or variance < 0:
            raise ValueError(
                f"gradients have norm {norm:g} and variance {variance:g}, neither may be negative"
            )
        if abs(_squared(values) - norm) > 10 * math.sqrt(2 / sketch.size) * norm:
            raise ValueError("gradients 'sketch' do not have the norm that was sent with them")
        return cls(values, norm, variance)


@dataclass(frozen=True)
class StartGradients:
    """The gradients of all clients in a round at the global model.

    For a source without a usable gradient, the entry is the reason. `noise` is the relative variance of one
    inner product, ``1/k``.
    """

    target: MeanGradient
    sources: Sequence[MeanGradient | str]
    noise: float

    @property
    def faults(self) -> list[str | None]:
        """Why each source's gradient is unusable; None if it is usable."""
        return [source if isinstance(source, str) else None for source in self.sources]

    def estimates(self) -> list[Estimates]:
        """Return the estimates for each source; NaN without a usable gradient.

        ``σ̂² = v_T`` and ``d̂_i² = ‖ḡ_i−ḡ_T‖² − v_T − v_i``. For FedGP, ``τ²d² = ‖g_T‖² −
        ⟨g_T,g_i⟩²/‖g_i‖²``, the part of the target's true gradient outside the source's direction, is
        estimated by ``t − c²/s``:

        * ``t = ‖ḡ_T‖² − v_T`` and ``s = ‖ḡ_i‖² − v_i`` are unbiased. If ``s ≤ 0``, the source's gradient is
          pure noise, and the estimate is ``t``.
        * ``c = ⟨ḡ_T,ḡ_i⟩`` is unbiased, since the two errors are independent. Its square keeps the bias
          ``g_iᵀΣ_T g_i + g_TᵀΣ_i g_T + tr(Σ_TΣ_i)``, the noise along one direction of ``m``, because the
          covariances ``Σ`` are unknown. The bias that a sketch adds to the square is removed.

        ``δ̂`` is 1 if ``c > 0``, else 0, since only the batches' mean is known.
        """
        sigma2, target2 = self.target.variance, self.target.squared_norm
        results = []
        for source in self.sources:
            if isinstance(source, str):
                results.append(Estimates(sigma2=sigma2, d2=math.nan, target2=target2))
                continue
            with np.errstate(all="ignore"):
                d2 = _squared(source.values - self.target.values) - sigma2 - source.variance
                product = float(np.einsum("k,k->", source.values, self.target.values))
                squares = product**2 - self.noise * source.squared_norm * target2
                explained = max(squares, 0.0) / (1 + self.noise)
            length2, whole = source.squared_norm - source.variance, target2 - sigma2
            tau2_d2 = whole - explained / length2 if length2 > 0 else whole
            results.append(Estimates(sigma2, d2, target2, tau2_d2, float(product > 0)))
        return results

    def differences(self) -> NDArray[np.float64]:
        """Return ``D_ij = ⟨ḡ_i−ḡ_T, ḡ_j−ḡ_T⟩ − v_T − [i=j] v_i``, shape ``(N, N)``, for `joint_weights`.

        Rows and columns of sources without a usable gradient are NaN.
        """
        missing = np.full_like(self.target.values, np.nan)
        errors = np.array(
            [missing if isinstance(s, str) else s.values - self.target.values for s in self.sources]
        )
        own = [math.nan if isinstance(source, str) else source.variance for source in self.sources]
        with np.errstate(all="ignore"):
            products = np.einsum("ik,jk->ij", errors, errors)
            return np.asarray(products - self.target.variance - np.diag(own))


def within_range(e: Estimates) -> Estimates:
    """Return estimates whose squares are at least 0, for β: ``β = v_T/(v_T + max(d̂², 0))``."""
    return replace(e, d2=float(np.maximum(e.d2, 0)), tau2_d2=float(np.maximum(e.tau2_d2, 0)))


def read_gradients(
    target: Layers | str, sources: Sequence[Layers | str], sketch: CountSketch
) -> StartGradients | str:
    """Read clients' gradients; in their place a text gives the reason why there are none."""
    read = [_read(arrays, sketch) for arrays in (target, *sources)]
    if isinstance(read[0], str):
        return f"the target: {read[0]}"
    return StartGradients(read[0], read[1:], 1 / sketch.size)


def _read(arrays: Layers | str, sketch: CountSketch) -> MeanGradient | str:
    try:
        return arrays if isinstance(arrays, str) else MeanGradient.from_arrays(arrays, sketch)
    except ValueError as error:
        return str(error)


def _array(arrays: Layers, name: str) -> Vector:
    if name not in arrays:
        raise ValueError(f"gradients lack '{name}'")
    array = arrays[name]
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise ValueError(f"gradients '{name}' hold NaN, infinity or no numbers")
    return array.astype(np.float64)


def _number(arrays: Layers, name: str) -> float:
    array = _array(arrays, name)
    if array.size != 1:
        raise ValueError(f"gradients '{name}' hold {array.size} numbers, expected one")
    return float(array.reshape(()))


def _squared(vector: Vector) -> float:
    return float(np.einsum("k,k->", vector, vector))
