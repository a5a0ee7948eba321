"""A target's logistic heads on a table, which start from the sources' ridge regression.

From the sources' sums over rows ``x`` of their samples follow their outputs ``o(x) = (x, 1) W_S`` (see
`fda_flower.aggregation.ridge`). They are the target's up to a scale, and to the classes' frequencies. So a
head of the target has the logits

``τ o(x) + Vᵀ z + b``,

where ``z`` are the standardised columns, and ``(V, b)`` minimise

``−Σ_i log softmax(·)[y_i] + λ/2 ‖V‖² + ‖b‖²/(2 · 7²)``

on its ``n`` labelled rows. There is one for each ``τ`` and ``λ``, and with ``τ = 0`` one of the target alone
for each ``λ``. The heads are averaged, not chosen: with ``ℓ_h``, the log-likelihood of the labels of rows that
head ``h`` has not seen, its weight is ``w_h ∝ π_h exp(ℓ_h/2)``, where ``π`` gives half of the weight
beforehand to the target alone. The answer, ``softmax(Σ_h w_h log p_h(x))``, is that of one linear layer.

References
----------
Zhang, "Model selection via multifold cross validation", Annals of Statistics 21, 1993, for rows that are left
out together; Friedman, Hastie and Tibshirani, "Additive logistic regression", Annals of Statistics 28, 2000,
for Newton's method on log-odds that start from other outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.mixture import log_softmax, stratified_folds
from fda_flower.aggregation.units import Units

Array = NDArray[np.float64]

SCALES = (2.0, 4.0)
"""``τ`` of the heads that start from the sources' outputs."""

STRENGTHS = (10.0, 30.0, 100.0, 1000.0)
"""``λ``."""

CONSTANT = 1 / 49
"""The strength of ``b``."""

FOLDS = 10
"""Parts of the labelled rows, each of which is left out once."""

MOST_STEPS, MOST_HALVES, EXACT, SLACK = 50, 30, 1e-9, 1e-12
"""Steps of Newton's method, halvings of one, the largest number of a last step, and rounding of a loss."""


@dataclass(frozen=True)
class LogisticFit:
    """A target's averaged logistic heads: logits are ``s o(x) + Vᵀ z + b``.

    Attributes
    ----------
    scale : float
        ``s = Σ_h w_h τ_h``.
    weights, constant : array
        ``V``, shape ``(d, C)``, and ``b``, shape ``(C,)``.
    shares : mapping
        ``w_h`` by ``(τ, λ)``, of sum 1.
    held_out, held_out_alone : array
        Log-probabilities of each row by heads that have not seen its unit, shape ``(n, C)``: of all heads,
        and of the target alone.
    alone : tuple of array
        ``V`` and ``b`` of the target alone.
    """

    scale: float
    weights: Array
    constant: Array
    shares: dict[tuple[float, float], float]
    held_out: Array
    held_out_alone: Array
    alone: tuple[Array, Array]


def fit_logistic(
    columns: NDArray[np.floating],
    outputs: Array,
    labels: NDArray[np.integer],
    groups: NDArray[Any] | None = None,
    seed: int = 0,
) -> LogisticFit:
    """Fit the target's logistic heads, and weigh them.

    Parameters
    ----------
    columns, outputs : array
        ``z``, shape ``(n, d)``, and ``o(x)``, shape ``(n, C)``, of the target's labelled rows.
    labels : array
        Classes, shape ``(n,)``.
    groups : array, optional
        The unit of each row, such as a patient, shape ``(n,)``, which is left out as a whole. Default: each
        row is its own.
    seed : int
        Of the order in which units are dealt to folds.

    Raises
    ------
    ValueError
        If there are fewer than two units.
    """
    z, units = np.asarray(columns, np.float64), Units.of(len(labels), groups)
    if units.count < 2:
        raise ValueError(f"{len(labels)} labelled rows of {units.count} unit, leaving one out needs 2")
    heads = [(tau, strength) for tau in (0.0, *SCALES) for strength in STRENGTHS]
    scales, strengths = (np.array(each) for each in zip(*heads, strict=True))
    offsets = scales[:, None, None] * outputs
    folds = stratified_folds(labels, FOLDS, seed, groups)
    held_out = np.empty_like(offsets)
    for fold in np.unique(folds):
        rest = folds != fold
        fitted = minimised(z[rest], offsets[:, rest], labels[rest], strengths)
        held_out[:, ~rest] = log_softmax(_logits(z[~rest], offsets[:, ~rest], fitted))
    chosen = held_out[:, np.arange(len(labels)), labels]
    likelihoods = np.array([units.sum(each) for each in chosen])
    alone = scales == 0
    both = _weights(likelihoods / 2 + np.log(np.where(alone, (~alone).sum() / alone.sum(), 1.0)))
    own = _weights(np.where(alone, likelihoods / 2, -np.inf))
    fitted = minimised(z, offsets, labels, strengths)
    mean, mean_alone = (np.tensordot(weights, fitted, 1) for weights in (both, own))
    return LogisticFit(
        float(both @ scales),
        mean[:-1],
        mean[-1],
        dict(zip(heads, both.tolist(), strict=True)),
        log_softmax(np.tensordot(both, held_out, 1)),
        log_softmax(np.tensordot(own, held_out, 1)),
        (mean_alone[:-1], mean_alone[-1]),
    )


