"""FedDAF's numbers: by hand, by brute force, and what always holds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fda_flower.aggregation import blend, functional_distance, gradient_similarity

FLOATS = st.floats(-100, 100, width=32)
VECTORS = arrays(np.float32, 3, elements=FLOATS)


def layers(*values):
    return {"a": np.array(values[:1], np.float32), "b": np.array(values[1:], np.float32)}


def test_the_similarity_by_hand():
    # (1, 2, 2) and (2, 1, 2): 8 of 3 * 3
    assert gradient_similarity(layers(1, 2, 2), layers(2, 1, 2)) == pytest.approx(8 / 9, abs=1e-15)


def test_the_similarity_is_over_all_layers_as_one_vector():
    source, target = {"a": np.ones(2), "b": np.zeros((2, 2))}, {"a": np.ones(2), "b": np.ones((2, 2))}
    assert gradient_similarity(source, target) == pytest.approx(2 / math.sqrt(2 * 6))


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_a_gradient_without_a_direction_gives_0(bad):
    assert gradient_similarity(layers(bad, bad, bad), layers(1, 2, 2)) == 0
    assert gradient_similarity(layers(1, 2, 2), layers(bad, bad, bad)) == 0


@given(VECTORS, st.floats(0.01, 100))
def test_a_gradient_and_its_multiples(vector, factor):
    if np.linalg.norm(vector) > 1e-3:
        g, scaled = {"w": vector.astype(np.float64)}, {"w": factor * vector.astype(np.float64)}
        assert gradient_similarity(g, scaled) == pytest.approx(1, abs=1e-12)
        assert gradient_similarity(g, {"w": -scaled["w"]}) == pytest.approx(-1, abs=1e-12)


def test_gradients_that_are_opposed_or_alike_stay_in_range_though_rounding_leaves_it():
    # √3·√3 is less than 3.
    g, opposed = {"w": np.ones(3)}, {"w": -np.ones(3)}
    assert 3 / (math.sqrt(3) * math.sqrt(3)) > 1
    assert gradient_similarity(g, g) == 1
    assert gradient_similarity(g, opposed) == -1


@given(VECTORS, VECTORS)
def test_it_is_symmetric_and_in_range_so_that_arccos_has_a_value(one, other):
    a, b = {"w": one}, {"w": other}
    similarity = gradient_similarity(a, b)
    assert -1 <= similarity <= 1
    assert similarity == gradient_similarity(b, a)
    theta, alpha = functional_distance(similarity)
    assert 0 <= theta <= math.pi
    assert 0 <= alpha <= 1


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
        # μ = 0: 1 - 1/e, whatever θ
        (0.3, 0.0, math.acos(0.3), 1 - 1 / math.e),
        # μ = -1, θ = π/2: exp(0.5707963) = 1.7696757, 1 - exp(-1.7696757) = 0.8296118
        (0.0, -1.0, math.pi / 2, 0.8296118),
    ],
)
def test_the_gompertz_weight_by_hand(similarity, mu, theta, alpha):
    found_theta, found_alpha = functional_distance(similarity, mu)
    assert found_theta == pytest.approx(theta, abs=1e-12)
    assert found_alpha == pytest.approx(alpha, rel=1e-6)


def test_mu_is_5_by_default():
    assert functional_distance(0.2) == functional_distance(0.2, 5.0) != functional_distance(0.2, 6.0)


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(0.01, 20))
def test_the_more_the_gradients_agree_the_more_of_the_source_model(one, other, mu):
    low, high = sorted((one, other))
    assert functional_distance(low, mu)[1] <= functional_distance(high, mu)[1] + 1e-12


@pytest.mark.parametrize("mu", [-1e6, 1e6])
def test_no_mu_overflows(mu):
    for similarity in (-1.0, 0.0, 1.0):
        assert functional_distance(similarity, mu)[1] in (0.0, 1.0)


def test_the_blend_by_hand():
    blended = blend(layers(1, 2, 3), layers(5, 6, -1), 0.25, ())
    np.testing.assert_allclose(np.concatenate(list(blended.values())), [4, 5, 0])
    assert blended["a"].dtype == np.float32


def test_the_blends_ends_are_the_models_bit_by_bit():
    source, target = layers(0.1, 0.2, 0.3), layers(0.7, 1e-9, 3e7)
    for alpha, model in ((1.0, source), (0.0, target)):
        blended = blend(source, target, alpha, ())
        assert all(blended[name].tobytes() == model[name].tobytes() for name in model)


def test_buffers_are_blended_too_and_integers_are_the_targets():
    source = {"w": np.zeros(1), "var": np.array([4.0]), "steps": np.array(3)}
    target = {"w": np.ones(1), "var": np.array([1.0]), "steps": np.array(8)}
    blended = blend(source, target, 0.5, {"var", "steps"})
    assert blended["var"] == 2.5
    assert blended["steps"] == 8
    assert blended["steps"].dtype == target["steps"].dtype
    assert list(blended) == list(target)


@given(VECTORS, VECTORS, st.floats(0, 1))
def test_the_blend_is_between_the_models(one, other, alpha):
    found = blend({"w": one}, {"w": other}, alpha, ())["w"]
    exact = alpha * one.astype(np.float64) + (1 - alpha) * other.astype(np.float64)
    np.testing.assert_array_equal(found, exact.astype(np.float32))
