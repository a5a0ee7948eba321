"""Which model trains on which samples, for how long, and predicts which: with models that say it."""

from dataclasses import dataclass
from unittest.mock import Mock

import numpy as np
import pytest
from naming import names

from fda_flower.aggregation import PRIOR, fit_mixture, stratified_folds
from fda_flower.clients import Learner, MixturePlan, train_mixture
from fda_flower.clients.mixture_members import TrainedMixture
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import derive_seed

LABELS = np.array([0, 1, 2] * 5)
EVERYTHING = tuple(range(15))


@dataclass(frozen=True)
class Toy:
    """A model that remembers what it began with, and each epoch that it was trained: text, epoch, samples."""

    start: str
    steps: tuple[tuple[str, int, tuple[int, ...]], ...] = ()

    @property
    def seen(self):
        return {position for _, _, positions in self.steps for position in positions}

    @property
    def epochs(self):
        return [epoch for _, epoch, _ in self.steps]


def train(model, positions, epochs, stream):
    return Toy(model.start, (*model.steps, *((stream, epoch, tuple(positions.tolist())) for epoch in epochs)))


def remembers(model, positions, labels=LABELS):
    """The sources' model is right by ``e²``; any other by ``e⁵`` on samples that it has seen."""
    if model == Toy("sources"):
        return np.eye(3)[labels[positions]] * 2
    return np.eye(3)[labels[positions]] * [[5.0 if i in model.seen else 0.0] for i in positions.tolist()]


def mix(plan=None, labels=LABELS, predict=remembers, rounds=range(1, 4), seed=7, **more):
    learner = Learner(train, predict, **{k: more.pop(k) for k in ("train_head", "blend") if k in more})
    given = {"sources": Toy("sources"), "first": Toy("first")}
    return train_mixture(learner, labels, rounds=rounds, plan=plan, seed=seed, **given, **more)  # type: ignore[arg-type]


def train_head(model, positions, epochs, stream):
    return train(Toy(f"head of {model.start}"), positions, epochs, stream)


def blend(sources, own, positions):
    return Toy("blend", ((f"{sources.start} and {own.steps[-1][0]}", 0, tuple(positions.tolist())),))


def views_of(folds):
    return [EVERYTHING, *(tuple(np.flatnonzero(folds != fold).tolist()) for fold in range(max(folds) + 1))]


@pytest.mark.parametrize("folds", [2, 4])
def test_what_each_member_trains_on_for_how_long_and_from_which_model(folds):
    members = ("sources", "target", "tuned", "head", "blend", "prior")
    plan = MixturePlan(folds, epochs=(1, 3), members=members)
    trained = mix(plan, train_head=train_head, blend=blend)
    assert trained.folds.tolist() == stratified_folds(LABELS, folds, derive_seed(7, "folds")).tolist()

    def steps(stream, epochs):
        views = enumerate(views_of(trained.folds))
        return [tuple((f"{stream}-{v}", epoch, view) for epoch in range(1, epochs + 1)) for v, view in views]

    assert trained.models == {
        "sources": [Toy("sources")],
        "target": [Toy("first", each) for each in steps("target", 3)],
        "tuned-1": [Toy("sources", each) for each in steps("tuned", 1)],
        "tuned-3": [Toy("sources", each) for each in steps("tuned", 3)],
        "head": [Toy("head of sources", each) for each in steps("head", 3)],
        "blend": [
            Toy("blend", ((f"sources and target-{v}", 0, view),))
            for v, view in enumerate(views_of(trained.folds))
        ],
    }
    assert list(trained.mixture.weights) == [*trained.models, "prior"]
    assert sum(trained.mixture.weights.values()) == pytest.approx(1)


def test_the_targets_own_model_is_trained_for_a_blend_and_not_weighed():
    trained = mix(MixturePlan(members=("blend", "prior")), blend=blend)
    assert list(trained.models) == ["target", "blend"]
    assert list(trained.mixture.weights) == ["blend", "prior"]
    assert list(trained.outputs(lambda model: remembers(model, np.arange(15)))) == ["blend", "prior"]
    assert list(mix(MixturePlan(members=("head",)), train_head=train_head).models) == ["head"]


@pytest.mark.parametrize(("labels", "longer"), [(LABELS, 30), (np.arange(500) % 3, 10)])
def test_the_snapshots_are_after_1_and_30_epochs_or_10_with_500_labels(labels, longer):
    trained = mix(labels=labels, predict=lambda model, positions: remembers(model, positions, labels))
    assert list(trained.models) == ["sources", "target", "tuned-1", f"tuned-{longer}"]
    assert list(trained.mixture.weights) == [*trained.models, "prior"]
    assert all(model.epochs == [1] for model in trained.models["tuned-1"])
    assert all(model.epochs == list(range(1, longer + 1)) for model in trained.models[f"tuned-{longer}"])


