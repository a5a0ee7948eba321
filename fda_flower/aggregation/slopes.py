"""Ridge's heads for survival: the slopes of sources and target, without the level of any site.

A site's level, such as the baseline hazard of a hospital, takes no part in the slopes, as in a Cox model
that is stratified by site: a site sums over its rows and labels around their means, ``(x − x̄, 0)`` and
``y − ȳ``. The sums ``G`` and ``M`` of the sources have the solution ``W_S = (G + I)⁻¹ M / D``, with the
deviation ``D_k`` of each label within the sites.

The target, with ``n`` rows and their means ``x_T`` and ``y_T``, fits ``(y − y_T)/D`` on the rows ``z = (x −
x_T, 10)``, whose last number is large so that its level is nearly free, and adds the level ``l = (n y_T + 20
L)/(n + 20)``, where ``L`` is what the sources predict for its mean row. Only heads near the sources are
averaged: *pooled*, and ``W_S`` itself. Each has the weight ``ε^(−d/2)`` with the number of events ``d``, not
of patients: with few events, leaving one out trusts heads without the sources too easily.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.ridge import (
    HEADS,
    SOURCE_WEIGHTS,
    Head,
    Paths,
    RegularizationPath,
    RidgeFit,
    Which,
    likelihoods,
)
from fda_flower.aggregation.sums import USUAL_TEMPERATURE, Array, Sums, factorised
from fda_flower.aggregation.units import Units

CONSTANT = 10.0
"""The last number of a target's row."""

LEVEL_ROWS = 20
"""The rows that the sources' level counts as."""

LEAST_EVENTS = 2
"""Smallest number of a target's events for weights of heads."""

SLOPES: Mapping[Paths, tuple[Which, ...]] = {
    "both": (*(("pooled", c) for c in SOURCE_WEIGHTS), ("sources", 0.0)),
    "target": HEADS["target"],
    "sources": HEADS["sources"],
    "pooled": HEADS["pooled"],
}
"""The heads by the value of `paths`; with *shrunk*, heads would be far from the sources."""


def names_of_slopes(paths: Paths) -> list[str]:
    """Return the names of the heads in a record."""
    return [f"{path}-{strength:g}" for path, strength in SLOPES[paths]]


