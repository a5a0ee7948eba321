"""A linear head in closed form: ridge regressions between the sources' solution and the target's own.

Each sample is a row ``x`` of ``d`` numbers, the last of which is 1. A source sends sums over its rows, from
which the server solves for the sources' solution ``W_S = (Σ G_i + I)⁻¹ Σ M_i``. The target, with ``n``
labelled rows ``X``, starts there on two paths (see `fit_ridge`): *shrunk*, ``a W_S`` plus its own ridge
regression of strength ``λ`` on the rest, with ``a`` fitted; and *pooled*, the ridge regression of all rows,
with weight ``c`` on the sources'. Each head on a path has an exact leave-one-out error, without refitting:

``E(Z) = U D Uᵀ Z / diag(U D Uᵀ)``, where ``D = diag(λ/(s+λ))`` and ``K = U diag(s) Uᵀ``,

with the kernel ``K`` of the path, ``X Xᵀ`` or ``X (Σ G_i + I)⁻¹ Xᵀ``. The heads are averaged instead of
chosen, each with the weight ``ε^(−n/2)``, the likelihood of ``n`` normal errors of unknown variance, because
with few labels a choice is often wrong. All heads are linear, so the average is one head.

Rows of one unit, such as a patient's, tell of each other. So a unit is left out as a whole: its rows ``g``
have ``E_g = (U_g D U_gᵀ)⁻¹ (U D Uᵀ Z)_g``, which for one row is the formula above. Whatever is estimated from
such errors counts units: ``n`` is their number, ``ε`` the mean over them of each one's mean square. What is
held out of a unit of several rows has ``a``, weights and temperature from the errors of the others alone:
they are too few to be chosen and judged by the same ones.

References
----------
Allen, "The relationship between variable selection and data augmentation and a method for prediction",
Technometrics, 1974, for the leave-one-out error of ridge regression; Zhang, "Model selection via multifold
cross validation", Annals of Statistics 21, 1993, for several rows left out at once; Zhuang et al., "Analytic
federated learning", CVPR 2025, and Fanì et al., "Accelerating heterogeneous federated learning with
closed-form classifiers", ICML 2024 (Fed3R), for the sums of sources, which is the head ``c = 1``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.kernel import Kernel
from fda_flower.aggregation.labels import log_likelihood
from fda_flower.aggregation.sums import USUAL_TEMPERATURE, Array, factorised, solved
from fda_flower.aggregation.units import Units

Paths = Literal["both", "shrunk", "target", "sources", "pooled"]
"""Heads to average: those of both paths, or of *shrunk* alone; only ``a = 0``, the target alone; only
``W_S``; or only ``c = 1``, all rows pooled."""

PATHS: tuple[Paths, ...] = get_args(Paths)

STRENGTHS = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""``λ`` of the heads on the path *shrunk*."""

