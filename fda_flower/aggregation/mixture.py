"""Mixture: models weighed by their predictions for labelled samples that they were not trained on.

Every model, or *member*, predicts each labelled sample without training on it. These held-out outputs
determine a temperature for each member, and the weights of the mixture. Of a unit of several samples, such as
a patient, no model has seen any; each sum over samples is one over units, of each one's mean.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.units import Units
from fda_flower.aggregation.updates import Vector
from fda_flower.errors import ConfigError, check_choice, invalid, unknown

PRIOR = "prior"
"""Member that predicts the labels' frequencies; for a regression, their mean."""

TEMPERATURES = np.exp(np.linspace(math.log(0.3), math.log(30.0), 40))
"""Candidate temperatures."""

DRAWS = ((1.0, 4000), (0.3, 4000))
"""Concentrations of the Dirichlet distributions that candidate weights are drawn from, and draws of each."""

CHUNK = 1_000_000
"""Largest number of single-label likelihoods in memory: 8 MB."""

Outputs = NDArray[Any]
"""A model's outputs for ``n`` samples, shape ``(n, C)``: logits of ``C`` classes, or ``C`` real numbers."""


@dataclass(frozen=True)
class Mixture:
    """A fitted mixture of members.

    `weights` has ``w`` of each member, with sum 1, and `temperatures` ``T`` of each member with logits. A
    `regression` has real numbers as outputs and no temperatures. Members in `left_out` have non-finite
    held-out outputs.
    """

    weights: dict[str, float]
    temperatures: dict[str, float]
    regression: bool
    left_out: tuple[str, ...] = ()

    def predict(self, views: Mapping[str, Sequence[Outputs]]) -> Vector:
        """Return the mixture's probabilities, with rows that sum to 1, or numbers; shape ``(n, C)``.

        ``p(y|x) ∝ Σ_m w_m exp F_m(x)`` with ``F_m = (log softmax(v_0/T) + mean_v log softmax(v/T)) / 2``
        over the member's views ``v``; for a regression ``Σ_m w_m F_m(x)``, with the outputs themselves.
        A member with non-finite outputs for a sample is ignored for this sample.

        `views` holds the outputs of each member's models: the model of all labels, then the models of the
        views without a fold, if any; for `PRIOR` see `prior_outputs`. Raises a `ValueError` if a member is
        missing.
        """
        if missing := [name for name in self.weights if not views.get(name)]:
            raise ValueError(f"the member '{missing[0]}' has no outputs")
        total, lost = np.zeros(()), np.zeros(())
        with np.errstate(invalid="ignore"):
            for name, weight in self.weights.items():
                scaled = [self._scaled(name, outputs) for outputs in views[name]]
                whole, others = scaled[0], scaled[1:] or scaled[:1]
                mean = (whole + sum(others[1:], others[0]) / len(others)) / 2
                term = weight * (mean if self.regression else np.exp(mean))
                counts = np.isfinite(term).all(axis=1, keepdims=True)
                total, lost = total + np.where(counts, term, 0), lost + np.where(counts, 0, weight)
            return np.asarray(total / (1 - lost if self.regression else total.sum(axis=1, keepdims=True)))

    def _scaled(self, name: str, outputs: Outputs) -> Vector:
        if self.regression:
            return np.asarray(outputs, np.float64).reshape(len(outputs), -1)
        return log_softmax(outputs, self.temperatures.get(name, 1.0))


