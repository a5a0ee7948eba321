"""Intervals of figures whose samples are of patients, by hand, by their properties, and by simulation."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest, t

from fda_flower.metrics import (
    effective_size,
    interval,
    measure_intervals,
    measure_sets,
    paired_interval,
    paired_shares,
    share_interval,
    share_size,
)

CORRECTION = (1.959964 / 12.706205) ** 2
"""Of two units: the squared quotient of the 97.5% quantiles of the normal and of Cauchy's distribution."""


@pytest.mark.parametrize(
    ("values", "size"),
    [
        # m = 3/4; units are apart by (1/2)² + (1/2)² times 2/1, all samples by 3/4 of 4.
        ([1, 1, 1, 0], 3 * CORRECTION),
        ([1, 1, 0, 0], 1 * CORRECTION),
        ([1, 1, 1, 1], 2 * CORRECTION),
        ([1, 0, 0, 1], 4.0),
    ],
)
def test_two_units_by_hand(values, size):
    found = effective_size(np.array(values), np.array([3, 3, 8, 8]))
    assert found == pytest.approx(size, rel=1e-5)
    share, squared = sum(values) / 4, 1.959964**2
    ends = interval("accuracy", share, found)
    assert ends is not None
    assert sum(ends) / 2 == pytest.approx((share * size + squared / 2) / (size + squared), abs=1e-5)


def test_where_every_sample_is_its_own_unit_the_bits_are_those_without_units():
    generator = np.random.default_rng(0)
    numbers, own = generator.normal(size=40), generator.permutation(40)
    first, second = generator.random((2, 40)) < 0.6
    assert effective_size(first, own) == effective_size(first) == 40
    assert paired_interval(numbers, own) == paired_interval(numbers)
    assert paired_shares(first, second, own) == paired_shares(first, second)


def test_sets_of_several_samples_of_a_patient_tell_the_effective_size_of_their_coverage():
    """Sets hold 3 of 4 labels, as above; where every sample is its own, there is no such figure."""
    units, y = np.array([3, 3, 8, 8]), np.array([0, 0, 0, 1])
    sets = np.array([[True, False], [True, True], [True, False], [True, False]])
    assert measure_sets(sets, y, units)["effective"] == pytest.approx(3 * CORRECTION, rel=1e-5)
    assert measure_sets(sets, y, np.arange(4)) == measure_sets(sets, y)
    low, high, numbers = np.zeros((4, 1)), np.ones((4, 1)), np.array([[0.5], [1.0], [0.0], [2.0]])
    assert measure_intervals(low, high, numbers, units)["effective"] == pytest.approx(
        3 * CORRECTION, rel=1e-5
    )


def test_a_single_unit_has_no_interval():
    one, right = np.zeros(9, np.int64), np.arange(9) % 2 == 0
    assert effective_size(right, one) is None
    assert paired_interval(np.arange(9.0), one) is None
    assert paired_shares(right, ~right, one) is None


def test_copies_of_a_sample_tell_no_more_than_one():
    """Of four copies of 12 numbers the interval is Student's of the 12."""
    numbers = np.random.default_rng(1).normal(size=12)
    found = paired_interval(np.repeat(numbers, 4), np.repeat(np.arange(12), 4))
    assert found == pytest.approx(t.interval(0.95, 11, numbers.mean(), numbers.std(ddof=1) / math.sqrt(12)))


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_samples_changes_no_bit(seed):
    generator = np.random.default_rng(seed)
    units, numbers = generator.integers(7, size=30), generator.normal(size=30)
    first, second = generator.random((2, 30)) < 0.6
    order = generator.permutation(30)
    assert effective_size(numbers, units) == effective_size(numbers[order], units[order])
    assert paired_interval(numbers, units) == paired_interval(numbers[order], units[order])
    pairs = ((first, second, units), (first[order], second[order], units[order]))
    assert paired_shares(*pairs[0]) == paired_shares(*pairs[1])


def test_the_interval_of_few_patients_that_are_nearly_all_right_holds_the_truth():
    """One patient in ten is nearly always wrong; with the `effective_size` alone 85% hold it."""
    generator, runs, held = np.random.default_rng(5), 300, 0
    for _ in range(runs):
        units = np.repeat(np.arange(30), generator.integers(1, 10, size=30))
        right = generator.random(len(units)) < np.where(generator.random(30) < 0.1, 0.2, 0.98)[units]
        ends = share_interval(float(right.mean()), share_size(right, units))
        held += ends is not None and ends[0] <= 0.1 * 0.2 + 0.9 * 0.98 <= ends[1]
    assert held >= 0.93 * runs


@pytest.mark.parametrize("alike", [0.05, 0.5, 0.95])
def test_the_interval_of_20_patients_holds_the_truth_as_often_as_it_says(alike):
    """Patients have shares from a beta distribution, whose samples are correlated by `alike`."""
    generator, runs, held = np.random.default_rng(3), 400, np.zeros(3)
    scale = (1 - alike) / alike
    for _ in range(runs):
        units = np.repeat(np.arange(20), generator.integers(1, 9, size=20))
        chances = generator.beta(0.7 * scale, 0.3 * scale, size=(2, 20))[:, units]
        first, second = generator.random((2, len(units))) < chances
        numbers = generator.normal(size=20)[units] * math.sqrt(alike)
        numbers += generator.normal(size=len(units)) * math.sqrt(1 - alike)
        of_share = share_interval(first.mean(), effective_size(first, units))
        ends = [of_share, paired_shares(first, second, units), paired_interval(numbers, units)]
        held += [
            each is not None and each[0] <= truth <= each[1]
            for each, truth in zip(ends, (0.7, 0, 0), strict=True)
        ]
    for each in held:
        assert binomtest(int(each), runs, 0.95).pvalue > 0.001
