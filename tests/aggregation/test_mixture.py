"""A mixture: temperatures, weights, predictions, folds, and the plan of what it consists of."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from naming import names

from fda_flower.aggregation import PRIOR, Mixture, fit_mixture, prior_outputs, stratified_folds
from fda_flower.aggregation import mixture as module
from fda_flower.aggregation.mixture import (
    MEMBERS,
    TEMPERATURES,
    MixturePlan,
    class_weights,
    log_softmax,
    regression_weights,
    temperature,
)
from fda_flower.errors import ConfigError

LOGITS = arrays(np.float64, (12, 3), elements=st.floats(-20, 20))
LABELS = arrays(np.int64, 12, elements=st.integers(0, 2))


def logits_for(labels, strength, classes=3):
    return np.eye(classes)[labels] * strength


def test_log_softmax_by_hand():
    found = log_softmax(np.array([[0.0, math.log(4), math.log(4)]]), 2.0)
    assert np.exp(found[0]) == pytest.approx([1 / 5, 2 / 5, 2 / 5])
    assert log_softmax(np.array([[1e30, 0.0, -1e30]])).tolist() == [[0.0, -1e30, -2e30]]


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 0, 0], [1, 2, 1]])
def test_the_temperature_is_the_best_of_the_grid(labels):
    z, y = np.array([[2.0, 0.0, -1.0], [0.5, 3.0, 0.0], [1.0, 1.5, 0.0]]), np.array(labels)

    def loss(T):
        probabilities = np.exp(z / T) / np.exp(z / T).sum(axis=1, keepdims=True)
        return float(-np.log(probabilities[range(3), y]).sum() + math.log(T) ** 2 / 2)

    assert temperature(z, y) == min(TEMPERATURES.tolist(), key=loss)


def test_the_grid_of_temperatures_goes_from_03_to_30():
    assert np.array([0.3 * 100 ** (i / 39) for i in range(40)]) == pytest.approx(TEMPERATURES)


def posterior_mean(likelihood):
    """The mean weight of the first of two members, whose weights have the likelihood on `GRID`."""
    priors = [density / density.sum() for a in (1.0, 0.3) for density in [(GRID * (1 - GRID)) ** (a - 1)]]
    posterior = likelihood * sum(priors)
    return float((posterior * GRID).sum() / posterior.sum())


GRID = np.linspace(1e-5, 1 - 1e-5, 200_001)


def test_weights_by_brute_force_over_two_members():
    q = np.array([[0.9, 0.2, 0.6, 0.7], [0.3, 0.8, 0.5, 0.1]])
    likelihood = np.prod(GRID[:, None] * q[0] + (1 - GRID)[:, None] * q[1], axis=1)
    assert class_weights(q)[0] == pytest.approx(posterior_mean(likelihood), abs=0.01)
    z, y = np.array([[[1.0], [2.0], [0.0]], [[0.0], [0.0], [3.0]]]), np.array([[0.8], [1.5], [1.0]])
    errors = ((GRID[:, None] * z[0, :, 0] + (1 - GRID)[:, None] * z[1, :, 0] - y[:, 0]) ** 2).mean(axis=1)
    assert regression_weights(z, y)[0] == pytest.approx(posterior_mean(errors ** (-3 / 2)), abs=0.01)


def test_ten_thousand_labels_need_little_memory_and_have_the_bits_of_one_go(monkeypatch):
    q = np.random.default_rng(0).random((2, 10_000))
    tracemalloc.start()
    try:
        found = class_weights(q)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50e6
    few = q[:, :500]
    in_chunks = class_weights(few)
    monkeypatch.setattr(module, "CHUNK", 10**9)
    np.testing.assert_array_equal(class_weights(few), in_chunks)
    assert found.sum() == pytest.approx(1)


def test_a_regression_with_several_outputs_weighs_all_of_them():
    y = np.array([[0.0, 1.0], [2.0, -1.0], [1.0, 0.5], [3.0, 2.0]])
    mixture = fit_mixture({"exact": y, "zero": np.zeros_like(y)}, y)
    assert mixture.regression
    assert mixture.weights["exact"] > 0.95
    predicted = mixture.predict({"exact": [y], "zero": [np.zeros_like(y)]})
    assert predicted == pytest.approx(mixture.weights["exact"] * y)


@given(LOGITS, LOGITS, LABELS, st.permutations(range(12)), st.floats(-5, 5))
def test_what_always_holds_of_a_fit(a, b, y, order, shift):
    mixture, order = fit_mixture({"a": a, "b": b}, y), list(order)
    assert sum(mixture.weights.values()) == pytest.approx(1)
    assert min(mixture.weights.values()) >= 0
    predicted = mixture.predict({"a": [a, b], "b": [b]})
    assert predicted.sum(axis=1) == pytest.approx(np.ones(12))
    assert predicted.min() >= 0
    # Neither the order of the samples nor a constant in the logits matters.
    other = fit_mixture({"a": a[order], "b": b[order]}, y[order])
    assert mixture.weights == pytest.approx(other.weights, abs=1e-9)
    assert mixture.temperatures == other.temperatures
    assert fit_mixture({"a": a, "b": b + shift}, y).weights == pytest.approx(mixture.weights, abs=1e-6)


def test_a_prediction_by_hand():
    """Two members with weights .25 and .75; the first has views with geometric mean (√(.8·.2), √(.2·.8))."""
    mixture = Mixture({"a": 0.25, "b": 0.75}, {"a": 1.0, "b": 2.0}, regression=False)
    whole, fold = np.log([[0.8, 0.2]]), np.log([[0.2, 0.8]])
    b = 2 * np.log([[0.9, 0.1]])
    found = mixture.predict({"a": [whole, fold], "b": [b]})
    assert found[0] == pytest.approx(np.array([0.1 + 0.675, 0.1 + 0.075]) / 0.95)


def test_all_labels_count_as_much_as_all_folds_together():
    mixture = Mixture({"a": 1.0}, {}, regression=True)
    found = mixture.predict({"a": [np.array([[4.0]]), np.array([[1.0]]), np.array([[2.0]])]})
    assert found.tolist() == [[(4 + 1.5) / 2]]


def test_the_prior_by_hand():
    labels = np.array([0, 0, 1])
    assert np.exp(prior_outputs(labels, 3)[0]) == pytest.approx([3 / 6, 2 / 6, 1 / 6])
    assert prior_outputs(np.array([[1.0, 2.0], [3.0, 6.0]]), 2).tolist() == [[2.0, 4.0]]


def test_the_prior_predicts_a_sample_without_its_fold():
    """All labels but the first are of class 1; without its fold the first is the rarest."""
    y, folds = np.array([0, 1, 1, 1]), np.array([0, 1, 0, 1])
    flat = np.zeros((4, 2))
    without = fit_mixture({"flat": flat}, y, folds)
    q = np.array([[1 / 4, 2 / 4, 3 / 4, 2 / 4], [0.5] * 4])
    assert without.weights[PRIOR] == pytest.approx(class_weights(q[::-1])[1], abs=1e-12)


def test_a_member_whose_outputs_are_not_finite_is_left_out():
    y = np.array([0, 1, 2, 0])
    broken = logits_for(y, 9.0)
    broken[2, 1] = np.nan
    mixture = fit_mixture({"broken": broken, "good": logits_for(y, 3.0)}, y)
    assert mixture.left_out == ("broken",)
    assert mixture.weights == {"good": 1.0}


ZEROS = np.zeros((2, 2))


@pytest.mark.parametrize(
    ("outputs", "labels", "folds", "error"),
    [
        ({"a": np.zeros((3, 2))}, [0, 1], None, r"'a' have shape \(3, 2\), expected \(2, 2\)"),
        ({"a": ZEROS, "b": np.zeros((2, 3))}, [0, 1], None, "'a' have shape"),
        ({"a": ZEROS}, [0, 2], None, "from 0 to 2, but there are outputs for 2 classes"),
        ({"a": ZEROS}, [-1, 1], None, "the labels go from -1"),
        ({"a": np.zeros((0, 2))}, np.zeros(0, np.int64), None, "no labels"),
        ({"a": np.full((2, 2), np.inf)}, [0, 1], None, "no member has finite outputs"),
        ({"a": ZEROS}, [0.5, np.nan], None, "not all labels are finite"),
        ({"a": ZEROS}, [True, False], None, "the labels are bool"),
        ({"a": ZEROS}, ["a", "b"], None, "the labels are <U1"),
        ({"a": ZEROS}, [[0], [1]], None, r"the classes have shape \(2, 1\)"),
        ({PRIOR: ZEROS}, [0, 1], [0, 1], f"'{PRIOR}' is the member that folds add"),
        ({"a": ZEROS}, [0, 1], [0, 1, 0], r"folds have shape \(3,\), expected \(2,\)"),
        ({"a": ZEROS}, [0, 1], [1, 1], "all samples are in fold 1"),
    ],
)
def test_what_cannot_be_fitted_is_refused(outputs, labels, folds, error):
    with pytest.raises(ValueError, match=error):
        fit_mixture(outputs, np.array(labels), None if folds is None else np.array(folds))


def test_without_folds_a_member_may_have_the_name_that_they_add():
    assert list(fit_mixture({PRIOR: np.eye(2)}, np.array([0, 1])).weights) == [PRIOR]


def test_predicted_numbers_need_no_second_axis():
    y = np.linspace(0, 1, 12)
    mixture = fit_mixture({"a": y, "b": y / 2}, y)
    flat, columns = ({"a": [y], "b": [y / 2]}, {"a": [y[:, None]], "b": [y[:, None] / 2]})
    assert mixture.predict(flat).shape == (12, 1)
    assert mixture.predict(flat).tobytes() == mixture.predict(columns).tobytes()


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_member_does_not_count_for_a_sample_for_which_its_outputs_are_not_finite(broken):
    good, bad = np.array([[0.0, 1.0], [3.0, 1.0]]), np.array([[1.0, 0.0], [2.0, broken]])
    for regression in (False, True):
        mixture = Mixture({"good": 0.25, "bad": 0.75}, {}, regression)
        found = mixture.predict({"good": [good], "bad": [bad]})
        alone = Mixture({"good": 1.0}, {}, regression).predict({"good": [good]})
        assert found[1] == pytest.approx(alone[1])
        assert found[0] == pytest.approx(mixture.predict({"good": [good[:1]], "bad": [bad[:1]]})[0])
        assert found[0] != pytest.approx(alone[0])


def test_a_prediction_needs_outputs_of_all_members():
    with pytest.raises(ValueError, match="'b'"):
        Mixture({"a": 0.5, "b": 0.5}, {}, False).predict({"a": [np.zeros((1, 2))]})
    with np.errstate(all="ignore"):
        found = Mixture({"a": 1.0}, {}, False).predict({"a": [np.full((1, 2), np.nan)]})
    assert np.isnan(found).all()


@given(arrays(np.int64, st.integers(8, 60), elements=st.integers(0, 4)), st.integers(2, 4))
def test_folds_have_the_same_size_and_the_same_share_of_each_class(labels, folds):
    found = stratified_folds(labels, folds, seed=1)
    sizes = np.bincount(found, minlength=folds)
    assert sizes.max() - sizes.min() <= 1
    for label in np.unique(labels):
        counts = np.bincount(found[labels == label], minlength=folds)
        assert counts.max() - counts.min() <= 1


def test_folds_follow_from_the_seed():
    labels, numbers = np.arange(40) % 3, np.linspace(0, 1, 10)
    assert stratified_folds(labels, 4, 7).tolist() == stratified_folds(labels, 4, 7).tolist()
    assert stratified_folds(labels, 4, 7).tolist() != stratified_folds(labels, 4, 8).tolist()
    assert stratified_folds(numbers, 2, 3).tolist() == stratified_folds(numbers[::-1], 2, 3).tolist()


@given(arrays(np.int64, st.integers(8, 60), elements=st.integers(0, 4)), st.integers(2, 4), st.data())
def test_a_group_is_in_one_fold(labels, folds, data):
    groups = data.draw(arrays(np.int64, len(labels), elements=st.integers(0, 12)))
    for y in (labels, labels.astype(float)):
        found = stratified_folds(y, folds, 1, groups)
        assert all(len(np.unique(found[groups == group])) == 1 for group in groups)
        assert len(np.unique(found)) == min(folds, len(np.unique(groups)))


@given(st.integers(8, 40), st.integers(2, 5), st.integers(0, 2**32 - 1), st.booleans())
def test_folds_follow_from_who_is_whose_patient_whatever_the_order_of_rows_and_type_of_names(
    n, folds, seed, numbers
):
    rng = np.random.default_rng(seed)
    labels, groups = (
        rng.integers(0, 3, n).astype(float if numbers else int),
        rng.integers(0, 2000, n // 2)[rng.integers(0, n // 2, n)],
    )
    order, found = rng.permutation(n), stratified_folds(labels, folds, 4, groups)
    assert stratified_folds(labels[order], folds, 4, groups[order]).tolist() == found[order].tolist()
    for same in (groups.astype(np.int32), groups.astype(str), groups.astype(object)):
        assert stratified_folds(labels, folds, 4, same).tolist() == found.tolist()


@given(arrays(np.int64, 12, elements=st.integers(0, 3)))
def test_groups_of_one_sample_are_dealt_like_samples(labels):
    for y in (labels, labels.astype(float)):
        assert stratified_folds(y, 3, 5, np.arange(12) * 7).tolist() == stratified_folds(y, 3, 5).tolist()


def test_groups_are_dealt_by_their_most_frequent_class_the_largest_first():
    groups = np.array([0, 0, 0, 1, 1, 1, 2, 3, 4, 4, 5, 5, 6, 7])
    labels = np.array([0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    found = dict(zip(groups.tolist(), stratified_folds(labels, 2, 3, groups).tolist(), strict=True))
    assert {found[0], found[1]} == {found[2], found[3]} == {0, 1}, "class 0: two large groups, two small ones"
    assert {found[4], found[5]} == {found[6], found[7]} == {0, 1}, "class 1"


# --- The plan ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "models", "epochs"),
    [
        # The sources' model, and five each of: the target's own, tuned for 1 epoch, tuned for 30.
        # All labels, and four times three quarters of them, are 4 epochs of all labels.
        (MixturePlan(), 16, 4 * (12 + 2 * 30)),
        (MixturePlan(views="full"), 4, 4 * (12 + 2 * 30)),
        (MixturePlan(folds=2), 1 + 3 * 3, 2 * (12 + 2 * 30)),
        (MixturePlan(folds=3, epochs=(1, 2, 5)), 1 + 4 * 4, 3 * (12 + 2 * 5)),
        (MixturePlan(members=("sources",)), 1, 0),
        (MixturePlan(members=("target", "prior")), 5, 4 * 12),
        (MixturePlan(members=("sources", "blend")), 6, 4 * 12),
        (MixturePlan(members=("sources", "tuned", "prior")), 11, 4 * 2 * 30),
        (MixturePlan(members=MEMBERS), 1 + 5 * 5, 4 * (12 + 2 * 2 * 30)),
    ],
)
def test_what_a_plan_costs_in_models_and_in_epochs_of_12_rounds_with_2_evaluations(plan, models, epochs):
    assert plan.models == models
    assert plan.epochs_of(100, 12, 2) == epochs


def test_the_longer_snapshot_is_shorter_with_many_labels_unless_epochs_are_given():
    assert [MixturePlan().snapshots(labels) for labels in (8, 499, 500)] == [(1, 30), (1, 30), (1, 10)]
    assert MixturePlan().epochs_of(500, 12, 2) == 4 * (12 + 2 * 10)
    assert MixturePlan(epochs=(2, 5, 7)).snapshots(500) == (2, 5, 7)


@pytest.mark.parametrize(
    ("options", "value", "remedy"),
    [
        ({"folds": 1}, 1, "from 2 to 100"),
        ({"epochs": (0, 3)}, [0, 3], "1,30"),
        ({"epochs": (3, 3)}, [3, 3], "1,30"),
        ({"epochs": (1.5,)}, [1.5], "1,30"),
        ({"epochs": 5}, 5, "1,30"),
        ({"members": ()}, "empty", "sources, target, tuned, head, blend, prior"),
        ({"members": ("prior",)}, "prior", "one that is a model"),
        ({"members": ("target", "target")}, "target, target", "each once"),
        ({"views": "some"}, "some", "all or full"),
    ],
)
def test_what_cannot_work_is_refused_by_name_value_and_remedy(options, value, remedy):
    with pytest.raises(ConfigError, check=names(next(iter(options)), value, remedy)):
        MixturePlan(**options)


def test_an_unknown_member_is_refused():
    with pytest.raises(ConfigError, check=names("member", "best", "blend, head, prior, sources")):
        MixturePlan(members=("sources", "best"))


def test_each_fold_needs_two_labels_of_different_units():
    MixturePlan(folds=3).check_labels(6)
    MixturePlan(folds=3).check_labels(24, units=6)
    with pytest.raises(ConfigError, check=names("target-samples", 5, "give more samples")):
        MixturePlan(folds=3).check_labels(5)
    with pytest.raises(ConfigError, check=names("groups", 5, "give more patients")):
        MixturePlan(folds=3).check_labels(24, units=5)
