"""Several kinds of rows, and rows without labels, against refits without each label."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fda_flower.aggregation import Paths, Sums, fit_ridge, fit_temperature, to_rows, to_targets
from fda_flower.aggregation.mixture import log_softmax
from fda_flower.aggregation.ridge import weighed
from fda_flower.aggregation.ridge_kinds import (
    MOST_KINDS,
    STARTS,
    STRENGTHS,
    Kind,
    by_kind,
    fit_kinds,
    widths_of,
    with_kinds,
)
from fda_flower.aggregation.units import Units

CLASSES = 3


def kinds_of(seed, number=2, labelled=12, rest=30, gram=True):
    """Return kinds of rows of one target, with what two sources have, and its labels."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(CLASSES), rng.integers(0, CLASSES, 60 + labelled + rest - CLASSES)])
    kinds = []
    for width in range(6, 6 + number):
        centres = rng.normal(size=(CLASSES, width))
        rows = to_rows(centres[labels] + rng.normal(size=(len(labels), width)))
        own, unlabelled, others = np.split(rows, [labelled, labelled + rest])
        sums = Sums.of(others, to_targets(labels[labelled + rest :], CLASSES))
        kinds.append(Kind(own, sums.solution(), sums.whole if gram else None, unlabelled))
    return kinds, labels[:labelled]


def fitted(seed, **more):
    kinds, labels = kinds_of(seed, **more)
    return kinds, labels, fit_kinds(kinds, to_targets(labels, CLASSES), labels)


def pseudo(outputs):
    return np.exp(log_softmax(outputs)) - 1 / CLASSES


def refit(kind, fit, without, targets):
    """Return the head of the first fit from normal equations, its weights and shares kept."""
    keep = [i for i in range(len(targets)) if i not in without]
    x, y, head = kind.rows[keep], targets[keep], np.zeros_like(kind.solution)
    for weight, each in zip(fit.weights, fit.heads, strict=True):
        start = each.share * kind.solution
        metric = np.eye(x.shape[1]) if each.path.name == "shrunk" else kind.gram + np.eye(x.shape[1])
        own = np.linalg.solve(metric + x.T @ x / each.strength, x.T @ (y - x @ start) / each.strength)
        head += weight * (start + own)
    return head


def second_fit(kind, keep, others, targets, t):
    """Return the heads of the second fit from normal equations, on some rows with and without labels."""
    x, y, u_rows, t, heads = kind.rows[keep], targets[keep], kind.unlabelled[others], t[others], []
    for kappa, u in STARTS:
        known, metric = 0, u * u_rows.T @ u_rows + np.eye(x.shape[1])
        if kind.gram is not None:
            products = (kind.gram + np.eye(x.shape[1])) @ kind.solution
            known, metric = kappa * products, metric + kappa * (kind.gram + np.eye(x.shape[1]))
        for strength in STRENGTHS:
            right = known + u * u_rows.T @ t + x.T @ y / strength
            heads.append(np.linalg.solve(metric + x.T @ x / strength, right))
    return heads


PATIENTS = np.array([3, 0, 3, 1, 2, 2, 0, 3, 1, 4, 5, 5])
"""Of twelve labelled rows."""


def mean_of_units(values, groups):
    return np.mean([values[groups == name].mean() for name in np.unique(groups)])


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("gram", [True, False])
@pytest.mark.parametrize(
    ("groups", "rest"),
    [(None, None), (PATIENTS, None), (PATIENTS, np.arange(30) % 9), (np.arange(12), np.arange(30) % 20)],
    ids=["rows", "patients", "patients with unlabelled rows", "one label each and unlabelled rows"],
)
def test_fit_is_the_definition_and_leaves_out_exactly(gram, groups, rest):
    paths: Paths = "both" if gram else "shrunk"
    kinds, labels = kinds_of(0, gram=gram)
    targets, n = to_targets(labels, CLASSES), len(labels)
    result = fit_kinds(kinds, targets, labels, paths, groups, rest)
    fits = [fit_ridge(k.rows, targets, k.solution, k.gram, paths=paths, groups=groups) for k in kinds]
    groups = np.arange(n) if groups is None else groups
    rest = np.full(30, -1) if rest is None else rest
    units, everyone, all_rest = Units.of(n, groups), list(range(n)), np.arange(30)
    patients = np.unique(groups)
    errors = [mean_of_units(np.square(targets - fit.held_out), groups) for fit in fits]
    shares = np.array(errors) ** -(len(patients) / 4)
    shares /= shares.sum()
    scales = [fit_temperature(fit.held_out, labels, units=units) for fit in fits]
    factors = [s * scale for s, scale in zip(shares, scales, strict=True)]
    first = np.sum([f * fit.held_out for f, fit in zip(factors, fits, strict=True)], axis=0)
    before = fit_temperature(first, labels, 1.0, units)

    def taught(without):
        heads = [refit(k, fit, without, targets) for k, fit in zip(kinds, fits, strict=True)]
        total = sum(f * k.unlabelled @ head for f, k, head in zip(factors, kinds, heads, strict=True))
        return pseudo(before * total)

    heads, outputs = [], []
    for kind in kinds:
        whole = second_fit(kind, everyone, all_rest, targets, taught([]))
        residuals = np.zeros((len(whole), n, CLASSES))
        for patient in patients:
            out, keep = np.flatnonzero(groups == patient), np.flatnonzero(groups != patient)
            others = np.flatnonzero(rest != patient)
            for h, head in enumerate(second_fit(kind, keep, others, targets, taught(out))):
                residuals[h, out] = targets[out] - kind.rows[out] @ head
        weights, judged = weighed(list(residuals), units)
        heads.append(sum(w * head for w, head in zip(weights, whole, strict=True)))
        outputs.append(targets - judged)
    scales = [s * fit_temperature(each, labels, units=units) for s, each in zip(shares, outputs, strict=True)]
    second = np.sum([scale * each for scale, each in zip(scales, outputs, strict=True)], axis=0)
    after = fit_temperature(second, labels, 1.0, units)

    def loss(factor, held_out):
        chosen = log_softmax(factor * held_out)[np.arange(n), labels]
        return np.log(factor) ** 2 / 2 - len(patients) * mean_of_units(chosen, groups)

    b = 1 / (1 + np.exp(loss(after, second) - loss(before, first)))
    np.testing.assert_allclose(result.shares, shares, rtol=1e-9)
    assert result.unlabelled == pytest.approx(b, rel=1e-7)
    expected = (1 - b) * before * first + b * after * second
    np.testing.assert_allclose(result.held_out, expected, rtol=1e-9, atol=1e-9)
    for k, kind in enumerate(kinds):
        early, late = factors[k] * fits[k].head, scales[k] * heads[k]
        head = (1 - b) * before * early + b * after * late
        np.testing.assert_allclose(result.heads[k], head, rtol=1e-6, atol=1e-8)
        assert kind.rows.shape[1] == len(head)


