"""ε of steps on patients drawn at random, against Opacus called directly."""

import sys

import pytest

from fda_flower.site import epsilon, epsilon_of_steps, noise_of_steps
from fda_flower.site.patients import PatientPrivacy

DELTA = 1e-5


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
