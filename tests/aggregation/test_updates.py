"""Sums over layers, updates and their geometry: by hand, at every length, memory order and type."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from threadpoolctl import threadpool_limits

from fda_flower.aggregation import Geometry, Update, find_buffers, source_weights
from fda_flower.aggregation.updates import BLOCK, blocks, inner_products, weighted_sum

LENGTHS = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3]
ARRANGEMENTS = {
    "fortran": np.asfortranarray,
    "channels-last": lambda a: np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: a[::-1].copy()[::-1],
}
vectors = hnp.arrays(np.float32, 3, elements=st.floats(-1e6, 1e6, width=32))


def integers(shape, seed=0):
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32)


# --- Sums over one layer ------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_blocks_cover_every_element_once_in_order(length):
    assert [i for s in blocks(length) for i in range(s.start, s.stop)] == list(range(length))
    assert all(s.stop - s.start <= BLOCK for s in blocks(length))


@pytest.mark.parametrize("length", LENGTHS)
def test_sums_are_exact_on_integers_at_every_length(length):
    t, a, b = (integers(length, seed) for seed in range(3))
    own, products, squared = inner_products(t, [a, b])
    wide = [x.astype(np.int64) for x in (t, a, b)]
    assert own == wide[0] @ wide[0]
    assert products.tolist() == [wide[0] @ wide[1], wide[0] @ wide[2]]
    assert squared.tolist() == [wide[1] @ wide[1], wide[2] @ wide[2]]
    assert np.array_equal(weighted_sum(t, [(2.0, a), (-3.0, b)]), t + 2 * a - 3 * b)


def test_inner_products_do_not_lose_many_small_elements_beside_a_large_one():
    # 10 000² = 1e8, where neighbouring float32 numbers are 8 apart: adding 1 to it changes nothing.
    x = np.ones(1_000_001, np.float32)
    x[0] = 10_000
    own, products, squared = inner_products(x, [x])
    assert np.cumsum(x * x, dtype=np.float32)[-1] == 1e8
    assert own == products[0] == squared[0] == 1e8 + 1e6


@pytest.mark.parametrize("arrange", ARRANGEMENTS.values(), ids=ARRANGEMENTS)
def test_sums_do_not_depend_on_memory_order(arrange):
    t, a = np.random.default_rng(3).standard_normal((2, 40, 9, 8, 7)).astype(np.float32)
    products, total = inner_products(t, [a]), weighted_sum(t, [(0.3, a)])
    for one, other in ((arrange(t), a), (t, arrange(a)), (arrange(t), arrange(a))):
        assert inner_products(one, [other]) == products
        found = weighted_sum(one, [(0.3, other)])
        assert found.flags.c_contiguous
        assert np.array_equal(found, total)


def test_inner_products_have_the_same_bits_on_any_number_of_threads():
    t, a = np.random.default_rng(4).standard_normal((2, 10 * BLOCK + 5)).astype(np.float32)
    results = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            results.append(inner_products(t, [a]))
    assert results[0] == results[1]


def test_weighted_sum_by_hand():
    base = np.array([1, 2, 3], np.float32)
    terms = [(0.5, np.array([2, 4, -2], np.float32)), (-2.0, np.array([1, 0, 3], np.float32))]
    assert weighted_sum(base, terms).tolist() == [1 + 1 - 2, 2 + 2 - 0, 3 - 1 - 6]
    assert [base.tolist(), *(x.tolist() for _, x in terms)] == [[1, 2, 3], [2, 4, -2], [1, 0, 3]]
    copy = weighted_sum(base, [])
    assert copy.tolist() == [1, 2, 3]
    assert not np.shares_memory(copy, base)


def test_weighted_sum_does_not_read_terms_of_weight_zero():
    bad = np.array([np.nan, np.inf, -np.inf], np.float32)
    total = weighted_sum(np.ones(3, np.float32), [(0.0, bad), (-0.0, bad), (1.0, np.ones(3, np.float32))])
    assert total.tolist() == [2, 2, 2]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (2, 0, 3)])
def test_weighted_sum_keeps_shape_and_type_of_the_base(dtype, shape):
    total = weighted_sum(np.ones(shape, dtype), [(2.0, np.ones(shape, dtype))])
    assert isinstance(total, np.ndarray)
    assert (total.shape, total.dtype) == (shape, dtype)
    assert (total == 3).all()


def test_weighted_sum_does_not_lose_many_small_terms_beside_a_large_base():
    # Above 2**24 neighbouring float32 numbers are 2 apart: adding 1 six times one by one changes nothing.
    base, ones = np.full(3, 2**24, np.float32), np.ones(3, np.float32)
    assert (base + ones).tolist() == base.tolist()
    assert weighted_sum(base, [(1.0, ones)] * 6).tolist() == [2**24 + 6] * 3


def test_sums_need_no_wide_copy_of_a_layer():
    base, x, y = (integers(2_000_000, seed) for seed in range(3))
    tracemalloc.start()
    try:
        inner_products(base, [x, y])
        products = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        weighted_sum(base, [(0.5, x), (0.5, y)])
        total = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert products < 10 * 8 * BLOCK
    assert total < base.nbytes + 10 * 8 * BLOCK


# --- Updates ------------------------------------------------------------------------------------------


def test_buffers_are_told_by_the_last_part_of_the_name_or_by_type():
    parameters = ("fc.weight", "fc.bias", "running_mean.weight", "my_running_mean")
    buffers = ("bn.running_mean", "features.1.bn.running_var", "running_var", "bn.num_batches_tracked")
    model = dict.fromkeys((*parameters, *buffers), np.ones(3, np.float16))
    model |= {"mask": np.ones(3, np.bool_), "index": np.ones(3, np.uint8)}
    assert find_buffers(model) == {*buffers, "mask", "index"}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_between_has_differences_of_parameters_and_values_of_buffers(dtype):
    before = {
        "w": np.array([1, 2, 3], dtype),
        "bn.running_var": np.array([1, 1, 1], dtype),
        "bn.num_batches_tracked": np.array(7),
        "a": np.zeros(1, dtype),
    }
    after = {
        "a": np.ones(1, dtype),
        "w": np.array([1.5, 0, 3], dtype),
        "bn.running_var": np.array([2, 3, 4], dtype),
        "bn.num_batches_tracked": np.array(9),
    }
    update = Update.between(before, after, examples=10, steps=4, learning_rate=0.5)
    assert list(update.parameters) == ["w", "a"], "the order of the model that was sent"
    assert {n: v.tolist() for n, v in update.parameters.items()} == {"w": [0.5, -2, 0], "a": [1]}
    assert {n: v.tolist() for n, v in update.buffers.items()} == {
        "bn.running_var": [2, 3, 4],
        "bn.num_batches_tracked": 9,
    }
    assert (update.examples, update.steps, update.learning_rate, update.scale) == (10, 4, 0.5, 2.0)
    assert update.parameters["w"].dtype == dtype
    assert after["w"].tolist() == [1.5, 0, 3]


@pytest.mark.parametrize("overwrite", [False, True])
def test_between_takes_the_buffers_it_is_given_and_writes_into_arrays_only_if_it_may(overwrite):
    before = {"w": np.array([1, 2, 3], np.float32), "memory": np.ones(2, np.float32)}
    after = {"w": np.array([4, 4, 4], np.float32), "memory": np.full(2, 5, np.float32)}
    update = Update.between(before, after, examples=1, buffers={"memory"}, overwrite=overwrite)
    assert {name: layer.tolist() for name, layer in update.parameters.items()} == {"w": [3, 2, 1]}
    assert update.buffers["memory"].tolist() == [5, 5]
    assert (update.steps, update.learning_rate, update.scale) == (0, 0.0, 0.0), "the client did not say"
    assert before["w"].tolist() == [1, 2, 3]
    assert after["w"].tolist() == ([3, 2, 1] if overwrite else [4, 4, 4])


def test_scaled_multiplies_the_parameters_alone(make_update):
    update = make_update({"a": [3.0], "b": [[0.0, 4.0]]}, buffers={"n": np.array(3)}, examples=7, steps=2)
    half = update.scaled(np.float64(0.5))
    assert (update.norm, half.norm) == (5.0, 2.5)
    assert {name: layer.tolist() for name, layer in half.parameters.items()} == {"a": [1.5], "b": [[0, 2]]}
    assert half.parameters["b"].dtype == np.float32
    assert half.buffers is update.buffers
    assert (half.examples, half.steps) == (7, 2)


@pytest.mark.parametrize("examples", [(30, 10, 60), (1,), (7, 123_456_789, 3), (1,) * 49])
def test_source_weights_are_shares_of_the_examples_or_uniform(make_update, examples):
    sources = [make_update([0], examples=n) for n in examples]
    assert source_weights(sources) == pytest.approx(np.array(examples) / sum(examples), rel=1e-15)
    assert source_weights(sources, "uniform").tolist() == [1 / len(examples)] * len(examples)
    assert source_weights(sources).sum() == pytest.approx(1, abs=1e-15)


# --- Geometry -----------------------------------------------------------------------------------------


def test_geometry_by_hand(make_update):
    target = make_update({"x": [1, 2, 2], "y": [3]})
    # The sources' layers are taken by name, not by place.
    sources = [make_update({"y": [1], "x": [2, 0, -1]}), make_update({"x": [0, 0, 0], "y": [-4]})]
    geometry = Geometry.of(target, sources)
    assert geometry.target_squared.tolist() == [1 + 4 + 4, 9]
    assert geometry.source_squared.tolist() == [[4 + 0 + 1, 1], [0, 16]]
    assert geometry.products.tolist() == [[2 + 0 - 2, 3], [0, -12]]
    alone = Geometry.of(target, [])
    assert alone.products.shape == alone.source_squared.shape == (0, 2)
    assert alone.cosines.shape == (0,)


def test_cosines_by_hand(make_update):
    target = make_update({"x": [1, 2, 2], "y": [4]})
    rows = [([2, 0, 0], [0]), ([0, -3, 0], [-4]), ([2, 4, 4], [8]), ([0, 0, 0], [0])]
    sources = [make_update({"x": x, "y": y}) for x, y in rows]
    # The target has norm √(1+4+4+16) = 5; the products are 2, -6-16 and 2+8+8+32.
    expected = [2 / (5 * 2), -22 / (5 * 5), 50 / (5 * 10), 0]
    assert Geometry.of(target, sources).cosines == pytest.approx(expected, rel=1e-15)
    assert Geometry.of(sources[3], sources).cosines.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("size", [1e-90, 1e90])
def test_cosines_of_updates_whose_squares_multiply_out_of_range(make_update, size):
    target, source = (make_update(size * np.array(v), dtype=np.float64) for v in ([3, 4], [0, 5]))
    assert Geometry.of(target, [source]).cosines == pytest.approx([0.8])


@given(a=vectors, b=vectors, exponent=st.integers(-20, 20))
def test_cosines_are_within_one_and_do_not_depend_on_the_scale_of_a_source(make_update, a, b, exponent):
    b = np.where(np.abs(b) < 1e-20, 0, b).astype(np.float32)  # no denormal numbers after scaling
    others = [make_update(v) for v in (b, b * np.float32(2.0**exponent), a, -a)]
    cosines = Geometry.of(make_update(a), others).cosines
    assert (np.abs(cosines) <= 1).all()
    assert math.isclose(cosines[0], cosines[1], rel_tol=1e-12, abs_tol=1e-15)
    if a.any():
        assert cosines[2:] == pytest.approx([1, -1])
