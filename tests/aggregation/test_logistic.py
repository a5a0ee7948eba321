"""A target's logistic heads: their minimum, what is left out, and the average."""

import numpy as np
import pytest
from scipy.optimize import minimize

from fda_flower.aggregation.logistic import CONSTANT, SCALES, STRENGTHS, fit_logistic, minimised
from fda_flower.aggregation.mixture import log_softmax, stratified_folds


def table(rows: int, columns: int, classes: int, seed: int = 0):
    """Return columns, sources' outputs and labels that depend on both."""
    rng = np.random.default_rng(seed)
    z = np.clip(rng.standard_normal((rows, columns)), -3, 3)
    logits = z @ rng.standard_normal((columns, classes))
    labels = np.array([rng.choice(classes, p=p) for p in np.exp(log_softmax(logits))])
    return z, logits / 5 + 0.1 * rng.standard_normal(logits.shape), labels


@pytest.mark.parametrize(("rows", "columns", "classes"), [(30, 3, 2), (12, 20, 3), (5, 1, 4)])
def test_a_head_is_the_minimum_that_a_general_method_finds(rows: int, columns: int, classes: int) -> None:
    z, outputs, labels = table(rows, columns, classes)
    offsets = np.stack([2 * outputs, 0 * outputs])
    fitted = minimised(z, offsets, labels, (10.0, 0.3))
    for head, strength, offset in zip(fitted, (10.0, 0.3), offsets, strict=True):

        def loss(flat, strength=strength, offset=offset):
            theta = flat.reshape(columns + 1, classes)
            chosen = log_softmax(offset + z @ theta[:-1] + theta[-1])[np.arange(rows), labels]
            penalty = strength * np.square(theta[:-1]).sum() + CONSTANT * np.square(theta[-1]).sum()
            return penalty / 2 - chosen.sum()

        found = minimize(loss, np.zeros(head.size), method="BFGS", options={"gtol": 1e-7})
        assert loss(head.ravel()) <= found.fun + 1e-9
        np.testing.assert_allclose(head.ravel(), found.x, atol=1e-5)


def test_one_class_or_constant_columns_have_a_finite_head() -> None:
    z, outputs, _ = table(6, 2, 2)
    fitted = minimised(0 * z, np.stack([outputs]), np.zeros(6, int), (10.0,))
    assert np.isfinite(fitted).all() and not fitted[:, :-1].any()
    assert fitted[0, -1, 0] > 1


@pytest.mark.parametrize("grouped", [False, True])
def test_what_is_held_out_has_not_seen_the_unit(grouped: bool) -> None:
    z, outputs, labels = table(40, 3, 2)
    groups = np.arange(40) // 2 if grouped else None
    fit = fit_logistic(z, outputs, labels, groups)
    folds = stratified_folds(labels, 10, 0, groups)
    inside = folds != folds[0]
    heads = [(t, s) for t in (0.0, *SCALES) for s in STRENGTHS]
    offsets = np.array([t for t, _ in heads])[:, None, None] * outputs
    refit = minimised(z[inside], offsets[:, inside], labels[inside], [s for _, s in heads])
    logits = offsets[:, 0] + z[0] @ refit[:, :-1] + refit[:, -1]
    weights = np.array([fit.shares[head] for head in heads])
    expected = log_softmax((weights @ log_softmax(logits))[None])[0]
    np.testing.assert_allclose(fit.held_out[0], expected, atol=1e-12)
    if grouped:
        assert all(len({*folds[groups == unit].tolist()}) == 1 for unit in range(20))


def test_the_average_is_one_linear_layer_and_half_of_the_weight_beforehand_is_the_targets_own() -> None:
    z, outputs, labels = table(60, 2, 2)
    fit = fit_logistic(z, outputs, labels)
    assert sum(fit.shares.values()) == pytest.approx(1)
    assert 0 < fit.scale < max(SCALES)
    nothing = fit_logistic(0 * z, 0 * outputs, labels)  # all heads are alike
    alone = sum(share for (tau, _), share in nothing.shares.items() if tau == 0)
    assert alone == pytest.approx(0.5)
    np.testing.assert_allclose(nothing.held_out, nothing.held_out_alone)


def test_misleading_outputs_of_sources_lose_their_weight() -> None:
    z, outputs, labels = table(80, 2, 2, seed=3)
    honest, lying = (fit_logistic(z, sign * 3 * outputs, labels) for sign in (1, -1))
    assert lying.scale < 0.1 * honest.scale


def test_one_unit_cannot_be_left_out() -> None:
    with pytest.raises(ValueError, match="2"):
        fit_logistic(np.zeros((3, 1)), np.zeros((3, 2)), np.array([0, 1, 0]), np.zeros(3, int))
