from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fda_flower.aggregation import ENCODINGS, BatchUpdates, CountSketch
from fda_flower.aggregation.updates import BLOCK

B, M, SKETCH = 2, 3, CountSketch(4, seed=0)


def products_of(rows, update):
    products = BatchUpdates(np.zeros(len(rows)), full=rows).products(update)
    assert products is not None
    return products


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


def test_encodings_are_in_the_order_of_what_they_send():
    assert ENCODINGS == ("norms", "sketch", "full")


@pytest.mark.parametrize("form", ENCODINGS)
def test_every_encoding_has_the_norms_and_the_number_of_steps(form):
    batches = read(arrays(), form)
    assert batches.squared_norms.tolist() == [9, 25]
    assert batches.steps == 2


@pytest.mark.parametrize(
    ("form", "needed"), [("norms", ["norms"]), ("sketch", ["norms", "sketch"]), ("full", ["norms", "full"])]
)
def test_an_encoding_needs_only_its_own_arrays(form, needed):
    batches = read({name: arrays()[name] for name in needed}, form)
    assert (batches.full is not None) is (form == "full")
    assert (batches.sketches is not None) is (batches.sketch is not None) is (form == "sketch")


@pytest.mark.parametrize("form", ENCODINGS)
def test_an_encoding_ignores_arrays_that_it_does_not_need(form):
    batches = read(arrays(), form)
    assert (batches.full is not None) is (form == "full")
    assert (batches.sketches is not None) is (form == "sketch")


@pytest.mark.parametrize("form", ENCODINGS)
def test_narrow_floats_are_read_in_float64_and_steps_as_they_are(form):
    sent = {name: array.astype(np.float32) for name, array in arrays().items()}
    batches = read(sent, form)
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
    with pytest.raises(ValueError, match=f"batch-updates .*'{name}'"):
        read(sent, form)


@pytest.mark.parametrize("form", ENCODINGS)
def test_a_negative_squared_norm_is_an_error(form):
    with pytest.raises(ValueError, match="'norms' hold a negative"):
        read(arrays() | {"norms": np.array([9.0, -1e-12])}, form)


def test_a_zero_squared_norm_is_no_error():
    assert read(arrays() | {"norms": np.array([9.0, 0.0])}, "norms").squared_norms.tolist() == [9, 0]


def test_errors_name_what_came_and_what_was_expected():
    with pytest.raises(ValueError, match=r"'full' are float32\[3, 2\], expected floats \[2, 3\]"):
        read(arrays() | {"full": arrays()["full"].T}, "full")
    with pytest.raises(ValueError, match="lack 'sketch', which encoding 'sketch' needs"):
        read({"norms": arrays()["norms"]}, "sketch")


def test_an_unknown_encoding_is_an_error_that_names_the_known_ones():
    with pytest.raises(ValueError, match=r"^encoding is 'zip': choose one of norms, sketch, full$"):
        read(arrays(), "zip")


def test_sketches_cannot_be_read_without_the_sketch_that_made_them():
    with pytest.raises(ValueError, match="'sketch' needs the sketch that the server requested"):
        BatchUpdates.from_arrays(arrays(), "sketch", B, M)


def test_a_target_that_made_no_step_can_be_read():
    sent: dict[str, np.ndarray] = {"norms": np.zeros(0), "full": np.zeros((0, M), np.float32)}
    assert BatchUpdates.from_arrays(sent, "full", 0, M).steps == 0


def test_norms_have_no_products(make_update):
    assert read(arrays(), "norms").products(make_update([1, 1, 1]).parameters) is None


def test_products_of_full_steps_by_hand(make_update):
    # ⟨[1, 2, 2], [3, -1, 2]⟩ = 3 - 2 + 4, ⟨[0, 3, -4], [3, -1, 2]⟩ = 0 - 3 - 8
    products = read(arrays(), "full").products(make_update({"x": [3, -1], "y": [2]}).parameters)
    assert products.tolist() == [5, -11]


def test_products_of_sketched_steps_are_those_of_the_sketches(make_update):
    update = make_update([3, -1, 2]).parameters
    expected = [sum(SKETCH({"w": row}) * SKETCH(update)) for row in arrays()["full"]]
    assert read(arrays(), "sketch").products(update) == pytest.approx(expected, rel=1e-15)


def test_only_sketches_are_noisy():
    assert [read(arrays(), form).noise for form in ENCODINGS] == [0, 1 / SKETCH.size, 0]


def integers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32)


