"""Sums that protect each patient: what one of them changes at most, by search, and what the noise does."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fda_flower.aggregation import (
    CentredSums,
    PrivateSums,
    Sums,
    change_of_patient,
    multipliers,
    to_rows,
    to_targets,
)
from fda_flower.aggregation.private_sums import (
    CONSTANT,
    FARTHEST,
    PRODUCTS,
    RADIUS,
    RIDGES_OF_NOISE,
    noisy_centre,
    patient_weights,
    within,
)

NOTHING = np.zeros(6)


def site(seed, n=60, features=5, classes=3):
    rng = np.random.default_rng(seed)
    rows = to_rows(np.abs(rng.normal(size=(n, features)) + rng.normal(size=features)))
    return rows, to_targets(rng.integers(0, classes, n), classes)


def private(sample, noise=NOTHING):
    """The sums of a site before their noise; the mean's noise is given."""
    rows, targets = sample
    return PrivateSums.of(rows, targets, None, np.asarray(noise, float))


def stacked(sums):
    """The sums as one vector, in which the norm of the gram is Frobenius'; without its last number."""
    width = len(sums.products)
    whole = np.zeros((width, width))
    whole[np.triu_indices(width)] = sums.gram
    whole = whole + np.triu(whole, 1).T
    whole[-1, -1] = 0
    return np.concatenate([whole.ravel(), sums.products.ravel()])


def around(centre, radius, rows, targets, groups=None):
    """The sums around a given centre: with noise that makes it the one that the first release has found."""
    weights = np.ones(len(rows)) if groups is None else patient_weights(groups)
    features = within(np.asarray(rows[:, :-1], float), 1.0)
    # The first release is given, the second has its own sensitivity whatever it was.
    noise = np.append(round(weights.sum()) * centre - weights @ features, 0.0)
    assert radius == pytest.approx(noisy_centre(features, weights, noise)[1])
    return PrivateSums.of(rows, targets, groups, noise)


def exact(rows, targets):
    """The sums over rows that nothing scales down: all are within the radius of the centre."""
    near = rows.copy()
    near[:, :-1] = near[:, :-1].mean(axis=0) + 0.3 * (near[:, :-1] - near[:, :-1].mean(axis=0))
    near[:, :-1] *= 0.5
    return near, targets


# What one patient changes


@pytest.mark.parametrize("classes", [2, 3, 7])
@settings(max_examples=80)
@given(seed=st.integers(0, 10**6))
def test_a_patient_with_any_rows_changes_the_sums_by_the_sensitivity_at_most(seed, classes):
    rng = np.random.default_rng(seed)
    patients = rng.integers(0, 4, 12)
    rows = rng.normal(size=(12, 5)) * rng.choice([0.1, 1, 30], (12, 1))
    rows[patients == 0] = rows[0] if seed % 2 else rows[patients == 0]
    targets = to_targets(rng.integers(0, classes, 12), classes)
    centre = within(rng.normal(size=(1, 4)), rng.uniform(0.01, 1))[0]
    radius = RADIUS * max(1 - centre @ centre, 0.05) ** 0.5
    others = patients != 0
    whole = around(centre, radius, rows, targets, patients)
    without = around(centre, radius, rows[others], targets[others], patients[others])
    change = np.linalg.norm(stacked(whole) - stacked(without))
    assert change <= change_of_patient(classes) * (1 + 1e-9)
    assert whole.rows == len(set(patients.tolist()))


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_the_worst_patient_found_by_search_changes_the_sums_by_as_much(classes):
    rng = np.random.default_rng(classes)
    centre = np.array([0.6, 0.2, 0.0])
    radius = RADIUS * (1 - centre @ centre) ** 0.5
    rows, targets = site(0, 9, 3, classes)
    before = stacked(around(centre, radius, rows, targets))
    worst, best = None, 0.0
    for step in range(400):
        scale = 5 / (1 + step / 20)
        tried = rng.normal(size=3) if worst is None else worst + scale * rng.normal(size=3)
        more = np.vstack([rows, [*tried, 1.0]])
        y = np.vstack([targets, to_targets(np.array([step % classes]), classes)])
        change = float(np.linalg.norm(stacked(around(centre, radius, more, y)) - before))
        worst, best = (tried, change) if change > best else (worst, best)
    limit = change_of_patient(classes)
    assert 0.999 * limit < best <= limit * (1 + 1e-9)