@dataclass(frozen=True)
class CentredRows(Sums):
    """Sums over rows and labels around the means of each site, and the levels that these take away.

    They add up as `Sums` do. The last row and column of ``G`` are 0, but for the number of rows at the end.

    Attributes
    ----------
    level_x, level_y : array
        The sums of the rows without their last number, shape ``(d − 1,)``, and of ``Y``, shape ``(C,)``.

    Examples
    --------
    >>> X, Y = np.array([[1.0, 1.0], [3.0, 1.0]]), np.array([[0.0], [4.0]])
    >>> sums = CentredRows.of(X, Y)
    >>> sums.whole.tolist(), sums.products.tolist(), sums.level_x, sums.level_y
    ([[2.0, 0.0], [0.0, 2.0]], [[4.0], [0.0]], array([4.]), array([4.]))
    """

    level_x: Array
    level_y: Array

    @classmethod
    def of(cls, rows: NDArray[np.floating], targets: Array) -> "CentredRows":
        """Return the sums over rows, shape ``(n, d)``, and their ``Y``, shape ``(n, C)``."""
        x, y = np.asarray(rows, np.float64)[:, :-1], np.asarray(targets, np.float64)
        sums = Sums.of(np.pad(x - x.mean(axis=0), ((0, 0), (0, 1))), y - y.mean(axis=0))
        sums.gram[-1] = len(x)
        return cls(sums.gram, sums.products, sums.squares, x.sum(axis=0), y.sum(axis=0))

    @classmethod
    def shapes(cls, width: int, outputs: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array, for rows of `width` ``d`` and `outputs` ``C``."""
        return {**super().shapes(width, outputs), "level_x": (width - 1,), "level_y": (outputs,)}

    def start(self, gram: bool, scaled: bool) -> dict[str, Array]:
        """Return the arrays from which a target starts, by name, if these are its sources' sums.

        These are ``solution``, ``deviation``, the sources' mean row and labels, ``level_x`` and ``level_y``,
        and with `gram` the matrix for the path *pooled*. Labels are always `scaled`.
        """
        start = super().start(gram, scaled=True)
        del start["mean"]  # 0
        return {**start, "level_x": self.level_x / self.rows, "level_y": self.level_y / self.rows}

    def head(self, scaled: bool, usual: float = USUAL_TEMPERATURE) -> Array:
        """Return the solution as a model's head, with the level of all rows."""
        start = self.start(gram=False, scaled=scaled)
        head = start["deviation"] * start["solution"]
        head[-1] = start["level_y"] - start["level_x"] @ head[:-1]
        return np.asarray(head)


@dataclass(frozen=True)
class Level:
    """What the sources know besides slopes: their mean row and labels, and the labels' deviation in sites.

    Attributes
    ----------
    rows, labels, deviation : array
        ``x_S``, shape ``(d − 1,)``; ``y_S`` and ``D``, shape ``(C,)``.
    """

    rows: Array
    labels: Array
    deviation: Array


@dataclass(frozen=True)
class SlopesFit:
    """A target's heads, averaged, with its level.

    Attributes
    ----------
    head : array
        Shape ``(d, C)``: outputs are ``x W``, in the unit of the labels.
    held_out : array
        The outputs for each row without it, shape ``(n, C)``.
    fit : RidgeFit
        The heads on the rows ``z``.
    """

    head: Array
    held_out: Array
    fit: RidgeFit


def fit_slopes(
    rows: NDArray[np.floating],
    labels: Array,
    events: int,
    solution: Array,
    level: Level,
    gram: Array | None = None,
    paths: Paths = "both",
) -> SlopesFit:
    """Fit a target's heads to its rows, and weigh them.

    Parameters
    ----------
    rows, labels : array
        The target's rows, whose last number is 1, shape ``(n, d)``, and ``y``, shape ``(n, C)``.
    events : int
        ``d``, the number of its events.
    solution : array
        ``W_S``, shape ``(d, C)``.
    level : Level
        What else the sources know.
    gram : array, optional
        ``G`` of the sources, shape ``(d, d)``; required for the path *pooled*.
    paths : str
        One of `SLOPES`. *target* has no level of the sources.

    Raises
    ------
    ValueError
        If there are fewer than two rows, or fewer than `LEAST_EVENTS` events and several heads, or `gram` is
        not positive definite.
    """
    x, n = np.asarray(rows, np.float64)[:, :-1], len(rows)
    if n < 2 or (events < LEAST_EVENTS and len(SLOPES[paths]) > 1):
        what = f"{n} rows with {events} events"
        raise ValueError(f"{what}: leaving one out needs 2, and weights of heads {LEAST_EVENTS} events")
    centre, mean = x.mean(axis=0), labels.mean(axis=0)
    around = np.pad(x - centre, ((0, 0), (0, 1)), constant_values=CONSTANT)
    targets = (labels - mean) / level.deviation
    heads: list[Head] = []
    for name in dict.fromkeys(path for path, _ in SLOPES[paths]):
        strengths = [strength for path, strength in SLOPES[paths] if path == name]
        factor = factorised(np.asarray(gram)) if name == "pooled" else None
        start = np.zeros_like(solution) if name == "target" else solution
        fitted = RegularizationPath(around, name, factor).heads(targets, start, strengths)
        heads += map(_of_sources, fitted) if name == "sources" else fitted
    residuals = [head.judged for head in heads]
    weights = likelihoods(residuals, Units.of(n), events / 2)
    judged = np.tensordot(weights, np.stack(residuals), 1)
    fit = RidgeFit(tuple(heads), weights, targets, judged)
    of_sources = level.labels + level.deviation * ((centre - level.rows) @ solution[:-1])
    own = mean if paths == "target" else (n * mean + LEVEL_ROWS * of_sources) / (n + LEVEL_ROWS)
    head = level.deviation * fit.head
    head[-1] = own + CONSTANT * head[-1] - centre @ head[:-1]
    return SlopesFit(head, own + level.deviation * fit.held_out, fit)


def _of_sources(head: Head) -> Head:
    """Return ``W_S``; without a row, the mean of the others' residuals is the target's level."""
    left = head.residuals
    without = len(left) / (len(left) - 1) * (left - left.mean(axis=0))
    return replace(head, residuals=without, judged=without)
