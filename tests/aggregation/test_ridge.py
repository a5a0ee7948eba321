"""Ridge regressions in closed form: each against its definition, by explicit refits or stacked rows."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fda_flower.aggregation import Sums, fit_ridge, fit_temperature, to_rows, to_targets
from fda_flower.aggregation.mixture import log_softmax
from fda_flower.aggregation.ridge import (
    PATHS,
    SOURCE_WEIGHTS,
    STRENGTHS,
    TEMPERATURES,
    RegularizationPath,
    fit_share,
    temperatures_without,
)
from fda_flower.aggregation.sums import factorised, solved, unpack
from fda_flower.aggregation.units import Units


def site(seed, n=12, features=5, classes=3, shift=0.0):
    """Rows and targets in which classes differ."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    centres = np.random.default_rng(99).normal(size=(classes, features)) + shift
    return to_rows(centres[labels] + rng.normal(size=(n, features))), to_targets(labels, classes)


def ridge(X, Y, precision, start):
    """``argmin_W ‖Y − XW‖² + tr (W − start)ᵀ P (W − start)``."""
    return start + np.linalg.solve(X.T @ X + precision, X.T @ (Y - X @ start))


def refitted(X, Y, precision, start, groups):
    """What is left of each row when its unit is left out, by as many fits as there are rows."""
    rest = [groups != each for each in groups]
    return np.array([Y[i] - X[i] @ ridge(X[own], Y[own], precision, start) for i, own in enumerate(rest)])


SOURCES = [site(i, 20 + 5 * i) for i in range(3)]
TOTAL = Sums.total((Sums.of(*each) for each in SOURCES), 6, 3)
GRAM, SOLUTION = TOTAL.whole, TOTAL.solution()
X, Y = site(7, shift=0.4)


# Rows and sums


def test_rows_have_unit_length_and_a_one_whatever_their_size():
    features = np.array([[3.0, -4.0], [0.0, 0.0], [1e200, 1e200], [1e-200, 0.0]])
    rows = to_rows(features)
    np.testing.assert_allclose(rows[0], [0.6, -0.8, 1])
    assert rows[1].tolist() == [0, 0, 1]
    np.testing.assert_allclose(rows[2:, :2], [[0.5**0.5, 0.5**0.5], [1, 0]])
    np.testing.assert_allclose(to_rows(features[:1], power=0.5)[0], [(3 / 7) ** 0.5, -((4 / 7) ** 0.5), 1])


def test_targets_are_the_class_less_the_mean_over_classes():
    np.testing.assert_allclose(to_targets(np.array([1, 0]), 4) * 4, [[-1, 3, -1, -1], [3, -1, -1, -1]])


def test_added_sums_are_those_of_stacked_rows_and_a_site_can_be_taken_off_again():
    rows, targets = (np.concatenate(parts) for parts in zip(*SOURCES, strict=True))
    stacked = np.linalg.solve(rows.T @ rows + np.eye(6), rows.T @ targets)
    np.testing.assert_allclose(SOLUTION, stacked, atol=1e-8)
    np.testing.assert_allclose(GRAM, rows.T @ rows, atol=1e-12)
    assert TOTAL.rows == len(rows)
    others = TOTAL - Sums.of(*SOURCES[1])
    direct = Sums.of(*SOURCES[0]) + Sums.of(*SOURCES[2])
    np.testing.assert_allclose(others.solution(), direct.solution(), atol=1e-8)


def test_a_site_that_sends_its_sums_twice_counts_twice():
    twice = Sums.total([Sums.of(*SOURCES[0])] * 2, 6, 3).solution()
    rows, targets = SOURCES[0]
    double = np.linalg.solve(2 * rows.T @ rows + np.eye(6), 2 * rows.T @ targets)
    np.testing.assert_allclose(twice, double, atol=1e-10)