@pytest.mark.parametrize("paths", ["both", "shrunk", "target", "sources", "pooled"])
def test_one_kind_without_further_rows_is_ridge_to_the_bit(paths):
    kinds, labels = kinds_of(1, number=1, rest=0)
    targets, (kind,) = to_targets(labels, CLASSES), kinds
    known = fit_ridge(kind.rows, targets, kind.solution, kind.gram, paths=paths)
    result = fit_kinds(kinds, targets, labels, paths)
    assert np.array_equal(result.heads[0], known.head)
    assert np.array_equal(result.held_out, known.held_out)
    assert result.unlabelled is None


@given(seed=st.integers(0, 1000), number=st.integers(1, 3))
@settings(max_examples=15)
def test_order_of_rows_without_labels_does_not_matter_and_shares_are_shares(seed, number):
    kinds, labels, result = fitted(seed, number=number)
    order = np.random.default_rng(seed).permutation(len(kinds[0].unlabelled))
    moved = [Kind(k.rows, k.solution, k.gram, k.unlabelled[order]) for k in kinds]
    other = fit_kinds(moved, to_targets(labels, CLASSES), labels)
    for one, two in zip(result.heads, other.heads, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-9)
    assert result.shares.sum() == pytest.approx(1)
    assert result.unlabelled is not None
    assert 0 <= result.unlabelled <= 1


@pytest.mark.parametrize("rest", [0, 30])
def test_a_kind_that_is_there_twice_predicts_as_once(rest):
    (kind,), labels = kinds_of(2, number=1, rest=rest)
    targets = to_targets(labels, CLASSES)
    once, twice = (fit_kinds([kind] * number, targets, labels) for number in (1, 2))
    assert twice.shares.tolist() == [0.5, 0.5]
    scale, again = (
        fit_temperature(each.held_out, labels, each.usual) * each.held_out for each in (once, twice)
    )
    if rest:
        np.testing.assert_allclose(again, scale, rtol=1e-9)
    assert (again.argmax(axis=1) == scale.argmax(axis=1)).all()


def test_a_regression_takes_kinds_and_leaves_rows_without_labels_out():
    kinds, labels = kinds_of(3)
    numbers = np.stack([labels - 1.0], axis=1)
    sources = [np.zeros((kind.rows.shape[1], 1)) for kind in kinds]
    given_rows = [Kind(k.rows, w, k.gram, k.unlabelled) for k, w in zip(kinds, sources, strict=True)]
    result = fit_kinds(given_rows, numbers, None)
    fits = [fit_ridge(k.rows, numbers, w, k.gram) for k, w in zip(kinds, sources, strict=True)]
    expected = sum(s * fit.held_out for s, fit in zip(result.shares, fits, strict=True))
    np.testing.assert_allclose(result.held_out, expected)
    assert result.unlabelled is None


def test_arrays_of_kinds_travel_under_names_of_their_own():
    first, second = {"gram": np.ones(3), "solution": np.ones((2, 1))}, {"gram": np.zeros(6)}
    sent = with_kinds([first, second])
    assert list(sent) == ["gram", "solution", "gram.1"]
    again = by_kind(sent)
    assert [sorted(each) for each in again] == [["gram", "solution"], ["gram"]]
    assert again[1]["gram"] is second["gram"]
    assert len(by_kind({"gram.999999999": np.ones(3)})) <= MOST_KINDS + 1, "a name takes no memory"


@pytest.mark.parametrize("widths", [[2, 2], [5, 0], [6, -1], []], ids=str)
def test_kinds_that_are_not_a_models_features_are_refused(widths):
    model = {"rows.widths": np.array(widths, int), "head.weight": np.zeros((4, 5)), "head.bias": np.zeros(4)}
    with pytest.raises(ValueError, match="5 features"):
        widths_of(model)