def fit_mixture(
    held_out: Mapping[str, Outputs],
    labels: NDArray[Any],
    folds: NDArray[Any] | None = None,
    groups: NDArray[Any] | None = None,
) -> Mixture:
    """Fit temperatures and weights to held-out outputs.

    ``T_m`` minimises ``−Σ_i log softmax(z_mi/T)[y_i] + (log T)²/2`` over `TEMPERATURES`. The weights are
    their posterior mean over the draws of `DRAWS`, under the likelihood ``Π_i Σ_m w_m q_mi``; for a
    regression under ``(mean_i (Σ_m w_m z_mi − y_i)²)^(−n/2)``. Raises a `ValueError` if this is impossible.

    `held_out` has by member, for each labelled sample, the outputs of a model trained without it. `labels`
    are classes, integers of shape ``(n,)``, or for a regression real numbers, ``(n,)`` or ``(n, C)``. With
    `folds`, the fold of each sample, shape ``(n,)``, the mixture includes the member `PRIOR`, which predicts
    a sample from the labels of the other folds. `groups` are the unit of each sample, such as a patient,
    shape ``(n,)``: likelihoods are means over a unit's samples, and ``n`` is the number of units.

    Examples
    --------
    >>> right, wrong = np.eye(2)[[0, 1, 0, 1]] * 4, np.eye(2)[[1, 0, 1, 0]] * 4
    >>> fit_mixture({"right": right, "wrong": wrong}, np.array([0, 1, 0, 1])).weights["right"] > 0.8
    True
    """
    labels = np.asarray(labels)
    _check_labels(labels)
    units = Units.of(len(labels), groups)
    if folds is not None and PRIOR in held_out:
        raise ValueError(f"'{PRIOR}' is the member that folds add: give your own another name")
    regression = np.issubdtype(labels.dtype, np.floating)
    y = labels.reshape(len(labels), -1).astype(np.float64) if regression else labels
    outputs = {name: np.asarray(z, np.float64).reshape(len(z), -1) for name, z in held_out.items()}
    _check_outputs(outputs, y, regression)
    left_out = tuple(name for name, z in outputs.items() if not np.isfinite(z).all())
    known = {name: z for name, z in outputs.items() if name not in left_out}
    temperatures = {} if regression else {name: temperature(z, y, units) for name, z in known.items()}
    if folds is not None:
        width = next(iter(outputs.values())).shape[1] if outputs else int(y.max()) + 1
        known[PRIOR] = _held_out_prior(y, np.asarray(folds), width, units)
    if not known:
        raise ValueError("no member has finite outputs: lower the learning rate, or name other members")
    if regression:
        w = regression_weights(np.stack(list(known.values())), y, units)
    else:
        rows = np.arange(len(y))
        likelihoods = [log_softmax(z, temperatures.get(name, 1.0))[rows, y] for name, z in known.items()]
        w = class_weights(np.exp(np.stack(likelihoods)), units)
    return Mixture(dict(zip(known, w.tolist(), strict=True)), temperatures, bool(regression), left_out)


def _check_labels(labels: NDArray[Any]) -> None:
    if not labels.size:
        raise ValueError("there are no labels")
    if np.issubdtype(labels.dtype, np.floating):
        if not np.isfinite(labels).all():
            raise ValueError("not all labels are finite: leave out the samples without a label")
    elif not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"the labels are {labels.dtype}: give classes as whole numbers, or real numbers")
    elif labels.ndim != 1:
        raise ValueError(f"the classes have shape {labels.shape}, expected one for each sample, (n,)")


def _check_outputs(outputs: Mapping[str, Vector], y: NDArray[Any], regression: bool) -> None:
    shapes = {name: z.shape for name, z in outputs.items()}
    width = y.shape[1] if regression else max([1, *(shape[1] for shape in shapes.values())])
    for name, shape in shapes.items():
        if shape != (len(y), width):
            raise ValueError(f"the outputs of '{name}' have shape {shape}, expected {(len(y), width)}")
    if not regression and (y.min() < 0 or (shapes and y.max() >= width)):
        raise ValueError(
            f"the labels go from {y.min()} to {y.max()}, but there are outputs for {width} classes "
            "(the labels of a regression are real numbers)"
        )


def log_softmax(logits: Outputs, temperature: float = 1.0) -> Vector:
    """Return ``log softmax(logits / T)`` of each row, in float64."""
    scaled = np.asarray(logits, np.float64) / temperature
    scaled = scaled - scaled.max(axis=-1, keepdims=True)
    return np.asarray(scaled - np.log(np.exp(scaled).sum(axis=-1, keepdims=True)))


def temperature(logits: Outputs, y: NDArray[Any], units: Units | None = None) -> float:
    """Return the temperature of `TEMPERATURES` that fits the labels best; see `fit_mixture`."""
    rows, units = np.arange(len(y)), units or Units.of(len(y))
    losses = [
        math.log(T) ** 2 / 2 - units.sum(log_softmax(logits, T)[rows, y]) for T in TEMPERATURES.tolist()
    ]
    return float(TEMPERATURES[int(np.argmin(losses))])


