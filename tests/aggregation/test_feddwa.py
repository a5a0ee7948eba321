"""FedDWA's distances and weights: by hand, by brute force, and what always holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fda_flower.aggregation import distance_weights, guidance_distances, personal_model
from fda_flower.aggregation.updates import BLOCK

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


def test_weights_of_the_distances_1_2_and_4():
    weights = distance_weights(np.array([[1.0, 4.0, 16.0]]), np.ones(3), top=3)
    np.testing.assert_allclose(weights, [[16 / 21, 4 / 21, 1 / 21]], rtol=1e-15)


def test_weights_of_the_two_largest_only():
    weights = distance_weights(np.array([[1.0, 4.0, 16.0], [16.0, 1.0, 4.0]]), np.ones(3), top=2)
    np.testing.assert_allclose(weights, [[0.8, 0.2, 0], [0, 0.8, 0.2]], rtol=1e-15)


def test_distances_are_from_the_guidance_of_one_to_the_model_of_the_other():
    guidances = [{"w": np.array([1.0, 0.0])}, {"w": np.array([0.0, 3.0])}]
    models = [{"w": np.array([0.0, 0.0])}, {"w": np.array([2.0, 2.0])}]
    squared, norms = guidance_distances(guidances, models)
    np.testing.assert_array_equal(squared, [[1, 5], [9, 5]])
    np.testing.assert_array_equal(norms, [0, 8])


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


@given(POSITIVE, arrays(np.float64, 4, elements=st.floats(-1, 1)))
def test_they_minimise_the_sum_of_squared_weights_by_squared_distances(squared, step):
    (weights,) = distance_weights(squared[:1], np.ones(4), top=4)
    other = weights + step - step.mean()
    assert (weights**2 * squared[0]).sum() <= (other**2 * squared[0]).sum() + 1e-9


def test_models_that_did_not_move_share_the_row():
    squared = np.array([[0.0, 4.0, 0.0], [1.0, 1e-13, 2.0], [1.0, 1.0, 1.0]])
    weights = distance_weights(squared, np.ones(3), top=3)
    np.testing.assert_allclose(weights, [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])


@pytest.mark.parametrize(("squared", "expected"), [(0.9e-12, [1, 0]), (1.1e-12, [1 - 1.1e-12, 1.1e-12])])
def test_a_distance_is_none_below_a_share_of_the_models_norm(squared, expected):
    weights = distance_weights(np.array([[100 * squared, 100.0]]), np.array([100.0, 1.0]), top=2)
    np.testing.assert_allclose(weights, [expected], rtol=1e-10)


def test_a_model_of_zeros_that_did_not_move_has_no_distance():
    weights = distance_weights(np.array([[0.0, 1.0]]), np.array([0.0, 1.0]), top=2)
    assert weights.tolist() == [[1, 0]]


def test_among_clients_at_the_same_distance_the_first_are_kept():
    # Every other one is nearer; of the far ones only ten are kept.
    squared = np.tile([1.0, 2.0], 50)
    (weights,) = distance_weights(squared[None], np.ones(100), top=60)
    assert np.flatnonzero(weights).tolist() == sorted([*range(0, 100, 2), *range(1, 20, 2)])


def test_the_personal_model_of_one_client_is_its_own():
    (model,) = random_models(1, 4)
    found = personal_model([model], np.array([1.0]))
    assert list(found) == list(model)
    assert all(found[name].tobytes() == model[name].tobytes() for name in model)


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.25, 0.25]])
def test_another_number_of_weights_than_models_is_an_error(weights):
    with pytest.raises(ValueError, match="zip"):
        personal_model(random_models(2, 5), np.array(weights))


def test_the_personal_model_is_the_weighted_mean():
    models = random_models(3, 2)
    found = personal_model(models, np.array([0.5, 0.25, 0.25]))
    expected = 0.5 * vector(models[0]) + 0.25 * vector(models[1]) + 0.25 * vector(models[2])
    np.testing.assert_allclose(vector(found), expected, rtol=1e-6)
    assert all(found[name].dtype == np.float32 for name in found)


def test_with_all_weight_on_one_it_is_that_one_bit_by_bit():
    models = random_models(2, 3)
    found = personal_model(models, np.array([0.0, 1.0]))
    assert all(found[name].tobytes() == models[1][name].tobytes() for name in found)
