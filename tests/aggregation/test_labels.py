"""Several labels as columns of one ridge regression: they are single labels with common weights and scale."""

import numpy as np
import pytest

from fda_flower.aggregation import Kind, Sums, fit_kinds, fit_ridge, fit_temperature, to_rows, to_targets
from fda_flower.aggregation.labels import TO_LOGITS, log_likelihood, targets_of_labels
from fda_flower.aggregation.mixture import log_softmax
from fda_flower.aggregation.ridge import RegularizationPath, temperatures_without
from fda_flower.aggregation.sums import factorised
from fda_flower.aggregation.units import Units
from fda_flower.metrics import measure


@pytest.fixture
def rows():
    """Return rows of a target, their three labels, and sources' sums."""
    rng = np.random.default_rng(0)
    x, w = to_rows(rng.normal(size=(24, 5))), rng.normal(size=(6, 3))
    sources = to_rows(rng.normal(size=(200, 5)))
    labels, others = (each @ w + rng.normal(size=(len(each), 3)) > 0 for each in (x, sources))
    return x, labels.astype(int), Sums.of(sources, targets_of_labels(others)), sources, others


def test_each_label_alone_with_the_common_weights_is_the_joint_fit(rows):
    x, labels, sums, *_ = rows
    solution, targets = sums.solution(), targets_of_labels(labels)
    joint = fit_ridge(x, targets, solution, sums.whole)
    for label in range(3):
        y, start, head, held_out = targets[:, [label]], solution[:, [label]], 0.0, 0.0
        for name, factor in (("shrunk", None), ("pooled", factorised(sums.whole))):
            path = RegularizationPath(x, name, factor)
            for weight, each in zip(joint.weights, joint.heads, strict=True):
                if each.path.name == name:
                    rest = y - each.share * x @ start
                    own = path.back @ np.linalg.solve(x @ path.back + each.strength * np.eye(len(x)), rest)
                    head = head + weight * (own + each.share * start)
                    held_out = held_out + weight * (y - path.left_out(each.strength, rest))
        np.testing.assert_allclose(joint.head[:, [label]], head, atol=1e-10)
        np.testing.assert_allclose(joint.held_out[:, [label]], held_out, atol=1e-10)


@pytest.mark.parametrize("groups", [None, np.arange(24) // 2], ids=["rows", "patients"])
def test_one_label_is_two_classes(rows, groups):
    x, labels, _, sources, others = rows
    of_classes = Sums.of(sources, to_targets(others[:, 0].astype(int), 2))
    of_label = Sums.of(sources, targets_of_labels(others[:, :1]))
    classes = fit_ridge(
        x, to_targets(labels[:, 0], 2), of_classes.solution(), of_classes.whole, groups=groups
    )
    label = fit_ridge(x, targets_of_labels(labels[:, :1]), of_label.solution(), of_label.whole, groups=groups)
    two = classes.head[:, 1] - classes.head[:, 0]
    np.testing.assert_allclose(TO_LOGITS * label.head[:, 0], two, atol=1e-10)
    units = Units.of(len(x), groups)
    sigma = fit_temperature(classes.held_out, labels[:, 0], units=units)
    assert fit_temperature(label.held_out, labels[:, :1], units=units) == sigma
    without = [
        temperatures_without(fit.held_out, y, 8.0, units)
        for fit, y in ((classes, labels[:, 0]), (label, labels[:, :1]))
    ]
    np.testing.assert_array_equal(without[0], without[1])
    p = np.exp(log_softmax(sigma * x @ classes.head))[:, 1]
    np.testing.assert_allclose(1 / (1 + np.exp(-TO_LOGITS * sigma * (x @ label.head)[:, 0])), p, atol=1e-10)


def test_logarithms_of_labels_add_up_and_stay_finite():
    rng = np.random.default_rng(1)
    outputs, labels = rng.normal(size=(5, 3)), rng.integers(0, 2, (5, 3))
    signs = 2 * labels - 1
    expected = np.log(1 / (1 + np.exp(-2 * signs * outputs))).sum(axis=1)
    np.testing.assert_allclose(log_likelihood(outputs, labels), expected, atol=1e-12)
    far = log_likelihood(np.array([[1e4, -1e4]]), np.array([[0, 0]]))
    np.testing.assert_allclose(far, [-2e4])


def test_rows_without_labels_are_not_used(rows):
    x, labels, sums, sources, _ = rows
    fits = [
        fit_kinds([Kind(x, sums.solution(), sums.whole, rest)], targets_of_labels(labels), labels)
        for rest in (sources[:0], sources[:9])
    ]
    np.testing.assert_array_equal(fits[0].heads[0], fits[1].heads[0])
    assert fits[1].unlabelled is None


def test_left_out_outputs_rank_without_the_level_that_leaving_out_moves():
    """The area is 1/2 of labels that follow from nothing, and less of left-out outputs as they are."""
    rng, areas = np.random.default_rng(0), []
    for _ in range(30):
        x, labels = to_rows(rng.normal(size=(30, 5))), (rng.random((30, 4)) < 0.3).astype(int)
        kinds = [Kind(x, np.zeros((6, 4)))]
        fit = fit_kinds(kinds, targets_of_labels(labels), labels, "target")
        both = fit.held_out, fit.ranked(kinds, Units.of(30))
        areas.append([measure(each, labels, "multilabel")["auroc"] for each in both])
    raw, ranked = np.mean(areas, axis=0)
    assert raw < 0.42
    assert abs(ranked - 0.5) < 0.05


@pytest.mark.parametrize("groups", [None, np.arange(24) // 2], ids=["rows", "patients"])
def test_a_level_is_the_mean_output_of_the_heads_without_a_unit(rows, groups):
    x, labels, sums, *_ = rows
    targets, units = targets_of_labels(labels), Units.of(24, groups)
    fit = fit_ridge(x, targets, sums.solution(), sums.whole, "pooled", groups)
    without = units.numbers != 3
    factor, solution = factorised(sums.whole), sums.solution()
    path = RegularizationPath(x[without], "pooled", factor)
    (head,) = path.heads(targets[without], solution, [1.0])
    expected = x.mean(axis=0) @ (head.weights - fit.head)
    for row in np.flatnonzero(~without):
        np.testing.assert_allclose(fit.levels(x, units)[row], expected, atol=1e-9)
