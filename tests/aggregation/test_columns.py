"""Sums of columns that each site has standardised by itself, moved to the columns of all sites."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fda_flower.aggregation import Columns, Sums, move, to_targets
from fda_flower.aggregation.columns import DEVIATIONS, MEANS


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


def test_a_column_that_is_constant_everywhere_is_only_centred():
    values = [np.array([[5.0, 1.0], [5.0, 3.0]]), np.array([[5.0, 2.0]])]
    common = Columns.pooled([(of(x), Sums.of(standardised(x, of(x)), np.zeros((len(x), 1)))) for x in values])
    assert common.means.tolist() == [5, 2]
    assert common.deviations == pytest.approx([2**0.5, (2 / 3 * 2) ** 0.5])


def test_columns_far_from_zero_keep_their_digits():
    values = [1.7e9 + np.array([[0.0], [1.0], [2.0]]), 1.7e9 + np.array([[4.0], [8.0]])]
    common = Columns.pooled([(of(x), Sums.of(standardised(x, of(x)), np.zeros((len(x), 1)))) for x in values])
    assert common.means == pytest.approx([1.7e9 + 3], abs=1e-6)
    assert common.deviations == pytest.approx([8**0.5], rel=1e-9)


def test_they_travel():
    columns = Columns(np.array([1.0, 2.0]), np.array([3.0, 0.5]))
    again = Columns.from_arrays(columns.to_arrays(), 2)
    assert again is not None
    assert (again.means.tolist(), again.deviations.tolist()) == ([1, 2], [3, 0.5])
    assert Columns.from_arrays({}, 2) is None


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({MEANS: np.zeros(3)}, MEANS),
        ({MEANS: np.array([0.0, np.nan])}, MEANS),
        ({DEVIATIONS: np.array([1.0, 0.0])}, "not above 0"),
        ({DEVIATIONS: np.zeros(0)}, DEVIATIONS),
    ],
)
def test_columns_that_cannot_be_are_refused(changed, says):
    arrays = {**Columns(np.zeros(2), np.ones(2)).to_arrays(), **changed}
    with pytest.raises(ValueError, match=says):
        Columns.from_arrays(arrays, 2)