def test_sums_travel_in_float32():
    arrays = TOTAL.to_arrays()
    assert {name: (a.shape, a.dtype.name) for name, a in arrays.items()} == {
        "gram": ((21,), "float32"),
        "products": ((6, 3), "float32"),
        "squares": ((3,), "float32"),
    }
    np.testing.assert_allclose(Sums.from_arrays(arrays, 6, 3).solution(), SOLUTION, atol=1e-5)


def changed(**arrays):
    return {**TOTAL.to_arrays(), **arrays}


def at(array, place, value):
    array = array.copy()
    array[place] = value
    return array


SENT = TOTAL.to_arrays()


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({}, "no 'gram'"),
        (changed(gram=SENT["gram"][:-1]), "rows of 6 numbers"),
        (changed(products=SENT["products"].T), "3 outputs"),
        (changed(gram=SENT["gram"].astype(int)), "expected floats"),
        (changed(squares=at(SENT["squares"], 0, np.nan)), "NaN"),
        (changed(gram=-SENT["gram"]), "rows"),
        (changed(gram=at(SENT["gram"], -1, 2.5)), "2.5 rows"),
        (changed(gram=at(SENT["gram"], 0, -1.0)), "negative"),
        (changed(squares=-SENT["squares"]), "negative"),
        (changed(gram=at(SENT["gram"], 1, 1e6)), "larger"),
        (changed(products=at(SENT["products"], (0, 0), 1e6)), "larger"),
    ],
)
def test_sums_that_no_rows_can_have_are_refused(arrays, says):
    with pytest.raises(ValueError, match=says):
        Sums.from_arrays(arrays, 6, 3)


def test_sums_that_are_not_positive_definite_have_no_solution():
    small = Sums(np.array([1.0, 3.0, 3.0]), np.zeros((2, 1)), np.ones(1))
    barely = Sums(np.array([1.0, 2.7, 3.0]), np.zeros((2, 1)), np.ones(1))  # with I, but not by itself
    for sums in (small, barely):
        with pytest.raises(ValueError, match="positive definite"):
            sums.solution()


@pytest.mark.parametrize("size", [1, 3, 47, 48, 49, 150])
def test_the_factor_solves(size):
    rng = np.random.default_rng(size)
    rows, values = rng.normal(size=(size, size)), rng.normal(size=(size, 4))
    gram = rows.T @ rows
    np.testing.assert_allclose(
        solved(factorised(gram), values), np.linalg.solve(gram + np.eye(size), values), atol=1e-9
    )


def test_labels_are_scaled_by_sums_as_by_themselves():
    rows, _ = SOURCES[0]
    labels = np.random.default_rng(1).normal(50, 3, size=(len(rows), 2))
    sums = Sums.of(rows, labels)
    mean, deviation = sums.scale
    np.testing.assert_allclose((mean, deviation), (labels.mean(axis=0), labels.std(axis=0)))
    direct = Sums.of(rows, (labels - mean) / deviation)
    np.testing.assert_allclose(sums.scaled(mean, deviation).products, direct.products, atol=1e-10)
    constant = Sums.of(rows, np.full((len(rows), 1), 7.0))
    np.testing.assert_array_equal(np.ravel(constant.scale), [7, 1])


# The target's heads


