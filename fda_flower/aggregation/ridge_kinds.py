"""Ridge on several kinds of rows of the same samples, and on the target's samples without labels.

The features of a pretrained body, of a second one, and an image's pixels are kinds of rows. The target fits
each kind as in `fda_flower.aggregation.ridge`, and averages their outputs. With rows ``U`` of samples without
labels, it fits a second time, as if the averaged probabilities were their labels. The first fit and the
second are averaged by their likelihood on labels that both have left out.

In the second fit a head of a kind with the strengths ``κ``, ``u`` and ``λ`` is the ridge regression

``V = (Λ + XᵀX/λ)⁻¹ (κ M + u UᵀT + XᵀY/λ)``, where ``Λ = κ (G + I) + u UᵀU + I``,

with the sources' sums ``G`` and ``M``, the labelled rows ``X`` with their ``Y``, and ``T`` the probabilities
minus ``1/C``. These depend on each label, and so does the head through them. Its residuals without the rows
``g`` of a unit take that into account, and are exact:

``E_g = Q_gg⁻¹ f_g``, ``f = Q (Y − X Λ⁻¹ (κ M + u UᵀT_{−g}))``, where ``Q = (X Λ⁻¹ Xᵀ + λ)⁻¹``

and ``T_{−g}`` is ``T`` of a first fit without the labels ``g``, with its weights and temperatures kept. If
rows ``U_g`` are the same unit's, as a patient's scans without labels, they are left out, too:

``[[Q_gg, −R], [−Rᵀ, u − u² U_g A⁻¹ U_gᵀ]] [E_g, E_U] = [f_g, −u U_g V_{−g}]``, ``R = u (Q X Λ⁻¹ U_gᵀ)_g``,

with ``A = Λ + XᵀX/λ``, and ``V_{−g}`` the head from ``T_{−g}`` that is 0 for the rows ``U_g``. It is
``(I − H)⁻¹`` times the residuals of a unit's rows, as in `fda_flower.aggregation.ridge`, for both kinds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.features import shape_of_head
from fda_flower.aggregation.kernel import Kernel
from fda_flower.aggregation.labels import log_likelihood
from fda_flower.aggregation.mixture import log_softmax
from fda_flower.aggregation.ridge import (
    Paths,
    RidgeFit,
    fit_ridge,
    fit_temperature,
    likelihoods,
    paths_of,
    weighed,
)
from fda_flower.aggregation.sums import USUAL_TEMPERATURE, Array, factorised, solved
from fda_flower.aggregation.units import Units, shared
from fda_flower.aggregation.updates import Layers

STARTS = ((0.1, 1.0), (0.1, 3.0))
"""``κ`` and ``u``, the weights of the sources' rows and of the rows without labels, in the second fit."""

STRENGTHS = (0.1, 0.3, 1.0)
"""``λ`` in the second fit."""

SCALED = 1.0
"""The usual temperature of outputs that are scaled already, kind by kind."""

MOST_KINDS = 8
"""Networks whose features a run may combine."""

MOST_LABELS = 64
"""More labelled units than these make the weights of kinds no sharper."""


WIDTHS = "rows.widths"
"""The array of a linear model that has the number of features of each kind; without it there is one kind."""


def widths_of(model: Layers) -> list[int]:
    """Return the number of features of each kind of rows of a linear model.

    Raise a `ValueError` if they are not the parts of the model's features.

    Examples
    --------
    >>> model = {"rows.widths": np.array([2, 3]), "head.weight": np.zeros((4, 5)), "head.bias": np.zeros(4)}
    >>> widths_of(model)
    [2, 3]
    """
    _, features = shape_of_head(model)
    if WIDTHS not in model:
        return [features]
    widths = [int(width) for width in np.atleast_1d(model[WIDTHS])]
    if min(widths, default=0) < 1 or sum(widths) != features:
        raise ValueError(f"{WIDTHS} is {widths}, but a row has {features} features")
    return widths


