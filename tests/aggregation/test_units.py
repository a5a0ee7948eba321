"""Units: who is whose patient, and estimates that count him once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fda_flower.aggregation import choose_share, choose_weight, fit_mixture, fit_temperature, prior_outputs
from fda_flower.aggregation.conformal import Calibration
from fda_flower.aggregation.features import ClassGaussians
from fda_flower.aggregation.ridge import likelihoods
from fda_flower.aggregation.units import BATCH, Units, shared

SEEDS = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def test_units_by_hand():
    units = Units.of(5, np.array(["b", "a", "b", "c", "b"]))
    assert units.numbers.tolist() == [1, 0, 1, 2, 1]
    assert (units.count, units.single, units.sizes.tolist()) == (3, False, [1, 3, 1])
    assert [rows.tolist() for rows in units.members] == [[1], [0, 2, 4], [3]]
    values = np.array([3.0, 1.0, 6.0, 5.0, 0.0])
    assert units.sum(values) == pytest.approx(3 + 1 + 5)
    assert units.mean(np.stack([values, 0 * values], axis=1)) == pytest.approx(1.5)
    assert units.of_class(np.array([0, 0, 2, 2, 2])).tolist() == [2, 0, 2]
    alone = Units.of(3)
    assert (alone.count, alone.single, Units.of(0).count) == (3, True, 0)


@given(SEEDS, st.integers(1, 30))
def test_their_order_follows_from_names_alone_and_is_that_of_numbers(rng, n):
    names, order = rng.choice(5000, n, replace=False)[rng.integers(0, n, n)], rng.permutation(n)
    units = Units.of(n, names)
    assert units.numbers.tolist() == np.unique(names, return_inverse=True)[1].tolist()
    assert Units.of(n, names[order]).numbers.tolist() == units.numbers[order].tolist()
    for same in (names.astype(np.int32), names.astype(str), names.astype(object), names.astype(float)):
        assert Units.of(n, same).numbers.tolist() == units.numbers.tolist()


def test_there_is_a_name_for_each_row():
    with pytest.raises(ValueError, match="one for each of 3 rows"):
        Units.of(3, np.zeros(2))
    for lacking in (np.array([1, np.nan, 2]), np.array(["a", " ", "b"]), np.array([None, 1, 2])):
        with pytest.raises(ValueError, match="1 of 3 rows have a group without a name"):
            Units.of(3, lacking)
    assert Units.of(3, np.array(["a", "a ", "b"])).count == 2


@given(SEEDS, st.integers(1, 20), st.integers(1, 6))
def test_the_rows_left_out_are_the_blocks_of_the_inverse(rng, n, most):
    vectors, factors = np.linalg.qr(rng.normal(size=(n, n)))[0], rng.uniform(0.1, 1, n)
    groups, residuals = rng.integers(0, max(n // most, 1), n), rng.normal(size=(n, 2))
    found = Units.of(n, groups).left_out(vectors, factors, residuals)
    whole = vectors @ np.diag(factors) @ vectors.T
    for name in groups:
        rows = groups == name
        np.testing.assert_allclose(whole[np.ix_(rows, rows)] @ found[rows], residuals[rows], atol=1e-9)


def test_many_units_are_left_out_in_batches():
    n = 3 * BATCH
    residuals = np.arange(2.0 * n).reshape(n, 2)
    found = Units.of(n, np.arange(n) // 2).left_out(np.eye(n), np.full(n, 2.0), residuals)
    np.testing.assert_array_equal(found, residuals / 2)


def test_rows_of_the_same_patient_elsewhere():
    groups = np.array(["b", "a", "b"])
    found = shared(groups, np.array(["a", "x", "b", "a"]), Units.of(3, groups))
    assert [rows.tolist() for rows in found] == [[0, 3], [2]]
    assert [len(rows) for rows in shared(None, None, Units.of(3))] == [0, 0, 0]


@settings(max_examples=25)
@given(SEEDS, st.integers(4, 12), st.booleans())
def test_a_patient_counts_once_however_often_his_rows_are_there(rng, n, numbers):
    """All estimates by rows left out are the same if each row is there several times, as one patient's."""
    z, near = rng.normal(size=(2, n, 3)), rng.dirichlet(np.ones(3), n)
    y = rng.normal(size=(n, 3)) if numbers else rng.integers(0, 3, n)
    folds = np.arange(n) % 2
    of = rng.permutation(np.repeat(np.arange(n), rng.integers(1, 4, n)))
    many = {"groups": of * 11}

    one = fit_mixture({"a": z[0], "b": z[1]}, y, folds)
    same = fit_mixture({"a": z[0, of], "b": z[1, of]}, y[of], folds[of], **many)
    assert same.weights == pytest.approx(one.weights, abs=1e-9)
    assert same.temperatures == one.temperatures
    np.testing.assert_allclose(prior_outputs(y[of], 3, of), prior_outputs(y, 3), atol=1e-12)
    alone, units = Units.of(n), Units.of(len(of), of)
    np.testing.assert_allclose(likelihoods(list(z[:, of]), units), likelihoods(list(z), alone))
    limits, same_limits = Calibration.of(near, y), Calibration.of(near[of], y[of], of)
    assert limits.most == same_limits.most
    assert limits.thresholds(0.5, 3).tolist() == same_limits.thresholds(0.5, 3).tolist()
    if not numbers:
        assert fit_temperature(z[0, of], y[of], units=units) == fit_temperature(z[0], y)
        assert choose_weight(z[0, of], near[of], y[of], **many) == choose_weight(z[0], near, y)


def test_shares_of_gaussians_are_chosen_by_patients():
    """One patient with many rows, for which the known Gaussians are wrong, does not outvote three others."""
    rng = np.random.default_rng(0)
    centres = np.array([[3.0, 0.0], [-3.0, 0.0]])
    y = np.tile([0, 1], 26)
    groups = np.append(np.arange(12) // 2, np.full(40, 6))
    x = np.where(groups == 6, -1, 1)[:, None] * centres[y] + rng.normal(size=(52, 2))
    known = ClassGaussians(centres, np.eye(2))
    assert choose_share(x, y, known, 7, 0.1, groups) < choose_share(x, y, known, 7, 0.1)
