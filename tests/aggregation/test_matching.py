"""FedOMG's step: by hand, against brute force, and what it promises of the least inner product."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fda_flower.aggregation import matched_step
from fda_flower.aggregation.joint import SMOOTHING, matching_weights


@st.composite
def problems(draw):
    """Updates as rows, the weights of their mean, κ, and a generator."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    number, length = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    updates = rng.standard_normal((number, length)) + draw(st.sampled_from([0.0, 1.0]))
    updates *= 10.0 ** rng.uniform(-1, 1, (number, 1))
    return updates, rng.dirichlet(np.ones(number)), draw(st.sampled_from([0.1, 0.5, 2.0])), rng


def smoothed(updates):
    """The inner products of updates, each with a little of its own."""
    products = updates @ updates.T
    return products + SMOOTHING * products.trace() / len(products) * np.eye(len(products))


def test_two_updates_by_hand():
    # With a right angle between them, γ is (0, 1) if the second one is half as long: its product with the
    # mean is 1/2 of 1, the first one's 4/2, and no mixture's sum with κ ‖Δ̄‖ ‖Γ‖ is smaller.
    updates = np.array([[2.0, 0.0], [0.0, 1.0]])
    coefficients, weights = matched_step(updates @ updates.T, np.full(2, 0.5), 0.5)
    np.testing.assert_allclose(weights, [0, 1], atol=1e-12)
    length = np.sqrt(1.25)  # of the mean (1, 1/2)
    np.testing.assert_allclose(coefficients, [0.5, 0.5 + 0.5 * length], rtol=2e-4)


def test_the_mean_alone_without_kappa_and_without_updates():
    shares = np.array([0.25, 0.75])
    for products, kappa in ((np.eye(2), 0.0), (np.zeros((2, 2)), 0.5)):
        coefficients, weights = matched_step(products, shares, kappa)
        assert coefficients.tolist() == weights.tolist() == shares.tolist()


@given(problems())
def test_the_weights_minimise_the_objective(problem):
    updates, shares, kappa, rng = problem
    products = smoothed(updates)
    weights = matching_weights(updates @ updates.T, shares, kappa)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)

    def objective(w):
        length = np.sqrt(np.einsum("ij,jk,ik->i", w, products, w))
        return w @ products @ shares + kappa * np.sqrt(shares @ products @ shares) * length

    near = np.abs(weights + 1e-3 * rng.standard_normal((200, len(weights))))
    others = np.vstack([rng.dirichlet(np.ones(len(weights)), 500), np.eye(len(weights)), near])
    others /= others.sum(axis=1, keepdims=True)
    assert objective(weights[None])[0] <= objective(others).min() + 1e-6 * products.trace()


@given(problems())
def test_no_other_step_as_near_to_the_mean_serves_the_worst_update_better(problem):
    updates, shares, kappa, rng = problem
    coefficients, _ = matched_step(updates @ updates.T, shares, kappa)
    mean, step = shares @ updates, coefficients @ updates
    radius = kappa * np.linalg.norm(mean)
    slack = 0.1 * np.sqrt((updates**2).sum(axis=1).mean())  # the smoothing is a hundredth of the lengths
    assert np.linalg.norm(step - mean) <= radius + kappa * slack
    directions = rng.standard_normal((500, updates.shape[1]))
    others = mean + radius * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = np.linalg.norm(updates, axis=1).max()
    assert (updates @ step).min() >= (others @ updates.T).min(axis=1).max() - 2 * kappa * slack * lengths


@given(problems(), st.integers(-20, 20))
def test_order_and_unit_do_not_matter(problem, exponent):
    updates, shares, kappa, rng = problem
    products = updates @ updates.T
    found, _ = matched_step(products, shares, kappa)
    order = rng.permutation(len(shares))
    permuted, _ = matched_step(products[np.ix_(order, order)], shares[order], kappa)
    np.testing.assert_allclose(permuted, found[order], atol=1e-4)
    np.testing.assert_array_equal(matched_step(products * 4.0**exponent, shares, kappa)[0], found)