def split_rows(rows: NDArray[np.floating], widths: Sequence[int]) -> list[Array]:
    """Return the rows of each kind, each with its own 1 at the end, from rows of all kinds with one 1.

    Examples
    --------
    >>> first, second = split_rows(np.array([[0.6, 0.8, 0.5, 1.0]]), [2, 1])
    >>> first, second
    (array([[0.6, 0.8, 1. ]]), array([[0.5, 1. ]]))
    """
    x, ends = np.asarray(rows, np.float64), np.cumsum(widths)
    if len(ends) == 1:
        return [x]
    kinds = np.split(x[:, :-1], ends[:-1], axis=1)
    return [np.hstack([kind, x[:, -1:]]) for kind in kinds]


def joined_head(heads: Sequence[Array], widths: Sequence[int]) -> Array:
    """Return the head on rows of all kinds from the ones on each; a kind without a head counts for nothing.

    Examples
    --------
    >>> joined_head([np.array([[1.0], [2.0]])], [1, 1])
    array([[1.],
           [0.],
           [2.]])
    """
    if len(widths) == 1:
        return heads[0]
    missing = [np.zeros((width, heads[0].shape[1])) for width in widths[len(heads) :]]
    constant = np.sum([head[-1:] for head in heads], axis=0)
    return np.vstack([*(head[:-1] for head in heads), *missing, constant])


def with_kinds(arrays: Sequence[Layers]) -> dict[str, NDArray[Any]]:
    """Return arrays of several kinds as they travel: from the second kind on, ``k`` = 1, as ``NAME.k``."""
    return {
        f"{name}.{k}" if k else name: array for k, each in enumerate(arrays) for name, array in each.items()
    }


def by_kind(layers: Layers) -> list[dict[str, NDArray[Any]]]:
    """Return the arrays of each kind; see `with_kinds`."""
    kinds: list[dict[str, NDArray[Any]]] = [{}]
    for name, array in layers.items():
        own, dot, k = name.rpartition(".")
        number = int(k) if dot and k.isdecimal() else 0
        while len(kinds) <= min(number, MOST_KINDS):
            kinds.append({})
        kinds[min(number, MOST_KINDS)][own if number else name] = array
    return kinds


@dataclass(frozen=True)
class Kind:
    """One kind of rows of a target's samples, and what the sources have of it.

    Attributes
    ----------
    rows : array
        Of the labelled samples, shape ``(n, d)``.
    solution, gram : array
        ``W_S`` and ``Σ G_i``; see `fit_ridge`. Without the latter, the second fit has ``κ = 0``.
    unlabelled : array
        Rows of the samples without labels, shape ``(m, d)``.
    """

    rows: Array
    solution: Array
    gram: Array | None = None
    unlabelled: Array = field(default_factory=lambda: np.zeros((0, 0)))

    @cached_property
    def pooled(self) -> tuple[Array, Array] | None:
        """``L`` with ``L Lᵀ = Σ G_i + I``, and ``(L Lᵀ)⁻¹ Xᵀ``; None without a `gram`."""
        if self.gram is None:
            return None
        factor = factorised(self.gram)
        return factor, solved(factor, self.rows.T)

    def of_rows(self, chosen: NDArray[np.bool_]) -> "Kind":
        """Return the kind with some of the labelled rows, and none without labels."""
        part = Kind(self.rows[chosen], self.solution, self.gram)
        if self.pooled is not None:  # slow to compute
            factor, back = self.pooled
            vars(part)["pooled"] = factor, np.ascontiguousarray(back[:, chosen])
        return part


