"""kNN-Per's kernel, mixture and choice of λ, by hand."""

import numpy as np
import pytest

from fda_flower.aggregation import (
    best_weight,
    choose_weight,
    log_softmax,
    mixed_scores,
    neighbour_probabilities,
)

KEYS, LABELS = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), np.array([0, 1, 1])
MODEL = np.log([[0.3, 0.7]])


def nearest(query, k):
    """The distances and labels of the nearest keys."""
    distances = np.linalg.norm(KEYS - query, axis=1)
    order = np.argsort(distances)[:k]
    return distances[order][None], LABELS[order][None]


def test_the_kernel_and_the_mixture_by_hand():
    distances, labels = nearest([0.0, 0.0], 2)
    near = neighbour_probabilities(distances, labels, classes=2, features=2, scale=1.0)
    s = np.array([1.0, np.exp(-0.5)])
    np.testing.assert_allclose(near, [s / s.sum()], rtol=1e-12)
    np.testing.assert_allclose(near, [[0.6225, 0.3775]], atol=5e-5)
    np.testing.assert_allclose(np.exp(mixed_scores(MODEL, near, 0.5)), [[0.4612, 0.5388]], atol=5e-5)


def test_distances_are_squared_and_divided_by_features_and_scale():
    distances, labels = nearest([0.0, 0.0], 3)
    near = neighbour_probabilities(distances, labels, 3, features=2, scale=4.0)
    s = np.exp([0.0, -1 / 8, -4 / 8])
    np.testing.assert_allclose(near, [[s[0] / s.sum(), (s[1] + s[2]) / s.sum(), 0]])


def test_a_query_far_from_all_keys_is_left_to_the_model():
    distances = np.array([[1e3, 1e3], [0.0, 1e3]])
    near = neighbour_probabilities(distances, np.array([[0, 1], [0, 1]]), 2, features=1)
    np.testing.assert_array_equal(near, [[0.0, 0.0], [1.0, 0.0]])
    both = np.log([[0.3, 0.7], [0.3, 0.7]])
    np.testing.assert_allclose(np.exp(mixed_scores(both, near, 0.5)), [[0.3, 0.7], [0.65, 0.35]])
    np.testing.assert_allclose(mixed_scores(both, near, 0.5, "logits")[0], both[0])
    assert mixed_scores(both, near, 1.0).argmax(axis=1).tolist() == [1, 0]


def test_the_ends_of_lambda_are_the_model_and_the_neighbours():
    logits, near = np.array([[2.0, -1.0, 0.5]]), np.array([[0.0, 0.25, 0.75]])
    np.testing.assert_array_equal(mixed_scores(logits, near, 0.0), log_softmax(logits))
    np.testing.assert_array_equal(mixed_scores(logits, near, 0.0, "logits"), logits)
    ends = mixed_scores(logits, near, 1.0)
    np.testing.assert_allclose(np.exp(ends), near, atol=1e-300)
    assert np.isfinite(ends).all()


def test_with_logits_the_scale_of_the_logits_decides():
    near = np.array([[1.0, 0.0]])
    assert mixed_scores(np.array([[0.0, 0.5]]), near, 0.5, "logits").argmax() == 0
    assert mixed_scores(np.array([[0.0, 5.0]]), near, 0.5, "logits").argmax() == 1
    np.testing.assert_allclose(mixed_scores(np.array([[0.0, 5.0]]), near, 0.5, "logits"), [[0.5, 2.5]])


RIGHT, WRONG = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([[0.1, 0.9], [0.9, 0.1]])
Y = np.array([0, 1])


@pytest.mark.parametrize("mix", ["probabilities", "logits"])
def test_lambda_is_0_where_the_neighbours_only_harm_and_large_where_the_model_does(mix):
    assert choose_weight(np.log(RIGHT), WRONG, Y, mix) == 0
    assert choose_weight(np.log(WRONG), RIGHT, Y, mix) == 1


def test_of_several_lambdas_with_the_same_accuracy_the_likeliest_is_taken():
    # Everything is right below λ = 0.8; the likelihood λ/4 + 3(1 − λ)/4 ... grows as λ falls.
    assert choose_weight(np.log([[0.75, 0.25]]), np.array([[0.4, 0.6]]), np.array([0])) == 0
    # Both are right with any λ, and the neighbours are surer.
    assert choose_weight(np.log([[0.6, 0.4]]), np.array([[0.8, 0.2]]), np.array([0])) == 1
    # p = λ of the one, 1 − λ of the other: the likelihood λ(1 − λ) is largest in the middle.
    model, near = np.array([[0.999999, 1e-6], [0.999999, 1e-6]]), np.array([[0.0, 1.0], [0.0, 1.0]])
    assert choose_weight(np.log(model), near, Y) == 0.5


def test_of_equal_lambdas_the_smallest_is_taken():
    assert choose_weight(np.log([[0.5, 0.5]]), np.array([[0.5, 0.5]]), np.array([0])) == 0
    assert best_weight(np.log(RIGHT), RIGHT, Y) == (0.0, 1.0)


def test_the_oracle_is_the_best_accuracy_of_the_grid():
    # The model is wrong of the second by 0.6 to 0.4; the neighbours turn it from λ = 1/6 on.
    model, near = np.array([[0.9, 0.1], [0.6, 0.4]]), np.array([[0.5, 0.5], [0.0, 1.0]])
    assert best_weight(np.log(model), near, Y) == (0.17, 1.0)
    assert best_weight(np.log(WRONG), WRONG, Y) == (0.0, 0.0)


def test_the_order_of_the_samples_changes_no_lambda():
    generator = np.random.default_rng(0)
    logits, near = generator.normal(size=(40, 3)), generator.dirichlet([1, 1, 1], 40)
    labels, order = generator.integers(0, 3, 40), generator.permutation(40)
    assert choose_weight(logits, near, labels) == choose_weight(logits[order], near[order], labels[order])
