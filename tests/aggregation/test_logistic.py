"""A target's logistic heads: their minimum, what is left out, and the average."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fda_flower.aggregation import Kind, Sums, fit_logistic, names_of_heads, prior_outputs, to_targets
from fda_flower.aggregation.logistic import CONSTANT, LOGISTIC_HEADS, STRENGTHS, minimised
from fda_flower.aggregation.mixture import log_softmax, stratified_folds
from fda_flower.metrics import measure


def table(rows: int, columns: int, classes: int, seed: int = 0):
    """Return rows of about unit length, the sources' solution, and labels that depend on both."""
    rng = np.random.default_rng(seed)
    x = np.hstack([rng.normal(size=(rows, columns)) / np.sqrt(columns), np.ones((rows, 1))])
    truth = 4 * rng.normal(size=(columns + 1, classes))
    labels = np.array([rng.choice(classes, p=p) for p in np.exp(log_softmax(x @ truth))])
    return x, truth / 8 + 0.1 * rng.normal(size=truth.shape), labels


def loss_of(x, offset, labels, strength, shares=1.0):
    """Return the loss of a head, and its gradient, as functions of all its numbers."""
    penalty = np.append(np.full(x.shape[1] - 1, float(strength)), CONSTANT)[:, None]
    truth = np.eye(offset.shape[1])[labels]

    def loss(flat):
        v = flat.reshape(-1, offset.shape[1])
        logs = log_softmax(offset + x @ v)
        excess = np.broadcast_to(shares, len(x))[:, None] * (np.exp(logs) - truth)
        value = (penalty * v**2).sum() / 2 - (shares * (truth * logs).sum(axis=1)).sum()
        return value, (x.T @ excess + penalty * v).ravel()

    return loss


@pytest.mark.parametrize(("rows", "columns", "classes"), [(30, 3, 2), (12, 20, 3), (5, 1, 4), (60, 25, 10)])
def test_a_head_is_the_minimum_that_a_general_method_finds(rows, columns, classes):
    x, solution, labels = table(rows, columns, classes)
    shares = np.random.default_rng(1).uniform(0.1, 1, rows)
    offsets = np.stack([2 * x @ solution, 0 * x @ solution], axis=1)
    heads = minimised(x, offsets, labels, (10.0, 0.3), shares)
    for h, strength in enumerate((10.0, 0.3)):
        loss = loss_of(x, offsets[:, h], labels, strength, shares)
        assert np.abs(loss(heads[h].ravel())[1]).max() < 1e-8
        by_scipy = minimize(loss, np.zeros(heads[h].size), jac=True, method="BFGS", options={"gtol": 1e-9})
        np.testing.assert_allclose(heads[h].ravel(), by_scipy.x, atol=1e-7)


def test_a_constant_alone_has_the_hand_worked_minimum():
    """With n rows of one class of two, ``b = (a, −a)``: ``a/49 = n (1 − σ(2a))``."""
    x = np.hstack([np.zeros((6, 2)), np.ones((6, 1))])
    head = minimised(x, np.zeros((6, 1, 2)), np.zeros(6, int), (10.0,))[0]
    a = head[-1, 0]
    assert not head[:-1].any()
    assert a / 49 == pytest.approx(6 / (1 + np.exp(2 * a)))
    assert head[-1, 1] == pytest.approx(-a)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e3])
def test_rows_of_any_size_and_sure_outputs_have_a_minimum(size):
    x, solution, labels = table(40, 15, 3)
    x = x * np.append(np.full(15, size), 1.0)
    offsets = 300 * (x @ solution)[:, None] / size
    head = minimised(x, offsets, labels, (1.0,))[0]
    assert np.abs(loss_of(x, offsets[:, 0], labels, 1.0)(head.ravel())[1]).max() < 1e-7 * max(size, 1.0)


def random_problems():
    return st.tuples(st.integers(2, 12), st.integers(1, 15), st.integers(2, 4), st.integers(0, 10**6))


@given(random_problems())
@settings(max_examples=25, deadline=None)
def test_the_order_of_rows_and_classes_and_repeated_units_change_no_head(sizes):
    rows, columns, classes, seed = sizes
    x, solution, labels = table(rows, columns, classes, seed)
    offsets, rng = (x @ solution)[:, None] * np.array([[0.0], [3.0]]), np.random.default_rng(seed)
    heads = minimised(x, offsets, labels, STRENGTHS[:2])
    order, names = rng.permutation(rows), rng.permutation(classes)
    same = minimised(x[order], offsets[order], labels[order], STRENGTHS[:2])
    np.testing.assert_allclose(same, heads, atol=1e-7)
    same = minimised(x, offsets[..., names], np.argsort(names)[labels], STRENGTHS[:2])
    np.testing.assert_allclose(same, heads[..., names], atol=1e-7)
    twice = np.repeat(np.arange(rows), 2)
    same = minimised(x[twice], offsets[twice], labels[twice], STRENGTHS[:2], np.full(2 * rows, 0.5))
    np.testing.assert_allclose(same, heads, atol=1e-7)


