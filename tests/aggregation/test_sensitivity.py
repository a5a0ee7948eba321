"""A threshold for a sensitivity: its rank by brute force, its promise by simulation, patients and ties."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from fda_flower.aggregation import Calibration
from fda_flower.aggregation.sensitivity import Promise, flagged_units, flagging, net_benefit, reaches

SENSITIVITIES, RISKS = (0.7, 0.8, 0.9, 0.95), (0.05, 0.1, 0.2)


def largest(holds):
    """The largest number from 1 on for which a promise holds; 0 if it does for none."""
    return int(np.flatnonzero(holds).max(initial=-1)) + 1


@pytest.mark.parametrize("sensitivity", SENSITIVITIES)
def test_the_rank_is_scipys(sensitivity):
    for positives, risk in product(range(1, 201), RISKS):
        ranks = np.arange(1, positives + 1)
        least = beta.ppf(risk, positives + 1 - ranks, ranks)
        assert Promise(sensitivity, 1 - risk).rank(positives) == largest(least >= sensitivity)


@pytest.mark.parametrize("risk", [*RISKS, 0.25, None])
@pytest.mark.parametrize("sensitivity", [*SENSITIVITIES, 0.5, 0.999])
def test_the_needed_number_is_the_smallest_that_can_promise(sensitivity, risk):
    promise = Promise(sensitivity, None if risk is None else 1 - risk)
    assert promise.rank(promise.needed) >= 1
    assert not promise.rank(promise.needed - 1)


@pytest.mark.parametrize("confidence", [0.9, 0.95, None])
@pytest.mark.parametrize("positives", [0, 1, 2, 12, 40])
def test_the_most_is_the_largest_whole_percent(positives, confidence):
    most = Promise(0.999, confidence).most(positives)
    assert not positives or Promise(most / 100, confidence).rank(positives)
    assert not Promise((most + 1) / 100, confidence).rank(positives)


def test_a_rank_among_thousands_is_exact():
    rank = Promise(0.95).rank(20_000)
    assert binom.cdf(rank - 1, 20_000, 0.05) <= 0.1 < binom.cdf(rank, 20_000, 0.05)


def calibration(scores, others=(), groups=None):
    """The scores of positives and of others, by their probabilities of the class 1."""
    p = np.array([*others, *scores])
    labels = np.repeat([0, 1], [len(others), len(scores)])
    return Calibration.of(np.stack([1 - p, p], axis=1), labels, groups)


def test_in_simulations_the_sensitivity_is_kept_as_often_as_promised():
    """The true sensitivity of a threshold of uniform scores is 1 less the threshold."""
    draws = np.random.default_rng(0).random((2000, 30))
    thresholds = np.array([flagging(calibration(scores), 1, Promise(0.9)).threshold for scores in draws])
    assert 0.89 <= np.mean(1 - thresholds >= 0.9) <= 1
    average = np.sort(draws)[:, Promise(0.9, None).rank(30) - 1]
    assert np.mean(1 - average) == pytest.approx(28 / 31, abs=0.003)


@given(st.lists(st.sampled_from([0.1, 0.2, 0.4, 0.7, 0.9]), min_size=9, max_size=40))
def test_equal_probabilities_are_flagged_together(scores):
    rule = flagging(calibration(scores), 1, Promise(0.8, None))
    flags = rule.flags(np.array(scores))
    assert flags.mean() >= 0.8
    assert flags.tolist() == [score >= rule.threshold - 1e-9 for score in scores]
    assert rule.flags(np.array([rule.threshold], np.float32)).all()


@given(st.data())
def test_of_patients_with_several_rows_the_patients_count(data):
    """Each has its largest probability in each class: as if it had that row alone."""
    patients = [data.draw(st.lists(st.floats(0, 1), min_size=1, max_size=4)) for _ in range(12)]
    p, groups = np.concatenate(patients), np.repeat(range(12), [*map(len, patients)])
    labels = np.array([data.draw(st.integers(0, 1)) for _ in groups])
    labels[groups < 9] = 1
    held_out = np.stack([1 - p, p], axis=1)
    known = Calibration.of(held_out, labels, groups)
    rule = flagging(Calibration.from_arrays(known.to_arrays()), 1, Promise(0.8, None))
    pairs = {(group, label) for group, label in zip(groups.tolist(), labels.tolist(), strict=True)}
    best = {pair: p[(groups == pair[0]) & (labels == pair[1])].max() for pair in sorted(pairs)}
    alone = calibration(*([value for pair, value in best.items() if pair[1] == label] for label in (1, 0)))
    expected = flagging(alone, 1, Promise(0.8, None))
    assert rule.threshold == pytest.approx(expected.threshold, abs=1e-12)
    assert (rule.positives, rule.others) == (expected.positives, expected.others)
    flags, classes = flagged_units(reaches(p, rule.threshold), labels, groups)
    assert flags[classes == 1].sum() >= 0.8 * rule.positives
    assert rule.passed == (~flags[classes == 0]).sum()


def test_too_few_and_scores_of_unknown_patients_are_refused():
    with pytest.raises(ValueError, match="21 positives"):
        flagging(calibration(np.zeros(21)), 1, Promise(0.9))
    known = calibration([0.5, 0.6, 0.7], groups=np.array([1, 1, 2])).to_arrays()
    older = Calibration.from_arrays({name: array for name, array in known.items() if name != "ends"})
    assert not older.tells_units
    with pytest.raises(ValueError, match="patients"):
        flagging(older, 1, Promise(0.5, None))


def test_net_benefit_by_hand():
    flagged, ill = np.array([1, 1, 1, 0, 0], bool), np.array([1, 1, 0, 1, 0], bool)
    assert net_benefit(flagged, ill, 0.2) == pytest.approx((2 / 5 - 1 / 5 / 4, 3 / 5 - 2 / 5 / 4))