def test_a_held_out_sample_is_predicted_by_the_model_of_its_own_fold_which_has_not_seen_it():
    trained = mix()  # the sources' model is right, by e²; whoever remembers its samples knows no others
    assert trained.held_out["sources"] == pytest.approx(np.eye(3)[LABELS] * 2)
    assert not any(trained.held_out[name].any() for name in ("target", "tuned-1", "tuned-30"))
    assert trained.mixture.weights["sources"] > 0.7
    models = []

    def predict(model, positions):
        models.append(model)
        return np.stack([np.full(len(positions), len(models) - 1.0), positions.astype(float)], axis=1)

    labels = LABELS % 2
    trained = mix(MixturePlan(members=("target",)), labels, predict)
    for i, (number, position) in enumerate(trained.held_out["target"].tolist()):
        assert position == i
        assert models[int(number)] == trained.models["target"][1 + trained.folds[i]]
        assert i not in models[int(number)].seen


@pytest.mark.parametrize(("views", "models"), [("all", {"sources": 1, "target": 5}), ("full", {"target": 1})])
def test_a_prediction_takes_the_models_of_all_views_or_those_of_all_labels(views, models):
    trained = mix(MixturePlan(members=("sources", "target", "prior"), views=views))
    asked = []

    def predict(model):
        asked.append(model)
        return np.zeros((2, 3))

    outputs = trained.outputs(predict)
    assert {name: len(found) for name, found in outputs.items()} == {"sources": 1, "prior": 5, **models} | (
        {"prior": 1} if views == "full" else {}
    )
    assert asked == [Toy("sources"), *trained.models["target"][: models["target"]]]
    assert all(array.shape == (2, 3) for found in outputs.values() for array in found)


def diverges(*streams):
    """Models trained with these random numbers predict NaN."""

    def predict(model, positions):
        outputs = remembers(model, positions)
        return outputs * np.nan if {step[0] for step in model.steps} & set(streams) else outputs

    return predict


@pytest.mark.parametrize("stream", ["target-0", "target-3"])
def test_a_member_of_which_one_model_diverges_is_left_out(stream):
    predict = diverges(stream)
    trained = mix(predict=predict)
    assert trained.mixture.left_out == ("target",)
    assert "target" not in trained.mixture.weights
    found = trained.predict(lambda model: predict(model, np.arange(4)))
    assert np.isfinite(found).all()


def test_if_all_models_diverge_the_prior_is_left_and_without_it_nothing():
    predict = diverges("target-0")
    trained = mix(MixturePlan(members=("target", "prior")), predict=predict)
    assert trained.mixture.weights == {"prior": 1.0}
    found = trained.predict(lambda model: np.full((4, 3), np.nan))
    assert found == pytest.approx(np.full((4, 3), 1 / 3), abs=0.02)
    with pytest.raises(RunError, check=names("mixture")):
        mix(MixturePlan(members=("target",)), predict=predict)


never = Mock(side_effect=AssertionError("nothing may be trained"))


@pytest.mark.parametrize(
    ("asked", "labels", "error"),
    [
        ({}, LABELS[:7], ("target-samples", 7)),
        ({"plan": MixturePlan(members=("target", "head"))}, LABELS, ("members names", "head")),
        ({"plan": MixturePlan(members=("target", "blend"))}, LABELS, ("members names", "blend")),
        ({"groups": np.arange(15) // 5}, LABELS, ("groups", 3)),
        ({}, LABELS + 1, ("mixture", None, "go from 1 to 3")),
        ({}, LABELS * np.nan, ("mixture",)),
        ({}, LABELS * 1.5, ("mixture", None, "'sources'")),
        ({}, LABELS == 1, ("mixture", None, "whole numbers")),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_trained(asked, labels, error):
    learner = Learner(never, lambda model, positions: np.zeros((len(positions), 3)))
    with pytest.raises(ConfigError, check=names(*error)):
        train_mixture(learner, labels, sources=Toy("s"), first=Toy("f"), rounds=[1], **asked)


@pytest.mark.parametrize("regression", [False, True])
def test_what_is_held_out_of_a_fold_of_patients_does_not_depend_on_its_labels(regression):
    """Neither by models nor by weights and temperatures; one sample each has those of all labels, as ever."""
    rng = np.random.default_rng(0)
    folds, groups = np.repeat(np.arange(4), 6), np.arange(24) // 2
    held_out = {name: rng.normal(size=(24, 2)) for name in ("sources", "tuned-1", PRIOR)}
    labels = rng.normal(size=(24, 2)) if regression else rng.integers(0, 2, 24)
    other = (
        np.where((folds == 1)[:, None], -labels, labels)
        if regression
        else np.where(folds == 1, 1 - labels, labels)
    )
    found = []
    for y in (labels, other):
        members = {name: z for name, z in held_out.items() if name != PRIOR}
        mixture = fit_mixture(members, y, folds, groups)
        trained = TrainedMixture(mixture, {}, [], held_out, folds, "all")
        found.append(trained.held_out_predictions(y, groups))
        alone = mixture.predict({name: [held_out[name]] for name in mixture.weights})
        np.testing.assert_array_equal(trained.held_out_predictions(y), alone)
    np.testing.assert_array_equal(found[0][folds == 1], found[1][folds == 1])
    assert not np.allclose(found[0][folds != 1], found[1][folds != 1])
