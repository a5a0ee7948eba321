"""Columns of tables: the common mean and deviation, sums that move there, and a site that is out of line."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fda_flower.aggregation import Columns, Sums, columns_out_of_line, move, to_targets


def standardised(values, columns):
    return np.hstack([(values - columns.means) / columns.deviations, np.ones((len(values), 1))])


def of(values):
    deviations = values.std(axis=0)
    return Columns(values.mean(axis=0), np.where(deviations > 0, deviations, 1.0))


def tables(rng, sites, features, far=1.0):
    scales = 10.0 ** rng.integers(-3, 4, features)
    return [
        scales * (rng.normal(far, 3, features) + rng.normal(size=(n, features))) for n in range(3, 3 + sites)
    ]


@given(seed=st.integers(0, 10**6), sites=st.integers(1, 5), features=st.integers(1, 6))
def test_moved_sums_are_those_of_the_rows_that_all_values_standardise(seed, sites, features):
    rng = np.random.default_rng(seed)
    values = tables(rng, sites, features)
    targets = [to_targets(rng.integers(0, 3, len(each)), 3) for each in values]
    sent = [
        (of(each), Sums.of(standardised(each, of(each)), y)) for each, y in zip(values, targets, strict=True)
    ]
    common = Columns.pooled(sent)
    stacked = np.concatenate(values)
    np.testing.assert_allclose(common.means, stacked.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(common.deviations, stacked.std(axis=0) * features**0.5, rtol=1e-7)
    moved = [move(sums, columns.into(common)) for columns, sums in sent]
    total, rows = Sums.total(moved, features + 1, 3), standardised(stacked, common)
    np.testing.assert_allclose(total.whole, rows.T @ rows, atol=1e-8)
    np.testing.assert_allclose(total.products, rows.T @ np.concatenate(targets), atol=1e-8)
    assert total.rows == len(stacked)
    assert np.square(rows[:, :-1]).sum(axis=1).mean() == pytest.approx(1), "the mean square of a row's length"


@pytest.mark.parametrize(
    ("values", "means", "deviations"),
    [
        ([[[5.0, 1.0], [5.0, 3.0]], [[5.0, 2.0]]], [5, 2], [2**0.5, (2 / 3 * 2) ** 0.5]),
        ([[[1.7e9], [1.7e9 + 1], [1.7e9 + 2]], [[1.7e9 + 4], [1.7e9 + 8]]], [1.7e9 + 3], [8**0.5]),
    ],
    ids=["a constant column is only centred", "columns far from zero keep their digits"],
)
def test_columns_by_hand(values, means, deviations):
    sites = [np.array(x) for x in values]
    common = Columns.pooled([(of(x), Sums.of(standardised(x, of(x)), np.zeros((len(x), 1)))) for x in sites])
    assert common.means == pytest.approx(means, abs=1e-6)
    assert common.deviations == pytest.approx(deviations, rel=1e-9)


def test_they_travel():
    columns = Columns(np.array([1.0, 2.0]), np.array([3.0, 0.5]))
    again = Columns.from_arrays(columns.to_arrays())
    assert (again.means.tolist(), again.deviations.tolist()) == ([1, 2], [3, 0.5])


@pytest.mark.parametrize(
    ("means", "deviations", "says"),
    [
        ([0.0, 0.0], [1.0, 0.0], "not above 0"),
        ([0.0, 0.0], [1.0, -1.0], "not above 0"),
        ([0.0, np.nan], [1.0, 1.0], "NaN or infinity"),
        ([0.0, 0.0], [1.0, np.inf], "NaN or infinity"),
        ([0.0], [1.0, 1.0], "expected floats of shape"),
        ([0.0, -1e39], [1.0, 1.0], "beyond those of float32"),
        ([0.0, 0.0], [1.0, 1e39], "beyond those of float32"),
    ],
)
def test_columns_that_cannot_be_are_refused(means, deviations, says):
    with pytest.raises(ValueError, match=says):
        Columns.from_arrays({"means": np.array(means), "deviations": np.array(deviations)})


# A site that is out of line


def said(*values, lie=lambda columns: columns):
    """What sites say of their values: columns, and sums in float32; the last may `lie` about the columns."""
    sites = {}
    for name, each in zip("abcdefgh", values, strict=False):
        columns = of(each)
        sums = Sums.of(standardised(each, columns), np.zeros((len(each), 1))).rounded()
        sites[name] = (columns, sums)
    sites[name] = (lie(sites[name][0]), sites[name][1])
    return sites


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
        (times(1e-9), "deviation of its column 1 is"),
        (at(1e6), "mean of its column 2 is 1e+06, but by the sources' lower medians it is"),
        (at(-1e30), "mean of its column 2 is"),
        (at(1e300), "mean of its column 2 is"),
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


def test_sums_that_make_a_column_wide_count_like_its_deviation():
    sites = said(*HOSPITALS)
    columns, sums = sites["c"]
    wide = columns_out_of_line(
        {**sites, "c": (columns, replace(sums, gram=sums.gram * [1e6, 1, 1, 1, 1, 1]))}
    )
    assert list(wide) == ["c"]
    smaller = Columns(columns.means, columns.deviations * [1e-3, 1])
    gram = sums.gram * [1e6, 1, 1e3, 1, 1, 1]
    assert columns_out_of_line({**sites, "c": (smaller, replace(sums, gram=gram))}) == {}
