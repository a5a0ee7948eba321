"""Delta errors: by hand, by Monte Carlo, and what follows from them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fda_flower.aggregation import Estimates, beta_fedda, beta_fedgp
from fda_flower.aggregation.theory import (
    delta_error_affine,
    delta_errors,
    errors_of_round,
    labels_worth,
    predicted_best_rule,
)

amounts = st.floats(1e-6, 1e6)


@pytest.mark.parametrize(
    ("beta", "parameters", "fedda", "fedgp"),
    [
        (0.0, 4, 16, 16),
        (1.0, 4, 32, (0 + 1 / 4) * 16 + 8),
        (0.5, 3, 0.25 * 16 + 0.25 * 32, (0.25 + 0.75 / 3) * 16 + 0.25 * 8),
        (0.25, 1, 0.5625 * 16 + 0.0625 * 32, (0.5625 + 0.4375) * 16 + 0.0625 * 8),
    ],
)
def test_delta_errors_by_hand(beta, parameters, fedda, fedgp):
    expected = {"source-only": 32.0, "target-only": 16.0, "fedda": fedda, "fedgp": fedgp}
    assert delta_errors(beta, sigma2=16.0, d2=32.0, tau2_d2=8.0, parameters=parameters) == expected


@pytest.mark.parametrize(
    ("beta", "sigma2", "d2", "tau2_d2", "best"),
    [
        (0.5, 100.0, 1.0, 1.0, "source-only"),  # a noisy target, and a source with almost no bias
        (0.5, 1.0, 100.0, 100.0, "target-only"),  # a target with almost no noise, and a far source
        (0.5, 10.0, 10.0, 10.0, "fedda"),  # the source's direction explains nothing: 5 against 5 + 7.5/m
        (0.5, 10.0, 10.0, 1.0, "fedgp"),  # the source's direction explains most: 5 against 2.75 + 7.5/m
        # The simplest wins a tie.
        (0.5, 0.0, 0.0, 0.0, "source-only"),
        # What is not known is not the best.
        (0.5, 1.0, math.nan, 4.0, "target-only"),
        (0.5, 10.0, 10.0, math.nan, "fedda"),
    ],
)
def test_the_predicted_best_rule_by_hand(beta, sigma2, d2, tau2_d2, best):
    errors = delta_errors(beta, sigma2, d2, tau2_d2, parameters=1000)
    assert predicted_best_rule(errors) == best


@given(sigma2=amounts, d2=amounts)
def test_the_beta_of_fedda_minimises_its_error(sigma2, d2):
    def error_of(beta):
        return delta_errors(beta, sigma2, d2, 0.0, 1)["fedda"]

    error = error_of(beta_fedda(Estimates(sigma2, d2, target2=0.0)))
    assert error == pytest.approx(sigma2 * d2 / (sigma2 + d2))
    others = [error_of(beta) for beta in np.linspace(0, 1, 101)]
    assert error <= min(others) * (1 + 1e-12)


@given(sigma2=amounts, tau2_d2=amounts)
def test_the_beta_of_fedgp_minimises_its_error_in_a_large_model(sigma2, tau2_d2):
    def error_of(beta):
        return delta_errors(beta, sigma2, 0.0, tau2_d2, 10**15)["fedgp"]

    e = Estimates(sigma2, d2=0.0, target2=0.0, tau2_d2=tau2_d2, delta=1.0)
    best = error_of(beta_fedgp(e))
    others = [error_of(beta) for beta in np.linspace(0, 1, 101)]
    assert best <= min(others) * (1 + 1e-12)


@pytest.mark.parametrize("toward", [1.0, -1.0], ids=["agreeing", "opposing"])
@pytest.mark.parametrize("beta", [0.0, 0.3, 0.7, 1.0])
def test_delta_errors_agree_with_monte_carlo(beta, toward):
    random, m = np.random.default_rng(0), 20
    target = random.normal(size=m)
    target *= 12 / np.linalg.norm(target)
    source = toward * target + random.normal(size=m)
    noisy = target + random.normal(scale=2 / math.sqrt(m), size=(20_000, m))  # σ² = 4
    unit = source / np.linalg.norm(source)
    along = noisy @ unit
    rules = {
        "source-only": np.broadcast_to(source, noisy.shape),
        "target-only": noisy,
        "fedda": (1 - beta) * noisy + beta * source,
        "fedgp": (1 - beta) * noisy + beta * np.outer(np.maximum(along, 0), unit),
    }
    measured = {rule: np.square(steps - target).sum(axis=1).mean() for rule, steps in rules.items()}
    d2, gradient2 = float(np.square(source - target).sum()), float(target @ target)
    tau2_d2, delta = gradient2 - float(target @ unit) ** 2, float((along > 0).mean())
    predicted = delta_errors(beta, 4.0, d2, tau2_d2, m, delta, gradient2)
    assert predicted == pytest.approx(measured, rel=0.02)


def test_the_bound_for_a_rule_of_ones_own_holds():
    random = np.random.default_rng(1)
    basis, _ = np.linalg.qr(random.normal(size=(5, 5)))
    linear = basis @ np.diag([0.2, 0.4, 0.5, 0.6, 0.9]) @ basis.T
    target, source = random.normal(size=(2, 5))
    noisy = target + random.normal(size=(20_000, 5))
    errors = noisy @ linear + (np.eye(5) - linear) @ source - target
    measured = np.square(errors).sum(axis=1).mean()
    assert measured <= delta_error_affine(0.2, 0.9, 5.0, np.square(source - target).sum())


def test_a_round_averages_the_sources_that_have_an_estimate():
    near = Estimates(4.0, d2=-1.0, target2=10.0, tau2_d2=-1.0, delta=1.0)
    far = Estimates(4.0, d2=12.0, target2=10.0, tau2_d2=4.0, delta=0.5)
    unknown = Estimates(4.0, math.nan, 10.0)
    errors = errors_of_round([near, far, unknown], np.array([0.25, 0.5, 0.25]), {"fedgp": np.ones(3)}, 8)
    # FedDA: no error with the near one; with the far one β = 1/4. FedGP: σ²/m, then that and the bias halved.
    expected = {"source-only": 8, "target-only": 4, "fedda": 2 / 3 * 3, "gradient": 6}
    assert errors == pytest.approx({**expected, "fedgp": (0.5 + 2 * (0.25 + 0.5 * 4 + 0.5 * 6)) / 3})
    assert errors_of_round([unknown], np.ones(1), {}, 8) == {}
    assert (labels_worth(far, 30), labels_worth(near, 30)) == (10, math.inf)