SOURCE_WEIGHTS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""``c`` of the heads on the path *pooled*."""

Which = tuple[str, float]
"""A head: its path, and ``λ`` for *shrunk* or ``c`` for *pooled*."""

HEADS: Mapping[str, tuple[Which, ...]] = {
    "both": (*(("shrunk", x) for x in STRENGTHS), *(("pooled", c) for c in SOURCE_WEIGHTS)),
    "shrunk": tuple(("shrunk", x) for x in STRENGTHS),
    "target": tuple(("target", x) for x in STRENGTHS),
    "sources": (("sources", 0.0),),
    "pooled": (("pooled", 1.0),),
}
"""All heads."""


def paths_of(paths: str) -> frozenset[str]:
    """Return the names of the paths with heads; none for other words than `PATHS`."""
    return frozenset(path for path, _ in HEADS.get(paths, ()))


LEAST_LABELS = 2
"""Smallest number of labelled units for leave-one-out."""

ROUNDING = 1e-13
"""Share of a sum up to which what is left of it without a part is rounding."""

TEMPERATURES = np.geomspace(0.5, 60, 40)
"""Candidate values of ``σ``."""

AT_ONCE = 2**15
"""Outputs at several ``σ`` that are computed together: more of them leave the cache."""


@dataclass(frozen=True)
class Head:
    """One head on a path, ``a W_S + back U c``, and its `residuals` of ``Y`` without a unit, ``(n, C)``.

    `share` is ``a``, of the head `start`, ``(d, C)``, and `coefficients` are ``c``, one row for each
    eigenvector of the path's kernel. In `judged`, the residuals of a unit of several rows have ``a`` from the
    others' alone.
    """

    path: "RegularizationPath"
    strength: float
    share: float
    start: Array
    coefficients: Array
    residuals: Array
    judged: Array

    @property
    def name(self) -> str:
        """The name in records, such as ``shrunk-0.1``."""
        return f"{self.path.name}-{self.strength:g}"

    @property
    def weights(self) -> Array:
        """The head itself, shape ``(d, C)``."""
        return self.path.mean([(1.0, self)])


@dataclass(frozen=True)
class RidgeFit:
    """A target's fitted heads, the weight of each, of sum 1, and `targets`, ``Y``, shape ``(n, C)``.

    `judged` are the residuals of their average without each unit, shape ``(n, C)``; see `weighed`.
    """

    heads: tuple[Head, ...]
    weights: Array
    targets: Array
    judged: Array

    @property
    def paths(self) -> dict[str, "RegularizationPath"]:
        """The paths of the heads, by name."""
        return {head.path.name: head.path for head in self.heads}

    @cached_property
    def head(self) -> Array:
        """The average of the heads, shape ``(d, C)``: outputs are ``x W``."""
        return np.asarray(np.sum([path.mean(self._of(name)) for name, path in self.paths.items()], axis=0))

    @property
    def held_out(self) -> Array:
        """The average of the heads' predictions for each row without its unit, shape ``(n, C)``."""
        return self.targets - self.judged

    @property
    def share(self) -> float | None:
        """``a``, a weighted mean over the heads of *shrunk*; None without such heads."""
        heads = self._of("shrunk")
        shares = [head.share for _, head in heads]
        return float(np.average(shares, weights=_weights(heads))) if heads else None

    @property
    def source_weight(self) -> float | None:
        """``c``, the weighted geometric mean over the heads of *pooled*; None without such heads."""
        heads = self._of("pooled")
        logarithms = [np.log(head.strength) for _, head in heads]
        return float(np.exp(np.average(logarithms, weights=_weights(heads)))) if heads else None

    def lost(self, rows: Array) -> Callable[[NDArray[np.intp]], Array]:
        """Return a function of a unit's rows: what outputs for `rows`, ``(m, d)``, lose without the unit.

        Its result, shape ``(m, C)``, is ``U (W − W_{−g})`` with the heads' weights and shares kept, since
        ``W − W_{−g} = back (K + λ)⁻¹[:, g] E_g`` of each head.
        """
        outputs = {name: rows @ path.back @ path.kernel.vectors for name, path in self.paths.items()}

        def without(unit: NDArray[np.intp]) -> Array:
            lost = np.zeros((len(rows), self.targets.shape[1]))
            for name, path in self.paths.items():
                heads = self._of(name)
                shrunk = np.stack([w / (path.kernel.values + head.strength) for w, head in heads], axis=1)
                left_out, vectors = (
                    np.stack([h.residuals[unit] for _, h in heads], axis=1),
                    path.kernel.vectors,
                )
                parts = [vectors[i][:, None] * (shrunk @ e) for i, e in zip(unit, left_out, strict=True)]
                lost += outputs[name] @ np.sum(parts, axis=0)
            return lost

        return without

    def levels(self, rows: Array, units: Units) -> Array:
        """Return the change of the mean output for `rows` without the unit of each labelled one, ``(n, C)``.

        Without a sample that has a label a head's outputs are lower, without one that has it not they are
        higher. So outputs of heads that each lack another unit rank worse than the outputs of any one,
        unless their levels are taken out (Airola et al., An experimental comparison of cross-validation
        techniques for estimating the area under the ROC curve, Computational Statistics & Data Analysis 55,
        2011).
        """
        lost, levels = self.lost(rows.mean(axis=0, keepdims=True)), np.empty_like(self.targets)
        for members in units.members:
            levels[members] = -lost(members)
        return levels

    def _of(self, path: str) -> list[tuple[float, Head]]:
        pairs = zip(self.weights.tolist(), self.heads, strict=True)
        return [(weight, head) for weight, head in pairs if head.path.name == path]


def _weights(heads: Sequence[tuple[float, Head]]) -> Array:
    """Return the weights of heads, equal ones if all have vanished."""
    weights = np.array([weight for weight, _ in heads])
    return weights if weights.sum() > 0 else np.ones(len(heads))


def _mean(weights: Array, arrays: Sequence[Array]) -> Array:
    return np.asarray(np.tensordot(weights, np.stack(arrays), 1))