@pytest.mark.parametrize("of_unit", [1, 3])
def test_what_is_held_out_has_not_seen_the_unit(of_unit):
    x, solution, labels = table(36, 4, 3)
    groups = np.arange(36) // of_unit
    fit = fit_logistic([Kind(x, solution)], labels, None if of_unit == 1 else groups)
    folds = stratified_folds(labels, 10, 0, None if of_unit == 1 else groups)
    taus, strengths = np.array(LOGISTIC_HEADS).T
    offsets = (x @ solution)[:, None] * taus[:, None]
    held_out = np.zeros((len(taus), 36, 3))
    for fold in range(10):
        rest = folds != fold
        heads = minimised(x[rest], offsets[rest], labels[rest], strengths, np.full(rest.sum(), 1 / of_unit))
        held_out[:, ~rest] = log_softmax(offsets[~rest].swapaxes(0, 1) + x[~rest] @ heads)
    chosen = held_out[:, np.arange(36), labels].reshape(len(taus), -1, of_unit).mean(axis=2)
    beforehand = np.where(taus == 0, 2.0, 1.0)

    def average(likelihoods):
        weights = beforehand * np.exp((likelihoods - likelihoods.max()) / 2)
        return weights / weights.sum()

    np.testing.assert_allclose(fit.shares[0], average(chosen.sum(axis=1)), atol=1e-8)
    for row in (0, 17):
        others = np.delete(chosen, row // of_unit, axis=1).sum(axis=1)
        expected = log_softmax(average(others) @ held_out[:, row])
        np.testing.assert_allclose(fit.held_out[row], expected, atol=1e-8)
    whole = minimised(x, offsets, labels, strengths, np.full(36, 1 / of_unit))
    expected = np.tensordot(fit.shares[0], taus[:, None, None] * solution + whole, 1)
    np.testing.assert_allclose(fit.heads[0], expected, atol=1e-8)
    own = fit.shares[0] * (taus == 0)
    np.testing.assert_allclose(fit.alone[0], np.tensordot(own / own.sum(), whole, 1), atol=1e-8)


def test_half_of_the_weight_beforehand_is_the_targets_own_and_kinds_share_the_rest():
    x, solution, labels = table(30, 2, 2)
    nothing = Kind(np.hstack([0 * x[:, :-1], x[:, -1:]]), 0 * solution)  # all heads are alike
    for kinds in (1, 2):
        fit = fit_logistic([nothing] * kinds, labels)
        assert list(fit.weights) == names_of_heads("logistic")
        assert [fit.share, fit.shares.sum()] == pytest.approx([0.5, 1])
        np.testing.assert_allclose(fit.shares.sum(axis=1), 1 / kinds)
        np.testing.assert_allclose(fit.held_out, fit.held_out_alone)
    useful = fit_logistic([nothing, Kind(x, solution)], labels)
    assert useful.shares[1].sum() > 0.5


def test_each_kind_has_the_heads_that_it_has_alone():
    (x, solution, labels), (z, other, _) = table(40, 3, 2), table(40, 8, 2, seed=1)
    both = fit_logistic([Kind(x, solution), Kind(z, other)], labels)
    for k, kind in enumerate((Kind(x, solution), Kind(z, other))):
        one = fit_logistic([kind], labels)
        own = both.shares[k] / both.shares[k].sum()
        np.testing.assert_allclose(own, one.shares[0])
        np.testing.assert_allclose(both.heads[k], both.shares[k].sum() * one.heads[0])


def test_misleading_sources_lose_their_weight():
    x, solution, labels = table(40, 30, 2, seed=3)
    honest, lying = (fit_logistic([Kind(x, sign * solution)], labels).share for sign in (1, -1))
    assert honest > 0.9
    assert lying < 0.1


def test_few_labels_that_are_noise_cost_no_more_than_their_frequencies():
    """20 labels of three classes by chance, and sources that know nothing of them."""
    losses = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x, solution, _ = table(420, 40, 3, seed)
        labels = rng.choice(3, size=420, p=[0.6, 0.3, 0.1])
        fit = fit_logistic([Kind(x[:20], solution)], labels[:20])
        rows, truth = np.arange(400), labels[20:]
        by_head, by_counts = log_softmax(x[20:] @ fit.heads[0]), prior_outputs(labels[:20], 3)
        losses.append([-by_head[rows, truth].mean(), -by_counts[0, truth].mean(),
                       -fit.held_out[np.arange(20), labels[:20]].mean()])  # fmt: skip
    head, counts, held_out = np.mean(losses, axis=0)
    assert head < counts + 0.03
    assert held_out > head - 0.03, "it does not promise more"


def test_one_unit_cannot_be_left_out():
    x, solution, _ = table(3, 2, 2)
    with pytest.raises(ValueError, match="3 labelled rows of 1 unit, leaving one out needs 2"):
        fit_logistic([Kind(x, solution)], np.array([0, 1, 0]), np.zeros(3, int))


def test_left_out_rows_rank_as_new_ones_do_once_levels_are_taken_out():
    """Some 6 of 100 labels are of the rarer class; left-out outputs alone rank worse than new ones."""
    rng, width = np.random.default_rng(0), 4

    def draw(count):
        x = rng.standard_normal((count, width))
        p = 1 / (1 + np.exp(-(x @ np.full(width, 0.5) - 3)))
        return np.hstack([x / 2, np.ones((count, 1))]), (rng.random(count) < p).astype(int)

    figures, (sources, others) = [], draw(1000)
    solution = Sums.of(sources, to_targets(others, 2)).solution()
    for _ in range(12):
        (x, labels), (new, truth) = draw(100), draw(2000)
        fit = fit_logistic([Kind(x, solution)], labels)
        pairs = ((fit.held_out, labels), (fit.ranked, labels), (new @ fit.heads[0], truth))
        figures.append([measure(outputs, y)["auroc"] for outputs, y in pairs])
    plain, ranked, true = np.mean(figures, axis=0)
    assert plain < true - 0.02
    assert abs(ranked - true) < (true - plain) / 2