ROWS = [X, np.concatenate([X, X]), np.c_[X, X], X[:2], X[:, -1:]]
GROUPS = {
    "rows": lambda n: np.arange(n),
    "pairs": lambda n: np.arange(n) // max(n // 2, 1) if n < 4 else np.arange(n) % (n // 2),
    "one of several": lambda n: np.maximum(np.arange(n), n // 2),
    "unequal, without order": lambda n: np.array([*"pqprqpsrqp"] * 3)[:n] if n > 2 else np.arange(n),
}


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("of", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("strength", [0.001, 0.3, 100.0])
def test_leaving_one_out_is_exact_on_the_shrunk_path(rows, of, strength):
    """With pairs, the rows that are there twice are of one unit."""
    targets, groups = np.resize(Y, (len(rows), 3)), of(len(rows))
    start = np.random.default_rng(2).normal(size=(rows.shape[1], 3))
    path = RegularizationPath(rows, "shrunk", None, Units.of(len(rows), groups))
    (head,) = path.heads(targets, start, [strength])
    begun = head.share * start
    precision = strength * np.eye(rows.shape[1])
    np.testing.assert_allclose(head.weights, ridge(rows, targets, precision, begun), atol=1e-8)
    np.testing.assert_allclose(head.residuals, refitted(rows, targets, precision, begun, groups), atol=1e-9)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("rows", [X, np.concatenate([X, X]), X[:2]])
@pytest.mark.parametrize("of", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("c", [0.01, 1.0, 10.0])
def test_leaving_one_out_is_exact_on_the_pooled_path(rows, of, c):
    targets, groups = np.resize(Y, (len(rows), 3)), of(len(rows))
    units = Units.of(len(rows), groups)
    path = RegularizationPath(rows, "pooled", factorised(GRAM), units)
    (head,) = path.heads(targets, SOLUTION, [c])
    precision = c * (GRAM + np.eye(6))
    np.testing.assert_allclose(head.weights, ridge(rows, targets, precision, SOLUTION), atol=1e-8)
    found = refitted(rows, targets, precision, SOLUTION, groups)
    np.testing.assert_allclose(head.residuals, found, atol=1e-9)


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("paths", PATHS)
def test_every_estimate_counts_units(paths, numbers):
    """The weights of heads, ``a`` and the temperature are by units, from their definitions."""
    groups = np.array([0, 0, 0, 1, 2, 2, 3, 4, 4, 4, 4, 5])
    targets = np.random.default_rng(4).normal(size=(12, 2)) if numbers else Y
    solution = SOLUTION[:, : targets.shape[1]]
    fit = fit_ridge(X, targets, solution, GRAM, paths, groups)
    patients = [groups == name for name in range(6)]

    def error(residuals):
        return np.mean([np.square(residuals[rows]).mean() for rows in patients])

    weights = np.array([error(head.judged) for head in fit.heads]) ** -3.0
    np.testing.assert_allclose(fit.weights, weights / weights.sum(), rtol=1e-9)
    for rows in patients:  # what is held out has weights from the others, too
        rest = np.array(
            [np.mean([np.square(h.judged[p]).mean() for p in patients if p is not rows]) for h in fit.heads]
        )
        own = rest**-2.5 / (rest**-2.5).sum()
        outputs = sum(w * (targets - h.judged)[rows] for w, h in zip(own, fit.heads, strict=True))
        np.testing.assert_allclose(fit.held_out[rows], outputs, rtol=1e-9, atol=1e-12)
    for head in (head for head in fit.heads if head.path.name == "shrunk"):
        precision = head.strength * np.eye(6)
        started = refitted(X, X @ solution, precision, 0 * solution, groups)
        own = refitted(X, targets, precision, 0 * solution, groups)

        def loss(share, own=own, started=started):
            return error(own - share * started)

        for rows in patients:  # and shares
            sizes = np.sqrt([1 / sum(groups == g) for g in groups])[~rows, None]
            left = own - fit_share(sizes * own[~rows], sizes * started[~rows]) * started
            np.testing.assert_allclose(head.judged[rows], left[rows], atol=1e-6)
        for other in (head.share + 1e-3, head.share - 1e-3):
            if 0 <= other <= 1:
                assert loss(head.share) <= loss(other) + 1e-12
    labels = targets.argmax(axis=1)
    sigma = fit_temperature(fit.held_out, labels, units=Units.of(12, groups))
    chosen = [log_softmax(s * fit.held_out)[np.arange(12), labels] for s in TEMPERATURES]
    losses = [-sum(each[rows].mean() for rows in patients) for each in chosen]
    assert sigma == TEMPERATURES[np.argmin(losses + np.log(TEMPERATURES / 8) ** 2 / 2)]
    units = Units.of(12, groups)
    without = temperatures_without(fit.held_out, labels, 8.0, units)
    for rows in patients:
        found = fit_temperature(fit.held_out[~rows], labels[~rows], 8.0, Units.of(sum(~rows), groups[~rows]))
        assert set(without[rows, 0]) == {found}


@pytest.mark.parametrize("paths", PATHS)
def test_units_of_one_row_have_the_bits_of_rows_whatever_their_names(paths):
    alone = fit_ridge(X, Y, SOLUTION, GRAM, paths=paths)
    for groups in (np.arange(12)[::-1] * 7, np.array([*"lkjihgfedcba"])):
        fit = fit_ridge(X, Y, SOLUTION, GRAM, paths=paths, groups=groups)
        assert np.array_equal(fit.weights, alone.weights)
        assert np.array_equal(fit.held_out, alone.held_out)
        assert np.array_equal(fit.head, alone.head)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), n=st.integers(3, 12), features=st.integers(1, 16), units=st.integers(2, 5))
def test_of_a_patient_nothing_is_known_when_he_is_left_out(seed, n, features, units):
    """Not even by two rows that are the same: outputs are a refit's, whatever his labels are."""
    rng = np.random.default_rng(seed)
    rows = to_rows(rng.normal(size=(n, features)))
    groups = np.append(np.resize(np.arange(units), n), 0)
    rows = np.vstack([rows, rows[:1]])
    targets, changed = rng.normal(size=(2, n + 1, 2))
    changed[groups != 0] = targets[groups != 0]
    path = RegularizationPath(rows, "target", None, Units.of(n + 1, groups))
    start = np.zeros((features + 1, 2))
    for strength in (0.001, 1.0):
        one, two = path.left_out(strength, targets), path.left_out(strength, changed)
        known, own = groups != 0, groups == 0
        np.testing.assert_allclose(targets[own] - one[own], changed[own] - two[own], atol=1e-8)
        refit = ridge(rows[known], targets[known], strength * np.eye(features + 1), start)
        np.testing.assert_allclose(targets[own] - one[own], rows[own] @ refit, atol=1e-8)


def test_the_pooled_head_is_the_ridge_regression_of_all_rows():
    fit = fit_ridge(X, Y, SOLUTION, GRAM, paths="pooled")
    rows, targets = (np.concatenate(parts) for parts in zip((X, Y), *SOURCES, strict=True))
    pooled = np.linalg.solve(rows.T @ rows + np.eye(6), rows.T @ targets)
    np.testing.assert_allclose(fit.head, pooled, atol=1e-10)


def test_heads_weigh_by_their_errors_and_become_one():
    fit = fit_ridge(X, Y, SOLUTION, GRAM)
    assert [head.strength for head in fit.heads] == [*STRENGTHS, *SOURCE_WEIGHTS]
    errors = np.array([np.mean(head.residuals**2) for head in fit.heads])
    weights = errors ** (-len(X) / 2)
    np.testing.assert_allclose(fit.weights, weights / weights.sum())
    mean = sum(w * head.weights for w, head in zip(fit.weights, fit.heads, strict=True))
    np.testing.assert_allclose(fit.head, mean)
    outputs = sum(w * (Y - head.residuals) for w, head in zip(fit.weights, fit.heads, strict=True))
    np.testing.assert_allclose(fit.held_out, outputs)
    a = np.average([head.share for head in fit.heads[:10]], weights=fit.weights[:10])
    c = np.exp(np.average(np.log(SOURCE_WEIGHTS), weights=fit.weights[10:]))
    assert fit.share == pytest.approx(a)
    assert fit.source_weight == pytest.approx(c)


def test_a_solution_as_it_travels_loses_no_digits_of_the_heads():
    travelled: Any = SOLUTION.astype(np.float32)
    once, twice = (fit_ridge(X, Y, each, GRAM) for each in (travelled, travelled.astype(np.float64)))
    assert np.array_equal(once.head, twice.head)


@pytest.mark.parametrize("groups", [None, np.arange(300) % 70])
def test_of_many_rows_as_many_eigenvectors_as_numbers_in_a_row_are_enough(groups, monkeypatch):
    rows, targets = site(8, n=300)
    thin = fit_ridge(rows, targets, SOLUTION, GRAM, groups=groups)
    assert {path.kernel.vectors.shape for path in thin.paths.values()} == {(300, 6)}
    monkeypatch.setattr("fda_flower.aggregation.kernel.FEW", 300)
    whole = fit_ridge(rows, targets, SOLUTION, GRAM, groups=groups)
    for name in ("weights", "head", "held_out", "judged"):
        np.testing.assert_allclose(getattr(thin, name), getattr(whole, name), rtol=1e-9, atol=1e-9)
    lost, other = (fit.lost(rows[:9])(np.array([3, 5])) for fit in (thin, whole))
    np.testing.assert_allclose(lost, other, rtol=1e-9, atol=1e-12)


def test_the_other_paths_are_parts_of_both():
    fits = {paths: fit_ridge(X, Y, SOLUTION, GRAM, paths=paths) for paths in ("both", "shrunk", "target")}
    for head, same in zip(fits["shrunk"].heads, fits["both"].heads, strict=False):
        np.testing.assert_array_equal(head.weights, same.weights)
    np.testing.assert_allclose(fits["target"].heads[3].weights, ridge(X, Y, 0.1 * np.eye(6), 0 * SOLUTION))
    assert fits["target"].share is None
    assert fits["shrunk"].source_weight is None
    sources = fit_ridge(X, Y, SOLUTION, paths="sources")
    np.testing.assert_array_equal(sources.head, SOLUTION)
    np.testing.assert_allclose(sources.held_out, X @ SOLUTION)
    assert sources.share is None


def test_a_target_like_its_sources_trusts_them_and_one_with_other_labels_does_not():
    rng = np.random.default_rng(5)
    rows = to_rows(rng.normal(size=(320, 40)))
    targets = to_targets((rows @ rng.normal(size=(41, 3))).argmax(axis=1), 3)
    sums, own = Sums.of(rows[20:], targets[20:]), (rows[:20], targets[:20])
    like = fit_ridge(*own, sums.solution(), sums.whole)
    other = fit_ridge(own[0], own[1][:, [1, 2, 0]], sums.solution(), sums.whole)
    assert (other.share or 0) < 0.05 < 0.7 < (like.share or 0)
    assert (other.source_weight or 1) < 0.05 < (like.source_weight or 0)


def test_one_label_is_too_few_and_pooling_needs_the_sums():
    with pytest.raises(ValueError, match="1 labelled rows"):
        fit_ridge(X[:1], Y[:1], SOLUTION, GRAM)
    with pytest.raises(ValueError, match="12 labelled rows of 1 unit"):
        fit_ridge(X, Y, SOLUTION, GRAM, groups=np.zeros(12))
    with pytest.raises(ValueError, match="need"):
        fit_ridge(X, Y, SOLUTION)


@pytest.mark.parametrize(("true", "share"), [(0.25, 0.25), (0.0, 0.0), (1.0, 1.0), (3.0, 1.0), (-0.5, 0.0)])
def test_the_share_is_the_best_that_is_allowed(true, share):
    started = np.random.default_rng(3).normal(size=(30, 2))
    assert fit_share(true * started, started) == pytest.approx(share)
    assert fit_share(started, 0 * started) == 0


def test_a_unit_that_alone_tells_of_the_sources_leaves_a_share_of_0():
    """What is left of the squares without it is rounding."""
    x, groups = np.vstack([np.eye(3)[[0, 0, 0]], np.eye(3)[[1, 2, 2]]]), np.array([0, 0, 0, 1, 2, 2])
    start = np.array([[0.1], [0.0], [0.0]])
    y = np.linspace(1, 2, 6)[:, None]
    (head,) = RegularizationPath(x, "shrunk", None, Units.of(6, groups)).heads(y, start, [1.0])
    alone = RegularizationPath(x, "target", None, Units.of(6, groups)).left_out(1.0, y)
    np.testing.assert_allclose(head.judged[:3], alone[:3], rtol=1e-12)


# The temperature


def test_the_temperature_fits_the_outputs_of_rows_left_out():
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(4000, 3))
    probabilities = np.exp(5 * outputs) / np.exp(5 * outputs).sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(3, p=p) for p in probabilities])
    step = TEMPERATURES[1] / TEMPERATURES[0]
    assert 5 / step < fit_temperature(outputs, labels) < 5 * step
    few = fit_temperature(np.zeros((2, 3)), labels[:2])
    assert 8 / step < few < 8 * step, "labels that say nothing leave it where it usually is"


