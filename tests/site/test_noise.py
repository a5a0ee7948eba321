"""Clipping and noise, worked by hand with noise that is known; ε; and a ledger that loses nothing."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from flwr.app import RecordDict
from scipy.optimize import brentq
from scipy.stats import kstest, norm

from fda_flower.site import Ledger, Mechanism, PrivacyError, epsilon, noise
from fda_flower.site.accountant import noise_multiplier
from fda_flower.site.noise import BudgetError, Entry, gaussian

DELTA = 1e-5


def seeded(seed=0):
    return np.random.default_rng(seed).bytes


# The mechanism


def test_a_vector_is_clipped_over_all_its_arrays_and_a_short_one_is_not():
    clipped = Mechanism(2.0, 0.0, seeded()).vectors({"a": np.array([3.0]), "b": np.array([[4.0]])})
    assert [array.tolist() for array in clipped.values()] == [
        [pytest.approx(1.2)],
        [[pytest.approx(1.6)]],
    ]
    short = np.array([0.3, 0.4], np.float32)
    np.testing.assert_array_equal(Mechanism(1.0, 0.0, seeded()).vectors({"a": short})["a"], short)


def test_noise_has_twice_the_clip_times_the_multiplier():
    """Two data sets' updates are at most 2 C apart, which is the sensitivity."""
    mechanism = Mechanism(1.5, 2.0, seeded(3))
    found = mechanism.vectors({"a": np.array([3.0, 0.0])})["a"]
    np.testing.assert_array_equal(found, np.array([1.5, 0.0]) + 2 * 2.0 * 1.5 * gaussian(2, seeded(3)))
    assert (mechanism.deviation, mechanism.releases) == (6.0, 1)


def test_squared_norms_have_a_sensitivity_of_root_two_times_the_squared_clip():
    mechanism = Mechanism(2.0, 0.5, seeded(1))
    added = np.sqrt(2) * 0.5 * 4.0 * gaussian(2, seeded(1))
    found = mechanism.parts(np.array([6.0, 2.0]))
    np.testing.assert_allclose(found, np.maximum(np.array([3.0, 1.0]) + added, 0))
    assert mechanism.releases == 1
    assert Mechanism(2.0, 0.0, seeded()).parts(np.array([1.0, 2.0])).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("value", "cut"), [(9.0, 4.0), (3.0, 3.0), (-1.0, 0.0)])
def test_a_number_is_cut_to_the_squared_clip_which_is_its_sensitivity(value, cut):
    assert Mechanism(2.0, 0.0, seeded()).number(value) == cut
    noisy = Mechanism(2.0, 0.25, seeded(5)).number(value)
    assert noisy == max(cut + 0.25 * 4.0 * float(gaussian(1, seeded(5))[0]), 0.0)