@dataclass(frozen=True)
class KindsFit:
    """A target's fit to kinds of rows.

    Attributes
    ----------
    heads : list of array
        Of each kind, shape ``(d_k, C)``: the outputs are ``Σ_k x_k W_k``.
    held_out : array
        The outputs for the labelled rows, each without its unit, shape ``(n, C)``.
    fits : list of RidgeFit
        The first fit of each kind.
    shares : array
        The weight of each kind, of sum 1.
    unlabelled : float or None
        ``b``, the weight of the second fit, from 0 to 1; None without one.
    usual : float
        The usual temperature of these outputs.
    factors : array, optional
        By which the heads of the first fits are multiplied in `heads`. Default: 1.
    """

    heads: list[Array]
    held_out: Array
    fits: list[RidgeFit]
    shares: Array
    unlabelled: float | None = None
    usual: float = SCALED
    factors: Array | None = None

    def ranked(self, kinds: Sequence[Kind], units: Units) -> Array:
        """Return `held_out` without the levels of the heads that lack a unit; see `RidgeFit.levels`.

        There must be no second fit.
        """
        factors = np.ones(len(kinds)) if self.factors is None else self.factors
        triples = zip(factors.tolist(), self.fits, kinds, strict=True)
        levels = [factor * fit.levels(kind.rows, units) for factor, fit, kind in triples]
        return np.asarray(self.held_out - np.sum(levels, axis=0))


def fit_kinds(
    kinds: Sequence[Kind],
    targets: Array,
    labels: NDArray[Any] | None,
    paths: Paths = "both",
    groups: NDArray[Any] | None = None,
    unlabelled_groups: NDArray[Any] | None = None,
) -> KindsFit:
    """Fit the target's heads to each kind of rows and, if there are any, to the rows without labels.

    One kind without them is `fit_ridge`, to the bit.

    Parameters
    ----------
    kinds : sequence of Kind
        At least one; all of the same samples.
    targets : array
        ``Y``, shape ``(n, C)``.
    labels : array or None
        The classes of the labelled rows, shape ``(n,)``, or several labels, 0 or 1, ``(n, L)``, which take
        no rows without labels; None for a regression, whose kinds have no temperature and which takes none.
    paths : str
        As for `fit_ridge`. Only both paths, or *shrunk*, use rows without labels.
    groups, unlabelled_groups : array, optional
        The unit of each labelled row, as for `fit_ridge`, and of each row without a label, shape ``(m,)``, in
        the same numbers. Default: each row is its own.

    Raises
    ------
    ValueError
        For the reasons of `fit_ridge`.
    """
    pools = "pooled" in paths_of(paths)
    fits = [
        fit_ridge(k.rows, targets, k.solution, k.gram, paths, groups, k.pooled if pools else None)
        for k in kinds
    ]
    twice = len(kinds[0].unlabelled) > 0 and paths in ("both", "shrunk")
    classes = labels if twice and labels is not None and labels.ndim == 1 else None
    if len(kinds) == 1 and classes is None:
        return KindsFit([fits[0].head], fits[0].held_out, fits, np.ones(1), usual=USUAL_TEMPERATURE)
    units = Units.of(len(targets), groups)
    first = _Stage.of([fit.head for fit in fits], [fit.held_out for fit in fits], targets, labels, units)
    if classes is not None:
        rest = shared(groups, unlabelled_groups, units)
        return _Second(kinds, targets, classes, fits, first, units, rest).mixed()
    return KindsFit(first.heads, first.held_out, fits, first.shares, factors=first.factors)


@dataclass(frozen=True)
class _Stage:
    """One fit: heads of each kind, scaled and weighed, their leave-one-out outputs, and the factors."""

    heads: list[Array]
    held_out: Array
    shares: Array
    factors: Array

    @classmethod
    def of(
        cls,
        heads: Sequence[Array],
        held_out: Sequence[Array],
        targets: Array,
        labels: NDArray[Any] | None,
        units: Units,
        shares: Array | None = None,
    ) -> "_Stage":
        """Return a fit of several kinds; `shares` follow from their errors if they are not given."""
        if shares is None:
            power = min(units.count, MOST_LABELS) / 4
            shares = likelihoods([targets - each for each in held_out], units, power)
        scales = [1.0 if labels is None else fit_temperature(each, labels, units=units) for each in held_out]
        factors = shares * np.array(scales)
        pairs = list(zip(factors.tolist(), heads, held_out, strict=True))
        total = np.sum([factor * each for factor, _, each in pairs], axis=0)
        return cls([factor * head for factor, head, _ in pairs], total, shares, factors)

    def loss(self, labels: NDArray[np.integer], units: Units) -> tuple[float, float]:
        """Return a fit's temperature, and its loss on the labels that it has left out, unit by unit."""
        factor = fit_temperature(self.held_out, labels, SCALED, units)
        chosen = log_likelihood(factor * self.held_out, labels)
        return factor, float(np.log(factor / SCALED) ** 2 / 2 - units.sum(chosen))