@settings(max_examples=80)
@given(seed=st.integers(0, 10**6))
def test_a_patient_changes_the_sum_that_the_centre_follows_from_by_one_at_most(seed):
    rng = np.random.default_rng(seed)
    patients, features = rng.integers(0, 4, 12), within(rng.normal(size=(12, 4)) * 5, 1.0)
    others = patients != 0
    whole = patient_weights(patients) @ features
    without = patient_weights(patients[others]) @ features[others]
    assert np.linalg.norm(whole - without) <= 1 + 1e-12


def test_the_two_releases_are_together_one():
    first, second = multipliers(3.0)
    assert first**-2 + second**-2 == pytest.approx(1 / 9)
    assert first > 4 * second


@pytest.mark.parametrize("size", [0, 2, 5, 7])
def test_noise_for_other_numbers_is_refused(size):
    rows, targets = site(0)
    with pytest.raises(ValueError, match="noise"):
        PrivateSums.of(rows, targets, None, np.ones(size))
    with pytest.raises(ValueError, match="noise"):
        GOOD.noisy(np.ones(size), 1.0)


def test_noise_has_its_deviation_in_every_direction_and_the_number_of_patients_has_none():
    sums = private(site(0))
    rng = np.random.default_rng(0)
    size = sums.gram.size + sums.products.size
    drawn = [sums.noisy(rng.standard_normal(size), 3.0) for _ in range(4000)]
    off = np.ones((6, 6), bool)[np.triu_indices(6)]
    off[[0, 6, 11, 15, 18, 20]] = False
    expected = np.where(off, 3 / np.sqrt(2), 3.0)
    expected[-1] = 0
    grams = np.array([each.gram - sums.gram for each in drawn])
    np.testing.assert_allclose(grams.std(axis=0), expected, rtol=0.06)
    products = np.array([each.products - sums.products for each in drawn])
    # The mean over classes, in which the sums of no rows differ, has no noise.
    np.testing.assert_allclose(products.std(axis=0), 3 * np.sqrt(2 / 3), rtol=0.06)
    assert np.abs(products.sum(axis=2)).max() < 1e-9
    assert {(each.rows, each.deviation) for each in drawn} == {(60, 3.0)}


# The centre


def test_without_noise_the_centre_is_the_mean_over_patients():
    rows, targets = site(1)
    groups = np.arange(60) // 3
    sums = PrivateSums.of(rows, targets, groups, np.zeros(6))
    np.testing.assert_allclose(sums.centre, rows[:, :-1].mean(axis=0))
    assert sums.radius == pytest.approx(RADIUS * (1 - sums.centre @ sums.centre) ** 0.5)
    assert sums.rows == 20


def test_a_patient_counts_once_however_many_rows_it_has():
    rows, targets = exact(*site(1))
    groups, noise = np.repeat(np.arange(60), np.arange(60) % 3 + 1), np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    once = PrivateSums.of(rows, targets, None, noise)
    often = PrivateSums.of(rows[groups], targets[groups], groups, noise)
    np.testing.assert_allclose(stacked(often), stacked(once), atol=1e-9)


def test_a_centre_that_is_all_noise_is_zero():
    features = np.zeros((5, 400))
    noise = np.append(np.random.default_rng(0).normal(0, 2.0, 400), 2.2)
    centre, radius = noisy_centre(features, np.ones(5), noise)
    assert not centre.any()
    assert radius == RADIUS


# What a server makes of them