@pytest.mark.parametrize("draw", [seeded(7), os.urandom], ids=["seed", "operating system"])
def test_noise_is_standard_normal(draw):
    sample = gaussian(20_001, draw)
    assert sample.shape == (20_001,)
    assert abs(sample.mean()) < 0.05
    assert abs(sample.std() - 1) < 0.05
    assert kstest(sample, "norm").pvalue > 1e-6
    assert len(np.unique(sample)) == len(sample)


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_noise_is_finite_at_the_ends_of_the_bytes(byte):
    assert np.isfinite(gaussian(3, lambda count: byte * count)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_released_as_0(bad):
    mechanism = Mechanism(2.0, 0.0, seeded())
    assert mechanism.vectors({"a": np.array([bad, 1.0], np.float32)})["a"].tolist() == [0, 1]
    assert mechanism.parts(np.array([bad, 1.0])).tolist() == [0, 1]
    assert mechanism.number(bad) == 0
    assert mechanism.vectors({"a": np.array([1e200])})["a"].tolist() == [0], "its norm overflows"
    assert mechanism.releases == 4


# The accountant


def exact(multiplier, count):
    """Balle and Wang (2018), theorem 8: so many releases are one with a smaller multiplier."""
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


# The ledger

FIRST, SECOND = Entry(1, "one", 2.0, 1), Entry(2, "two", 2.0, 3)


@pytest.fixture(params=["file", "context"])
def reopened(request, tmp_path):
    """A function that opens the ledger as a new process does."""
    path, state = (tmp_path / "site" / "privacy.json" if request.param == "file" else None), RecordDict()
    return lambda: Ledger(path, state)


def test_what_is_spent_survives_a_restart(reopened):
    assert reopened().epsilon(DELTA) == 0.0
    assert reopened().spend(FIRST, DELTA, None) == epsilon([(2.0, 1)], DELTA)
    assert reopened().spend(SECOND, DELTA, None) == epsilon([(2.0, 4)], DELTA)
    assert reopened().entries() == [FIRST, SECOND]
    assert reopened().epsilon(DELTA) == epsilon([(2.0, 4)], DELTA)


def test_fresh_noise_for_the_same_request_is_spent_again_and_seeded_noise_is_not(reopened):
    reopened().spend(FIRST, DELTA, None)
    assert reopened().epsilon(DELTA, FIRST, again=True) == epsilon([(2.0, 1)], DELTA)
    assert reopened().spend(FIRST, DELTA, None, again=True) == epsilon([(2.0, 1)], DELTA)
    assert reopened().spend(FIRST, DELTA, None) == epsilon([(2.0, 2)], DELTA)


def test_nothing_is_spent_beyond_the_budget(reopened):
    most = epsilon([(2.0, 2)], DELTA)
    reopened().spend(FIRST, DELTA, most)
    with pytest.raises(BudgetError):
        reopened().spend(SECOND, DELTA, most)
    assert reopened().entries() == [FIRST]


def test_a_release_for_the_site_protects_its_patients_but_not_the_other_way_round(reopened):
    reopened().spend(FIRST, DELTA, None)
    assert reopened().epsilon(DELTA, unit="patient") == epsilon([(2.0, 1)], DELTA)
    patients = replace(SECOND, unit="patient")
    assert reopened().spend(patients, DELTA, None) == epsilon([(2.0, 4)], DELTA)
    assert reopened().entries() == [FIRST, patients]
    for use in (lambda: reopened().epsilon(DELTA), lambda: reopened().spend(FIRST, DELTA, None)):
        with pytest.raises(PrivacyError, match="no finite ε"):
            use()
    assert reopened().epsilon(DELTA, unit="patient") == epsilon([(2.0, 4)], DELTA)


def holding(**changed):
    entry = {"round": 1, "request": "one", "noise": 2.0, "releases": 1, **changed}
    return json.dumps({"released": [entry]})


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", '{"released": [{"round": 1}]}', '{"released": 3}'),
        *(holding(releases=value) for value in (-4, 0.5, True)),
        *(holding(noise=value) for value in (-2.0, 0, float("nan"), "2", float("inf"))),
        holding(round=None),
        holding(unit="row"),
    ],
)
def test_a_damaged_file_refuses_and_is_left_as_it_is(text, tmp_path):
    path = tmp_path / "privacy.json"
    path.write_text(text)
    ledger = Ledger(path, RecordDict())
    for use in (ledger.entries, lambda: ledger.epsilon(DELTA), lambda: ledger.spend(FIRST, DELTA, None)):
        with pytest.raises(PrivacyError, match=r"privacy\.json"):
            use()
    assert path.read_text() == text


def test_a_file_that_cannot_be_written_refuses(tmp_path, monkeypatch):
    monkeypatch.setattr(noise, "write_atomically", Mock(side_effect=OSError("the disk is full")))
    with pytest.raises(PrivacyError, match="the disk is full"):
        Ledger(tmp_path / "privacy.json", RecordDict()).spend(FIRST, DELTA, None)


def test_two_at_once_lose_nothing(tmp_path):
    path = tmp_path / "privacy.json"

    def spend(number):
        Ledger(path, RecordDict()).spend(Entry(number, str(number), 1.0, 1), DELTA, None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(spend, range(12)))
    assert sorted(entry.round for entry in Ledger(path, RecordDict()).entries()) == list(range(12))
