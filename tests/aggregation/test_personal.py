"""The numbers of FedDAF, FedDWA, kNN-Per, V-REx and GroupDRO: by hand, by brute force, and what always holds.

What the examples in the docstrings show is not repeated here.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fda_flower.aggregation import (
    blend,
    choose_weight,
    distance_weights,
    functional_distance,
    gradient_similarity,
    groupdro_weights,
    guidance_distances,
    mixed_scores,
    neighbour_probabilities,
    personal_model,
    vrex_weights,
)
from fda_flower.aggregation.mixture import log_softmax
from fda_flower.aggregation.updates import BLOCK

# --- FedDAF -------------------------------------------------------------------------------------------

FLOATS = st.floats(-100, 100, width=32)
VECTORS = arrays(np.float32, 3, elements=FLOATS)


def layers(*values):
    return {"a": np.array(values[:1], np.float32), "b": np.array(values[1:], np.float32)}


def test_the_similarity_is_over_all_layers_as_one_vector():
    # (1, 2, 2) and (2, 1, 2): 8 of 3 * 3
    assert gradient_similarity(layers(1, 2, 2), layers(2, 1, 2)) == pytest.approx(8 / 9, abs=1e-15)


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_a_gradient_without_a_direction_gives_0(bad):
    assert gradient_similarity(layers(bad, bad, bad), layers(1, 2, 2)) == 0
    assert gradient_similarity(layers(1, 2, 2), layers(bad, bad, bad)) == 0


def test_gradients_that_are_opposed_or_alike_stay_in_range_though_rounding_leaves_it():
    # √3·√3 is less than 3.
    g, opposed = {"w": np.ones(3)}, {"w": -np.ones(3)}
    assert 3 / (math.sqrt(3) * math.sqrt(3)) > 1
    assert gradient_similarity(g, g) == 1
    assert gradient_similarity(g, opposed) == -1


@pytest.mark.parametrize(
    ("similarity", "mu", "theta", "alpha"),
    [
        # θ = π/2: exp(-5 * 0.570796) = 0.0576145, 1 - exp(-0.0576145) = 0.0559862
        (0.0, 5.0, math.pi / 2, 0.0559862),
        # θ = π/3: exp(-5 * 0.0471976) = 0.7897903, 1 - exp(-0.7897903) = 0.5460600
        (0.5, 5.0, math.pi / 3, 0.5460600),
        # θ = 0: 1 - exp(-exp(5)), which is 1 - 3e-65
        (1.0, 5.0, 0.0, 1.0),
        # θ = π: exp(-5 * 2.1415927) = 2.236612e-5, 1 - exp(-2.236612e-5) = 2.236587e-5
        (-1.0, 5.0, math.pi, 2.236587e-5),
        # μ = -1, θ = π/2: exp(0.5707963) = 1.7696757, 1 - exp(-1.7696757) = 0.8296118
        (0.0, -1.0, math.pi / 2, 0.8296118),
    ],
)
def test_the_gompertz_weight_by_hand(similarity, mu, theta, alpha):
    assert functional_distance(similarity, mu) == pytest.approx((theta, alpha), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("mu", [-1e6, 1e6])
def test_no_mu_overflows(mu):
    for similarity in (-1.0, 0.0, 1.0):
        assert functional_distance(similarity, mu)[1] in (0.0, 1.0)


def test_buffers_are_blended_too_and_integers_are_the_targets():
    source = {"w": np.zeros(1), "var": np.array([4.0]), "steps": np.array(3, np.int32)}
    target = {"w": np.ones(1), "var": np.array([1.0]), "steps": np.array(8, np.int32)}
    blended = blend(source, target, 0.5, {"var", "steps"})
    assert list(blended) == list(target)
    assert [array.tolist() for array in blended.values()] == [[0.5], [2.5], 8]
    assert blended["steps"].dtype == np.int32


@given(VECTORS, VECTORS, st.floats(0, 1))
def test_the_blend_is_between_the_models(one, other, alpha):
    found = blend({"w": one}, {"w": other}, alpha, ())["w"]
    exact = alpha * one.astype(np.float64) + (1 - alpha) * other.astype(np.float64)
    np.testing.assert_array_equal(found, exact.astype(np.float32))


# --- FedDWA ------------------------------------------------------------------------------------------

POSITIVE = arrays(np.float64, (4, 4), elements=st.floats(0.01, 100))


def random_models(number, seed, length=5):
    generator = np.random.default_rng(seed)
    return [
        {
            "a": generator.normal(size=(2, 3)).astype(np.float32),
            "b": generator.normal(size=length).astype(np.float32),
        }
        for _ in range(number)
    ]


def vector(model):
    return np.concatenate([array.reshape(-1) for array in model.values()]).astype(np.float64)


@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, 2 * BLOCK + 3])
def test_distances_by_brute_force(length):
    guidances, models = random_models(3, 0, length), random_models(3, 1, length)
    squared, norms = guidance_distances(guidances, models)
    for i, guidance in enumerate(guidances):
        for j, model in enumerate(models):
            assert squared[i, j] == pytest.approx(((vector(guidance) - vector(model)) ** 2).sum(), rel=1e-12)
    np.testing.assert_allclose(norms, [(vector(model) ** 2).sum() for model in models], rtol=1e-12)


@given(POSITIVE, st.integers(1, 6))
def test_rows_sum_to_1_and_hold_the_nearest(squared, top):
    weights = distance_weights(squared, np.ones(4), top)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
    assert ((weights > 0).sum(axis=1) == min(top, 4)).all()
    for row, distances in zip(weights, squared, strict=True):
        kept = row > 0
        assert distances[kept].max() <= (distances[~kept].min() if (~kept).any() else np.inf)


@pytest.mark.parametrize(
    ("squared", "norms", "expected"),
    [
        ([0.0, 4.0, 0.0], [1.0, 1.0, 1.0], [0.5, 0.0, 0.5]),
        ([1.0, 1e-13, 2.0], [1.0, 1.0, 1.0], [0.0, 1.0, 0.0]),
        ([0.0, 1.0], [0.0, 1.0], [1.0, 0.0]),
        # A distance is none up to a share of its model's squared norm.
        ([0.9e-10, 100.0], [100.0, 1.0], [1.0, 0.0]),
        ([1.1e-10, 100.0], [100.0, 1.0], [1 - 1.1e-12, 1.1e-12]),
    ],
)
def test_models_that_did_not_move_share_the_row(squared, norms, expected):
    weights = distance_weights(np.array([squared]), np.array(norms), top=3)
    np.testing.assert_allclose(weights, [expected], rtol=1e-10)


def test_among_clients_at_the_same_distance_the_first_are_kept():
    # Every other one is nearer; of the far ones only ten are kept.
    squared = np.tile([1.0, 2.0], 50)
    (weights,) = distance_weights(squared[None], np.ones(100), top=60)
    assert np.flatnonzero(weights).tolist() == sorted([*range(0, 100, 2), *range(1, 20, 2)])


def test_the_personal_model_is_the_weighted_mean():
    models = random_models(3, 2)
    found = personal_model(models, np.array([0.5, 0.25, 0.25]))
    expected = 0.5 * vector(models[0]) + 0.25 * vector(models[1]) + 0.25 * vector(models[2])
    np.testing.assert_allclose(vector(found), expected, rtol=1e-6)
    assert all(found[name].dtype == np.float32 for name in found)
    alone = personal_model(models[:2], np.array([0.0, 1.0]))
    assert all(alone[name].tobytes() == models[1][name].tobytes() for name in alone)


# --- kNN-Per -----------------------------------------------------------------------------------------


def test_distances_are_squared_and_divided_by_features_and_scale():
    near = neighbour_probabilities(np.array([[0, 1, 2]]), np.array([[0, 1, 1]]), 3, features=2, scale=4.0)
    s = np.exp([0.0, -1 / 8, -4 / 8])
    np.testing.assert_allclose(near, [[s[0] / s.sum(), (s[1] + s[2]) / s.sum(), 0]])


def test_a_query_far_from_all_keys_is_left_to_the_model():
    distances = np.array([[1e3, 1e3], [0.0, 1e3]])
    near = neighbour_probabilities(distances, np.array([[0, 1], [0, 1]]), 2, features=1)
    np.testing.assert_array_equal(near, [[0.0, 0.0], [1.0, 0.0]])
    both = np.log([[0.3, 0.7], [0.3, 0.7]])
    np.testing.assert_allclose(np.exp(mixed_scores(both, near, 0.5)), [[0.3, 0.7], [0.65, 0.35]])
    assert mixed_scores(both, near, 1.0).argmax(axis=1).tolist() == [1, 0]


def test_the_ends_of_lambda_are_the_model_and_the_neighbours():
    logits, near = np.array([[2.0, -1.0, 0.5]]), np.array([[0.0, 0.25, 0.75]])
    np.testing.assert_array_equal(mixed_scores(logits, near, 0.0), log_softmax(logits))
    ends = mixed_scores(logits, near, 1.0)
    np.testing.assert_allclose(np.exp(ends), near, atol=1e-300)
    assert np.isfinite(ends).all()


RIGHT, WRONG = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([[0.1, 0.9], [0.9, 0.1]])
Y = np.array([0, 1])


def test_lambda_is_0_where_the_neighbours_only_harm_and_large_where_the_model_does():
    assert choose_weight(np.log(RIGHT), WRONG, Y) == 0
    assert choose_weight(np.log(WRONG), RIGHT, Y) == 1


def test_of_several_lambdas_with_the_same_accuracy_the_likeliest_is_taken_then_the_smallest():
    assert choose_weight(np.log([[0.5, 0.5]]), np.array([[0.5, 0.5]]), np.array([0])) == 0
    # Everything is right below λ = 0.8; the likelihood λ/4 + 3(1 − λ)/4 ... grows as λ falls.
    assert choose_weight(np.log([[0.75, 0.25]]), np.array([[0.4, 0.6]]), np.array([0])) == 0
    # Both are right with any λ, and the neighbours are surer.
    assert choose_weight(np.log([[0.6, 0.4]]), np.array([[0.8, 0.2]]), np.array([0])) == 1
    # p = λ of the one, 1 − λ of the other: the likelihood λ(1 − λ) is largest in the middle.
    model, near = np.array([[0.999999, 1e-6], [0.999999, 1e-6]]), np.array([[0.0, 1.0], [0.0, 1.0]])
    assert choose_weight(np.log(model), near, Y) == 0.5


# --- V-REx and GroupDRO ------------------------------------------------------------------------------

LOSSES = arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 10))
STRENGTHS = st.floats(0, 100)


def test_clipping_changes_no_bit_of_weights_that_are_not_negative():
    assert vrex_weights([1, 2, 3], 0.25, clip=True).tobytes() == vrex_weights([1, 2, 3], 0.25).tobytes()


@given(LOSSES, STRENGTHS)
def test_vrex_weights_are_the_derivatives_of_the_objective(losses, strength):
    def objective(losses):
        return losses.mean() + strength * losses.var()

    weights, step = vrex_weights(losses, strength), 1e-4
    for i in range(min(len(losses), 3)):
        moved = np.eye(len(losses))[i] * step
        slope = (objective(losses + moved) - objective(losses - moved)) / (2 * step)
        assert weights[i] == pytest.approx(slope, rel=1e-5, abs=1e-5)


def test_groupdro_multiplies_the_weights_before():
    # exp(ln 2 · L) is 2, 4, 8.
    found = groupdro_weights([4, 2, 1], [1, 2, 3], np.log(2))
    np.testing.assert_allclose(found, [1 / 3, 1 / 3, 1 / 3], rtol=1e-15)
    # weights that have vanished, and large losses
    np.testing.assert_array_equal(groupdro_weights([0, 0], [1, 1], 0.5), [0.5, 0.5])
    np.testing.assert_array_equal(groupdro_weights([1, 1], [0, 1e6], 1.0), [0, 1])


@given(st.integers(1, 200), st.floats(0, 10), st.floats(0.01, 100), STRENGTHS)
def test_equal_losses_and_a_step_of_none_give_uniform_weights_bit_for_bit(number, loss, q, strength):
    uniform, losses = np.full(number, 1 / number), [loss] * number
    assert vrex_weights(losses, strength).tobytes() == uniform.tobytes()
    assert vrex_weights(np.arange(number), 0.0).tobytes() == uniform.tobytes()
    assert groupdro_weights([q] * number, losses, strength).tobytes() == uniform.tobytes()
    assert groupdro_weights([q] * number, np.arange(number), 0.0).tobytes() == uniform.tobytes()
