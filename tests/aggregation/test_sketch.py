import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fda_flower.aggregation import CountSketch, Geometry, beta_fedgp, estimate
from fda_flower.aggregation.estimation import _unbiased

# The data's seed is none of the sketches': from one seed NumPy draws the same signs for both.
DATA = 987_654

deterministic = settings(derandomize=True, deadline=None)
vectors = st.lists(st.integers(-100, 100), min_size=5, max_size=5).map(lambda v: np.array(v, np.float64))


def sketched(vector, size, seed):
    return CountSketch(size, seed)({"w": np.asarray(vector)})


@pytest.mark.parametrize("size", [1, 2, 7, 64])
@pytest.mark.parametrize("length", [0, 1, 5, 1000])
def test_places_are_a_bucket_and_a_sign(size, length):
    places = CountSketch(size, seed=3).places(length)
    assert places.shape == (length,)
    assert np.issubdtype(places.dtype, np.integer)
    assert ((places >= 0) & (places < 2 * size)).all()


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


def test_the_same_seed_has_the_same_places():
    assert np.array_equal(CountSketch(64, 5).places(1000), CountSketch(64, 5).places(1000))
    assert CountSketch(64, 5) == CountSketch(64, 5)


def test_the_places_of_a_round_are_drawn_once():
    assert CountSketch(64, 5).places(1000) is CountSketch(64, 5).places(1000)


def test_another_seed_has_other_places():
    assert not np.array_equal(CountSketch(64, 5).places(1000), CountSketch(64, 6).places(1000))


def test_places_stay_the_same_from_release_to_release():
    # Client and server may run different versions of NumPy: a change here breaks their agreement.
    assert CountSketch(8, seed=1).places(8).tolist() == [5, 8, 15, 3, 3, 4, 9, 1]


@given(x=vectors, y=vectors, a=st.integers(-9, 9), b=st.integers(-9, 9), seed=st.integers(0, 1000))
@deterministic
def test_a_sketch_is_linear(x, y, a, b, seed):
    combined = sketched(a * x + b * y, 3, seed)
    assert np.array_equal(combined, a * sketched(x, 3, seed) + b * sketched(y, 3, seed))


def test_a_sketch_is_of_the_model_as_one_vector():
    x = np.arange(12, dtype=np.float32)
    sketch = CountSketch(5, seed=2)
    layers = {"a": x[:6].reshape(2, 3), "b": x[6], "none": x[:0], "c": x[7:].reshape(5, 1)}
    assert np.array_equal(sketch(layers), sketch({"w": x}))


