"""The median and the trimmed mean of sources: by hand, by brute force, and their properties."""

import tracemalloc
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fda_flower.aggregation import Mean, Median, TrimmedMean, Update, mean_update
from fda_flower.aggregation.updates import BLOCK


def sources_of(*values, buffers=None, examples=1):
    rows = buffers or [{}] * len(values)
    return [
        Update({"w": np.array(value, np.float32)}, own, examples)
        for value, own in zip(values, rows, strict=True)
    ]


def new_of(rule, values, model=(0.0, 0.0, 0.0)):
    sources = sources_of(*values)
    return rule({"w": np.array(model, np.float32)}, sources, np.full(len(sources), np.nan))["w"]


def test_by_hand():
    sources, model = sources_of([1, 2, 3], [3, 4, 9]), {"w": np.ones(3, np.float32)}
    weights = np.array([0.25, 0.75])
    assert Mean()(model, sources, weights)["w"].tolist() == mean_update(model, sources, weights)["w"].tolist()
    values = [[1, -9, 4], [3, 0, 4], [5, 1, 1e30], [7, 2, -4]]
    np.testing.assert_array_equal(new_of(Median(), values[:3]), [3, 0, 4])
    np.testing.assert_array_equal(new_of(Median(), values, (10, 10, 10)), [14, 10.5, 14])
    # of four, one is cut at each end: (3 + 5)/2, (0 + 1)/2, (4 + 4)/2
    np.testing.assert_array_equal(new_of(TrimmedMean(0.2), values), [4, 0.5, 4])
    # of three, one is left; of two, none is cut
    np.testing.assert_array_equal(new_of(TrimmedMean(0.2), values[:3]), [3, 0, 4])
    np.testing.assert_array_equal(new_of(TrimmedMean(0.49), values[:2]), [2, -4.5, 4])


@pytest.mark.parametrize(
    ("share", "cuts"), [(0.1, {10: 1, 30: 3, 31: 4}), (0.33, {3: 1, 9: 3}), (0.49, {1: 0, 2: 0, 9: 4, 10: 4})]
)
def test_the_share_is_rounded_up_and_some_stay(share, cuts):
    assert {n: TrimmedMean(share).cut(n) for n in cuts} == cuts


@pytest.mark.parametrize("share", [0, 0.5, -1, np.nan])
def test_a_share_that_leaves_nothing_or_cuts_nothing_is_refused(share):
    with pytest.raises(ValueError, match="share"):
        TrimmedMean(share)


def test_buffers_get_the_centre_of_the_values_and_integers_keep_their_type():
    model = {
        "bn.running_var": np.array([1.0, 1.0], np.float32),
        "bn.num_batches_tracked": np.array(3),
        "w": np.array([-0.0, 2.0], np.float32),
    }
    buffers = [
        {"bn.running_var": np.array(var, np.float32), "bn.num_batches_tracked": np.array(count)}
        for var, count in (([1, 9], 10**15 + 1), ([2, 7], 5), ([1e9, 8], 7), ([3, 8], 6))
    ]
    sources = sources_of(*[[0, 0]] * 4, buffers=buffers)
    for rule in (Median(), TrimmedMean(0.25)):
        new = rule(model, sources, np.zeros(4))
        np.testing.assert_array_equal(new["bn.running_var"], [2.5, 8])
        assert new["bn.num_batches_tracked"] == 6
        assert isinstance(new["bn.num_batches_tracked"], np.ndarray)
        assert new["bn.num_batches_tracked"].dtype == np.int64
        assert list(new) == list(model)
        # no source has changed it
        assert new["w"].tobytes() == model["w"].tobytes()
        assert new["w"] is not model["w"]


def test_sums_are_of_higher_precision_than_the_models():
    values = [[1e8, 0, 0], [1.0, 0, 0], [-1e8, 0, 0], [1e20, 1, 1], [-1e20, 0, 0]]
    assert new_of(TrimmedMean(0.2), values)[0] == pytest.approx(1 / 3, rel=1e-6)


@pytest.mark.parametrize("rule", [Median(), TrimmedMean(0.2)])
@pytest.mark.parametrize(("number", "columns"), [(5, BLOCK + 5), (300, 700)])
def test_arrays_of_several_blocks_and_any_shape(rule, number, columns):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((number, 3, columns)).astype(np.float32)
    model = rng.standard_normal((3, columns)).astype(np.float32)
    sources = [Update({"w": value.T}, {}, 1) for value in values]
    found = rule({"w": model.T}, sources, np.zeros(number))["w"]
    whole = rule.centre(values.transpose(0, 2, 1).reshape(number, -1).astype(np.float64))
    assert found.tobytes() == (model.T + whole.reshape(-1, 3)).astype(np.float32).tobytes()


@pytest.mark.parametrize("rule", [Median(), TrimmedMean(0.2)])
def test_memory_does_not_grow_with_the_sources(rule):
    model = {"w": np.zeros(2 * BLOCK, np.float32)}
    sources = [Update({"w": np.full(2 * BLOCK, number, np.float32)}, {}, 1) for number in range(100)]
    tracemalloc.start()
    rule(model, sources, np.zeros(100))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * model["w"].nbytes


FINITE = st.floats(-1e6, 1e6, width=32)
STACKS = st.integers(1, 7).flatmap(lambda n: arrays.arrays(np.float32, (n, 3), elements=FINITE))
RULES = st.one_of(st.just(Median()), st.floats(0.01, 0.49).map(lambda share: TrimmedMean(round(share, 3))))


@given(STACKS, RULES)
def test_as_brute_force_has_it(stack, rule):
    for column, found in zip(stack.T, new_of(rule, stack), strict=True):
        left = sorted(float(value) for value in column)
        if isinstance(rule, Median):
            cut = (len(left) - 1) // 2
        else:
            cut = min(int(np.ceil(round(rule.share * len(left), 9))), (len(left) - 1) // 2)
        kept = left[cut : len(left) - cut]
        assert found == pytest.approx(sum(kept) / len(kept), rel=1e-6, abs=1e-6)


@given(STACKS.filter(lambda stack: len(stack) < 5), RULES)
def test_the_order_of_the_sources_changes_no_bit(stack, rule):
    assert len({new_of(rule, each).tobytes() for each in permutations(stack)}) == 1


@given(STACKS, RULES, arrays.arrays(np.float32, 3, elements=FINITE))
def test_a_minority_moves_it_to_no_place_where_no_honest_source_is(stack, rule, poison):
    borne = (len(stack) - 1) // 2 if isinstance(rule, Median) else rule.cut(len(stack))
    found = new_of(rule, [*stack[borne:], *[poison] * borne])
    honest = stack[borne:]
    assert (found >= honest.min(axis=0)).all()
    assert (found <= honest.max(axis=0)).all()
