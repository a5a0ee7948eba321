"""Conformal prediction: the ranks by hand, the promise by enumeration, and two other packages' sets."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fda_flower.aggregation import Calibration, labels_for, sets_of
from fda_flower.aggregation.conformal import ENOUGH, threshold

COVERAGES = [0.5, 0.7, 0.75, 0.8, 0.9]


@pytest.mark.parametrize(
    ("labels", "coverage", "rank"), [(9, 0.9, 9), (10, 0.9, 10), (19, 0.9, 18), (29, 0.9, 27), (7, 0.875, 7)]
)
def test_the_threshold_is_an_exact_rank(labels, coverage, rank):
    scores = np.random.default_rng(0).permutation(labels) + 1.0
    assert threshold(scores, coverage) == rank


def test_the_threshold_of_units_by_hand():
    """Three patients of 1, 2 and 3 samples: from the smallest on, the sums are 2, 5, 7, 10, 12, 18 of 24."""
    scores, sizes = np.array([0.6, 0.2, 0.4, 0.1, 0.3, 0.5]), np.array([1, 2, 2, 3, 3, 3])
    found = [threshold(scores, c, sizes) for c in (0.01, 0.08, 0.09, 0.2, 0.29, 0.3, 0.45, 0.5, 0.51, 0.75)]
    assert found == [0.1, 0.1, 0.2, 0.2, 0.3, 0.4, 0.5, 0.5, 0.6, 0.6]
    with pytest.raises(ValueError, match="6 scores of 3 units"):
        threshold(scores, 0.76, sizes)


@pytest.mark.parametrize(("labels", "coverage"), [(8, 0.9), (7, 0.876), (5, 1.0), (5, 0.0)])
def test_more_than_can_be_promised_is_refused(labels, coverage):
    with pytest.raises(ValueError, match=f"{labels} scores"):
        threshold(np.arange(labels), coverage)


@given(st.integers(1, 400), st.integers(1, 999))
def test_the_fewest_labels_are_those_that_can_promise_a_coverage(labels, thousandths):
    calibration = Calibration(np.zeros((labels, 1)), np.zeros(0, np.int64))
    assert calibration.most == Fraction(labels, labels + 1)
    assert (labels_for(thousandths / 1000) <= labels) == (Fraction(thousandths, 1000) <= calibration.most)


@pytest.mark.parametrize("coverage", COVERAGES)
@given(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 1.0]), min_size=10, max_size=14))
def test_of_any_samples_the_share_asked_for_is_covered_as_each_is_the_new_one_in_turn(coverage, scores):
    covered = [
        scores[new] <= threshold(np.array(scores[:new] + scores[new + 1 :]), coverage)
        for new in range(len(scores))
    ]
    assert Fraction(sum(covered), len(scores)) >= Fraction(str(coverage))
    if len(set(scores)) == len(scores):
        assert Fraction(sum(covered) - 1, len(scores)) < Fraction(str(coverage))


SCORES = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 1.0]), min_size=1, max_size=5)


@pytest.mark.parametrize("coverage", [0.5, 0.75, 0.8])
@given(st.lists(SCORES, min_size=6, max_size=9))
def test_of_any_patients_the_share_asked_for_is_covered_as_each_is_the_new_one_in_turn(coverage, patients):
    """The share is of a new patient's samples, exactly: the mean over patients of each one's share."""
    covered = []
    for new, own in enumerate(patients):
        rest = patients[:new] + patients[new + 1 :]
        scores, groups = np.concatenate(rest), np.repeat(range(len(rest)), list(map(len, rest)))
        calibration = Calibration.of(-scores[:, None], np.zeros(len(scores)), groups)
        (limit,) = calibration.thresholds(coverage, 1)
        covered.append(Fraction(sum(score <= limit for score in own), len(own)))
    assert sum(covered) / len(covered) >= Fraction(str(coverage))


@given(st.data())
def test_of_a_class_with_enough_patients_the_share_asked_for_is_covered_too(data):
    count = data.draw(st.integers(4, 7))
    patients = [data.draw(SCORES) for _ in range(count)]
    groups = np.repeat(range(count), list(map(len, patients)))
    scores, classes = (
        np.concatenate(patients),
        data.draw(arrays.arrays(np.int64, len(groups), elements=st.integers(0, 1))),
    )
    covered = []
    for new in range(count):
        rest, own = groups != new, (groups == new) & (classes == 0)
        if not own.any():
            continue
        held_out = np.stack([1 - scores, 1 - scores], axis=1)
        limits = Calibration.of(held_out[rest], classes[rest], groups[rest]).thresholds(0.5, 2)
        covered.append(Fraction(int((scores[own] <= limits[0] + 1e-12).sum()), int(own.sum())))
    if len(covered) > ENOUGH * labels_for(0.5):
        assert sum(covered) / len(covered) >= Fraction(1, 2)


@given(st.integers(0, 10**6), st.booleans())
def test_a_calibration_does_not_tell_which_samples_are_one_patients(seed, numbers):
    """Nor does their order say anything; what it stores can be read, and has the number of patients."""
    rng = np.random.default_rng(seed)
    groups, order = rng.integers(0, 6, 20), rng.permutation(20)
    held_out, labels = rng.dirichlet(np.ones(3), 20).round(1), rng.integers(0, 3, 20)
    if numbers:
        labels = rng.normal(size=(20, 3)).round()  # type: ignore[assignment]
    found = Calibration.of(held_out, labels, groups)
    moved = Calibration.of(held_out[order], labels[order], groups[order] * 100)
    read = Calibration.from_arrays(found.to_arrays())
    for name, array in found.to_arrays().items():
        assert np.array_equal(array, moved.to_arrays()[name])
        assert np.array_equal(array, read.to_arrays()[name])
    assert found.units == read.units == len(np.unique(groups))
    assert found.labels == 20
    alone = Calibration.of(held_out, labels, np.arange(20))
    assert sorted(alone.to_arrays()) == ["classes", "scores"], "as before there were units"


@pytest.mark.parametrize("coverage", [0.5, 0.75])
@given(st.data())
def test_a_class_with_enough_labels_is_covered_alone_and_the_others_no_less_than_by_all_labels(
    coverage, data
):
    count = data.draw(st.integers(8, 20))
    scores = data.draw(arrays.arrays(np.float64, count, elements=st.sampled_from([0.1, 0.3, 0.5, 0.8])))
    classes = data.draw(arrays.arrays(np.int64, count, elements=st.integers(0, 2)))
    covered = np.zeros(count, bool)
    for new in range(count):
        rest = np.arange(count) != new
        limits = Calibration(scores[rest, None], classes[rest]).thresholds(coverage, 3)
        covered[new] = scores[new] <= limits[classes[new]]
        if (np.bincount(classes[rest], minlength=3) < ENOUGH * labels_for(coverage)).any():
            assert limits.min() >= threshold(scores[rest], coverage)
    for label, number in enumerate(np.bincount(classes, minlength=3)):
        if number > ENOUGH * labels_for(coverage):
            assert covered[classes == label].mean() >= coverage


def test_scores_are_of_the_labels_and_in_an_order_that_tells_nothing_of_the_samples():
    held_out = np.array([[0.5, 0.5], [0.25, 0.75], [0.75, 0.25], [1.0, 0.0]])
    calibration = Calibration.of(held_out, np.array([1, 1, 0, 1]))
    assert calibration.scores.ravel().tolist() == [0.25, 0.25, 0.5, 1.0]
    assert calibration.classes.tolist() == [0, 1, 1, 1]
    numbers = Calibration.of(np.array([[1.0, 0.0], [2.0, 5.0]]), np.array([[4.0, 1.0], [1.0, 9.0]]))
    assert numbers.scores.tolist() == [[1.0, 1.0], [3.0, 4.0]]
    assert numbers.thresholds(0.5, 2).tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    "change",
    [
        {"scores": np.zeros((0, 1))},
        {"scores": np.array([[np.nan], [1.0]])},
        {"scores": np.zeros((2, 1), np.float32)},
        {"classes": np.zeros(3, np.int64)},
        {"classes": np.zeros(2)},
        {"classes": np.array([-1, 0])},
    ],
    ids=str,
)
def test_arrays_that_no_labels_can_have_are_refused(change):
    whole = Calibration(np.array([[0.5], [1.0]]), np.array([0, 1])).to_arrays()
    assert Calibration.from_arrays(whole).labels == 2
    with pytest.raises(ValueError, match="held-out scores"):
        Calibration.from_arrays({**whole, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": np.array([[2], [2]])},
        {"sizes": np.array([[0], [2], [2]])},
        {"sizes": np.array([[3], [3], [2]])},
        {"sizes": np.array([[2.0], [2.0], [1.0]])},
        {"of-class": np.array([1, 2, 1])},
        {"of-class": np.array([1, 1])},
        {"of-class": np.array([1, 1, 0])},
        {"sizes": np.ones((3, 1), np.int64), "of-class": np.array([2, 2, 1])},
        {"ends": np.array([[True, True], [True, True], [True, False]])},
        {"ends": np.zeros((3, 2), bool)},
        {"ends": np.zeros((3, 2), np.int64)},
        {"ends": np.zeros((3, 1), bool)},
    ],
    ids=str,
)
def test_units_that_no_samples_can_have_are_refused(change):
    held_out, labels = np.array([[0.9, 0.1], [0.7, 0.3], [0.5, 0.5]]), np.array([0, 0, 1])
    whole = Calibration.of(held_out, labels, np.array([3, 1, 1])).to_arrays()
    assert Calibration.from_arrays(whole).units == 2
    with pytest.raises(ValueError, match="held-out scores"):
        Calibration.from_arrays({**whole, **change})
    with pytest.raises(KeyError):
        Calibration.from_arrays({name: array for name, array in whole.items() if name != "sizes"})


def shares(*columns):
    raw = np.stack(columns, axis=1).astype(np.float64)
    return raw / raw.sum(axis=1, keepdims=True)


def test_sets_are_those_of_mapie_and_crepes():
    """Pinned: MAPIE 1.6.0, SplitConformalClassifier with the score lac; crepes 0.9.1, ConformalClassifier."""
    i, j = np.arange(12), np.arange(5)
    known = shares(1 + (3 * i) % 7, 1 + (5 * i + 2) % 11, 1 + (2 * i + 1) % 5)
    labels = known.argmax(axis=1)
    labels[[4, 9]] = 0, 1
    limit = threshold(Calibration.of(known, labels).scores[:, 0], 0.7)
    new = shares(1 + (2 * j) % 5, 1 + (3 * j + 1) % 7, 2 + j % 3)
    expected = [[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0]]
    assert sets_of(new, np.full(3, limit)).astype(int).tolist() == expected


def test_intervals_are_those_of_mapie_and_crepes():
    """Pinned: MAPIE 1.6.0, CrossConformalRegressor with cv=12, "base"; crepes 0.9.1, ConformalRegressor."""
    from sklearn.linear_model import Ridge

    i = np.arange(12)
    x = (i % 5 + i / 4)[:, None]
    y = 2 * x[:, 0] + [0.5, -1, 0.25, 2, -0.75, 1.5, -2, 0.1, 1, -0.3, 0.6, -1.2]
    others = [i != each for each in i]
    held_out = [Ridge().fit(x[o], y[o]).predict(x[~o]) for o in others]
    half = Calibration.of(np.array(held_out), y).thresholds(0.8, 1)
    middle = Ridge().fit(x, y).predict([[1.0], [6.0]])[:, None]
    expected = [[0.0587090673832984, 4.482238479148003], [9.559555091071964, 13.983084502836668]]
    np.testing.assert_allclose(np.hstack([middle - half, middle + half]), expected, rtol=1e-12)
