"""Train the members of a mixture on a target's labels, and weigh them, in any framework."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from flwr.common import log
from numpy.typing import NDArray

from fda_flower.aggregation import PRIOR, Mixture, fit_mixture, prior_outputs, stratified_folds
from fda_flower.aggregation.mixture import MixturePlan
from fda_flower.aggregation.units import Units
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import derive_seed

Model = TypeVar("Model")
Positions = NDArray[np.int64]
"""Positions of labelled samples."""


@dataclass(frozen=True)
class Learner(Generic[Model]):
    """Functions that train and apply models.

    Attributes
    ----------
    train : callable
        Takes a model, positions of samples, numbers of epochs, and a name for the random numbers; returns a
        new model.
    predict : callable
        Takes a model and ``n`` positions; returns outputs of shape ``(n, C)``, or ``(n,)`` for a regression.
    train_head, blend : callable, optional
        For the members ``head`` and ``blend``: like `train`, but only for the last layer; and a function that
        returns a model, given the sources' model, the target's own and positions.
    """

    train: Callable[[Model, Positions, Sequence[int], str], Model]
    predict: Callable[[Model, Positions], NDArray[Any]]
    train_head: Callable[[Model, Positions, Sequence[int], str], Model] | None = None
    blend: Callable[[Model, Model, Positions], Model] | None = None


@dataclass(frozen=True)
class TrainedMixture(Generic[Model]):
    """A mixture together with its models.

    `models` has by member the model of all labels, then the models of the views without a fold, and `prior`
    the outputs of the member ``prior`` by view, each of shape ``(1, C)``. `held_out` has by member the
    outputs for each labelled sample from a model trained without it, shape ``(n, C)``, and `folds` its fold.
    `views` says whether a prediction uses the models of all views.
    """

    mixture: Mixture
    models: Mapping[str, list[Model]]
    prior: list[NDArray[Any]]
    held_out: Mapping[str, NDArray[Any]]
    folds: NDArray[np.int64]
    views: Literal["all", "full"]

    @property
    def views_used(self) -> slice:
        """The views whose models a prediction uses."""
        return slice(None) if self.views == "all" else slice(1)

    @property
    def used(self) -> dict[str, list[Model]]:
        """The models that a prediction uses, by member."""
        members = [name for name in self.models if name in self.mixture.weights]
        return {name: self.models[name][self.views_used] for name in members}

    def held_out_predictions(
        self, labels: NDArray[Any], groups: NDArray[Any] | None = None
    ) -> NDArray[np.float64]:
        """Return the mixture's prediction for each labelled sample, without models trained on it, ``(n, C)``.

        With several samples in one of the `groups`, weights and temperatures, too, are from the other folds.
        """
        return self._held_out(self.mixture, labels, groups)

    def held_out_without_sources(
        self, labels: NDArray[Any], groups: NDArray[Any] | None = None
    ) -> NDArray[np.float64] | None:
        """Return the same for a mixture of only the target's own model and the prior; None without one."""
        if "target" not in self.mixture.weights:
            return None
        folds = self.folds if PRIOR in self.mixture.weights else None
        mixture = fit_mixture({"target": self.held_out["target"]}, labels, folds, groups)
        return self._held_out(mixture, labels, groups)

    def _held_out(
        self, mixture: Mixture, labels: NDArray[Any], groups: NDArray[Any] | None
    ) -> NDArray[np.float64]:
        held_out = {name: self.held_out[name] for name in mixture.weights}
        if groups is None or Units.of(len(labels), groups).single:
            return mixture.predict({name: [z] for name, z in held_out.items()})
        found = np.zeros_like(next(iter(held_out.values())), np.float64)
        for fold in np.unique(self.folds):
            own, rest = self.folds == fold, self.folds != fold
            others = {name: z[rest] for name, z in held_out.items()}
            mixture = fit_mixture(others, labels[rest], groups=groups[rest])
            found[own] = mixture.predict({name: [held_out[name][own]] for name in mixture.weights})
        return found

    def outputs(self, predict: Callable[[Model], NDArray[Any]]) -> dict[str, list[NDArray[Any]]]:
        """Return the outputs of each member's models; `predict` returns one model's outputs."""
        outputs = {name: [_in_rows(predict(model)) for model in models] for name, models in self.used.items()}
        if PRIOR in self.mixture.weights:
            some = next(iter(outputs.values()), None) or [predict(next(iter(self.models.values()))[0])]
            rows = len(some[0])
            outputs[PRIOR] = [np.repeat(prior, rows, axis=0) for prior in self.prior[self.views_used]]
        return outputs

    def predict(self, predict: Callable[[Model], NDArray[Any]]) -> NDArray[np.float64]:
        """Return the mixture's prediction (see `Mixture.predict`); `predict` returns a model's outputs."""
        return self.mixture.predict(self.outputs(predict))


