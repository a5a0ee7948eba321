"""A target's logistic heads, which start from the sources' ridge regression.

From the sources' sums over rows ``x`` follow their outputs ``o(x) = x W_S`` (see
`fda_flower.aggregation.ridge`). They are the target's up to a scale, and to the classes' frequencies. So a
head of the target has the logits

``τ o(x) + xᵀV``,

where ``V`` minimises, over the labels ``y`` of its rows,

``−Σ_i s_i log softmax(τ o(x_i) + x_iᵀV)[y_i] + λ/2 ‖V‖²``,

with ``1/49`` in place of ``λ`` for the last row of ``V``, the constant. Rows of one unit, such as a
patient's, share its weight: ``s_i`` is 1 over their number. There is a head for each ``τ`` and ``λ``; with
``τ = 0`` it is one of the target alone. With several kinds of rows each has these heads.

The heads are averaged, not chosen. Parts of the units are left out in turn, and ``ℓ_h`` is the log-likelihood
of what head ``h`` has not seen, the sum over units of each one's mean. Then its weight is
``w_h ∝ π_h exp(ℓ_h/2)``, where ``π`` gives half of the weight beforehand to the target alone. The average,
``softmax(Σ_h w_h log p_h(x))``, is one linear layer. What is held out of a unit is averaged with the weights
that follow from the others.

All heads of a kind are fitted at once by Newton's method. Conjugate gradients solve its steps, in the rows'
principal axes, where the curvature is nearly diagonal: no matrix is larger than the rows.

References
----------
Zhang, "Model selection via multifold cross validation", Annals of Statistics 21, 1993, for rows that are left
out together; Friedman, Hastie and Tibshirani, "Additive logistic regression", Annals of Statistics 28, 2000,
for Newton's method on log-odds that start from other outputs; Lin, Weng and Keerthi, "Trust region Newton
method for large-scale logistic regression", JMLR 9, 2008, for its steps by conjugate gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.mixture import log_softmax, stratified_folds
from fda_flower.aggregation.ridge import HEADS, LEAST_LABELS, Paths
from fda_flower.aggregation.ridge_kinds import Kind
from fda_flower.aggregation.sums import USUAL_TEMPERATURE
from fda_flower.aggregation.units import Units

Array = NDArray[np.float64]

SCALES = (0.0, 2.0, 4.0)
"""``τ``; with 0 a head is the target's alone."""

STRENGTHS = (1.0, 3.0, 10.0, 100.0, 1000.0)
"""``λ``, for rows of about unit length."""

Heads = Literal[Paths, "logistic"]
"""What a target averages: the ridge regressions of `Paths`, or the heads of this module."""

LOGISTIC_HEADS = tuple((scale, strength) for scale in SCALES for strength in STRENGTHS)
"""``τ`` and ``λ`` of the heads of a kind."""

CONSTANT = 1 / 49
"""The strength of the constant."""

FOLDS = 10
"""Parts of the units, each of which is left out once."""

MOST_STEPS, MOST_TURNS, MOST_HALVES = 50, 200, 30
"""Steps of Newton's method, turns of conjugate gradients in one, and halvings of one."""

ACCURACY, EXACT, SLACK = 1e-3, 1e-9, 1e-12
"""What is left of a gradient after a step, the largest number of the last one, and rounding of a loss."""


@dataclass(frozen=True)
class LogisticFit:
    """A target's averaged logistic heads.

    Attributes
    ----------
    heads, alone : list of array
        Of each kind of rows, shape ``(d_k, C)``: logits are ``Σ_k x_k W_k``. The second are the average over
        the heads of the target alone.
    held_out, held_out_alone : array
        Log-probabilities of each row by both averages, of heads that have not seen its unit, ``(n, C)``.
    ranked, ranked_alone : array
        The same less each head's mean over all rows: heads without one part of the units have another level
        than heads without another, so that rows rank worse among all parts than by any one head; see
        `fda_flower.aggregation.ridge.RidgeFit.levels`.
    shares : array
        ``w_h``, of sum 1: a row for each kind, in the order of `LOGISTIC_HEADS`.
    """

    heads: list[Array]
    alone: list[Array]
    held_out: Array
    held_out_alone: Array
    ranked: Array
    ranked_alone: Array
    shares: Array

    @property
    def weights(self) -> dict[str, float]:
        """The weights by name, each over all kinds."""
        return dict(zip(names_of_heads("logistic"), self.shares.sum(axis=0).tolist(), strict=True))

    @property
    def share(self) -> float:
        """The weight of the heads that start from the sources."""
        return float(self.shares[:, len(STRENGTHS) :].sum())