def fit_ridge(
    rows: NDArray[np.floating],
    targets: Array,
    solution: Array,
    gram: Array | None = None,
    paths: Paths = "both",
    groups: NDArray[Any] | None = None,
    pooled: tuple[Array, Array] | None = None,
) -> RidgeFit:
    """Fit the target's heads, and weigh them.

    Parameters
    ----------
    rows, targets : array
        The target's labelled rows ``X``, shape ``(n, d)``, and their ``Y``, shape ``(n, C)``.
    solution : array
        ``W_S``, shape ``(d, C)``; or several, shape ``(k, d, C)``, with heads from each.
    gram : array, optional
        ``Σ G_i`` of the sources, shape ``(d, d)``; required for the path *pooled*.
    paths : str
        One of `PATHS`.
    groups : array, optional
        The unit of each row, such as a patient, shape ``(n,)``, which is left out as a whole. Default: each
        row is its own.
    pooled : tuple of array, optional
        ``L`` with ``L Lᵀ = Σ G_i + I``, and ``(L Lᵀ)⁻¹ Xᵀ``, if they are known already.

    Raises
    ------
    ValueError
        If there are too few units for leave-one-out, or `gram` is not positive definite.

    Examples
    --------
    >>> from fda_flower.aggregation import Sums, to_rows, to_targets
    >>> X, Y = to_rows(np.eye(4)), to_targets(np.array([0, 0, 1, 1]), 2)
    >>> fit = fit_ridge(X, Y, Sums.of(X, Y).solution(), X.T @ X)
    >>> len(fit.heads), (fit.held_out @ [1, -1] > 0).tolist()
    (17, [True, True, False, False])
    """
    x = np.asarray(rows, np.float64)
    units = Units.of(len(x), groups)
    if units.count < LEAST_LABELS:
        what = "rows" if units.single else f"rows of {units.count} unit"
        raise ValueError(f"{len(x)} labelled {what}, leaving one out needs {LEAST_LABELS}")
    heads: list[Head] = []
    solutions = list(np.asarray(solution, np.float64).reshape(-1, *solution.shape[-2:]))
    for name in dict.fromkeys(path for path, _ in HEADS[paths]):
        strengths = [strength for path, strength in HEADS[paths] if path == name]
        factor, back = _pooled(gram, pooled) if name == "pooled" else (None, None)
        path = RegularizationPath(x, name, factor, units, back)
        for start in [np.zeros_like(solutions[0])] if name == "target" else solutions:
            heads += path.heads(targets, start, strengths)
    weights, judged = weighed([head.judged for head in heads], units)
    return RidgeFit(tuple(heads), weights, targets, judged)


def _pooled(gram: Array | None, known: tuple[Array, Array] | None) -> tuple[Array, Array | None]:
    """Return ``L`` with ``L Lᵀ = Σ G_i + I`` and, if it is known, ``(L Lᵀ)⁻¹ Xᵀ``."""
    if known is not None:
        return known
    if gram is None:
        raise ValueError("the path 'pooled' needs the sources' sums of squares")
    return factorised(gram), None


def likelihoods(residuals: Sequence[Array], units: Units, power: float | None = None) -> Array:
    """Return weights proportional to ``ε^−p``, where ``ε`` is the mean square of each head's `residuals`.

    It is the mean over units of each one's. The `power` ``p`` is half the number of units by default.
    """
    errors = np.array([units.mean(np.square(each)) for each in residuals])
    return _from_errors(errors, units.count / 2 if power is None else power)