def train_mixture(
    learner: Learner[Model],
    labels: NDArray[Any],
    *,
    sources: Model,
    first: Model,
    rounds: Sequence[int],
    plan: MixturePlan | None = None,
    seed: int = 0,
    own: Sequence[Model] = (),
    groups: NDArray[Any] | None = None,
) -> TrainedMixture[Model]:
    """Train the members of a mixture, and weigh them by their predictions for held-out labels.

    Parameters
    ----------
    learner : Learner
        Functions that train and apply models.
    labels : NDArray
        Classes (integers) or real numbers, one for each of ``n`` labelled samples.
    sources, first : Model
        The sources' model, and the initial model of the target's own.
    rounds : Sequence of int
        Numbers of the rounds in which the target's own model trains.
    plan : MixturePlan, optional
        The composition of the mixture.
    seed : int
        Determines the folds.
    own : Sequence of Model
        The target's own models by view, as trained in earlier rounds.
    groups : NDArray, optional
        The group of each sample, such as a patient, shape ``(n,)``; no group is split between folds, and each
        counts as one.

    Raises
    ------
    ConfigError
        Before any training: if there are too few labels or groups, labels do not fit the outputs of
        `sources`, or `learner` does not support a member.
    RunError
        If no member has finite outputs.
    """
    plan = MixturePlan() if plan is None else plan
    labels = np.asarray(labels)
    plan.check_labels(len(labels), Units.of(len(labels), groups).count)
    for member, function in (("head", learner.train_head), ("blend", learner.blend)):
        if member in plan.members and function is None:
            raise ConfigError(
                f"members names '{member}', which these models do not support: leave it out",
                thing="members names",
                value=member,
            )
    everything = np.arange(len(labels))
    try:
        folds = stratified_folds(labels, plan.folds, derive_seed(seed, "folds"), groups)
        fit_mixture({"sources": learner.predict(sources, everything)}, labels, folds, groups)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"the mixture cannot be fitted: {error}", thing="mixture") from error
    views = [everything, *(everything[folds != fold] for fold in range(plan.folds))]
    models: dict[str, list[Model]] = {}
    if "sources" in plan.members:
        models["sources"] = [sources]
    if {"target", "blend"} & set(plan.members):
        starts = own or [first] * len(views)
        models["target"] = [
            learner.train(start, view, rounds, f"target-{v}") if len(rounds) else start
            for v, (start, view) in enumerate(zip(starts, views, strict=True))
        ]
    if "tuned" in plan.members:
        tuned, done = [sources] * len(views), 0
        for last in plan.snapshots(len(labels)):
            tuned = [
                learner.train(model, view, range(done + 1, last + 1), f"tuned-{v}")
                for v, (model, view) in enumerate(zip(tuned, views, strict=True))
            ]
            models[f"tuned-{last}"], done = tuned, last
    if "head" in plan.members and (train_head := learner.train_head):
        epochs = range(1, plan.snapshots(len(labels))[-1] + 1)
        models["head"] = [train_head(sources, view, epochs, f"head-{v}") for v, view in enumerate(views)]
    if "blend" in plan.members and (blend := learner.blend):
        pairs = zip(models["target"], views, strict=True)
        models["blend"] = [blend(sources, model, view) for model, view in pairs]
    held_out = {name: _held_out(learner, found, folds) for name, found in models.items()}
    weighed = {name: z for name, z in held_out.items() if name != "target" or "target" in plan.members}
    try:
        mixture = fit_mixture(weighed, labels, folds if PRIOR in plan.members else None, groups)
    except ValueError as error:
        raise RunError(f"the mixture cannot be fitted: {error}", thing="mixture") from error
    for name in mixture.left_out:
        log(WARNING, "The mixture leaves out '%s': not all of its outputs are finite", name)
    classes = next(iter(held_out.values())).shape[1]
    prior = [
        prior_outputs(labels[view], classes, groups if groups is None else groups[view]) for view in views
    ]
    held_out[PRIOR] = np.concatenate(prior)[folds + 1]
    return TrainedMixture(mixture, models, prior, held_out, folds, plan.views)


def classes_alone(labels: NDArray[Any], groups: NDArray[Any] | None) -> list[int]:
    """Return the classes with labels of a single patient, of `groups` or else a single label."""
    alone = Units.of(len(labels), groups).of_class(labels) == 1
    return np.flatnonzero(alone).tolist()


def _held_out(learner: Learner[Model], models: Sequence[Model], folds: Positions) -> NDArray[Any]:
    """Return the outputs of the views' models for the folds they were not trained on.

    If the model of all labels has non-finite outputs, return these, which excludes the member.
    """
    outputs = _in_rows(learner.predict(models[0], np.arange(len(folds)))).copy()
    if np.isfinite(outputs).all():
        for fold, model in enumerate(models[1:]):
            positions = np.flatnonzero(folds == fold)
            outputs[positions] = _in_rows(learner.predict(model, positions))
    return outputs


def _in_rows(outputs: NDArray[Any]) -> NDArray[Any]:
    """Return outputs in the shape ``(n, C)``."""
    return np.asarray(outputs).reshape(len(outputs), -1)
