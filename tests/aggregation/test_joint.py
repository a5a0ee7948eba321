"""Joint weights: against brute force, equation 3, and the weights that FedDA_Auto would take."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from fda_flower.aggregation import Estimates, Geometry, beta_fedda, joint_weights
from fda_flower.aggregation.joint import inner_products_of, nonnegative_least_squares, update_differences


def objective(weights, D, sigma2):
    """``σ²(1−Σw)² + wᵀDw``, with ``D`` made positive semidefinite; `weights` may be rows."""
    values, vectors = np.linalg.eigh(D)
    errors = weights @ (vectors * np.sqrt(np.maximum(values, 0)))
    return sigma2 * (1 - weights.sum(axis=-1)) ** 2 + (errors**2).sum(axis=-1)


@st.composite
def problems(draw, most=6):
    """``D`` of any rank, perhaps with negative eigenvalues, and σ²."""
    n = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = rng.standard_normal((draw(st.integers(1, n + 1)), n)) + draw(st.sampled_from([0.0, 1.0, 5.0]))
    D = rows.T @ rows - draw(st.sampled_from([0.0, 0.3, 2.0]))
    return D * 10.0 ** draw(st.integers(-4, 4)), 10.0 ** draw(st.integers(-4, 4))


def check_minimum(weights, D, sigma2):
    """The certificate of a convex problem: along no edge from here to a corner does the objective fall."""
    assert (weights >= 0).all()
    assert weights.sum() <= 1 + 1e-12
    values, vectors = np.linalg.eigh(D)
    slope = (vectors * np.maximum(values, 0)) @ vectors.T @ weights
    slopes = np.array([sigma2 * (1 - weights.sum()), *slope])
    assert slopes.min() >= objective(weights, D, sigma2) - 1e-8 * sigma2 - 1e-14 * np.abs(D).max()


@given(problem=problems(), seed=st.integers(0, 99), exponent=st.integers(-20, 20))
def test_what_always_holds(problem, seed, exponent):
    D, sigma2 = problem
    weights, generator = joint_weights(D, sigma2), np.random.default_rng(seed)
    check_minimum(weights, D, sigma2)
    # The order of the sources and the unit of gradients do not matter.
    order = generator.permutation(len(D))
    np.testing.assert_allclose(joint_weights(D[np.ix_(order, order)], sigma2), weights[order], atol=1e-5)
    scale = 4.0**exponent
    np.testing.assert_array_equal(joint_weights(D * scale, sigma2 * scale), weights)
    # It is never worse than equation 3 for each source.
    betas = [beta_fedda(Estimates(sigma2, max(d2, 0.0), 1.0)) for d2 in D.diagonal()]
    limit = objective(generator.dirichlet(np.ones(len(D))) * betas, D, sigma2)
    assert objective(weights, D, sigma2) <= limit + 1e-8 * sigma2


@pytest.mark.parametrize(
    ("D", "expected"),
    [
        # A perfect source takes all, however many are useless.
        (np.diag([0.0, 100.0, 100.0]), [1, 0, 0]),
        # Alike ones share, whether perfect or not: σ² = 1 against d² = 1 is a half.
        (np.zeros((4, 4)), [0.25] * 4),
        (np.ones((2, 2)), [0.25, 0.25]),
        # Independent ones: (1−2w) = w d² for each.
        (np.eye(2), [1 / 3, 1 / 3]),
        # Opposite ones cancel, though each errs by 9.
        (np.array([[9.0, -9.0], [-9.0, 9.0]]), [0.5, 0.5]),
        # 2w₁ + w₂ = 1 and w₁ + 5w₂ = 1: [4/9, 1/9]. A third one that errs twice as the first gets none.
        (np.array([[1.0, 0.0, 2.0], [0.0, 4.0, 0.0], [2.0, 0.0, 4.0]]), [4 / 9, 1 / 9, 0]),
        # What is negative is noise.
        (np.diag([-3.0, 5.0]), [1, 0]),
    ],
)
def test_by_hand(D, expected):
    np.testing.assert_allclose(joint_weights(D, 1.0), expected, atol=1e-5)


def test_without_variance_the_target_is_all_there_is():
    assert joint_weights(np.zeros((0, 0)), 1.0).shape == (0,)
    for D, sigma2 in ((np.eye(2), 0.0), (np.zeros((2, 2)), 0.0), (np.eye(2), 5e-324)):
        assert joint_weights(D, sigma2).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("D", "sigma2"), [*((np.eye(2), bad) for bad in (-1.0, math.nan, math.inf)), (np.diag([1, np.nan]), 1.0)]
)
def test_what_is_not_finite_or_negative_is_refused(D, sigma2):
    with pytest.raises(ValueError, match="σ²"):
        joint_weights(D, sigma2)


@given(problem=problems(), twins=st.integers(0, 3), noise=st.sampled_from([0.0, 1e-15, 1e-9]))
def test_alike_sources_have_the_best_weights_too(problem, twins, noise):
    D, sigma2 = problem
    order = [*range(len(D)), *[0] * twins]
    D = D[np.ix_(order, order)] * (1 + noise * np.random.default_rng(0).standard_normal((len(order),) * 2))
    D = (D + D.T) / 2
    check_minimum(joint_weights(D, sigma2), D, sigma2)


@pytest.mark.parametrize("rank", [40, 800])
def test_hundreds_of_sources(rank):
    rows = np.random.default_rng(0).standard_normal((rank, 400)) + 1
    D, sigma2 = rows.T @ rows - 0.3, 400.0
    weights = joint_weights(D, sigma2)
    check_minimum(weights, D, sigma2)
    assert 5 < np.count_nonzero(weights) < 200


@pytest.mark.parametrize("matrix", [np.ones((3, 2)), np.zeros((3, 2)), np.full((3, 2), 1e-200)])
def test_dependent_columns_end_with_finite_numbers(matrix):
    y = nonnegative_least_squares(matrix, np.ones(3))
    assert np.isfinite(y).all()
    assert (y >= 0).all()


# From updates


def test_inner_products_of_many_layered_updates_have_the_same_bits_on_any_number_of_threads(make_update):
    flat = np.random.default_rng(5).standard_normal((50, 5000)).astype(np.float32)
    updates = [make_update({"x": row[:2400].reshape(30, 80), "y": row[2400:], "z": []}) for row in flat]
    found, wide = [], flat.astype(np.float64)
    for threads in (1, 2):
        with threadpool_limits(threads):
            found.append(inner_products_of(updates))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[0].T)
    np.testing.assert_allclose(found[0], wide @ wide.T, rtol=1e-12, atol=1e-9)
    assert inner_products_of([]).shape == (0, 0)


def test_differences_are_those_of_the_definition(make_target, make_update):
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((5, 7))
    target, _ = make_target(rows, 0.1)
    vectors = rng.standard_normal((3, 7))
    sources = [make_update(v, steps=k, rate=0.2, dtype=np.float64) for k, v in enumerate(vectors, start=1)]
    silent = make_update(vectors[0])
    mean = rows.mean(axis=0) / 0.1
    errors = np.array([v / (k * 0.2) - mean for k, v in enumerate(vectors, start=1)])
    everyone = [*sources, silent]
    D = update_differences(target, everyone, Geometry.of(target, everyone), 1.5)
    np.testing.assert_allclose(D[:3, :3], errors @ errors.T - 1.5, rtol=1e-10, atol=1e-9)
    assert np.isnan(D[3]).all()
    assert np.isnan(D[:, 3]).all()