def names_of_heads(heads: Heads) -> list[str]:
    """Return the names of the averaged heads in order.

    Examples
    --------
    >>> names_of_heads("pooled"), names_of_heads("logistic")[4:6]
    (['pooled-1'], ['alone-1000', 'logistic-2-1'])
    """
    if heads != "logistic":
        return [f"{path}-{strength:g}" for path, strength in HEADS[heads]]
    paths = [(f"logistic-{tau:g}" if tau else "alone", strength) for tau, strength in LOGISTIC_HEADS]
    return [f"{path}-{strength:g}" for path, strength in paths]


def usual_factor(heads: Heads) -> float:
    """Return the factor on the sources' outputs that makes them logits without any label.

    With the logistic heads it is the mean of ``τ``, without the ones of the target alone.

    Examples
    --------
    >>> usual_factor("logistic"), usual_factor("both")
    (3.0, 8.0)
    """
    return float(np.mean([tau for tau in SCALES if tau])) if heads == "logistic" else USUAL_TEMPERATURE


def fit_logistic(
    kinds: Sequence[Kind],
    labels: NDArray[np.integer],
    groups: NDArray[Any] | None = None,
    seed: int = 0,
) -> LogisticFit:
    """Fit the target's logistic heads, and weigh them.

    Parameters
    ----------
    kinds : sequence of Kind
        Kinds of rows of the same labelled samples, each with a 1 at the end, and their ``W_S``.
    labels : array
        Classes, shape ``(n,)``.
    groups : array, optional
        The unit of each row, such as a patient, shape ``(n,)``, which is left out as a whole. Default: each
        row is its own.
    seed : int
        Of the order in which units are dealt to parts.

    Raises
    ------
    ValueError
        If there are fewer than two units.

    Examples
    --------
    >>> from fda_flower.aggregation import to_rows
    >>> rows, labels = to_rows(np.eye(2)[[0, 1] * 4]), np.array([0, 1] * 4)
    >>> fit = fit_logistic([Kind(rows, np.array([[0.5, -0.5], [-0.5, 0.5], [0, 0]]))], labels)
    >>> fit.held_out.argmax(axis=1).tolist(), round(fit.share, 2)
    ([0, 1, 0, 1, 0, 1, 0, 1], 0.85)
    """
    units = Units.of(len(labels), groups)
    if units.count < LEAST_LABELS:
        raise ValueError(
            f"{len(labels)} labelled rows of {units.count} unit, leaving one out needs {LEAST_LABELS}"
        )
    folds = stratified_folds(labels, FOLDS, seed, groups)
    fits = [_fit_kind(kind, labels, units.shares, folds) for kind in kinds]
    held_out, levels = (np.concatenate(each) for each in zip(*(parts for _, *parts in fits), strict=True))
    chosen = np.stack([units.means(each) for each in held_out[:, np.arange(len(labels)), labels]])
    alone = np.tile([scale == 0 for scale, _ in LOGISTIC_HEADS], len(kinds))
    both = np.log(np.where(alone, (~alone).sum() / alone.sum(), 1.0)), np.where(alone, 0.0, -np.inf)
    averages = [_weighed(chosen, beforehand) for beforehand in both]
    rows, ranked = (
        [np.einsum("hn,hnc->nc", without[:, units.numbers], each) for _, without in averages]
        for each in (held_out, held_out - levels)
    )
    shares, own = (weights.reshape(len(kinds), -1) for weights, _ in averages)
    return LogisticFit(
        heads=[np.tensordot(each, heads, 1) for each, (heads, *_) in zip(shares, fits, strict=True)],
        alone=[np.tensordot(each, heads, 1) for each, (heads, *_) in zip(own, fits, strict=True)],
        held_out=log_softmax(rows[0]),
        held_out_alone=log_softmax(rows[1]),
        ranked=ranked[0],
        ranked_alone=ranked[1],
        shares=shares,
    )