@pytest.mark.parametrize(
    "shapes",
    [
        {"w": (BLOCK - 1,)},
        {"w": (BLOCK,)},
        {"w": (BLOCK + 1,)},
        {"a": (7, 3), "b": (), "c": (2, BLOCK // 2 + 5), "d": (0,), "e": (2,)},
    ],
    ids=["less than a block", "a block", "more than a block", "layers of all sizes"],
)
def test_products_of_full_steps_are_exact_on_integers(shapes):
    update = {name: integers(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    flat = np.concatenate([layer.reshape(-1) for layer in update.values()]).astype(np.int64)
    rows = integers(3, flat.size, seed=99)
    products = products_of(rows, update)
    assert products.tolist() == (rows.astype(np.int64) @ flat).tolist()


def test_products_do_not_lose_many_small_elements_beside_a_large_one():
    # 10 000² = 1e8, where neighbouring float32 numbers are 8 apart: adding 1 to it changes nothing.
    x = np.ones(1_000_001, np.float32)
    x[0] = 10_000
    assert np.cumsum(x * x, dtype=np.float32)[-1] == 1e8
    assert products_of(x[None], {"w": x}).tolist() == [1e8 + 1e6]


def test_products_do_not_depend_on_memory_order():
    rng = np.random.default_rng(1)
    rows, layer = rng.standard_normal((3, 600)).astype(np.float32), rng.standard_normal((20, 30))
    layer = layer.astype(np.float32)
    plain = products_of(rows, {"w": layer})
    for other_rows, other_layer in [
        (np.asfortranarray(rows), layer),
        (rows, np.asfortranarray(layer)),
        (np.repeat(rows, 2, axis=1)[:, ::2], np.repeat(layer, 2, axis=0)[::2]),
    ]:
        products = products_of(other_rows, {"w": other_layer})
        np.testing.assert_allclose(products, plain, rtol=1e-13)


# --- The sum of the steps -------------------------------------------------------------------------------

UPDATE = np.array([0.5, 0.4, 0.3])
STEPS = [[0.2, 0.0, 0.1], [0.0, 0.1, 0.1], [0.3, 0.3, 0.1]]


@pytest.mark.parametrize("form", ENCODINGS)
@given(
    rows=st.lists(
        st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=3).filter(any), min_size=1, max_size=6
    )
)
@settings(derandomize=True, deadline=None)
def test_steps_fit_the_update_that_they_make(make_target, form, rows):
    target, batches = make_target(rows, 0.1, CountSketch(64, 0), form)
    batches.check_sum(target.parameters)


@pytest.mark.parametrize("form", ENCODINGS)
def test_steps_that_are_too_short_do_not_fit(make_target, form):
    _, batches = make_target(STEPS, 0.1, CountSketch(64, 0), form)
    with pytest.raises(ValueError, match="do not fit the target's update: Σ‖δ_j‖ < ‖Δ_T‖"):
        batches.check_sum({"w": 10 * UPDATE})


@pytest.mark.parametrize("form", ["sketch", "full"])
def test_steps_of_another_update_do_not_fit(make_target, form):
    _, batches = make_target(STEPS, 0.1, CountSketch(64, 0), form)
    with pytest.raises(ValueError, match="do not sum to it"):
        batches.check_sum({"w": -UPDATE})


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


def test_a_gap_between_the_steps_and_the_update_counts_in_every_layer_and_block(make_target):
    shapes = {"a": (3,), "b": (2, BLOCK), "c": (7,)}
    rows = np.concatenate(
        [integers(2, *shape, seed=i).reshape(2, -1) for i, shape in enumerate(shapes.values())], 1
    )
    _, batches = make_target(rows, 0.1)
    ends = np.cumsum([np.prod(shape) for shape in shapes.values()])[:-1]
    parts = np.split(rows.sum(axis=0), ends)
    update = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
    batches.check_sum(update)
    for name, place in (("a", 0), ("b", 0), ("b", -1), ("c", -1)):
        spoilt = {layer: array.copy() for layer, array in update.items()}
        spoilt[name].flat[place] += 5  # the slack is a thousandth of two lengths below 9·√16394, so below 2.4
        with pytest.raises(ValueError, match="do not sum to it"):
            batches.check_sum(spoilt)


@pytest.mark.parametrize("form", ENCODINGS)
def test_steps_that_moved_nothing_fit_an_update_that_moved_nothing(make_target, form):
    target, batches = make_target(np.zeros((2, 3)), 0.1, CountSketch(4, 0), form)
    batches.check_sum(target.parameters)


@pytest.mark.parametrize(
    ("factor", "fits"), [(0.9989, False), (0.9991, True), (1.0009, True), (1.0011, False)]
)
def test_whole_steps_have_the_norms_that_were_sent(make_target, factor, fits):
    target, batches = make_target([[3, 4, 0], [3, -4, 0]], 0.1)
    batches = replace(batches, squared_norms=np.array([25.0, 25.0 / factor]))
    if fits:
        batches.check_sum(target.parameters)
    else:
        with pytest.raises(ValueError, match="do not have the norms"):
            batches.check_sum(target.parameters)


@pytest.mark.parametrize(("factor", "fits"), [(0.49, False), (0.51, True), (1.49, True), (1.51, False)])
def test_sketches_have_the_norms_that_were_sent_within_ten_standard_deviations(make_target, factor, fits):
    # 10·√(2/800) = 0.5. One element has the square in the sketch that it has in the model.
    target, batches = make_target([[4], [-2]], 0.1, CountSketch(800, 0), "sketch")
    batches = replace(batches, squared_norms=np.array([16.0 / factor, 4.0]))
    if fits:
        batches.check_sum(target.parameters)
    else:
        with pytest.raises(ValueError, match="do not have the norms"):
            batches.check_sum(target.parameters)


@pytest.mark.parametrize("form", ["sketch", "full"])
def test_steps_that_sum_to_the_update_but_are_longer_than_they_say_are_refused(make_target, form):
    target, batches = make_target(STEPS, 0.1, CountSketch(800, 0), form)
    name = {"sketch": "sketches", "full": "full"}[form]
    rows = getattr(batches, name).copy()
    rows[0] += 100
    rows[1] -= 100
    with pytest.raises(ValueError, match="do not have the norms"):
        replace(batches, **{name: rows}).check_sum(target.parameters)
