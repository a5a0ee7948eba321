"""Survival curves and pseudo-values, against other packages and the jackknife itself."""

import numpy as np
import pytest

from fda_flower.aggregation.survival import (
    Outcomes,
    censoring_curve,
    default_horizons,
    mended,
    pseudo_values,
    risk_of,
    survival_curve,
)

TIMES = np.array([5, 3, 3, 8, 8, 2, 5, 9, 12, 12, 1, 7], float)
EVENTS = np.array([1, 1, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1], bool)


def test_the_curve_is_that_of_lifelines():
    """`KaplanMeierFitter().fit(TIMES, EVENTS).predict(at)` of lifelines 0.30.3."""
    known = [1.0, 0.9090909090909092, 0.8181818181818182, 0.6136363636363638, 0.40909090909090917]
    curve = survival_curve(TIMES, EVENTS, np.array([1.5, 2, 3, 5, 11]))
    np.testing.assert_allclose(curve, known, atol=1e-12)


def test_events_come_before_censorings_at_equal_times():
    """At 3 and at 8 one patient has the event, who is then not at risk of being lost with the other."""
    known = [11 / 12, 11 / 12 * (1 - 1 / 9), 11 / 12 * (1 - 1 / 9) * (1 - 1 / 4)]
    np.testing.assert_allclose(censoring_curve(TIMES, EVENTS, np.array([1, 3, 8])), known)
    before = censoring_curve(TIMES, EVENTS, np.array([1, 3, 8]), just_before=True)
    np.testing.assert_allclose(before, [1.0, *known[:2]])


def test_times_are_equal_if_their_numbers_are():
    """0.1 + 0.2 is another time than 0.3."""
    times, events = np.array([0.1 + 0.2, 0.3, 1.0]), np.array([True, False, True])
    assert survival_curve(times, events, np.array([0.5])) == 0.5
    assert survival_curve(np.array([0.3, 0.3, 1.0]), events, np.array([0.5])) == pytest.approx(2 / 3)


def jackknife(times, events, horizons):
    n, everyone = len(times), np.arange(len(times))
    without = [
        survival_curve(times[everyone != i], events[everyone != i], np.array(horizons)) for i in everyone
    ]
    return n * survival_curve(times, events, np.array(horizons)) - (n - 1) * np.array(without)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("tied", [False, True])
def test_pseudo_values_are_the_jackknife(share, tied):
    """With ties, no event, all events, and horizons after the last event."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 30):
        times = rng.integers(1, 9, n).astype(float) if tied else rng.exponential(5, n)
        events, horizons = rng.random(n) < share, (0.5, 3.0, 6.0, 40.0)
        labels = pseudo_values(times, events, horizons)
        np.testing.assert_allclose(labels, jackknife(times, events, horizons), atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_the_mean_of_pseudo_values_is_the_curve(seed):
    """Some leave [0, 1]."""
    rng = np.random.default_rng(seed)
    times, events = rng.integers(1, 15, 60).astype(float), rng.random(60) < 0.6
    labels = pseudo_values(times, events, (3.0, 7.0, 11.0))
    np.testing.assert_allclose(labels.mean(axis=0), survival_curve(times, events, np.array([3.0, 7.0, 11.0])))
    assert labels.min() < 0 < 1 < labels.max()


def test_labels_follow_from_the_patients_that_are_there():
    """Who is left out changes no label, whatever happened to them."""
    one = Outcomes(TIMES, EVENTS, (3.0, 6.0))
    other = Outcomes(np.where(np.arange(12) < 8, TIMES, 100.0), EVENTS | (np.arange(12) >= 8), (3.0, 6.0))
    first = np.arange(8)
    np.testing.assert_array_equal(one.take(first).labels, other.take(first).labels)
    both = one.take(first).joined(one.take(np.arange(8, 12)))
    np.testing.assert_array_equal(both.labels, one.labels)
    assert (one.at_risk, one.count, len(both)) == (6, 7, 12)
    np.testing.assert_allclose(0.5 + 0.5 * one.labels.mean(axis=0), one.curve)


def test_the_horizons_of_a_run_that_names_none():
    """They are quantiles of the events up to the 80% quantile, or to the end of the shortest follow-up."""
    events = [np.arange(1.0, 51.0), np.arange(51.0, 101.0)]
    assert default_horizons(events, [500.0, 300.0]) == (8.9, 24.7, 40.5, 56.3, 72.1)
    assert default_horizons(events, [500.0, 10.0]) == (1.9, 3.7, 5.5, 7.3, 9.1)
    assert default_horizons([np.array([4.0, 4.0, 4.0])], [9.0]) == (4.0,)
    assert default_horizons([np.empty(0)], [9.0]) == default_horizons([np.array([4.0])], [3.0]) == ()


def test_predicted_curves_never_rise():
    """Risk is what is lost on average over the horizons."""
    curves = mended(np.array([[1.2, 0.5, 0.8, -0.4]]))
    np.testing.assert_array_equal(curves, [[1.0, 0.5, 0.5, 0.0]])
    np.testing.assert_allclose(risk_of(curves), [0.5])