def _fit_kind(
    kind: Kind, labels: NDArray[np.integer], shares: Array, folds: NDArray[np.int64]
) -> tuple[Array, Array, Array]:
    """Return the heads of a kind, ``(H, d, C)``, what they say of rows that are left out, and its levels.

    The second are each row's log-probabilities by heads without its part, the third these heads' means over
    all rows, both of shape ``(H, n, C)``.
    """
    scales, strengths = (np.array(each) for each in zip(*LOGISTIC_HEADS, strict=True))
    outputs = kind.rows @ kind.solution
    newton = _Newton.of(kind.rows, scales[:, None] * outputs[:, None], labels, strengths, shares)
    held_out = np.empty((len(scales), *outputs.shape))
    levels = np.empty_like(held_out)
    for fold in np.unique(folds):
        left = folds == fold
        part = newton.of_rows(~left)
        of_all = log_softmax(newton.logits(part.minimum())).swapaxes(0, 1)
        held_out[:, left], levels[:, left] = of_all[:, left], of_all.mean(axis=1, keepdims=True)
    return scales[:, None, None] * kind.solution + newton.coefficients(), held_out, levels


def _weighed(chosen: Array, beforehand: Array) -> tuple[Array, Array]:
    """Return the heads' weights, shape ``(H,)``, and the ones by all units but one, ``(H, G)``.

    `chosen` has the log-likelihood of each unit by each head, shape ``(H, G)``, and `beforehand` ``log π``.
    """
    total = chosen.sum(axis=1, keepdims=True)
    logarithms = np.hstack([total, total - chosen]) / 2 + beforehand[:, None]
    weights = np.exp(logarithms - logarithms.max(axis=0))
    weights /= weights.sum(axis=0)
    return weights[:, 0], weights[:, 1:]


def minimised(
    rows: Array,
    offsets: Array,
    labels: NDArray[np.integer],
    strengths: Sequence[float] | Array,
    shares: Array | None = None,
) -> Array:
    """Return ``V`` of heads, shape ``(H, d, C)``.

    Parameters
    ----------
    rows : array
        ``x``, shape ``(n, d)``, with a 1 at the end.
    offsets : array
        ``τ o(x)`` of each row and head, shape ``(n, H, C)``.
    labels : array
        Classes, shape ``(n,)``.
    strengths : sequence of float
        ``λ`` of each head.
    shares : array, optional
        ``s``, shape ``(n,)``; 1 by default.
    """
    shares = np.ones(len(rows)) if shares is None else shares
    return _Newton.of(rows, offsets, labels, np.asarray(strengths, np.float64), shares).coefficients()


