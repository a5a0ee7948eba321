"""ε against the accountant's own numbers, and against the exact one of a Gaussian."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fda_flower.site import epsilon

DELTA = 1e-5


def exact(noise, count):
    """Balle and Wang (2018), theorem 8: so many releases are one with a smaller multiplier."""
    mu = np.sqrt(count) / noise
    return brentq(
        lambda e: norm.cdf(mu / 2 - e / mu) - np.exp(e + norm.logcdf(-mu / 2 - e / mu)) - DELTA, 0, 1e6
    )


@pytest.mark.parametrize(
    ("releases", "expected"),
    [
        ([(0.1, 180)], 9639.540724368397),
        ([(1.0, 20)], 30.111489471421446),
        ([(4.0, 10)], 3.6169840228891967),
        ([(2.0, 1), (4.0, 2)], 2.7147993605636542),
    ],
)
def test_it_is_that_of_other_accountants(releases, expected):
    """Opacus 1.6 and Flower 1.41 (dp-accounting 0.6) say the same with our orders."""
    assert epsilon(releases, DELTA) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("noise", "count"), [(1.0, 20), (8.0, 10), (0.05, 60), (200.0, 1)])
def test_it_is_a_bound_not_far_above_the_exact_one(noise, count):
    assert 1 <= epsilon([(noise, count)], DELTA) / exact(noise, count) < 1.2


def test_it_is_the_same_in_any_order_and_grouping():
    assert epsilon([(1.0, 2), (3.0, 1), (1.0, 1)], DELTA) == epsilon([(3.0, 1), (1.0, 3)], DELTA)


def test_nothing_released_is_nothing_spent():
    assert epsilon([], DELTA) == epsilon([(1.0, 0)], DELTA) == 0.0


def test_beyond_its_orders_it_is_still_a_bound():
    assert epsilon([(1e5, 1)], DELTA) > 0
