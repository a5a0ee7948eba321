import tracemalloc

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from fda_flower.aggregation.updates import BLOCK, blocks, inner_products, weighted_sum

LENGTHS = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3]

ARRANGEMENTS = {
    "fortran": np.asfortranarray,
    "channels-last": lambda a: np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: a[::-1].copy()[::-1],
}


def integers(shape, seed=0):
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32)


@pytest.mark.parametrize("length", LENGTHS)
def test_blocks_cover_every_element_once_in_order(length):
    covered = [i for s in blocks(length) for i in range(s.start, s.stop)]
    assert covered == list(range(length))


def test_no_block_is_longer_than_the_limit():
    assert max(s.stop - s.start for s in blocks(5 * BLOCK + 7)) == BLOCK


def test_inner_products_by_hand():
    t = np.array([1, 2, 3], np.float32)
    a = np.array([4, 0, -1], np.float32)
    b = np.array([0, -2, 1], np.float32)
    own, products, squared = inner_products(t, [a, b])
    assert own == 1 + 4 + 9
    assert products.tolist() == [4 + 0 - 3, 0 - 4 + 3]
    assert squared.tolist() == [16 + 0 + 1, 0 + 4 + 1]


def test_inner_products_without_sources_measure_the_target_alone():
    own, products, squared = inner_products(np.array([3, 4, 0], np.float32), [])
    assert own == 25
    assert products.shape == squared.shape == (0,)


@pytest.mark.parametrize("length", LENGTHS)
def test_inner_products_are_exact_on_integers_at_every_length(length):
    t, a, b = integers(length, 0), integers(length, 1), integers(length, 2)
    own, products, squared = inner_products(t, [a, b])
    wide = [x.astype(np.int64) for x in (t, a, b)]
    assert own == wide[0] @ wide[0]
    assert products.tolist() == [wide[0] @ wide[1], wide[0] @ wide[2]]
    assert squared.tolist() == [wide[1] @ wide[1], wide[2] @ wide[2]]


def test_inner_products_do_not_lose_many_small_elements_beside_a_large_one():
    # 10 000² = 1e8, where neighbouring float32 numbers are 8 apart: adding 1 to it changes nothing.
    x = np.ones(1_000_001, np.float32)
    x[0] = 10_000
    in_float32 = np.cumsum(x * x, dtype=np.float32)[-1]
    own, products, squared = inner_products(x, [x])
    assert in_float32 == 1e8
    assert own == products[0] == squared[0] == 1e8 + 1e6


def test_inner_products_of_float16_do_not_overflow():
    x = np.full(3, 60_000, np.float16)
    own, _, _ = inner_products(x, [x])
    assert own == 3 * float(x[0]) ** 2


@pytest.mark.parametrize("arrange", ARRANGEMENTS.values(), ids=ARRANGEMENTS)
def test_inner_products_do_not_depend_on_memory_order(arrange):
    rng = np.random.default_rng(3)
    t, a = rng.standard_normal((2, 40, 9, 8, 7)).astype(np.float32)
    expected = inner_products(t, [a])
    for arranged in ((arrange(t), a), (t, arrange(a)), (arrange(t), arrange(a))):
        assert inner_products(arranged[0], [arranged[1]]) == expected


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
    # 1 + 1 - 2, 2 + 2 - 0, 3 - 1 - 6
    assert weighted_sum(base, terms).tolist() == [0, 4, -4]


def test_weighted_sum_without_terms_is_a_copy_of_the_base():
    base = np.array([1, 2, 3], np.float32)
    total = weighted_sum(base, [])
    assert total.tolist() == [1, 2, 3]
    assert not np.shares_memory(total, base)


def test_weighted_sum_leaves_its_inputs_as_they_are():
    base, x = integers((3, 5), 0), integers((3, 5), 1)
    before = base.copy(), x.copy()
    weighted_sum(base, [(0.3, x)])
    assert np.array_equal(base, before[0])
    assert np.array_equal(x, before[1])


def test_weighted_sum_does_not_read_terms_of_weight_zero():
    bad = np.array([np.nan, np.inf, -np.inf], np.float32)
    total = weighted_sum(np.ones(3, np.float32), [(0.0, bad), (-0.0, bad), (1.0, np.ones(3, np.float32))])
    assert total.tolist() == [2, 2, 2]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_weighted_sum_keeps_shape_and_type_of_the_base(dtype, shape):
    total = weighted_sum(np.ones(shape, dtype), [(2.0, np.ones(shape, dtype))])
    assert isinstance(total, np.ndarray)
    assert (total.shape, total.dtype) == (shape, dtype)
    assert (total == 3).all()


@pytest.mark.parametrize("length", LENGTHS)
def test_weighted_sum_is_exact_on_integers_at_every_length(length):
    base, x, y = integers(length, 0), integers(length, 1), integers(length, 2)
    assert np.array_equal(weighted_sum(base, [(2.0, x), (-3.0, y)]), base + 2 * x - 3 * y)


def test_weighted_sum_does_not_lose_many_small_terms_beside_a_large_base():
    # Above 2**24 neighbouring float32 numbers are 2 apart: adding 1 six times one by one changes nothing.
    base, ones = np.full(3, 2**24, np.float32), np.ones(3, np.float32)
    in_float32 = base
    for _ in range(6):
        in_float32 = in_float32 + ones
    assert in_float32.tolist() == [2**24] * 3
    assert weighted_sum(base, [(1.0, ones)] * 6).tolist() == [2**24 + 6] * 3


@pytest.mark.parametrize("arrange", ARRANGEMENTS.values(), ids=ARRANGEMENTS)
def test_weighted_sum_does_not_depend_on_memory_order(arrange):
    rng = np.random.default_rng(5)
    base, x = rng.standard_normal((2, 40, 9, 8, 7)).astype(np.float32)
    expected = weighted_sum(base, [(0.3, x)])
    for arranged in ((arrange(base), x), (base, arrange(x)), (arrange(base), arrange(x))):
        total = weighted_sum(arranged[0], [(0.3, arranged[1])])
        assert total.flags.c_contiguous
        assert np.array_equal(total, expected)


def test_sums_need_no_wide_copy_of_a_layer():
    base, x, y = (integers(2_000_000, seed) for seed in range(3))
    peaks = {}
    tracemalloc.start()
    try:
        inner_products(base, [x, y])
        peaks["inner products"] = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        weighted_sum(base, [(0.5, x), (0.5, y)])
        peaks["weighted sum"] = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peaks["inner products"] < 10 * 8 * BLOCK
    assert peaks["weighted sum"] < base.nbytes + 10 * 8 * BLOCK
