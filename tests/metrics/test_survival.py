"""The metrics of survival, against other packages and by hand."""

import numpy as np
import pytest

from fda_flower.aggregation.survival import Outcomes
from fda_flower.metrics.survival import brier_scores, concordance, measure_survival, of_curve

PLACES = np.arange(40)
OUTCOMES = Outcomes((PLACES * 37 % 101 + 1).astype(float), PLACES % 3 != 0, (20.0, 45.0, 70.0))
RISK = np.round(PLACES * 53 % 23 - OUTCOMES.times / 4)
CURVES = np.exp(-np.outer(np.exp(RISK / 20), OUTCOMES.horizons) / 80)


def test_the_metrics_are_those_of_scikit_survival():
    """`concordance_index_ipcw`, `concordance_index_censored` and `brier_score` of scikit-survival 0.28.0.

    No patient is lost from sight when another has the event, where its G would be another. Harrell's C is
    also that of `concordance_index` of lifelines 0.30.3.
    """
    times, events = OUTCOMES.times, OUTCOMES.events
    uno = concordance(RISK, times, events, until=70.0, weighed=True)
    assert uno == pytest.approx(0.6835355775147647, abs=1e-12)
    assert concordance(RISK, times, events) == pytest.approx(0.7208067940552016, abs=1e-12)
    known = [0.0891623208775006, 0.17512140959428804, 0.20880951342477524]
    np.testing.assert_allclose(brier_scores(CURVES, OUTCOMES), known, atol=1e-12)
    metrics = measure_survival(2 * CURVES - 1, OUTCOMES)
    assert metrics["brier"] == pytest.approx(np.mean(known), abs=1e-12)
    assert metrics["harrell"] == pytest.approx(0.7208067940552016, abs=1e-12)


def test_a_patient_lost_when_another_has_the_event_lived_longer():
    """The rows of issue 428 of scikit-survival, worked out by hand with G just before an event.

    scikit-survival has 0.3742690, with G at the event, and survAUC 0.4129032, where such pairs do not count.
    """
    times = np.array([11.0, 11.0, 26.0, 89.0, 128.0, 299.0, 300.0])
    events = np.array([1, 0, 0, 1, 0, 1, 0], bool)
    risk = np.array([-0.02, 1.20, -0.56, -1.33, -0.81, 1.02, -1.29])
    by_hand = 4 / (6 + 3 * (3 / 2) ** 2)  # of the event at 89 none is right, and G is 2/3 before it
    uno = concordance(risk, times, events, until=299.0, weighed=True)
    assert uno == pytest.approx(by_hand) == pytest.approx(0.3137255, abs=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_half_for_everyone_has_a_brier_score_of_a_quarter(seed):
    """The weights have the mean 1, whatever the ties, while somebody is followed beyond the horizon."""
    rng = np.random.default_rng(seed)
    times, events = rng.integers(1, 9, 40).astype(float), rng.random(40) < 0.5
    outcomes = Outcomes(times, events, (2.0, 4.0, 6.0))
    np.testing.assert_allclose(brier_scores(np.full((40, 3), 0.5), outcomes), 0.25, rtol=1e-14)
    sure = [brier_scores(np.full((40, 3), share), outcomes) for share in (0.0, 1.0)]
    np.testing.assert_allclose(sum(sure), 1.0, rtol=1e-14)


def test_what_nobody_can_tell_is_left_out():
    """A horizon that nobody outlives, no two patients to compare, and outputs that are not finite."""
    outcomes = Outcomes(np.array([1.0, 2.0]), np.array([False, False]), (1.5, 3.0))
    assert measure_survival(np.zeros((2, 2)), outcomes) == {"brier": 0.25}
    assert measure_survival(np.full((2, 2), np.nan), outcomes) == {}
    late = Outcomes(np.array([1.0, 2.0]), np.array([True, False]), (3.0,))
    assert measure_survival(np.array([[-0.8], [0.8]]), late) == {"c-index": 1.0, "harrell": 1.0}


def test_the_curve_of_the_test_set_is_the_baseline():
    """It predicts the same for everyone, better than a half."""
    metrics = of_curve(OUTCOMES)
    assert metrics["c-index"] == metrics["harrell"] == 0.5
    everyone = np.tile(OUTCOMES.curve, (40, 1))
    assert measure_survival(2 * everyone - 1, OUTCOMES) == pytest.approx(metrics)
    assert metrics["brier"] < 0.25


def test_counts_repeat_patients():
    """As in a bootstrap."""
    counts = np.random.default_rng(0).multinomial(40, np.full(40, 1 / 40))
    drawn = np.repeat(PLACES, counts)
    some = (RISK[drawn], OUTCOMES.times[drawn], OUTCOMES.events[drawn], 70.0, True)
    once = (RISK, OUTCOMES.times, OUTCOMES.events, 70.0, True)
    assert concordance(*once, counts.astype(float)) == pytest.approx(concordance(*some))