@dataclass(frozen=True)
class _Second:
    """The second fit, on rows with and without labels; each of the `units` has some of the `rest`."""

    kinds: Sequence[Kind]
    targets: Array
    labels: NDArray[np.integer]
    fits: Sequence[RidgeFit]
    first: _Stage
    units: Units
    rest: Sequence[NDArray[np.intp]]

    def mixed(self) -> KindsFit:
        """Return both fits, averaged by likelihood."""
        before, first_loss = self.first.loss(self.labels, self.units)
        outputs = np.sum(
            [kind.unlabelled @ head for kind, head in zip(self.kinds, self.first.heads, strict=True)], axis=0
        )
        regressions = [
            _Regression(kind, start, self.targets, _pseudo(before * outputs), self.units, self.rest)
            for kind in self.kinds
            for start in STARTS
        ]
        self._leave_out(regressions, before, outputs)
        heads, held_out = [], []
        for k in range(len(self.kinds)):
            own = regressions[k * len(STARTS) : (k + 1) * len(STARTS)]
            residuals = np.concatenate([each.residuals for each in own])
            weights, judged = weighed(list(residuals), self.units)
            heads.append(np.tensordot(weights, np.concatenate([each.heads for each in own]), 1))
            held_out.append(self.targets - judged)
        second = _Stage.of(heads, held_out, self.targets, self.labels, self.units, self.first.shares)
        after, second_loss = second.loss(self.labels, self.units)
        share = 1 / (1 + exp(min(second_loss - first_loss, 700.0)))
        both = ((1 - share) * before, self.first), (share * after, second)
        return KindsFit(
            [_total(both, [stage.heads[k] for _, stage in both]) for k in range(len(self.kinds))],
            _total(both, [stage.held_out for _, stage in both]),
            list(self.fits),
            self.first.shares,
            share,
        )

    def _leave_out(self, regressions: Sequence["_Regression"], before: float, outputs: Array) -> None:
        """Let each regression leave out every unit, and what its labels have told the probabilities."""
        lost: list[Callable[[NDArray[np.intp]], Array]] = [
            fit.lost(kind.unlabelled) for fit, kind in zip(self.fits, self.kinds, strict=True)
        ]
        factors = self.first.factors.tolist()
        for unit, rows in enumerate(self.units.members):
            without = outputs - np.sum(
                [factor * each(rows) for factor, each in zip(factors, lost, strict=True)], axis=0
            )
            left_out = _pseudo(before * without)
            for regression in regressions:
                regression.leave_out(unit, left_out)


def _total(both: Sequence[tuple[float, _Stage]], arrays: Sequence[Array]) -> Array:
    """Return the sum of an array of each fit, times its factor."""
    return np.asarray(np.sum([f * array for (f, _), array in zip(both, arrays, strict=True)], axis=0))


def _pseudo(outputs: Array) -> Array:
    """Return probabilities minus ``1/C``."""
    return np.asarray(np.exp(log_softmax(outputs)) - 1 / outputs.shape[1])


Rows = NDArray[np.intp] | slice