@dataclass(frozen=True)
class _Newton:
    """Newton's method for all heads at once, on rows in their principal axes, with the 1 at the end.

    Numbers of rows and heads have the shape ``(n, H, C)``, coefficients ``(width, H, C)``. `back` turns the
    latter into the ones of the rows as they came, shape ``(d, width)``; `squares` has the sum of the squares
    of each axis, shape ``(width, 1)``, and `penalty` the strengths, ``(width, H)``.
    """

    rows: Array
    back: Array
    squares: Array
    penalty: Array
    offsets: Array
    truth: Array
    shares: Array

    @classmethod
    def of(
        cls, rows: Array, offsets: Array, labels: NDArray[np.integer], strengths: Array, shares: Array
    ) -> "_Newton":
        """Return the problem of some rows; see `minimised`."""
        x = np.asarray(rows, np.float64)[:, :-1]
        _, sizes, axes = np.linalg.svd(np.sqrt(shares)[:, None] * x, full_matrices=False)
        back = np.zeros((x.shape[1] + 1, len(axes) + 1))
        back[:-1, :-1], back[-1, -1] = axes.T, 1.0
        penalty = np.tile(strengths, (len(axes) + 1, 1))
        penalty[-1] = CONSTANT
        return cls(
            np.hstack([x @ axes.T, np.ones((len(x), 1))]),
            back,
            np.append(sizes**2, shares.sum())[:, None],
            penalty,
            offsets,
            np.eye(offsets.shape[-1])[labels],
            shares,
        )

    def of_rows(self, chosen: NDArray[np.bool_]) -> "_Newton":
        """Return the same of some of the rows."""
        parts = (each[chosen] for each in (self.offsets, self.truth, self.shares))
        return _Newton(self.rows[chosen], self.back, self.squares, self.penalty, *parts)

    def coefficients(self) -> Array:
        """Return the minimum for rows as they came, shape ``(H, d, C)``."""
        return _times(self.back, self.minimum()).swapaxes(0, 1)

    def minimum(self) -> Array:
        """Return the coefficients at the minimum."""
        theta = np.zeros((self.rows.shape[1], *self.offsets.shape[1:]))
        for _ in range(MOST_STEPS):
            step = self._step(theta)
            theta = theta - step
            if np.abs(step).max(initial=0.0) < EXACT:
                break
        return theta

    def logits(self, theta: Array) -> Array:
        """Return the logits of all rows."""
        return np.asarray(self.offsets + _times(self.rows, theta))

    def _losses(self, theta: Array) -> Array:
        chosen = np.einsum("nhc,nc,n->h", log_softmax(self.logits(theta)), self.truth, self.shares)
        return np.asarray(_inner(self.penalty[..., None] * theta, theta) / 2 - chosen)

    def _step(self, theta: Array) -> Array:
        """Return Newton's step of each head, halved until its loss does not rise; 0 where it always does."""
        curvature = _Curvature(self, np.exp(log_softmax(self.logits(theta))))
        excess = self.shares[:, None, None] * (curvature.p - self.truth[:, None])
        step = curvature.solved(_times(self.rows.T, excess) + self.penalty[..., None] * theta)
        before, parts = self._losses(theta), np.ones((step.shape[1], 1))
        for _ in range(MOST_HALVES):
            risen = self._losses(theta - parts * step) > before + SLACK * np.abs(before)
            if not risen.any():
                return np.asarray(parts * step)
            parts[risen] /= 2
        parts[risen] = 0.0
        return np.asarray(parts * step)


@dataclass(frozen=True)
class _Curvature:
    """The second derivatives of the heads' losses, where rows have the probabilities ``p``, ``(n, H, C)``."""

    of: _Newton
    p: Array

    def __matmul__(self, v: Array) -> Array:
        outputs = self.p * _times(self.of.rows, v)
        outputs -= self.p * outputs.sum(axis=-1, keepdims=True)
        outputs *= self.of.shares[:, None, None]
        return np.asarray(_times(self.of.rows.T, outputs) + self.of.penalty[..., None] * v)

    @cached_property
    def diagonal(self) -> Array:
        """Nearly the diagonal, shape ``(width, H, 1)``: rows have the mean of the numbers of ``p − p pᵀ``."""
        means = self.of.shares @ (1 - np.square(self.p).sum(axis=-1)) / self.of.shares.sum()
        nearly = self.of.squares * means / max(self.p.shape[-1] - 1, 1) + self.of.penalty
        return np.asarray(nearly[..., None])

    def solved(self, gradient: Array) -> Array:
        """Return the steps that leave `ACCURACY` of a gradient, by conjugate gradients."""
        step, rest = np.zeros_like(gradient), gradient
        direction = rest / self.diagonal
        before = _inner(rest, direction)
        enough = ACCURACY**2 * before
        for _ in range(MOST_TURNS):
            changed = self @ direction
            length = _ratio(before, _inner(direction, changed))
            step, rest = step + length * direction, rest - length * changed
            after = _inner(rest, rest / self.diagonal)
            if (after <= enough).all():
                break
            direction = rest / self.diagonal + _ratio(after, before) * direction
            before = after
        return step


def _times(matrix: Array, values: Array) -> Array:
    """Return the product with a matrix over the first axis, for all heads and classes at once."""
    return np.asarray((matrix @ values.reshape(len(values), -1)).reshape(-1, *values.shape[1:]))


def _inner(one: Array, other: Array) -> Array:
    """Return the inner product of each head, shape ``(H,)``."""
    return np.asarray(np.einsum("whc,whc->h", one, other))


def _ratio(above: Array, below: Array) -> Array:
    """Return the ratio of each head, shape ``(H, 1)``; 0 where nothing is left."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)[:, None]