# Whatever the data

TABLES = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@settings(max_examples=60)
@given(
    rng=TABLES,
    n=st.integers(2, 9),
    features=st.integers(1, 6),
    classes=st.integers(2, 12),
    kind=st.sampled_from(["normal", "zero", "collinear", "one row", "tiny", "huge"]),
)
def test_any_table_has_a_finite_head_and_its_weights_sum_to_one(rng, n, features, classes, kind):
    """Among them fewer labels than classes, classes that nobody has, and duplicate rows."""
    size = {"tiny": 1e-300, "huge": 1e300}.get(kind, 1.0)

    def table(rows):
        found = size * rng.normal(size=(rows, features))
        found = {"zero": 0 * found, "one row": found[:1] + 0 * found}.get(kind, found)
        if kind == "collinear":
            found = found[:, :1] * np.ones(features)
        return to_rows(found), to_targets(rng.integers(0, max(classes - 1, 1), rows), classes)

    sites = [table(int(rng.integers(1, 9))) for _ in range(3)]
    total = Sums.total((Sums.of(*each) for each in sites), features + 1, classes)
    rows, targets = table(n)
    fit = fit_ridge(rows, targets, total.solution(), total.whole)
    assert fit.weights.sum() == pytest.approx(1)
    assert np.isfinite(fit.head).all()
    assert np.isfinite(fit.held_out).all()
    for head in fit.heads:
        assert 0 <= head.share <= 1
        assert np.isfinite(head.residuals).all()


