import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fda_flower.aggregation import MovingAverage, TailAverage


def averages(rule, models):
    """The average after each of the models."""
    kept, found = (), []
    for model in models:
        kept = rule.add(kept, model)
        found.append(rule.average(kept))
    return found


def models_of(*values):
    return [{"w": np.array(value, np.float32)} for value in values]


THREE = models_of([1, 0, -4], [3, 8, 0], [5, 4, 2])


def test_the_moving_average_begins_at_the_first_model():
    first, second, third = averages(MovingAverage(0.75), THREE)
    np.testing.assert_array_equal(first["w"], [1, 0, -4])
    # 3/4 of the average, 1/4 of the new model
    np.testing.assert_array_equal(second["w"], [1.5, 2, -3])
    np.testing.assert_array_equal(third["w"], [2.375, 2.5, -1.75])


def test_the_tail_is_the_mean_of_the_last_models_and_of_fewer_at_the_beginning():
    first, second, third = averages(TailAverage(2), THREE)
    np.testing.assert_array_equal(first["w"], [1, 0, -4])
    np.testing.assert_array_equal(second["w"], [2, 4, -2])
    np.testing.assert_array_equal(third["w"], [4, 6, 1])


def test_statistics_are_averaged_and_counters_are_the_last_ones():
    models = [
        {"bn.running_var": np.array(var, np.float64), "bn.num_batches_tracked": np.array(count)}
        for var, count in ((1e-9, 3), (2.0, 5), (4.0, 11))
    ]
    for rule, variance in ((MovingAverage(0.5), 2.5), (TailAverage(2), 3.0)):
        last = averages(rule, models)[-1]
        assert list(last) == ["bn.running_var", "bn.num_batches_tracked"]
        assert last["bn.running_var"] == pytest.approx(variance)
        assert last["bn.num_batches_tracked"] == 11
        assert [array.dtype for array in last.values()] == [np.float64, np.int64]
        assert [array.shape for array in last.values()] == [(), ()]


def test_no_model_is_changed():
    models = models_of([1.0, 2.0], [3.0, 5.0], [7.0, 11.0])
    before = [model["w"].copy() for model in models]
    for rule in (MovingAverage(0.5), TailAverage(3)):
        averages(rule, models)
    for model, values in zip(models, before, strict=True):
        np.testing.assert_array_equal(model["w"], values)


def test_sums_are_of_higher_precision_than_the_models():
    models = models_of([1e8], [1.0], [-1e8])
    (value,) = averages(TailAverage(3), models)[-1]["w"]
    assert value == pytest.approx(1 / 3, rel=1e-6)


FINITE = st.floats(-1e6, 1e6, width=32)
MODELS = st.lists(arrays.arrays(np.float32, 4, elements=FINITE), min_size=1, max_size=8)
RULES = st.one_of(
    st.floats(0, 1, exclude_min=True, exclude_max=True).map(MovingAverage),
    st.integers(1, 9).map(TailAverage),
)


@given(MODELS, st.floats(0.01, 0.99))
def test_the_moving_average_is_the_sum_of_all_models_with_weights_that_sum_to_1(values, factor):
    n = len(values)
    weights = [factor ** (n - 1), *((1 - factor) * factor ** (n - 1 - i) for i in range(1, n))]
    assert sum(weights) == pytest.approx(1)
    expected = sum(w * value.astype(np.float64) for w, value in zip(weights, values, strict=True))
    found = averages(MovingAverage(factor), models_of(*values))[-1]["w"]
    scale = max(np.abs(values).max(), 1e-30)
    np.testing.assert_allclose(found, expected, atol=1e-6 * scale)


@given(MODELS)
def test_a_tail_of_1_is_the_last_model(values):
    for model, average in zip(models_of(*values), averages(TailAverage(1), models_of(*values)), strict=True):
        np.testing.assert_array_equal(model["w"], average["w"])


@given(arrays.arrays(np.float32, 3, elements=FINITE), RULES)
def test_the_average_of_one_and_the_same_model_is_this_model(value, rule):
    for average in averages(rule, models_of(*[value] * 12)):
        np.testing.assert_array_equal(average["w"], value)


@given(st.lists(st.floats(2.0**-60, 2.0**60, width=32), min_size=1, max_size=8), RULES)
def test_a_variance_stays_positive_and_between_the_models_variances(values, rule):
    for average in averages(rule, models_of(*values)):
        assert np.float32(min(values)) <= average["w"] <= np.float32(max(values))
        assert average["w"] > 0


@pytest.mark.parametrize("factor", [0.0, 1.0, -0.5, 1.5, float("nan")])
def test_a_factor_is_between_0_and_1(factor):
    with pytest.raises(ValueError, match=f"factor is {factor}, it must be between 0 and 1"):
        MovingAverage(factor)


@pytest.mark.parametrize("length", [0, -2])
def test_a_tail_has_a_model(length):
    with pytest.raises(ValueError, match=f"length is {length}, it must be at least 1"):
        TailAverage(length)
