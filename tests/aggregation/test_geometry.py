import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fda_flower.aggregation import Geometry

deterministic = settings(derandomize=True, deadline=None)
vectors = hnp.arrays(np.float32, 3, elements=st.floats(-1e6, 1e6, width=32))


def test_geometry_by_hand(make_update):
    target = make_update({"x": [1, 2, 2], "y": [3]})
    sources = [make_update({"x": [2, 0, -1], "y": [1]}), make_update({"x": [0, 0, 0], "y": [-4]})]
    geometry = Geometry.of(target, sources)
    assert geometry.target_squared.tolist() == [1 + 4 + 4, 9]
    assert geometry.source_squared.tolist() == [[4 + 0 + 1, 1], [0, 16]]
    assert geometry.products.tolist() == [[2 + 0 - 2, 3], [0, -12]]


def test_cosines_by_hand(make_update):
    target = make_update({"x": [1, 2, 2], "y": [4]})
    sources = [
        make_update({"x": [2, 0, 0], "y": [0]}),
        make_update({"x": [0, -3, 0], "y": [-4]}),
        make_update({"x": [2, 4, 4], "y": [8]}),
    ]
    # The target has norm √(1+4+4+16) = 5; the products are 2, -6-16 and 2+8+8+32.
    expected = [2 / (5 * 2), -22 / (5 * 5), 50 / (5 * 10)]
    assert Geometry.of(target, sources).cosines == pytest.approx(expected, rel=1e-15)


def test_cosine_with_a_zero_update_is_zero(make_update):
    zero, other = make_update([0, 0, 0]), make_update([1, 2, 3])
    assert Geometry.of(other, [zero, other]).cosines.tolist() == [0, pytest.approx(1)]
    assert Geometry.of(zero, [zero, other]).cosines.tolist() == [0, 0]


@pytest.mark.parametrize("size", [1e-90, 1e90])
def test_cosines_of_updates_whose_squares_multiply_out_of_range(make_update, size):
    target, source = (make_update(size * np.array(v), dtype=np.float64) for v in ([3, 4], [0, 5]))
    assert Geometry.of(target, [source]).cosines == pytest.approx([0.8])


def test_geometry_without_sources_has_empty_rows(make_update):
    geometry = Geometry.of(make_update({"x": [1, 2, 2], "y": [3]}), [])
    assert geometry.products.shape == geometry.source_squared.shape == (0, 2)
    assert geometry.cosines.shape == (0,)


def test_geometry_takes_sources_by_name_not_by_place(make_update):
    target = make_update({"x": [1, 2, 3], "y": [4, 5, 6]})
    source = make_update({"y": [1, 0, 0], "x": [0, 0, 1]})
    assert Geometry.of(target, [source]).products.tolist() == [[3, 4]]


def test_geometry_takes_layers_without_dimensions_and_without_elements(make_update):
    target, source = make_update({"x": 3, "y": []}), make_update({"x": -2, "y": []})
    geometry = Geometry.of(target, [source])
    assert geometry.target_squared.tolist() == [9, 0]
    assert geometry.products.tolist() == [[-6, 0]]


def test_sums_over_layers_are_those_of_the_model_as_one_vector(make_update):
    a, b = np.random.default_rng(0).integers(-9, 10, (2, 30)).astype(np.float32)
    target, source = (make_update({"x": v[:12], "y": v[12:13], "z": v[13:]}) for v in (a, b))
    layered, whole = Geometry.of(target, [source]), Geometry.of(make_update(a), [make_update(b)])
    assert layered.products.sum() == whole.products.sum()
    assert layered.source_squared.sum() == whole.source_squared.sum()
    assert layered.target_squared.sum() == whole.target_squared.sum()


def test_geometry_does_not_depend_on_memory_order(make_update):
    a, b = np.random.default_rng(1).standard_normal((2, 50, 40)).astype(np.float32)
    plain = Geometry.of(make_update(a), [make_update(b)])
    other = Geometry.of(make_update(np.asfortranarray(a)), [make_update(np.repeat(b, 2, axis=0)[::2])])
    assert plain.products == other.products
    assert plain.target_squared == other.target_squared
    assert plain.source_squared == other.source_squared


@given(a=vectors, b=vectors)
@deterministic
def test_cosines_stay_within_one(make_update, a, b):
    cosines = Geometry.of(make_update(a), [make_update(b), make_update(a), make_update(-a)]).cosines
    assert (np.abs(cosines) <= 1).all()
    if a.any():
        assert cosines[1] == pytest.approx(1)
        assert cosines[2] == pytest.approx(-1)


@given(a=vectors, b=vectors, exponent=st.integers(-20, 20))
@deterministic
def test_cosine_does_not_depend_on_the_scale_of_a_source(make_update, a, b, exponent):
    b = np.where(np.abs(b) < 1e-20, 0, b).astype(np.float32)  # no denormal numbers after scaling
    target = make_update(a)
    scaled = Geometry.of(target, [make_update(b * np.float32(2.0**exponent))]).cosines[0]
    assert math.isclose(
        scaled, Geometry.of(target, [make_update(b)]).cosines[0], rel_tol=1e-12, abs_tol=1e-15
    )
