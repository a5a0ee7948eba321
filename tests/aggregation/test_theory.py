import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fda_flower.aggregation import (
    Estimates,
    beta_fedda,
    beta_fedgp,
    delta_error_fedda,
    delta_error_fedgp,
    delta_error_source_only,
    delta_error_target_only,
    delta_errors,
    predicted_best_rule,
)

deterministic = settings(derandomize=True, deadline=None)
amounts = st.floats(1e-6, 1e6)


def test_errors_of_the_baselines():
    assert delta_error_source_only(d2=3.0) == 3.0
    assert delta_error_target_only(sigma2=5.0) == 5.0


@pytest.mark.parametrize(
    ("beta", "expected"),
    [(0.0, 16.0), (1.0, 32.0), (0.5, 0.25 * 16 + 0.25 * 32), (0.25, 0.5625 * 16 + 0.0625 * 32)],
)
def test_error_of_fedda_by_hand(beta, expected):
    assert delta_error_fedda(beta, sigma2=16.0, d2=32.0) == expected


@pytest.mark.parametrize(
    ("beta", "parameters", "expected"),
    [
        (0.0, 4, 16.0),
        (1.0, 4, (0 + 1 / 4) * 16 + 8),
        (0.5, 4, (0.25 + 0.75 / 4) * 16 + 0.25 * 8),
        (0.5, 3, (0.25 + 0.75 / 3) * 16 + 0.25 * 8),
        (0.25, 1, (0.5625 + 0.4375) * 16 + 0.0625 * 8),
    ],
)
def test_error_of_fedgp_by_hand(beta, parameters, expected):
    assert delta_error_fedgp(beta, sigma2=16.0, tau2_d2=8.0, parameters=parameters) == expected


def test_delta_errors_by_hand():
    assert delta_errors(0.5, sigma2=4.0, d2=8.0, tau2_d2=2.0, parameters=3) == {
        "source-only": 8.0,
        "target-only": 4.0,
        "fedda": 0.25 * 4 + 0.25 * 8,
        "fedgp": (0.25 + 0.75 / 3) * 4 + 0.25 * 2,
    }


@pytest.mark.parametrize(
    ("sigma2", "d2", "tau2_d2", "best"),
    [
        (100.0, 1.0, 1.0, "source-only"),  # a noisy target beside a source with almost no bias
        (1.0, 100.0, 100.0, "target-only"),  # a target with almost no noise beside a far source
        (10.0, 10.0, 10.0, "fedda"),  # the source's direction explains nothing: 5 against 5 + 7.5/m
        (10.0, 10.0, 1.0, "fedgp"),  # the source's direction explains most: 5 against 2.75 + 7.5/m
    ],
)
def test_predicted_best_rule_in_each_region(sigma2, d2, tau2_d2, best):
    assert predicted_best_rule(0.5, sigma2, d2, tau2_d2, parameters=1000) == best


@pytest.mark.parametrize(
    ("beta", "sigma2", "d2", "tau2_d2", "best"),
    [
        (0.5, 0.0, 0.0, 0.0, "source-only"),
        (0.0, 1.0, 2.0, 2.0, "target-only"),  # β = 0 makes all but Source Only the same
        (1.0, 3.0, 2.0, 2.0, "source-only"),  # β = 1 makes FedDA Source Only
    ],
)
def test_the_simplest_rule_wins_a_tie(beta, sigma2, d2, tau2_d2, best):
    assert predicted_best_rule(beta, sigma2, d2, tau2_d2, parameters=10) == best


@pytest.mark.parametrize(
    ("sigma2", "d2", "tau2_d2", "best"),
    [
        (1.0, math.nan, 4.0, "target-only"),
        (math.nan, 2.0, 1.0, "source-only"),
        (10.0, 10.0, math.nan, "fedda"),
    ],
)
def test_a_rule_whose_error_is_not_known_is_not_the_best(sigma2, d2, tau2_d2, best):
    assert predicted_best_rule(0.5, sigma2, d2, tau2_d2, parameters=1000) == best


@given(beta=st.floats(0, 1), sigma2=amounts, d2=amounts, tau2_d2=amounts, m=st.integers(1, 10**9))
@deterministic
def test_predicted_best_rule_has_the_smallest_error(beta, sigma2, d2, tau2_d2, m):
    errors = delta_errors(beta, sigma2, d2, tau2_d2, m)
    assert errors[predicted_best_rule(beta, sigma2, d2, tau2_d2, m)] == min(errors.values())


@given(sigma2=amounts, d2=amounts)
@deterministic
def test_fedda_at_the_estimated_beta_is_never_worse_than_a_baseline(sigma2, d2):
    error = delta_error_fedda(beta_fedda(Estimates(sigma2, d2, target2=0.0)), sigma2, d2)
    assert error == pytest.approx(sigma2 * d2 / (sigma2 + d2))
    assert error <= min(sigma2, d2) * (1 + 1e-12)


@given(sigma2=amounts, d2=amounts)
@deterministic
def test_the_beta_of_fedda_minimises_its_error(sigma2, d2):
    best = delta_error_fedda(beta_fedda(Estimates(sigma2, d2, target2=0.0)), sigma2, d2)
    others = [delta_error_fedda(beta, sigma2, d2) for beta in np.linspace(0, 1, 101)]
    assert best <= min(others) * (1 + 1e-12)


@given(sigma2=amounts, tau2_d2=amounts)
@deterministic
def test_the_beta_of_fedgp_minimises_its_error_in_a_large_model(sigma2, tau2_d2):
    e = Estimates(sigma2, d2=0.0, target2=0.0, tau2_d2=tau2_d2, delta=1.0)
    best = delta_error_fedgp(beta_fedgp(e), sigma2, tau2_d2, parameters=10**15)
    others = [delta_error_fedgp(beta, sigma2, tau2_d2, 10**15) for beta in np.linspace(0, 1, 101)]
    assert best <= min(others) * (1 + 1e-12)


@given(beta=st.floats(0, 1), sigma2=amounts, d2=amounts, m=st.integers(1, 10**9))
@deterministic
def test_fedgp_beats_fedda_only_through_tau(beta, sigma2, d2, m):
    # With τ = 1 the projection keeps nothing of the bias and adds variance.
    assert delta_error_fedgp(beta, sigma2, d2, m) >= delta_error_fedda(beta, sigma2, d2) * (1 - 1e-12)
