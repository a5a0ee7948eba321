"""How far two sites are apart: against SciPy, against chance, and what is named."""

import numpy as np
import pytest
from scipy.linalg import sqrtm

from fda_flower.aggregation.apart import apart, chance, frechet
from fda_flower.aggregation.bins import Counts
from fda_flower.aggregation.describing import SiteRows, Statistics, pooled


def between(one, two, labels=None, cell=5):
    """How far two sites are apart, given their columns."""
    rows = []
    for values, y in zip((one, two), labels or (None, None), strict=True):
        own = np.full(len(values), -1) if y is None else np.array(y)
        rows.append(SiteRows(np.asarray(values, float), own, np.arange(len(values)), 0 if y is None else 2))
    said = [Statistics.of(each, cell) for each in rows]
    common = pooled({"one": said[0], "two": said[1]})
    one, two = ((own, Counts.of(each, own, common)) for own, each in zip(said, rows, strict=True))
    return apart(one, two, common)


def drawn(seed, rows, columns=8):
    draw = np.random.default_rng(seed)
    values = draw.normal(50, 10, (rows, columns)) @ (np.eye(columns) + 0.3)
    values[:, 0] = draw.integers(0, 2, rows)
    values[:, 1] = np.exp(draw.normal(0, 1, rows))
    values[draw.random(rows) < 0.2, 2] = np.nan
    return values


@pytest.mark.parametrize("columns", [1, 5, 20])
def test_the_frechet_distance_is_the_one_of_scipy(columns):
    draw = np.random.default_rng(columns)
    means = draw.normal(size=(2, columns))
    one, two = (np.cov(draw.normal(size=(columns, 50))).reshape(columns, columns) for _ in range(2))
    expected = np.sum((means[0] - means[1]) ** 2) + np.trace(one + two - 2 * np.real(sqrtm(one @ two)))
    assert frechet((means[0], one), (means[1], two)) == pytest.approx(expected, abs=1e-8)


def test_chance_gives_about_its_bound():
    draw = np.random.default_rng(0)
    far = [between(draw.normal(size=(100, 10)), draw.normal(size=(150, 10))).frechet for _ in range(20)]
    assert np.mean(far) == pytest.approx(chance(10, 100, 150), rel=0.15)


def test_halves_of_one_site_are_not_named():
    named = 0
    for seed in range(100):
        rows, y = drawn(seed, 160), np.random.default_rng(seed).integers(0, 2, 160)
        far = between(rows[:80], rows[80:], (y[:80], y[80:]))
        named += bool(far.named or far.label is not None or far.beyond_chance)
    assert named <= 5


def test_a_column_in_another_unit_is_named_also_around_zero():
    one, two = drawn(0, 200), drawn(1, 150)
    two[:, 3] /= 38.67
    one[:, 4] -= one[:, 4].mean()
    two[:, 4] = 10 * (two[:, 4] - two[:, 4].mean())
    far = between(one, two)
    assert far.other_units == {3, 4}
    assert far.named[:2] == (3, 4)
    assert far.beyond_chance


def test_means_near_zero_are_no_other_unit():
    draw = np.random.default_rng(0)
    far = between(draw.normal(-0.9, 1, (200, 1)), draw.normal(-0.1, 1.1, (200, 1)))
    assert (far.named, far.other_units) == ((0,), set())


def test_a_frequent_number_that_is_rare_elsewhere_may_be_a_code():
    one, two = drawn(0, 200), drawn(1, 150)
    one[:60, 5] = 0
    far = between(one, two)
    assert far.codes == ({5}, set())
    assert far.named[0] == 5
    two[:60, 5] = 0
    assert between(one, two).codes == (set(), set())
    ranks = (
        np.random.default_rng(i).choice(3, (150, 1), p=p)
        for i, p in enumerate(([0.5, 0.01, 0.49], [0.4, 0.5, 0.1]))
    )
    assert between(*ranks).codes == (set(), set())


def test_missing_values_and_labels_are_named_beyond_chance_and_rounding():
    one, two = drawn(0, 200), drawn(1, 150)
    two[:100, 6] = np.nan
    far = between(one, two, ([0] * 150 + [1] * 50, [0] * 40 + [1] * 110))
    assert far.missing == {6}
    assert (far.label, far.label_shift) == (1, pytest.approx(110 / 150 - 50 / 200))
    assert between(one[:22], two[:22], ([0] * 14 + [1] * 8, [0] * 8 + [1] * 14)).label is None


def test_constants_that_differ_are_far_and_equal_ones_are_not():
    one, two = np.column_stack([np.zeros(30), np.ones(30)]), np.column_stack([np.full(30, 7), np.ones(30)])
    far = between(one, two)
    assert far.distances.tolist() == [1000.0, 0.0]
    assert far.named == (0,)