def class_weights(q: Vector, units: Units | None = None) -> Vector:
    """Return the posterior mean of the weights, from ``q_mi``, the labels' probabilities, ``(M, n)``."""
    w, units = _draws(len(q)), units or Units.of(q.shape[1])
    rows = max(1, CHUNK // q.shape[1])
    log_likelihoods = [
        _sums(np.log(np.maximum(np.einsum("jm,mi->ji", chunk, q), np.finfo(np.float64).tiny)), units)
        for chunk in (w[start : start + rows] for start in range(0, len(w), rows))
    ]
    return _posterior_mean(w, np.concatenate(log_likelihoods))


def _sums(values: Vector, units: Units) -> Vector:
    """Return the sum of each row of ``(J, n)`` over units, of each one's mean."""
    return np.asarray(values.sum(axis=1) if units.single else values @ units.shares)


def regression_weights(z: Vector, y: Vector, units: Units | None = None) -> Vector:
    """Return the posterior mean of the weights, from outputs of shape ``(M, n, C)`` and labels ``(n, C)``."""
    w, units = _draws(len(z)), units or Units.of(len(y))
    gaps, size = z - y, y.size
    if not units.single:
        gaps, size = np.sqrt(units.shares)[:, None] * gaps, units.count * y.shape[1]
    moments = np.einsum("mic,kic->mk", gaps, gaps) / size
    squares = np.einsum("jm,mk,jk->j", w, moments, w)
    return _posterior_mean(w, -units.count / 2 * np.log(np.maximum(squares, np.finfo(np.float64).tiny)))


def _posterior_mean(w: Vector, log_likelihoods: Vector) -> Vector:
    likelihoods = np.exp(log_likelihoods - log_likelihoods.max())
    return np.asarray((likelihoods[:, None] * w).sum(axis=0) / likelihoods.sum())


@cache
def _draws(members: int) -> Vector:
    """Return candidate weights, shape ``(draws, members)``; the same in every process."""
    generator = np.random.Generator(np.random.PCG64(members))
    return np.concatenate([generator.dirichlet([a] * members, size) for a, size in DRAWS])


def prior_outputs(labels: NDArray[Any], classes: int, groups: NDArray[Any] | None = None) -> Vector:
    """Return the outputs of the member `PRIOR` for one sample, shape ``(1, classes)``.

    Logarithms of ``(count + 1) / (n + C)``; for a regression the mean of the labels. `groups` are the unit of
    each sample, shape ``(n,)``: each unit counts as one.
    """
    units = Units.of(len(labels), groups)
    if np.issubdtype(labels.dtype, np.floating):
        rows = np.asarray(labels, np.float64).reshape(len(labels), -1)
        mean = rows.mean(axis=0) if units.single else units.shares @ rows / units.count
        return np.asarray(mean[None])
    counts = np.bincount(labels, None if units.single else units.shares, minlength=classes)
    return np.asarray(np.log((counts + 1) / (units.count + classes))[None])


def _held_out_prior(y: NDArray[Any], folds: NDArray[Any], width: int, units: Units) -> Vector:
    if folds.shape != (len(y),):
        raise ValueError(f"folds have shape {folds.shape}, expected {(len(y),)}")
    outputs = np.zeros((len(y), width))
    for fold in np.unique(folds):
        rest = folds != fold
        if not rest.any():
            raise ValueError(f"all samples are in fold {fold}: at least two folds are needed")
        outputs[~rest] = prior_outputs(y[rest], width, units.numbers[rest])
    return outputs


def stratified_folds(
    labels: NDArray[Any], folds: int, seed: int, groups: NDArray[Any] | None = None
) -> NDArray[np.int64]:
    """Return the fold of each sample: shuffle, sort by class unless labels are real, and deal in turn.

    Raise a `ValueError` if labels are neither classes nor finite real numbers. `groups` has the group of each
    sample, such as a patient, shape ``(n,)``. Groups are dealt whole, as samples of their most frequent
    class, the largest of a class first, whatever the order of rows and the type of names. Default: each
    sample alone.

    Examples
    --------
    >>> stratified_folds(np.array([0, 0, 1, 1]), 2, seed=0, groups=np.array([5, 5, 8, 8])).tolist()
    [0, 0, 1, 1]
    """
    _check_labels(labels)
    units = Units.of(len(labels), groups)
    of, sizes, count = units.numbers, units.sizes, units.count
    classes = np.zeros(count, np.int64)
    if not np.issubdtype(labels.dtype, np.floating):
        classes = _most_frequent(np.unique(labels, return_inverse=True)[1], of)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(count)
    order = order[np.lexsort((-sizes[order], classes[order]))]
    dealt = np.empty(count, np.int64)
    dealt[order] = np.arange(count) % folds
    return np.asarray(dealt[of])


def _most_frequent(classes: NDArray[Any], of: NDArray[Any]) -> NDArray[Any]:
    """Return the most frequent class of each group in `of`, the lowest on a tie."""
    pairs, counts = np.unique(np.stack([of, classes], axis=1), axis=0, return_counts=True)
    pairs = pairs[np.lexsort((pairs[:, 1], -counts, pairs[:, 0]))]
    _, first = np.unique(pairs[:, 0], return_index=True)
    return np.asarray(pairs[first, 1])


MEMBERS = ("sources", "target", "tuned", "head", "blend", PRIOR)
"""All members: the sources' model; the target's own; the sources' model fine-tuned; only its last layer
fine-tuned; FedDAF's blend of the sources' model and the target's own; the labels' frequencies."""

MANY_LABELS = 500
"""Number of labels from which the longer snapshot of the fine-tuned model is `LONG_IF_MANY`, not `LONG`."""

LONG, LONG_IF_MANY = 30, 10

MOST_FOLDS, MOST_SNAPSHOTS = 100, 20
"""Largest numbers of folds and of snapshots: their product is the number of models to keep."""


def is_member(name: str) -> bool:
    """Return whether a member may have this name: one of `MEMBERS`, or ``tuned-N`` after N epochs.

    Examples
    --------
    >>> is_member("tuned-30"), is_member("prior"), is_member("tuned-x")
    (True, True, False)
    """
    kind, _, epochs = name.partition("-")
    return name in MEMBERS or (kind == "tuned" and epochs.isdecimal() and len(epochs) < 9)


@dataclass(frozen=True)
class MixturePlan:
    """The composition of a mixture; an invalid number or word raises a `ConfigError`.

    Each model is also trained without each of ``K`` `folds`. After each of `epochs` the fine-tuned model
    becomes a member; empty means 1 and 30, with 500 labels or more 1 and 10. `members` are some of
    `MEMBERS`. A prediction uses the models of all `views`, or only those of all labels (``"full"``).
    """

    folds: int = 4
    epochs: tuple[int, ...] = ()
    members: tuple[str, ...] = ("sources", "target", "tuned", PRIOR)
    views: Literal["all", "full"] = "all"

    def __post_init__(self) -> None:
        if not isinstance(self.folds, int) or not 2 <= self.folds <= MOST_FOLDS:
            raise invalid("folds", self.folds, f"it must be a whole number from 2 to {MOST_FOLDS}")
        if not _grow(self.epochs):
            given = list(self.epochs) if isinstance(self.epochs, Iterable) else self.epochs
            raise invalid("epochs", given, "give numbers of epochs that grow, such as 1,30")
        if len(self.epochs) > MOST_SNAPSHOTS:
            why = f"and each makes {self.folds + 1} models to keep"
            raise invalid("epochs", self.epochs, f"give at most {MOST_SNAPSHOTS} numbers", why)
        for name in self.members:
            if name not in MEMBERS:
                raise unknown("member", name, MEMBERS)
        if not set(self.members) - {PRIOR} or len(set(self.members)) < len(self.members):
            remedy = f"name some of {', '.join(MEMBERS)}, each once, and one that is a model"
            raise invalid("members", ", ".join(self.members) or "empty", remedy)
        check_choice("views", self.views, ("all", "full"))

    def check_labels(self, labels: int, units: int | None = None) -> None:
        """Raise a `ConfigError` if labels are of too few units for the folds; by default each is its own."""
        units = labels if units is None else units
        if units < 2 * self.folds:
            several = units < labels
            of, what = (
                (f" of {units} patient{'s' * (units != 1)}", "patients") if several else ("", "samples")
            )
            raise ConfigError(
                f"the target has {labels} labelled samples{of}, but a mixture with {self.folds} folds needs "
                f"{2 * self.folds}: give more {what}, fewer folds (method option folds), or another method",
                thing="groups" if several else "target-samples",
                value=units,
            )

    def snapshots(self, labels: int) -> tuple[int, ...]:
        """Return the epochs after which the fine-tuned model becomes a member, from the number of samples."""
        return self.epochs or (1, LONG_IF_MANY if labels >= MANY_LABELS else LONG)

    @property
    def models(self) -> int:
        """The models in a prediction."""
        trained = {"target": 1, "tuned": len(self.epochs) or 2, "head": 1, "blend": 1}
        views = 1 + self.folds if self.views == "all" else 1
        count = sum(number * views for name, number in trained.items() if name in self.members)
        return count + ("sources" in self.members)

    def epochs_of(self, labels: int, own_epochs: int, evaluations: int) -> int:
        """Return the epochs over all labels in a run; the target's own model has `own_epochs`.

        All labels and all but each of ``K`` folds make ``1 + K (K − 1)/K = K`` epochs.
        """
        own = own_epochs if {"target", "blend"} & set(self.members) else 0
        tuned = self.snapshots(labels)[-1] * sum(name in self.members for name in ("tuned", "head"))
        return self.folds * (own + tuned * evaluations)


def _grow(numbers: object) -> bool:
    """Return whether these are positive integers in increasing order."""
    if not isinstance(numbers, tuple | list) or not all(isinstance(number, int) for number in numbers):
        return False
    return all(before < number for before, number in zip([0, *numbers], numbers, strict=False))