def _from_errors(errors: Array, power: float) -> Array:
    """Return the weights of heads along the last axis."""
    logarithms = -power * np.log(np.maximum(errors, np.finfo(np.float64).tiny))
    weights = np.exp(logarithms - logarithms.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def weighed(residuals: Sequence[Array], units: Units) -> tuple[Array, Array]:
    """Return the weights of heads by `likelihoods`, and their mean residuals, shape ``(n, C)``.

    A unit of several rows has the mean by the weights that follow from the other units.
    """
    weights = likelihoods(residuals, units)
    if units.single:
        return weights, _mean(weights, residuals)
    squares = np.stack([units.means(np.square(each)) for each in residuals], axis=1)
    others = (squares.sum(axis=0) - squares) / (units.count - 1)
    own = _from_errors(others, (units.count - 1) / 2)
    return weights, np.einsum("nh,hnc->nc", own[units.numbers], np.stack(residuals))


class RegularizationPath:
    """The ridge regressions with one kernel: ``W = a W_S + back (K + λ)⁻¹ (Y − a X W_S)``.

    `back` is ``Xᵀ`` or, with the `factor` ``L`` of *pooled*, ``(L Lᵀ)⁻¹ Xᵀ``, unless it is known. The path
    *sources* has no kernel: its head is ``W_S``. The `units` are left out; by default each row.
    """

    def __init__(
        self,
        rows: Array,
        name: str,
        factor: Array | None = None,
        units: Units | None = None,
        back: Array | None = None,
    ) -> None:
        self.rows, self.name = rows, name
        self.units = units or Units.of(len(rows))
        if back is None:
            back = rows.T if factor is None else solved(factor, rows.T)
        self.back = back
        self.kernel = Kernel.none(rows) if name == "sources" else Kernel.of(rows, self.back, factor)

    def left_out(self, strength: float, values: Array, projected: Array | None = None) -> Array:
        """Return ``E_λ(Z)``, the residuals of ``Z`` without each unit; same shape as `values`.

        `projected` is ``Uᵀ Z``, if it is known already.
        """
        projected = self.kernel.project(values) if projected is None else projected
        return self.kernel.left_out(strength, values, projected, self.units)

    def heads(self, targets: Array, start: Array, strengths: Sequence[float]) -> list[Head]:
        """Return the head of each strength, from the head `start`; only *shrunk* takes a share of it."""
        outputs, unshrunk = self.rows @ start, self.name in ("pooled", "sources")
        of_targets, of_outputs = self.kernel.project(targets), self.kernel.project(outputs)
        heads = []
        for strength in strengths:
            own = self.left_out(strength, targets, of_targets)
            started = self.left_out(strength, outputs, of_outputs) if start.any() else outputs
            share = 1.0 if unshrunk else fit_share(self.units.weighed(own), self.units.weighed(started))
            residuals = judged = own - share * started
            if not (unshrunk or self.units.single):
                without = _shares_without(own, started, self.units)[self.units.numbers]
                judged = own - without[:, None] * started
            coefficients = self.kernel.coefficients(strength, of_targets - share * of_outputs)
            heads.append(Head(self, strength, share, start, coefficients, residuals, judged))
        return heads

    def mean(self, heads: Sequence[tuple[float, Head]]) -> Array:
        """Return the sum of heads on this path, each times its weight, shape ``(d, C)``."""
        weights = np.array([weight for weight, _ in heads])
        coefficients = _mean(weights, [head.coefficients for _, head in heads])
        shares = weights * [head.share for _, head in heads]
        started = _mean(shares, [head.start for _, head in heads])
        return np.asarray(started + np.linalg.multi_dot([self.back, self.kernel.vectors, coefficients]))


def fit_share(own: Array, started: Array) -> float:
    """Return ``argmin ‖own − a started‖`` over ``a`` from 0 to 1.

    Examples
    --------
    >>> fit_share(np.array([[2.0], [1.0]]), np.array([[4.0], [0.0]]))
    0.5
    """
    square = float(np.square(started).sum())
    share = float((own * started).sum()) / square if square > 0 else 0.0
    return min(max(share, 0.0), 1.0)


def _shares_without(own: Array, started: Array, units: Units) -> Array:
    """Return the share that fits the rows of all other units, for each unit, shape ``(G,)``."""
    products, squares = units.means(own * started), units.means(np.square(started))
    rest = squares.sum() - squares
    some = rest > ROUNDING * squares.sum()
    shares = np.divide(products.sum() - products, rest, out=np.zeros(units.count), where=some)
    return np.asarray(np.clip(shares, 0.0, 1.0))


def fit_temperature(
    outputs: Array,
    labels: NDArray[Any],
    usual: float = USUAL_TEMPERATURE,
    units: Units | None = None,
) -> float:
    """Return ``σ``, which makes ``softmax(σ F)`` the probabilities of classes, or of several labels each.

    It minimises ``−Σ_i log p(y_i | σ F_i) + log²(σ/8)/2`` over `TEMPERATURES`, with the `log_likelihood` of
    `labels`; `outputs` are ``F``, shape ``(n, C)``, of rows that were left out. `usual` stands in place of 8.
    With `units` of several rows the sum is over units, of each one's mean.
    """
    units = units or Units.of(len(labels))
    pairs = zip(TEMPERATURES, _by_temperature(outputs, labels), strict=True)
    losses = [-units.sum(chosen) + np.log(sigma / usual) ** 2 / 2 for sigma, chosen in pairs]
    return float(TEMPERATURES[int(np.argmin(losses))])


def temperatures_without(outputs: Array, labels: NDArray[Any], usual: float, units: Units) -> Array:
    """Return for each row the ``σ`` that fits the labels of all other units, shape ``(n, 1)``."""
    losses = np.stack([-units.means(chosen) for chosen in _by_temperature(outputs, labels)])
    others = losses.sum(axis=1, keepdims=True) - losses + np.log(TEMPERATURES / usual)[:, None] ** 2 / 2
    return np.asarray(TEMPERATURES[others.argmin(axis=0)][units.numbers, None])


def _by_temperature(outputs: Array, labels: NDArray[Any]) -> Array:
    """Return the `log_likelihood` of outputs times each of `TEMPERATURES`, shape ``(T, n)``."""
    number = len(TEMPERATURES)
    parts = np.array_split(TEMPERATURES, min(number, 1 + number * outputs.size // AT_ONCE))
    return np.concatenate([log_likelihood(part[:, None, None] * outputs, labels) for part in parts])
