"""Columns of tables: the common mean and deviation, exactly, and a site that is out of line."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fda_flower.aggregation import Columns, Moments, columns_out_of_line
from fda_flower.aggregation.columns import columns_far, count_words
from fda_flower.wire.secure_sums import added, negated


def of(values):
    varies = values.max(axis=0) > values.min(axis=0)
    return Columns(values.mean(axis=0), np.where(varies, values.std(axis=0), 0.0))


def tables(rng, sites, features, far=1.0):
    scales = 10.0 ** rng.integers(-3, 4, features)
    return [
        scales * (rng.normal(far, 3, features) + rng.normal(size=(n, features))) for n in range(3, 3 + sites)
    ]


def bits(columns):
    return columns.means.tobytes() + columns.deviations.tobytes()


@given(seed=st.integers(0, 10**6), sites=st.integers(1, 5), features=st.integers(1, 6))
def test_they_are_of_the_rows_of_all_sites_in_any_order_and_masked(seed, sites, features):
    rng = np.random.default_rng(seed)
    values = tables(rng, sites, features)
    moments = [Moments.of(of(each), len(each)) for each in values]
    total = Moments.total(moments)
    stacked = np.concatenate(values)
    assert total.rows == len(stacked)
    np.testing.assert_allclose(total.columns.means, stacked.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(total.columns.deviations, stacked.std(axis=0), rtol=1e-9)
    standardised = (stacked - stacked.mean(axis=0)) / stacked.std(axis=0)
    np.testing.assert_allclose(total.columns.of(stacked), np.clip(standardised, -3, 3), atol=1e-9)
    assert bits(Moments.total(moments[::-1]).columns) == bits(total.columns)
    mask, limbs = rng.integers(0, 2**64, count_words(features), np.uint64), count_words(0)
    words = added(moments[0].to_words(), mask, limbs)
    for each in moments[1:]:
        words = added(words, each.to_words(), limbs)
    assert Moments.from_words(added(words, negated(mask, limbs), limbs)) == total


@pytest.mark.parametrize(
    ("values", "means", "deviations"),
    [
        ([[[5.0, 1.0], [5.0, 3.0]], [[5.0, 2.0]]], [5, 2], [0, (2 / 3) ** 0.5]),
        ([[[1.7e9], [1.7e9 + 1], [1.7e9 + 2]], [[1.7e9 + 4], [1.7e9 + 8]]], [1.7e9 + 3], [8**0.5]),
        ([[[-1e38], [3e38]], [[1e38]]], [1e38], [(8 / 3) ** 0.5 * 1e38]),
        ([[[1e-38], [3e-38]]], [2e-38], [1e-38]),
    ],
    ids=["a constant column", "far from zero", "large", "small"],
)
def test_columns_by_hand(values, means, deviations):
    sites = [np.array(x) for x in values]
    common = Moments.total(Moments.of(of(x), len(x)) for x in sites).columns
    assert common.means == pytest.approx(means, rel=1e-9)
    assert common.deviations == pytest.approx(deviations, rel=1e-7)


def test_a_constant_column_is_only_centred():
    columns = Columns(np.array([5.0, 1.0]), np.array([0.0, 0.5]))
    assert columns.of(np.array([[5.0, 1.5], [7.0, -9.0]])).tolist() == [[0, 1], [2, -3]]


def test_words_of_no_rows_are_refused():
    with pytest.raises(ValueError, match="no rows"):
        Moments.from_words(np.zeros(count_words(2), np.uint64))


@pytest.mark.parametrize(
    ("means", "deviations", "says"),
    [
        ([0.0, 0.0], [1.0, -1.0], "below 0"),
        ([0.0, np.nan], [1.0, 1.0], "NaN or infinity"),
        ([0.0, 0.0], [1.0, np.inf], "NaN or infinity"),
        ([0.0], [1.0, 1.0], "expected floats of shape"),
        ([0.0, -1e39], [1.0, 1.0], "beyond those of float32"),
        ([0.0, 0.0], [1.0, 1e39], "beyond those of float32"),
    ],
)
def test_columns_that_cannot_be_are_refused(means, deviations, says):
    with pytest.raises(ValueError, match=says):
        Columns.from_arrays({"means": np.array(means), "deviations": np.array(deviations)}, 2)


# A site that is out of line


def said(*values, lie=lambda columns: columns):
    """What sites say of their values; the last may `lie`."""
    sites = {name: of(each) for name, each in zip("abcdefgh", values, strict=False)}
    name = max(sites)
    return {**sites, name: lie(sites[name])}


def normal(n, mean=50.0, deviation=10.0, seed=0):
    return mean + deviation * np.random.default_rng(seed).normal(size=(n, 2))


HOSPITALS = [normal(40, seed=1), normal(30, mean=70.0, seed=2), normal(50, deviation=20.0, seed=3)]


def times(factor):
    return lambda columns: Columns(columns.means, factor * columns.deviations)


def at(mean):
    return lambda columns: Columns(np.array([columns.means[0], mean]), columns.deviations)


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        (times(1e9), "deviation of its column 1 is"),
        (times(30.0), "deviation of its column 1 is"),
        (at(1e6), "mean of its column 2 is 1e+06, but by the sources' lower medians it is"),
        (at(-1e30), "mean of its column 2 is"),
    ],
)
def test_the_site_that_lies_is_out_of_line_and_no_other(lie, says):
    (reason,) = (found := columns_out_of_line(said(*HOSPITALS, lie=lie))).values()
    assert list(found) == ["c"]
    assert says in reason


@given(
    seed=st.integers(0, 10**6),
    sites=st.integers(2, 6),
    far=st.floats(0, 2),
    wide=st.floats(0.5, 2),
    lie=st.floats(30, 1e30),
)
def test_sites_in_line_stay_whatever_one_says(seed, sites, far, wide, lie):
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.integers(-6, 7, 3)
    values = [
        scales * (far * rng.uniform(-1, 1, 3) + wide * rng.normal(size=(30, 3))) for _ in range(sites + 1)
    ]
    assert columns_out_of_line(said(*values)) == {}
    assert list(columns_out_of_line(said(*values, lie=times(lie)))) == ["abcdefgh"[sites]]


def marks(n, ones):
    return np.repeat([[0.0, 1.0], [1.0, 0.0]], [n - ones, ones], axis=0)


@pytest.mark.parametrize(
    "values",
    [
        [np.full((9, 2), 3.0), np.full((9, 2), 4000.0), np.full((5, 2), 0.0)],
        [np.zeros((9, 2)), normal(9, 246.0, 52.0), np.zeros((5, 2))],
        [normal(9, 0.5, 1e-4), normal(9, 246.0, 52.0), np.zeros((5, 2))],
        [marks(3000, 1), marks(2000, 1), marks(1000, 500), marks(1000, 1)],
        [np.full((9, 2), 0.1), normal(9, 1.7e9, 1.0), normal(9, 1.7e9, 2.0)],
        [normal(9)],
        [normal(9), normal(9, 1.0)],
    ],
    ids=[
        "a value for each site",
        "one site alone measures it",
        "two sites measure it",
        "few ones among zeros, and many",
        "far from zero",
        "a single site",
        "two",
    ],
)
def test_what_honest_sites_may_have_is_in_line(values):
    assert columns_out_of_line(said(*values)) == {}


@pytest.mark.parametrize(
    ("mean", "deviation", "common", "far"),
    [
        (7.0, 0.0, 7.0, []),
        (7.0, 2.0, 7.0, []),
        (5.2, 1.1, 0.0, [0]),
        (200.0, 50.0, 7.0, [0]),
        (0.2, 0.4, 0.0, []),
    ],
)
def test_a_column_of_one_value_elsewhere_is_far_where_it_reaches_the_bound(mean, deviation, common, far):
    own, sources = (Columns(np.array([m]), np.array([s])) for m, s in ((mean, deviation), (common, 0.0)))
    assert columns_far(own, sources) == far


@pytest.mark.parametrize("factor", [1e-9, 0.05, 20.0, 1e9])
def test_of_two_sites_none_decides_which_lies(factor):
    one, two = normal(9), normal(9) * factor
    assert list(columns_out_of_line(said(one, two))) == list(said(one, two))
