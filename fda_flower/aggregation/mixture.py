"""Mixture: models weighed by what they predict on labelled samples that they were not trained on.

Every model, or *member*, predicts each labelled sample from a view of the labels without that sample. These
held-out outputs decide a temperature for each member, and the weights of the mixture.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.layers import Vector

PRIOR = "prior"
"""The member that predicts the labels' frequencies; for a regression, their mean."""

TEMPERATURES = np.exp(np.linspace(math.log(0.3), math.log(30.0), 40))
"""The temperatures to choose from."""

DRAWS = ((1.0, 4000), (0.3, 4000))
"""Concentrations of the Dirichlet distributions from which weights are drawn, and the draws of each."""

Outputs = NDArray[Any]
"""A model's outputs for ``n`` samples, shape ``(n, C)``: logits of ``C`` classes, or ``C`` real numbers."""


@dataclass(frozen=True)
class Mixture:
    """A fitted mixture of members.

    Attributes
    ----------
    weights : dict[str, float]
        ``w`` of each member; they sum to 1.
    temperatures : dict[str, float]
        ``T`` of each member that has logits; empty for a regression.
    regression : bool
        Whether outputs are real numbers and not logits.
    left_out : tuple of str
        The members that were left out, because not all of their held-out outputs are finite.
    """

    weights: dict[str, float]
    temperatures: dict[str, float]
    regression: bool
    left_out: tuple[str, ...] = ()

    def predict(self, views: Mapping[str, Sequence[Outputs]]) -> Vector:
        """Return the mixture's prediction.

        ``p(y|x) ∝ Σ_m w_m exp F_m(x)`` with ``F_m = (log softmax(v_0/T) + mean_v log softmax(v/T)) / 2``
        over the member's views ``v``; for a regression ``Σ_m w_m F_m(x)``, with the outputs themselves.

        Parameters
        ----------
        views : Mapping[str, Sequence of Outputs]
            For each member the outputs of its models: the model of all labels, then the models of the
            views without a fold, if there are any; for `PRIOR` see `prior_outputs`.

        Returns
        -------
        Vector
            Probabilities, each row sums to 1, or the predicted numbers; shape ``(n, C)``.

        Raises
        ------
        ValueError
            If a member's outputs are missing.
        """
        if missing := [name for name in self.weights if not views.get(name)]:
            raise ValueError(f"the member '{missing[0]}' has no outputs")
        total: Vector | None = None
        for name, weight in self.weights.items():
            scaled = [self._scaled(name, outputs) for outputs in views[name]]
            whole, others = scaled[0], scaled[1:] or scaled[:1]
            mean = (whole + sum(others[1:], others[0]) / len(others)) / 2
            term = weight * (mean if self.regression else np.exp(mean))
            total = term if total is None else total + term
        assert total is not None, "a mixture has at least one member"
        return total if self.regression else total / total.sum(axis=1, keepdims=True)

    def _scaled(self, name: str, outputs: Outputs) -> Vector:
        if self.regression:
            return np.asarray(outputs, np.float64)
        return log_softmax(outputs, self.temperatures.get(name, 1.0))


def fit_mixture(
    held_out: Mapping[str, Outputs], labels: NDArray[Any], folds: NDArray[Any] | None = None
) -> Mixture:
    """Fit temperatures and weights to held-out outputs.

    ``T_m`` minimises ``−Σ_i log softmax(z_mi/T)[y_i] + (log T)²/2`` over `TEMPERATURES`. The weights are
    their posterior mean over the draws of `DRAWS`, under the likelihood ``Π_i Σ_m w_m q_mi``; for a
    regression under ``(mean_i (Σ_m w_m z_mi − y_i)²)^(−n/2)``.

    Parameters
    ----------
    held_out : Mapping[str, Outputs]
        By member: for each labelled sample the outputs of a model that was trained without it.
    labels : NDArray
        Classes, whole numbers of shape ``(n,)``; for a regression real numbers, ``(n,)`` or ``(n, C)``.
    folds : NDArray, optional
        The fold of each sample, shape ``(n,)``. With it the mixture has the member `PRIOR`, which
        predicts a sample from the labels of the other folds.

    Raises
    ------
    ValueError
        If shapes do not fit, a label is not a class, or no member has finite outputs.

    Examples
    --------
    >>> right, wrong = np.eye(2)[[0, 1, 0, 1]] * 4, np.eye(2)[[1, 0, 1, 0]] * 4
    >>> mixture = fit_mixture({"right": right, "wrong": wrong}, np.array([0, 1, 0, 1]))
    >>> mixture.weights["right"] > 0.8
    True
    """
    labels = np.asarray(labels)
    if not len(labels):
        raise ValueError("there are no labels")
    regression = np.issubdtype(labels.dtype, np.floating)
    y = labels.reshape(len(labels), -1).astype(np.float64) if regression else labels
    outputs = {name: np.asarray(z, np.float64).reshape(len(z), -1) for name, z in held_out.items()}
    _check(outputs, y, regression)
    left_out = tuple(name for name, z in outputs.items() if not np.isfinite(z).all())
    known = {name: z for name, z in outputs.items() if name not in left_out}
    temperatures = {} if regression else {name: temperature(z, y) for name, z in known.items()}
    if folds is not None:
        width = next(iter(outputs.values())).shape[1] if outputs else int(y.max()) + 1
        known[PRIOR] = _held_out_prior(y, np.asarray(folds), width, regression)
    if not known:
        raise ValueError("no member has finite outputs")
    if regression:
        w = regression_weights(np.stack(list(known.values())), y)
    else:
        rows = np.arange(len(y))
        likelihoods = [log_softmax(z, temperatures.get(name, 1.0))[rows, y] for name, z in known.items()]
        w = class_weights(np.exp(np.stack(likelihoods)))
    return Mixture(dict(zip(known, w.tolist(), strict=True)), temperatures, bool(regression), left_out)


