"""Batch updates and sketches: how they are read, their products and sums, and estimates from sketches."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fda_flower.aggregation import BatchUpdates, CountSketch, Geometry, beta_fedgp, estimate
from fda_flower.aggregation.batches import ENCODINGS
from fda_flower.aggregation.estimation import _unbiased
from fda_flower.aggregation.updates import BLOCK

B, M, SKETCH = 2, 3, CountSketch(4, seed=0)


def arrays():
    """What a target sends of two steps of a model of three numbers, in all encodings at once."""
    full = np.array([[1, 2, 2], [0, 3, -4]], np.float32)
    return {
        "norms": np.array([9.0, 25.0]),
        "full": full,
        "sketch": np.stack([SKETCH({"w": row}) for row in full]),
    }


def read(sent, form):
    return BatchUpdates.from_arrays(sent, form, B, M, SKETCH)


@pytest.mark.parametrize(
    ("form", "needed"), [("norms", ["norms"]), ("sketch", ["norms", "sketch"]), ("full", ["norms", "full"])]
)
@pytest.mark.parametrize("others", [False, True])
def test_an_encoding_takes_its_own_arrays_alone(form, needed, others):
    sent = {name: array.astype(np.float32) for name, array in arrays().items() if others or name in needed}
    batches = read(sent, form)
    assert batches.squared_norms.tolist() == [9, 25]
    assert batches.steps == 2
    assert (batches.full is not None) is (form == "full")
    assert (batches.sketches is not None) is (batches.sketch is not None) is (form == "sketch")
    assert batches.noise == (1 / SKETCH.size if form == "sketch" else 0)
    # Narrow floats are read in float64, and steps as they are.
    assert batches.squared_norms.dtype == np.float64
    assert batches.sketches is None or batches.sketches.dtype == np.float64
    assert batches.full is None or batches.full is sent["full"]


BAD = {
    "too few steps": lambda a: a[:1],
    "too many steps": lambda a: np.concatenate([a, a[:1]]),
    "another rank": lambda a: a[None],
    "empty": lambda a: a[:0],
    "integers": lambda a: a.astype(np.int64),
    "booleans": lambda a: a > 0,
    "complex": lambda a: a.astype(np.complex128),
    "nan": lambda a: np.where(a == a.flat[0], np.nan, a),
    "infinity": lambda a: np.where(a == a.flat[0], np.inf, a),
    "minus infinity": lambda a: np.where(a == a.flat[0], -np.inf, a),
}
BAD_ROWS = {
    "too narrow": lambda a: a[:, :-1],
    "too wide": lambda a: np.concatenate([a, a], axis=1),
    "transposed": lambda a: a.T,
}
CASES = [
    (form, name, fault)
    for form in ENCODINGS
    for name in dict.fromkeys(["norms", form])
    for fault in ("missing", *BAD, *(() if name == "norms" else BAD_ROWS))
]


@pytest.mark.parametrize(("form", "name", "fault"), CASES)
def test_a_bad_array_is_an_error_that_names_it(form, name, fault):
    sent = arrays()
    if fault == "missing":
        del sent[name]
    else:
        sent[name] = (BAD | BAD_ROWS)[fault](sent[name])
    with pytest.raises(ValueError, match=f"'{name}'"):
        read(sent, form)


@pytest.mark.parametrize("form", ENCODINGS)
def test_a_squared_norm_is_not_negative(form):
    assert read(arrays() | {"norms": np.array([9.0, 0.0])}, form).squared_norms.tolist() == [9, 0]
    with pytest.raises(ValueError, match="'norms'"):
        read(arrays() | {"norms": np.array([9.0, -1e-12])}, form)


def test_a_form_that_cannot_be_read_is_an_error():
    with pytest.raises(ValueError, match="encoding is 'zip'"):
        read(arrays(), "zip")
    with pytest.raises(ValueError, match="'sketch'"):
        BatchUpdates.from_arrays(arrays(), "sketch", B, M)


def test_products_by_hand(make_update):
    update = make_update({"x": [3, -1], "y": [2]}).parameters
    assert read(arrays(), "norms").products(update) is None
    # ⟨[1, 2, 2], [3, -1, 2]⟩ = 3 - 2 + 4, ⟨[0, 3, -4], [3, -1, 2]⟩ = 0 - 3 - 8
    assert read(arrays(), "full").products(update).tolist() == [5, -11]
    expected = [sum(SKETCH({"w": row}) * SKETCH(update)) for row in arrays()["full"]]
    assert read(arrays(), "sketch").products(update) == pytest.approx(expected, rel=1e-15)


def integers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32)


def test_the_products_and_the_sum_of_full_steps_count_every_layer_and_block(make_target):
    shapes = {"a": (7, 3), "b": (), "c": (2, BLOCK), "d": (0,), "e": (2,)}
    update = {
        name: np.asfortranarray(integers(*shape, seed=i)) for i, (name, shape) in enumerate(shapes.items())
    }
    flat = np.concatenate([layer.reshape(-1) for layer in update.values()])
    rows = integers(2, flat.size, seed=99)
    rows = np.stack([*rows, flat - rows.sum(axis=0)])
    _, batches = make_target(rows, 0.1)
    assert batches.products(update).tolist() == (rows.astype(np.int64) @ flat.astype(np.int64)).tolist()
    batches.check_sum(update)
    for name, place in (("a", 0), ("c", 0), ("c", -1), ("e", -1)):
        spoilt = update | {name: update[name].copy()}
        spoilt[name].flat[place] += 5  # the slack is a thousandth of the three lengths, below 2.7
        with pytest.raises(ValueError, match="do not sum to it"):
            batches.check_sum(spoilt)


def test_products_do_not_lose_many_small_elements_beside_a_large_one():
    # 10 000² = 1e8, where neighbouring float32 numbers are 8 apart: adding 1 to it changes nothing.
    x = np.ones(1_000_001, np.float32)
    x[0] = 10_000
    assert np.cumsum(x * x, dtype=np.float32)[-1] == 1e8
    assert BatchUpdates(np.zeros(1), full=x[None]).products({"w": x}).tolist() == [1e8 + 1e6]


# --- The sum of the steps -------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ENCODINGS)
@given(rows=st.lists(st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=3), min_size=1, max_size=6))
def test_steps_fit_the_update_that_they_make(make_target, form, rows):
    target, batches = make_target(rows, 0.1, CountSketch(64, 0), form)
    batches.check_sum(target.parameters)


def test_norms_fit_an_update_that_is_longer_by_rounding_and_no_other(make_target):
    # Four steps of length 3 reach 12, and a thousandth more.
    _, batches = make_target([[1, 2, 2]] * 4, 0.1, form="norms")
    batches.check_sum({"w": 1.0009 * np.array([4.0, 8.0, 8.0])})
    with pytest.raises(ValueError, match="Σ‖δ_j‖ < ‖Δ_T‖"):
        batches.check_sum({"w": 1.0011 * np.array([4.0, 8.0, 8.0])})


@pytest.mark.parametrize("form", ["sketch", "full"])
def test_a_sum_may_be_off_by_rounding_and_no_more(make_target, form):
    # Four steps of length 5, forth and back: the sum may be off by a thousandth of 20. No two of the
    # elements share a bucket, so that the sketch's lengths are exact.
    sketch = CountSketch(64, 0)
    _, batches = make_target([[3, 4, 0], [-3, -4, 0]] * 2, 0.1, sketch, form)
    batches.check_sum({"w": np.array([0.0, 0.0, 0.019])})
    with pytest.raises(ValueError, match="do not sum to it"):
        batches.check_sum({"w": np.array([0.0, 0.0, 0.021])})


@pytest.mark.parametrize(
    ("form", "factor", "fits"),
    [
        *(("full", factor, fits) for factor, fits in ((0.9989, 0), (0.9991, 1), (1.0009, 1), (1.0011, 0))),
        # 10·√(2/800) = 0.5: ten standard deviations.
        *(("sketch", factor, fits) for factor, fits in ((0.49, 0), (0.51, 1), (1.49, 1), (1.51, 0))),
    ],
)
def test_steps_have_the_norms_that_were_sent(make_target, form, factor, fits):
    # One element has the square in the sketch that it has in the model.
    target, batches = make_target([[4], [-2]], 0.1, CountSketch(800, 0), form)
    batches = replace(batches, squared_norms=np.array([16.0 / factor, 4.0]))
    if fits:
        batches.check_sum(target.parameters)
    else:
        with pytest.raises(ValueError, match="do not have the norms"):
            batches.check_sum(target.parameters)


# --- Sketches ----------------------------------------------------------------------------------------

# The data's seed is none of the sketches': from one seed NumPy draws the same signs for both.
DATA = 987_654


def sketched(vector, size, seed):
    return CountSketch(size, seed)({"w": np.asarray(vector)})


def test_a_sketch_adds_up_signed_elements_in_buckets():
    sketch, x = CountSketch(4, seed=1), np.arange(1, 11, dtype=np.float32)
    expected = np.zeros(4)
    for value, place in zip(x, sketch.places(10), strict=True):
        if place < 4:
            expected[place] += value
        else:
            expected[place - 4] -= value
    assert sketch({"w": x}).tolist() == expected.tolist()


def test_buckets_and_signs_are_even():
    places = CountSketch(8, seed=0).places(160_000)
    counts = np.bincount(places, minlength=16)
    assert (np.abs(counts - 10_000) < 5 * 100).all()


def test_places_follow_from_the_seed_and_are_drawn_once_a_round():
    assert CountSketch(64, 5).places(1000) is CountSketch(64, 5).places(1000)
    assert not np.array_equal(CountSketch(64, 5).places(1000), CountSketch(64, 6).places(1000))
    # Client and server may run different versions of NumPy: a change here breaks their agreement.
    assert CountSketch(8, seed=1).places(8).tolist() == [5, 8, 15, 3, 3, 4, 9, 1]


def test_a_sketch_is_of_the_model_as_one_vector_in_any_memory_order():
    x, sketch = np.arange(12, dtype=np.float32), CountSketch(5, seed=2)
    layers = {"a": x[:6].reshape(2, 3), "b": x[6], "none": x[:0], "c": x[7:].reshape(5, 1)}
    for arrange in (np.asarray, np.asfortranarray, lambda a: np.repeat(np.atleast_1d(a), 2, axis=0)[::2]):
        arranged = {name: arrange(layer) for name, layer in layers.items()}
        assert np.array_equal(sketch(arranged), sketch({"w": x}))


def test_a_sketch_adds_up_in_float64():
    # In one bucket, past 2**24, ±1 would be lost in float32.
    x = np.ones(1001, np.float32)
    x[0] = 2**24
    signs = np.where(CountSketch(1, seed=0).places(1001) < 1, 1.0, -1.0)
    assert sketched(x, 1, 0).dtype == np.float64
    assert sketched(x, 1, 0).tolist() == [signs @ x.astype(np.float64)]


@pytest.mark.parametrize("size", [1, 4, 32])
@pytest.mark.parametrize("case", ["independent", "the same", "sparse"])
def test_the_variance_of_inner_products_is_as_known_and_within_its_bound(size, case):
    x, y = np.random.default_rng(DATA).standard_normal((2, 40))
    if case == "the same":
        y = x
    elif case == "sparse":
        x, y = x * (np.arange(40) < 6), y * (np.arange(40) < 6)
    products = np.array([sketched(x, size, s) @ sketched(y, size, s) for s in range(4000)])
    assert abs(products.mean() - x @ y) < 4 * products.std() / math.sqrt(len(products)), "unbiased"
    bound = ((x @ x) * (y @ y) + (x @ y) ** 2) / size
    exact = bound - 2 * ((x * y) ** 2).sum() / size
    assert products.var() == pytest.approx(exact, rel=0.15)
    assert exact <= bound


# --- Estimates from sketches -----------------------------------------------------------------------


def round_of(m, B, share=0.15):
    """Steps of the target, and a source's update; `share` of the steps' scatter lies along the source."""
    rng = np.random.default_rng(DATA)
    u = rng.choice([-1.0, 1.0], m) / math.sqrt(m)
    noise = rng.standard_normal((B, m))
    noise -= noise.mean(axis=0) + np.outer((noise - noise.mean(axis=0)) @ u, u)
    along = rng.standard_normal(B)
    along -= along.mean()
    along *= math.sqrt(share / (1 - share) * (noise**2).sum() / (along**2).sum())
    mean = rng.standard_normal(m) * 0.6 + 2 * u
    return mean + noise + np.outer(along, u), 2 * u


def estimates_of(make_target, make_update, rows, source, sketch=None):
    target, batches = make_target(rows, 1.0, sketch, "full" if sketch is None else "sketch")
    client = make_update(source, steps=1, rate=1, dtype=np.float64)
    return estimate(target, [client], Geometry.of(target, [client]), batches)[0]


@pytest.mark.parametrize(("source", "delta"), [([1], 1 / 4), ([-1], 3 / 4)])
def test_the_share_of_sketched_steps_that_agree_by_hand(make_target, make_update, source, delta):
    # A sketch of one element has exact products: one step goes far up, three a little down.
    rows = [[7], [-1], [-1], [-1]]
    assert estimates_of(make_target, make_update, rows, source, CountSketch(8, 0)).delta == delta


@pytest.mark.parametrize("factor", [2.0, -2.0])
def test_sketched_steps_that_are_all_alike_agree_as_their_mean_does(make_target, make_update, factor):
    # In one bucket the sketched products have either sign by chance; the product of the mean is exact.
    rows, source = np.tile([1.0, 2.0, 3.0, 4.0], (3, 1)), factor * np.array([4.0, 1.0, 1.0, 2.0])
    products = [sketched(rows[0], 1, seed) @ sketched(source, 1, seed) for seed in range(20)]
    assert min(products) < 0 < max(products)
    for seed in range(20):
        e = estimates_of(make_target, make_update, rows, source, CountSketch(1, seed))
        assert e.delta == (factor > 0)


def test_estimates_from_a_sketch_are_close_to_the_exact_ones(make_target, make_update):
    def over_seeds(rows, source):
        exact = estimates_of(make_target, make_update, rows, source)
        sketches = (CountSketch(1024, seed) for seed in range(20))
        return exact, [estimates_of(make_target, make_update, rows, source, sketch) for sketch in sketches]

    exact, found = over_seeds(*round_of(m=500, B=20, share=0.5))
    assert {(e.sigma2, e.d2, e.target2) for e in found} == {(exact.sigma2, exact.d2, exact.target2)}
    assert 0.2 < exact.delta < 0.8
    assert np.mean([e.delta for e in found]) == pytest.approx(exact.delta, abs=0.05)
    exact, found = over_seeds(*round_of(m=2000, B=10))
    assert 0.1 < beta_fedgp(exact) < 0.9
    assert [beta_fedgp(e) for e in found] == pytest.approx([beta_fedgp(exact)] * 20, abs=0.02)


@pytest.mark.parametrize(
    ("deviations", "scatter", "noise", "expected"),
    [
        ([3, -3], 32, 0, 18),
        ([3, -3], 32, 1 / 4, (18 - 32 / 4) / (1 + 1 / 4)),
        ([1, -1], 32, 1 / 4, 0),  # 2 - 8 is below 0
        ([9, -9], 32, 1 / 4, 32),  # (162 - 8)/1.25 is above 32
    ],
)
def test_the_correction_of_squared_products_by_hand(deviations, scatter, noise, expected):
    assert _unbiased(np.array(deviations, np.float64), scatter, noise) == pytest.approx(expected, rel=1e-15)


def test_the_bias_of_squared_sketched_products_is_removed(make_target, make_update):
    rows, source = round_of(m=500, B=20, share=0.05)
    B, mean, unit = len(rows), rows.mean(axis=0), source / np.linalg.norm(source)
    exact = estimates_of(make_target, make_update, rows, source).tau2_d2
    scatter, residual2 = ((rows - mean) ** 2).sum(), mean @ mean - (mean @ unit) ** 2
    corrected, plain = [], []
    for seed in range(800):
        sketch = CountSketch(64, seed)
        corrected.append(estimates_of(make_target, make_update, rows, source, sketch).tau2_d2)
        along = np.array([sketch({"w": row}) for row in rows]) @ sketch({"w": unit})
        plain.append(residual2 - (scatter - B * along.var()) / (B * (B - 1)))
    standard_error = np.std(corrected) / math.sqrt(len(corrected))
    assert abs(np.mean(corrected) - exact) < 3 * standard_error
    assert abs(np.mean(plain) - exact) > 10 * standard_error
