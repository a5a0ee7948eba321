"""Weights of sources from their losses: by hand, and what always holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fda_flower.aggregation import groupdro_weights, vrex_weights

LOSSES = arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 10))
STRENGTHS = st.floats(0, 100)


def test_vrex_of_the_losses_1_2_and_3():
    np.testing.assert_allclose(vrex_weights([1, 2, 3], 0.25), [1 / 6, 1 / 3, 1 / 2], rtol=1e-15)


def test_vrex_may_have_negative_weights_which_clipping_takes_away():
    np.testing.assert_allclose(vrex_weights([1, 2, 3], 1.0), [-1 / 3, 1 / 3, 1], rtol=1e-15)
    np.testing.assert_allclose(vrex_weights([1, 2, 3], 1.0, clip=True), [0, 1 / 4, 3 / 4], rtol=1e-15)


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


@given(LOSSES, STRENGTHS, st.booleans())
def test_vrex_weights_sum_to_1_and_follow_the_losses(losses, strength, clip):
    weights = vrex_weights(losses, strength, clip)
    assert weights.sum() == pytest.approx(1, abs=1e-9)
    assert (np.diff(weights[np.argsort(losses)]) >= -1e-12).all()
    if clip:
        assert (weights >= 0).all()


def test_groupdro_of_the_losses_1_2_and_3_from_ones():
    np.testing.assert_allclose(
        groupdro_weights([1, 1, 1], [1, 2, 3], 0.5), [0.1863, 0.3072, 0.5065], atol=5e-5
    )


def test_groupdro_multiplies_the_weights_before():
    # exp(ln 2 · L) is 2, 4, 8.
    found = groupdro_weights([4, 2, 1], [1, 2, 3], np.log(2))
    np.testing.assert_allclose(found, [1 / 3, 1 / 3, 1 / 3], rtol=1e-15)


@given(LOSSES, st.floats(0, 10), st.floats(0, 10))
def test_two_updates_of_groupdro_are_one_of_the_summed_step(losses, first, second):
    twice = groupdro_weights(groupdro_weights(np.ones(len(losses)), losses, first), losses, second)
    once = groupdro_weights(np.ones(len(losses)), losses, first + second)
    np.testing.assert_allclose(twice, once, rtol=1e-9, atol=1e-12)


def test_groupdro_bears_weights_that_have_vanished_and_large_losses():
    np.testing.assert_array_equal(groupdro_weights([0, 0], [1, 1], 0.5), [0.5, 0.5])
    np.testing.assert_array_equal(groupdro_weights([1, 1], [0, 1e6], 1.0), [0, 1])


@given(st.integers(1, 200), st.floats(0, 10), st.floats(0.01, 100), STRENGTHS)
def test_equal_losses_and_a_step_of_none_give_uniform_weights_bit_for_bit(number, loss, q, strength):
    uniform, losses = np.full(number, 1 / number), [loss] * number
    assert vrex_weights(losses, strength).tobytes() == uniform.tobytes()
    assert vrex_weights(np.arange(number), 0.0).tobytes() == uniform.tobytes()
    assert groupdro_weights([q] * number, losses, strength).tobytes() == uniform.tobytes()
    assert groupdro_weights([q] * number, np.arange(number), 0.0).tobytes() == uniform.tobytes()