def _check(outputs: Mapping[str, Vector], y: NDArray[Any], regression: bool) -> None:
    shapes = {name: z.shape for name, z in outputs.items()}
    width = y.shape[1] if regression else max([1, *(shape[1] for shape in shapes.values())])
    for name, shape in shapes.items():
        if shape != (len(y), width):
            raise ValueError(f"the outputs of '{name}' have shape {shape}, expected {(len(y), width)}")
    if not regression and (y.min() < 0 or (shapes and y.max() >= width)):
        raise ValueError(
            f"the labels go from {y.min()} to {y.max()}, but there are outputs for {width} classes"
        )


def log_softmax(logits: Outputs, temperature: float = 1.0) -> Vector:
    """Return ``log softmax(logits / T)`` of each row, in float64."""
    scaled = np.asarray(logits, np.float64) / temperature
    scaled = scaled - scaled.max(axis=1, keepdims=True)
    result: Vector = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
    return result


def temperature(logits: Outputs, y: NDArray[Any]) -> float:
    """Return the temperature of `TEMPERATURES` that fits the labels best; see `fit_mixture`."""
    rows = np.arange(len(y))
    losses = [
        math.log(T) ** 2 / 2 - float(log_softmax(logits, T)[rows, y].sum()) for T in TEMPERATURES.tolist()
    ]
    return float(TEMPERATURES[int(np.argmin(losses))])


def class_weights(q: Vector) -> Vector:
    """Return the posterior mean of the weights, from ``q_mi``, the labels' probabilities, ``(M, n)``."""
    w = _draws(len(q))
    mixed = np.einsum("jm,mi->ji", w, q)
    return _posterior_mean(w, np.log(np.maximum(mixed, np.finfo(np.float64).tiny)).sum(axis=1))


def regression_weights(z: Vector, y: Vector) -> Vector:
    """Return the posterior mean of the weights, from outputs of shape ``(M, n, C)`` and labels ``(n, C)``."""
    w = _draws(len(z))
    gaps = z - y
    moments = np.einsum("mic,kic->mk", gaps, gaps) / y.size
    squares = np.einsum("jm,mk,jk->j", w, moments, w)
    return _posterior_mean(w, -len(y) / 2 * np.log(np.maximum(squares, np.finfo(np.float64).tiny)))


def _posterior_mean(w: Vector, log_likelihoods: Vector) -> Vector:
    likelihoods = np.exp(log_likelihoods - log_likelihoods.max())
    mean: Vector = (likelihoods[:, None] * w).sum(axis=0) / likelihoods.sum()
    return mean


@cache
def _draws(members: int) -> Vector:
    """Return weights to choose from, shape ``(draws, members)``; the same in every process."""
    generator = np.random.Generator(np.random.PCG64(members))
    return np.concatenate([generator.dirichlet([a] * members, size) for a, size in DRAWS])


def prior_outputs(labels: NDArray[Any], classes: int) -> Vector:
    """Return the outputs of the member `PRIOR` for one sample, shape ``(1, classes)``.

    Logarithms of ``(count + 1) / (n + C)``; for a regression the mean of the labels.
    """
    if np.issubdtype(labels.dtype, np.floating):
        rows = np.asarray(labels, np.float64).reshape(len(labels), -1)
        return np.asarray(rows.mean(axis=0, keepdims=True))
    counts = np.bincount(labels, minlength=classes)
    return np.asarray(np.log((counts + 1) / (len(labels) + classes))[None])


def _held_out_prior(y: NDArray[Any], folds: NDArray[Any], width: int, regression: bool) -> Vector:
    if folds.shape != (len(y),):
        raise ValueError(f"folds have shape {folds.shape}, expected {(len(y),)}")
    outputs = np.zeros((len(y), width))
    for fold in np.unique(folds):
        rest = y[folds != fold]
        if not len(rest):
            raise ValueError(f"all samples are in fold {fold}: at least two folds are needed")
        outputs[folds == fold] = prior_outputs(rest, width)
    return outputs


def stratified_folds(labels: NDArray[Any], folds: int, seed: int) -> NDArray[np.int64]:
    """Return the fold of each sample: in random order, sorted by class unless labels are real, dealt in turn.

    Parameters
    ----------
    labels : NDArray
        Classes, or real numbers.
    folds : int
        ``K``.
    seed : int
        Decides the random order.
    """
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(labels))
    if not np.issubdtype(labels.dtype, np.floating):
        order = order[np.argsort(labels[order], kind="stable")]
    result = np.empty(len(labels), np.int64)
    result[order] = np.arange(len(labels)) % folds
    return result