def test_a_sketch_does_not_depend_on_memory_order():
    x = np.random.default_rng(0).standard_normal((30, 40)).astype(np.float32)
    sketch = CountSketch(16, seed=0)
    for arranged in (np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
        assert np.array_equal(sketch({"w": arranged}), sketch({"w": x}))


def test_a_sketch_adds_up_in_float64():
    # In one bucket, past 2**24, ±1 would be lost in float32.
    x = np.ones(1001, np.float32)
    x[0] = 2**24
    signs = np.where(CountSketch(1, seed=0).places(1001) < 1, 1.0, -1.0)
    assert sketched(x, 1, 0).dtype == np.float64
    assert sketched(x, 1, 0).tolist() == [signs @ x.astype(np.float64)]


def products_over_seeds(x, y, size, seeds):
    return np.array([sketched(x, size, s) @ sketched(y, size, s) for s in range(seeds)])


@pytest.mark.parametrize("size", [1, 8, 64])
def test_inner_products_are_unbiased(size):
    x, y = np.random.default_rng(DATA).standard_normal((2, 40))
    x += 0.3 * y
    products = products_over_seeds(x, y, size, 3000)
    assert abs(products.mean() - x @ y) < 4 * products.std() / math.sqrt(len(products))


@pytest.mark.parametrize("size", [4, 32])
@pytest.mark.parametrize("case", ["independent", "the same", "sparse"])
def test_the_variance_of_inner_products_is_as_known_and_within_its_bound(size, case):
    x, y = np.random.default_rng(DATA).standard_normal((2, 40))
    if case == "the same":
        y = x
    elif case == "sparse":
        x, y = x * (np.arange(40) < 6), y * (np.arange(40) < 6)
    variance = products_over_seeds(x, y, size, 4000).var()
    bound = ((x @ x) * (y @ y) + (x @ y) ** 2) / size
    exact = bound - 2 * ((x * y) ** 2).sum() / size
    assert variance == pytest.approx(exact, rel=0.15)
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


def test_errors_of_inner_products_shrink_with_the_root_of_the_size(make_target):
    rows, source = round_of(m=500, B=4)
    _, full = make_target(rows, 1.0)
    exact, rms = full.products({"w": source}), {}
    for size in (64, 1024):
        errors = []
        for seed in range(400):
            _, batches = make_target(rows, 1.0, CountSketch(size, seed), "sketch")
            errors.append(batches.products({"w": source}) - exact)
        rms[size] = math.sqrt(np.mean(np.square(errors)))
    assert rms[64] / rms[1024] == pytest.approx(math.sqrt(1024 / 64), rel=0.1)


def test_sigma2_and_d2_from_sketches_are_exact(make_target, make_update):
    rows, source = round_of(m=200, B=4)
    full = estimates_of(make_target, make_update, rows, source)
    e = estimates_of(make_target, make_update, rows, source, CountSketch(4, 0))
    assert (e.sigma2, e.d2, e.target2) == (full.sigma2, full.d2, full.target2)


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


def test_the_share_of_sketched_steps_that_agree_is_close_to_the_exact_one(make_target, make_update):
    rows, source = round_of(m=500, B=20, share=0.5)
    exact = estimates_of(make_target, make_update, rows, source).delta
    deltas = [
        estimates_of(make_target, make_update, rows, source, CountSketch(1024, seed)).delta
        for seed in range(20)
    ]
    assert 0.2 < exact < 0.8
    assert np.mean(deltas) == pytest.approx(exact, abs=0.05)


def test_beta_of_fedgp_from_a_sketch_is_close_to_the_exact_one(make_target, make_update):
    rows, source = round_of(m=2000, B=10)
    exact = beta_fedgp(estimates_of(make_target, make_update, rows, source))
    betas = [
        beta_fedgp(estimates_of(make_target, make_update, rows, source, CountSketch(1024, seed)))
        for seed in range(20)
    ]
    assert 0.1 < exact < 0.9
    assert betas == pytest.approx([exact] * 20, abs=0.02)


@pytest.mark.parametrize("size", [8, 64])
def test_the_mean_square_of_sketched_products_is_as_known(size):
    rows, source = round_of(m=500, B=20, share=0.5)
    deviations, unit = rows - rows.mean(axis=0), source / np.linalg.norm(source)
    scatter, spread = (deviations**2).sum(), ((deviations @ unit) ** 2).sum()
    squares = []
    for seed in range(1000):
        sketch = CountSketch(size, seed)
        products = np.array([sketch({"w": d}) for d in deviations]) @ sketch({"w": unit})
        squares.append((products**2).sum())
    standard_error = np.std(squares) / math.sqrt(len(squares))
    assert abs(np.mean(squares) - (spread * (1 + 1 / size) + scatter / size)) < 3 * standard_error


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


@given(size=st.integers(1, 16), seed=st.integers(0, 10**6), m=st.integers(1, 20), B=st.integers(2, 5))
@deterministic
def test_betas_from_any_sketch_are_in_0_1_or_nan(make_target, make_update, size, seed, m, B):
    rows = np.random.default_rng([DATA, seed]).standard_normal((B + 1, m))
    e = estimates_of(make_target, make_update, rows[1:], rows[0], CountSketch(size, seed))
    beta = beta_fedgp(e)
    assert math.isnan(beta) or 0 <= beta <= 1
    assert 0 <= e.delta <= 1
