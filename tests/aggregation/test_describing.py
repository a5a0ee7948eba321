"""What a site says of its rows: against pandas, its smallest cells, masks."""

import numpy as np
import pandas as pd
import pytest

from fda_flower.aggregation.bins import BINS, Counts, edges, quantile
from fda_flower.aggregation.columns import LIMBS, Columns
from fda_flower.aggregation.describing import SiteRows, Statistics, Totals, pooled, pooled_columns
from fda_flower.wire import secure_sums as wire

FORM = (4, 2)


def site(seed, rows, units=None, missing=0.1):
    """A number with missing values, one far from 0, a sign and a rare sign."""
    draw = np.random.default_rng(seed)
    columns = draw.normal(60, 9, rows), draw.normal(1e6, 3, rows), draw.integers(0, 2, rows)
    values = np.column_stack([*columns, draw.random(rows) < 0.02]).astype(float)
    values[draw.random(rows) < missing, 0] = np.nan
    own = np.arange(rows) if units is None else draw.permutation(np.arange(rows) % units)
    return SiteRows(values, draw.integers(0, 2, rows), own, 2)


def of_columns(*columns, units=None, labels=None):
    values = np.column_stack(columns).astype(float)
    own = np.arange(len(values)) if units is None else np.array(units)
    labels = np.full(len(values), -1) if labels is None else np.array(labels)
    return SiteRows(values, labels, own, int(labels.max()) + 1)


def own_columns(own):
    return Columns(own.means, own.deviations)


def added(words):
    total, *others = words
    for each in others:
        total = wire.added(total, each, LIMBS)
    return total


@pytest.mark.parametrize(("cell", "exact"), [(1, [0, 1, 2, 3]), (5, [1])])
@pytest.mark.parametrize("masked", [False, True])
def test_means_and_deviations_are_the_pooled_tables(cell, exact, masked):
    rows = {str(seed): site(seed, 50 + 40 * seed) for seed in range(4)}
    said = {name: Statistics.of(each, cell) for name, each in rows.items()}
    table = pd.DataFrame(np.concatenate([each.values for each in rows.values()]))
    common = pooled(said)
    if masked:
        common = pooled_columns(Totals.of(added([each.to_words() for each in said.values()]), FORM).moments)
    np.testing.assert_allclose(common.means[exact], table.mean()[exact], rtol=1e-9)
    np.testing.assert_allclose(common.deviations[exact], table.std(ddof=0)[exact], rtol=1e-9)
    again = pooled(dict(reversed(said.items())))
    assert np.array_equal(again.means, common.means)
    assert np.array_equal(again.deviations, common.deviations)


@pytest.mark.parametrize("units", [None, 12])
def test_over_a_thousand_tables_no_count_is_no_multiple_of_the_cell(units):
    for seed in range(500):
        cell, rows = 2 + seed % 7, site(seed, 24 + seed % 20, units, missing=0.05 * (seed % 10))
        own = Statistics.of(rows, cell)
        counts = Counts.of(rows, own, own_columns(own))
        for arrays in (own.to_arrays()[0], counts.to_arrays()[0]):
            assert all((array % cell == 0).all() for array in arrays.values()), seed


@pytest.mark.parametrize("values", [[0] * 67 + [1] * 50 + [2] * 3, [1] * 60 + [2] * 40 + [3] * 17 + [4] * 3])
def test_no_small_count_follows_from_the_means_of_columns_of_few_values(values):
    """Neither of a rank nor, by subtraction, of the signs of its values, nor from covariances."""
    signs = [np.equal(values, each) for each in sorted({*values})]
    own = Statistics.of(of_columns(values, *signs, np.arange(120)), cell=5)
    counts = own.means[1:-1] * sum(5 * round(sum(each) / 5) for each in signs)
    assert all(abs(each / 5 - round(each / 5)) < 0.05 for each in counts)
    assert abs(120 * (1 - own.means[1:-2].sum()) - 3) > 1
    assert own.joint.tolist() == [0] * (1 + len(signs)) + [1]
    exact = Statistics.of(of_columns(values, *signs), cell=1)
    assert exact.means[-1] * 120 == pytest.approx(3)
    assert exact.joint.all()