def _weights(logarithms: Array) -> Array:
    weights = np.exp(logarithms - logarithms.max())
    return np.asarray(weights / weights.sum())


def _logits(columns: Array, offsets: Array, fitted: Array) -> Array:
    return np.asarray(offsets + columns @ fitted[:, :-1] + fitted[:, -1:])


def minimised(
    columns: Array, offsets: Array, labels: NDArray[np.integer], strengths: Sequence[float] | Array
) -> Array:
    """Return ``(V, b)`` of heads, shape ``(H, d + 1, C)``; the last row is ``b``.

    Parameters
    ----------
    columns : array
        ``z``, shape ``(n, d)``.
    offsets : array
        ``τ o(x)`` of each head, shape ``(H, n, C)``.
    labels : array
        Classes, shape ``(n,)``.
    strengths : sequence of float
        ``λ`` of each head.
    """
    left, sizes, right = np.linalg.svd(columns, full_matrices=False)
    spanned = sizes > np.finfo(np.float64).eps * max(columns.shape) * sizes.max(initial=0.0)
    rows = np.hstack([left[:, spanned] * sizes[spanned], np.ones((len(columns), 1))])
    fitted = _Newton(rows, offsets, labels, np.asarray(strengths, np.float64)).minimum()
    return np.concatenate([right[spanned].T @ fitted[:, :-1], fitted[:, -1:]], axis=1)


@dataclass(frozen=True)
class _Newton:
    """Newton's method for all heads at once, in the span of the columns, on rows with a 1 at the end.

    The numbers of a row's classes sum to 0 at the minimum, so that they have ``C − 1`` coordinates.
    """

    rows: Array
    offsets: Array
    labels: NDArray[np.integer]
    strengths: Array

    @cached_property
    def basis(self) -> Array:
        """Coordinates of numbers of classes that sum to 0, orthonormal, shape ``(C, C − 1)``."""
        classes = self.offsets.shape[-1]
        return np.linalg.svd(np.eye(classes) - 1 / classes)[0][:, : classes - 1]

    @cached_property
    def penalty(self) -> Array:
        """The strength of each row of coordinates, shape ``(H, width, 1)``."""
        strengths = np.repeat(self.strengths[:, None], self.rows.shape[1], axis=1)
        strengths[:, -1] = CONSTANT
        return strengths[..., None]

    @cached_property
    def truth(self) -> Array:
        """The labels as 0 and 1."""
        return np.eye(self.offsets.shape[-1])[self.labels]

    def minimum(self) -> Array:
        """Return the coefficients of each head, shape ``(H, width, C)``."""
        theta = np.zeros((len(self.offsets), self.rows.shape[1], self.basis.shape[1]))
        for _ in range(MOST_STEPS):
            step = self._step(theta)
            theta = theta - step
            if np.abs(step).max(initial=0.0) < EXACT:
                break
        return theta @ self.basis.T

    def _probabilities(self, theta: Array) -> Array:
        return log_softmax(self.offsets + self.rows @ theta @ self.basis.T)

    def _losses(self, theta: Array) -> Array:
        chosen = self._probabilities(theta)[:, np.arange(len(self.labels)), self.labels]
        return np.asarray((self.penalty * theta**2).sum(axis=(1, 2)) / 2 - chosen.sum(axis=1))

    def _step(self, theta: Array) -> Array:
        """Return Newton's step of each head, halved until its loss does not rise; 0 where it always does."""
        p = np.exp(self._probabilities(theta))
        gradient = self.rows.T @ (p - self.truth) @ self.basis + self.penalty * theta
        step = np.linalg.solve(self._curvature(p), gradient.reshape(len(theta), -1, 1)).reshape(theta.shape)
        before, shares = self._losses(theta), np.ones((len(theta), 1, 1))
        for _ in range(MOST_HALVES):
            risen = self._losses(theta - shares * step) > before + SLACK * np.abs(before)
            if not risen.any():
                return np.asarray(shares * step)
            shares[risen] /= 2
        shares[risen] = 0.0
        return np.asarray(shares * step)

    def _curvature(self, p: Array) -> Array:
        """Return the second derivatives, shape ``(H, size, size)`` with ``size = width (C − 1)``."""
        basis, x = self.basis, self.rows
        inner, free = p @ basis, basis.shape[1]
        middle = np.einsum("hnc,ca,cb->hnab", p, basis, basis) - inner[..., None] * inner[..., None, :]
        blocks = np.empty((len(p), x.shape[1], free, x.shape[1], free))
        for a in range(free):
            for b in range(free):
                blocks[:, :, a, :, b] = (x.T * middle[:, None, :, a, b]) @ x
        size = x.shape[1] * free
        blocks = blocks.reshape(len(p), size, size)
        blocks[:, range(size), range(size)] += np.repeat(self.penalty[..., 0], free, axis=1)
        return blocks
