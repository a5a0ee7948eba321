"""ε of releases, and of steps on patients drawn at random, against the definition and Opacus."""

import sys

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fda_flower.site import epsilon, epsilon_of_steps, noise_of_steps
from fda_flower.site.accountant import noise_multiplier
from fda_flower.site.noise import PatientPrivacy

DELTA = 1e-5


def exact(multiplier, count):
    """Balle and Wang (2018), theorem 8: several releases are one with a smaller multiplier."""
    mu = np.sqrt(count) / multiplier
    return brentq(
        lambda e: norm.cdf(mu / 2 - e / mu) - np.exp(e + norm.logcdf(-mu / 2 - e / mu)) - DELTA, 0, 1e6
    )


@pytest.mark.parametrize(("multiplier", "count"), [(1.0, 20), (8.0, 10), (0.05, 60), (0.02, 1), (200.0, 1)])
def test_epsilon_is_the_exact_one(multiplier, count):
    assert epsilon([(multiplier, count)], DELTA) == pytest.approx(exact(multiplier, count), rel=1e-6)


def test_releases_compose_whatever_their_order_and_none_costs_nothing():
    assert epsilon([(4.0, 1), (2.0, 1), (4.0, 1)], DELTA) == epsilon([(2.0, 1), (4.0, 2)], DELTA)
    assert epsilon([(2.0, 1), (4.0, 2)], DELTA) == pytest.approx(exact(1.0, 3 / 8))
    assert epsilon([(1.0, 0)], DELTA) == epsilon([(1e5, 1)], DELTA) == 0.0


@pytest.mark.parametrize("wanted", [0.01, 1.0, 8.0, 5000.0])
def test_the_noise_multiplier_is_the_smallest_for_its_epsilon(wanted):
    found = noise_multiplier(wanted, DELTA)
    assert epsilon([(found, 1)], DELTA) == pytest.approx(wanted, rel=1e-9)
    assert epsilon([(found, 1)], DELTA) <= wanted * (1 + 1e-12)


def opacus(*steps):
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = list(steps)
    return accountant.get_epsilon(delta=DELTA)


@pytest.mark.parametrize(
    "steps", [[(1.1, 0.01, 1000)], [(2.0, 0.2, 60), (1.5, 0.1, 30)], [(3.0, 1.0, 1), (1.5, 0.1, 30)]]
)
def test_steps_cost_what_opacus_says(steps):
    pytest.importorskip("opacus")
    # Ours has more orders, over which ε is the least.
    assert epsilon_of_steps(steps, DELTA) == pytest.approx(opacus(*steps), rel=5e-3)
    assert epsilon_of_steps(steps, DELTA) <= opacus(*steps)
    assert epsilon_of_steps(reversed(steps), DELTA) == epsilon_of_steps(steps, DELTA)


def test_without_a_draw_it_is_the_exact_mechanism_and_needs_no_opacus(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus.accountants.analysis.rdp", None)
    assert epsilon_of_steps([(2.0, 1.0, 7), (4.0, 1.0, 3)], DELTA) == epsilon([(2.0, 7), (4.0, 3)], DELTA)
    assert epsilon_of_steps([(1.0, 0.1, 0)], DELTA) == 0
    with pytest.raises(ModuleNotFoundError):
        epsilon_of_steps([(2.0, 0.4321, 7)], DELTA)


@pytest.mark.parametrize(("budget", "rate", "steps"), [(1.0, 0.2, 180), (8.0, 0.05, 600), (4.0, 1.0, 30)])
def test_the_noise_keeps_within_the_budget_and_wastes_little(budget, rate, steps):
    pytest.importorskip("opacus")
    noise = noise_of_steps(budget, DELTA, rate, steps)
    assert 0.995 * budget < epsilon_of_steps([(noise, rate, steps)], DELTA) <= budget


def test_noise_is_chosen_for_all_rounds():
    privacy = PatientPrivacy(1.0, 0.0, DELTA, max_epsilon=4.0, rounds=10)
    assert privacy.noise_for(1.0, 3) == noise_of_steps(4.0, DELTA, 1.0, 30)
    assert PatientPrivacy(1.0, 2.5, DELTA).noise_for(1.0, 3) == 2.5
    assert PatientPrivacy.of(privacy.settings()) == privacy
    assert PatientPrivacy.of({}) is None