def test_how_many_values_are_missing_does_not_follow_from_the_digits_of_the_mean():
    values = np.round(np.random.default_rng(0).normal(60, 9, 120), 1)
    values[:3] = np.nan
    mean, deviation = (each[0] for each in vars(own_columns(Statistics.of(of_columns(values), 5))).values())
    known = values[3:]
    assert (mean, deviation) == (round(known.mean(), 2), round(known.std(), 2))
    fitting = [n for n in range(100, 121) if abs(10 * n * mean - round(10 * n * mean)) < n * 0.05]
    assert len(fitting) > 5


def test_counts_are_of_patients_and_not_of_their_rows():
    units, labels = [0] * 30 + [*range(1, 31)], [0] * 30 + [1] * 30
    rows = of_columns([1.0] * 30 + [2.0] * 30, units=units, labels=labels)
    own, hidden = Statistics.of(rows, cell=1), Statistics.of(rows, cell=5)
    assert (own.rows, own.units, own.classes.tolist()) == (60, 31, [1, 30])
    assert (hidden.classes.tolist(), hidden.means.tolist()) == ([0, 30], [2.0])
    counts = Counts.of(rows, own, Columns(np.array([1.5]), np.array([0.5])))
    assert sorted(counts.bins[counts.bins > 0]) == [1, 30]
    gaps = of_columns([np.nan] * 30 + [*range(30)], units=units)
    assert Statistics.of(gaps, cell=1).missing.tolist() == [1]


def test_a_column_with_values_of_few_patients_is_left_out():
    values = np.where(np.arange(60) < 9, np.arange(60.0), np.nan)
    assert Statistics.of(of_columns(np.arange(60), values), 1).known.tolist() == [1, 0]
    assert Statistics.of(of_columns(np.arange(60), units=np.arange(60) % 9), 1).known.tolist() == [0]
    assert Statistics.of(of_columns(np.arange(60)), 1, least=61).known.tolist() == [0]


def test_quantiles_are_within_a_bin():
    values = np.random.default_rng(0).gamma(3, 2, 1000)
    rows = of_columns(values)
    own = Statistics.of(rows, cell=5)
    counts, inner = Counts.of(rows, own, own_columns(own)), edges(own_columns(own), 0, BINS)
    for share in (0.25, 0.5, 0.75):
        assert abs(quantile(counts.bins[0], inner, share) - np.quantile(values, share)) < inner[1] - inner[0]


@pytest.mark.parametrize(("times", "cell", "number"), [(25, 5, 0.0), (15, 5, None), (25, 15, None)])
def test_a_number_is_named_if_enough_patients_have_it(times, cell, number):
    rows = of_columns(np.where(np.arange(100) < times, 0, np.arange(100)))
    own = Statistics.of(rows, cell)
    (named,) = Counts.of(rows, own, own_columns(own)).numbers.tolist()
    assert named == number or (number is None and np.isnan(named))


def test_what_travels_comes_back_and_totals_without_one_site_are_the_others():
    rows = {str(seed): site(seed, 80) for seed in range(3)}
    said = {name: Statistics.of(each, 5) for name, each in rows.items()}
    one, two, three = said.values()
    again = Statistics.from_arrays(one.rows, one.units, one.cell, *one.to_arrays(), FORM)
    assert all(np.array_equal(value, getattr(one, name)) for name, value in vars(again).items())
    rest = Totals.of(added([each.to_words() for each in said.values()]), FORM).without(one).statistics(5)
    assert rest.rows == 160
    assert np.array_equal(rest.means, pooled({"1": two, "2": three}).means)
    counts = [Counts.of(each, said[name], pooled(said)) for name, each in rows.items()]
    others = Counts.from_words(added([each.to_words() for each in counts]), FORM).without(counts[0])
    assert np.array_equal(others.bins, counts[1].bins + counts[2].bins)
    assert np.array_equal(Counts.from_arrays(*counts[0].to_arrays(), FORM).by_class, counts[0].by_class)


@pytest.mark.parametrize(
    "change",
    [
        {"means": np.zeros(3)},
        {"deviations": -np.ones(4)},
        {"means": np.full(4, np.nan)},
        {"means": np.full(4, 1e300)},
    ],
)
def test_statistics_that_are_none_are_refused(change):
    counts, moments = Statistics.of(site(0, 60), 5).to_arrays()
    with pytest.raises(ValueError, match="its statistics"):
        Statistics.from_arrays(60, 60, 5, counts, {**moments, **change}, FORM)
