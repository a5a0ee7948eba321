import numpy as np
import pytest

from fda_flower.aggregation import Update, find_buffers, source_weights


@pytest.mark.parametrize(
    ("name", "dtype", "is_buffer"),
    [
        ("fc.weight", np.float32, False),
        ("fc.bias", np.float16, False),
        ("fc.weight", np.float64, False),
        ("bn.weight", np.float32, False),
        ("bn.running_mean", np.float32, True),
        ("features.1.bn.running_var", np.float32, True),
        ("running_var", np.float32, True),
        ("bn.num_batches_tracked", np.int64, True),
        ("bn.num_batches_tracked", np.float32, True),
        ("running_mean.weight", np.float32, False),
        ("my_running_mean", np.float32, False),
        ("mask", np.bool_, True),
        ("index", np.uint8, True),
    ],
)
def test_buffers_are_told_by_the_last_part_of_the_name_or_by_type(name, dtype, is_buffer):
    assert (name in find_buffers({name: np.ones(3, dtype)})) is is_buffer


def test_find_buffers_of_a_model_without_any():
    assert find_buffers({"w": np.ones(3, np.float32)}) == frozenset()


def test_between_has_differences_of_parameters_and_values_of_buffers():
    before = {
        "w": np.array([1, 2, 3], np.float32),
        "bn.running_var": np.array([1, 1, 1], np.float32),
        "bn.num_batches_tracked": np.array(7),
    }
    after = {
        "w": np.array([1.5, 0, 3], np.float32),
        "bn.running_var": np.array([2, 3, 4], np.float32),
        "bn.num_batches_tracked": np.array(9),
    }
    update = Update.between(before, after, examples=10, steps=4, learning_rate=0.5)
    assert {name: value.tolist() for name, value in update.parameters.items()} == {"w": [0.5, -2, 0]}
    assert {name: value.tolist() for name, value in update.buffers.items()} == {
        "bn.running_var": [2, 3, 4],
        "bn.num_batches_tracked": 9,
    }
    assert (update.examples, update.steps, update.learning_rate) == (10, 4, 0.5)


def test_between_takes_the_names_of_the_buffers_it_is_given():
    before = {"w": np.ones(3, np.float32), "memory": np.ones(3, np.float32)}
    after = {"w": np.zeros(3, np.float32), "memory": np.full(3, 5, np.float32)}
    update = Update.between(before, after, examples=1, buffers={"memory"})
    assert list(update.parameters) == ["w"]
    assert update.buffers["memory"].tolist() == [5, 5, 5]


@pytest.mark.parametrize("overwrite", [False, True])
def test_between_writes_into_the_clients_arrays_only_if_it_may(overwrite):
    before = {"w": np.array([1, 2, 3], np.float32)}
    after = {"w": np.array([4, 4, 4], np.float32)}
    update = Update.between(before, after, examples=1, overwrite=overwrite)
    assert update.parameters["w"].tolist() == [3, 2, 1]
    assert before["w"].tolist() == [1, 2, 3]
    assert after["w"].tolist() == ([3, 2, 1] if overwrite else [4, 4, 4])
    assert np.shares_memory(update.parameters["w"], after["w"]) is overwrite


def test_between_does_not_make_up_steps_and_learning_rate():
    one = {"w": np.ones(3, np.float32)}
    update = Update.between(one, dict(one), examples=1)
    assert (update.steps, update.learning_rate) == (0, 0.0)
    assert update.parameters["w"].tolist() == [0, 0, 0]
    assert one["w"].tolist() == [1, 1, 1]


def test_between_follows_the_order_of_the_model_that_was_sent():
    before = {name: np.zeros(3, np.float32) for name in "cab"}
    after = {name: np.ones(3, np.float32) for name in "abc"}
    assert list(Update.between(before, after, examples=1).parameters) == list("cab")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_between_keeps_the_type_of_the_model(dtype):
    update = Update.between({"w": np.zeros(3, dtype)}, {"w": np.ones(3, dtype)}, examples=1)
    assert update.parameters["w"].dtype == dtype


@pytest.mark.parametrize(
    ("steps", "rate", "scale"), [(4, 0.5, 2.0), (0, 0.5, 0.0), (4, 0.0, 0.0), (3, 0.25, 0.75)]
)
def test_scale_is_steps_times_learning_rate(make_update, steps, rate, scale):
    assert make_update([1, 2, 3], steps=steps, rate=rate).scale == scale


def test_scale_is_zero_if_the_client_did_not_say():
    update = Update({"w": np.ones(3)}, {}, examples=1)
    assert (update.steps, update.learning_rate, update.scale) == (0, 0.0, 0.0)


def test_norm_is_that_of_all_layers_as_one_vector(make_update):
    assert make_update({"a": [3.0], "b": [[0.0, 4.0]]}).norm == 5.0


def test_scaled_multiplies_the_parameters_alone(make_update):
    update = make_update({"a": [3.0], "b": [[0.0, 4.0]]}, buffers={"n": np.array(3)}, examples=7, steps=2)
    half = update.scaled(np.float64(0.5))
    assert {name: layer.tolist() for name, layer in half.parameters.items()} == {"a": [1.5], "b": [[0, 2]]}
    assert half.parameters["b"].dtype == np.float32
    assert half.buffers is update.buffers
    assert (half.examples, half.steps) == (7, 2)


def test_source_weights_by_examples(make_update):
    sources = [make_update([0, 0, 0], examples=n) for n in (30, 10, 60)]
    assert source_weights(sources).tolist() == [0.3, 0.1, 0.6]


def test_uniform_source_weights(make_update):
    sources = [make_update([0, 0, 0], examples=n) for n in (30, 10, 60, 1)]
    assert source_weights(sources, "uniform").tolist() == [0.25] * 4


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
@pytest.mark.parametrize("examples", [(1,), (1, 1, 1), (7, 123_456_789, 3), (1,) * 49])
def test_source_weights_sum_to_one(make_update, weighting, examples):
    weights = source_weights([make_update([0, 0, 0], examples=n) for n in examples], weighting)
    assert weights.dtype == np.float64
    assert weights.sum() == pytest.approx(1, abs=1e-15)