def test_sums_of_several_centres_without_noise_have_the_solution_of_all_rows():
    sites = [exact(*site(seed)) for seed in range(3)]
    # The centre is not the mean, as with noise.
    noisy = [private(each, [1.0, -2.0, 0.0, 3.0, 0.5, 0.0]) for each in sites]
    rows, targets = (np.concatenate(each) for each in zip(*sites, strict=True))
    x = rows[:, :-1]
    centred = x - x.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    precision = (vectors * (np.maximum(values, 1) + 1)) @ vectors.T
    weights = np.linalg.solve(precision, centred.T @ targets)
    expected = np.vstack([weights, targets.mean(axis=0) - x.mean(axis=0) @ weights])
    opened = [Sums.of(*one) for one in sites]
    ways: list[list[Any]] = [noisy, [noisy[0], opened[1], noisy[2]], opened]
    for each in ways:
        total = CentredSums.total(each)
        np.testing.assert_allclose(total.mean, x.mean(axis=0), atol=1e-9)
        assert (total.rows, total.variance) == (180, 0)
        for found in total.solution():
            np.testing.assert_allclose(found, expected, atol=1e-8)


def test_ridges_follow_from_the_noise_of_all_sites():
    rng = np.random.default_rng(0)
    noisy = [private(site(i)).noisy(rng.standard_normal(39), s) for i, s in enumerate((30.0, 40.0))]
    total = CentredSums.total(noisy)
    s = np.hypot(30 * noisy[0].radius ** 2, 40 * noisy[1].radius ** 2)
    assert total.variance == pytest.approx(s**2)
    values, vectors = np.linalg.eigh(total.gram)
    for share, found in zip(RIDGES_OF_NOISE, total.solution(), strict=True):
        ridge = max(share * s * 10**0.5, 1)
        precision = (vectors * (np.maximum(values, ridge) + ridge)) @ vectors.T
        np.testing.assert_allclose(found[:-1], np.linalg.solve(precision, total.products))


def test_the_order_of_sites_changes_nothing_but_the_last_bits():
    noise = np.random.default_rng(5).standard_normal(39)
    noisy = [private(site(seed)).noisy(noise, 2.0) for seed in range(3)]
    first, second = (CentredSums.total(each).solution() for each in (noisy, noisy[::-1]))
    np.testing.assert_allclose(first, second, atol=1e-9)


# What is sent


GOOD = private(site(0)).noisy(np.zeros(39), 2.0)


def test_sums_travel_in_float32():
    arrays = GOOD.to_arrays()
    assert {array.dtype.name for array in arrays.values()} == {"float32"}
    back = PrivateSums.from_arrays(arrays, 6, 3)
    assert (back.rows, back.deviation) == (60, 2)
    np.testing.assert_allclose(stacked(back), stacked(GOOD), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"deviation": -1.0}, "noise"),
        ({"deviation": np.nan}, "deviation"),
        ({"deviation": 61.0}, "drowns"),
        ({"radius": 0.0}, "radius"),
        ({"radius": 1.5}, "radius"),
        ({"centre": np.full(5, 0.5)}, "centre"),
        ({"centre": np.zeros(4)}, "centre"),
        ({"gram": np.append(GOOD.gram[:-1], 59.5)}, "rows"),
        ({"gram": np.append(GOOD.gram[:-1], 0.0)}, "rows"),
        ({"gram": np.append([61 * 1.16 + 2 * (FARTHEST + 20**0.5)], GOOD.gram[1:])}, "larger"),
        ({"products": np.full((6, 3), PRODUCTS * 55)}, "larger"),
        ({"radius": 0.71}, "radius"),
    ],
)
def test_sums_that_no_patients_have_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        PrivateSums.from_arrays(
            {**GOOD.to_arrays(), **{k: np.array(v, float) for k, v in change.items()}}, 6, 3
        )


def test_a_sum_that_is_missing_is_named():
    arrays = GOOD.to_arrays()
    del arrays["centre"]
    with pytest.raises(ValueError, match="no 'centre'"):
        PrivateSums.from_arrays(arrays, 6, 3)


def test_the_largest_sums_that_patients_can_have_are_not_refused():
    rows, targets = to_rows(np.tile([[1.0, 0.0]], (50, 1))), to_targets(np.zeros(50, int), 7)
    far = PrivateSums.of(rows, targets, None, np.array([-100.0, 0.0, 0.0]))
    assert abs(far.gram).max() == pytest.approx(50)
    assert far.gram[2] == pytest.approx(50 * CONSTANT)
    PrivateSums.from_arrays(replace(far, deviation=0.1).to_arrays(), 3, 7)
