"""Clipping and noise, worked by hand with noise that is known."""

import os

import numpy as np
import pytest
from scipy.stats import kstest

from fda_flower.site import Mechanism
from fda_flower.site.noise import gaussian

DELTA = 1e-5


def seeded(seed=0):
    return np.random.default_rng(seed).bytes


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