class _Regression:
    """The heads of one kind of rows with one ``κ`` and ``u``, for each of `STRENGTHS`.

    `heads` has shape ``(len(STRENGTHS), d, C)``, `residuals` ``(len(STRENGTHS), n, C)``; the latter are those
    without a unit as soon as `leave_out` has been called for it.
    """

    def __init__(
        self,
        kind: Kind,
        start: tuple[float, float],
        targets: Array,
        pseudo: Array,
        units: Units,
        rest: Sequence[NDArray[np.intp]],
    ) -> None:
        x, unlabelled, (kappa, u) = kind.rows, kind.unlabelled, start
        metric, products = u * (unlabelled.T @ unlabelled), u * (unlabelled.T @ pseudo)
        known = np.zeros_like(products)
        if kind.gram is not None:
            of_sources = kind.gram + np.eye(len(kind.gram))
            metric, known = metric + kappa * of_sources, kappa * (of_sources @ kind.solution)
        factor = factorised(metric)
        solutions = solved(factor, np.hstack([x.T, known, known + products]))
        back, from_known, base = np.split(solutions, [len(x), len(x) + targets.shape[1]], axis=1)
        kernel = Kernel.of(x, back, factor)
        self._inverses = [kernel.inverse(strength) for strength in STRENGTHS]
        self._members, self._rest = units.members, rest
        lefts = np.stack([each.left for each in self._inverses])
        self._through: tuple[Array, Array | None]
        if kernel.thin:
            self._through = lefts, u * (kernel.vectors.T @ back.T) @ unlabelled.T
        else:
            self._through = u * lefts @ (back.T @ unlabelled.T), None
        self.heads = np.stack([base + back @ (each @ (targets - x @ base)) for each in self._inverses])
        self.residuals = np.stack([each @ (targets - x @ from_known) for each in self._inverses])
        if any(map(len, rest)):
            self._both = _BothLeftOut(kind, u, targets, factor, back, from_known, rest)

    def through(self, rows: Rows, rest: Rows = slice(None)) -> Array:
        """Return ``u Q X Λ⁻¹ Uᵀ`` of some rows with and without labels, for each strength."""
        left, right = self._through
        return left[:, rows][:, :, rest] if right is None else left[:, rows] @ right[:, rest]

    def leave_out(self, unit: int, pseudo: Array) -> None:
        """Leave a unit out; `pseudo` is ``T_{−g}``, shape ``(m, C)``."""
        rows, rest = self._members[unit], self._rest[unit]
        own = np.stack([each.block(rows) for each in self._inverses])
        if len(rest):
            pseudo = np.array(pseudo)
            pseudo[rest] = 0.0
        residuals = self.residuals[:, rows]
        known_part = np.stack([[row @ pseudo for row in each] for each in self.through(rows)])
        if len(rest):
            through = self.through(slice(None), rest)
            residuals = self._both.residuals(unit, rows, own, residuals - known_part, through, pseudo)
        elif len(rows) > 1:
            residuals = np.linalg.solve(own, residuals - known_part)
        else:
            residuals = residuals / own - known_part / own
        self.residuals[:, rows] = residuals


class _BothLeftOut:
    """What a regression needs to leave out a unit's rows with and without labels together."""

    def __init__(
        self,
        kind: Kind,
        u: float,
        targets: Array,
        factor: Array,
        back: Array,
        from_known: Array,
        rest: Sequence[NDArray[np.intp]],
    ) -> None:
        self._u, self._unlabelled, self._rest, self._back = u, kind.unlabelled, rest, back
        self._from_known, self._open = from_known, targets - kind.rows @ from_known
        self._solved = [solved(factor, kind.unlabelled[each].T) for each in rest]

    def residuals(
        self, unit: int, rows: NDArray[np.intp], own: Array, f: Array, through: Array, pseudo: Array
    ) -> Array:
        """Return ``E_g`` of each strength; `own` is ``Q_gg``, `f` ``f_g``, `through` ``u Q X Λ⁻¹ U_gᵀ``."""
        u, x, back = self._u, self._unlabelled[self._rest[unit]], self._solved[unit]
        sums, columns = u * (self._unlabelled.T @ pseudo), through.transpose(0, 2, 1)
        inner = x @ back - columns @ (self._back.T @ x.T) / u
        outputs = x @ self._from_known + back.T @ sums
        outputs = outputs + columns @ (self._open - self._back.T @ sums) / u
        r = through[:, rows]
        matrix = np.block([[own, -r], [-r.transpose(0, 2, 1), u * np.eye(len(x)) - u**2 * inner]])
        found = np.linalg.solve(matrix, np.concatenate([f, -u * outputs], axis=1))
        return np.asarray(found[:, : len(rows)])