@settings(max_examples=30)
@given(rng=TABLES, width=st.integers(1, 9), n=st.integers(1, 20))
def test_the_upper_triangle_is_the_whole(rng, width, n):
    rows, targets = rng.normal(size=(n, width)), rng.normal(size=(n, 2))
    sums = Sums.of(np.c_[rows, np.ones(n)], targets)
    np.testing.assert_allclose(unpack(sums.gram), np.c_[rows, np.ones(n)].T @ np.c_[rows, np.ones(n)])
    assert sums.rows == n
    arrays = sums.to_arrays()
    np.testing.assert_allclose(Sums.from_arrays(arrays, width + 1, 2).gram, sums.gram, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("paths", ["shrunk", "sources"])
def test_from_several_solutions_there_are_heads_of_each_weighed_together(paths):
    solutions = np.stack([SOLUTION, SOLUTION / 9])
    fit = fit_ridge(X, Y, solutions, paths=paths)
    each = [fit_ridge(X, Y, solution, paths=paths) for solution in solutions]
    for k, alone in enumerate(each):
        found = fit.heads[k * len(alone.heads) : (k + 1) * len(alone.heads)]
        assert [head.strength for head in found] == [head.strength for head in alone.heads]
        for head, expected in zip(found, alone.heads, strict=True):
            np.testing.assert_array_equal(head.weights, expected.weights)
    errors = np.array([np.square(head.residuals).mean() for head in fit.heads])
    np.testing.assert_allclose(fit.weights, (w := errors ** (-len(X) / 2)) / w.sum())
