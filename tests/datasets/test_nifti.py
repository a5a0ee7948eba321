"""NIfTI volumes, as nibabel writes them: slices that lie in one way however they are stored."""

import gzip
import tracemalloc
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from medical import damaged, nifti

from fda_flower.datasets.looks import AXES, PLAIN, ImageError, Look, Window
from fda_flower.datasets.nifti import decode_nifti, is_nifti, size_of_nifti

nibabel = pytest.importorskip("nibabel")

VALUES = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
"""To the right, to the front, upwards."""
SHOWN = Window(128.0, 256.0)
"""Shows the values 0 to 255 as they are."""


def look(text):
    return replace(Look.read(slice=text), window=SHOWN)


@pytest.mark.parametrize("form", [bytes, gzip.compress], ids=["nii", "gz"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("axial:1", VALUES[::-1, ::-1, 0].T),
        ("axial:middle", VALUES[::-1, ::-1, 2].T),
        ("coronal:3", VALUES[::-1, 2, ::-1].T),
        ("sagittal:2", VALUES[1, ::-1, ::-1].T),
    ],
)
def test_a_slice_is_shown_as_of_dicom_whatever_the_order_of_the_volume(form, text, expected):
    for order, signs in product(permutations(range(3)), product((1, -1), repeat=3)):
        affine = np.zeros((4, 4))
        affine[3, 3] = 1
        for axis, (at, sign) in enumerate(zip(order, signs, strict=True)):
            affine[at, axis] = 2 * sign
        stored = VALUES.transpose(order)[tuple(slice(None, None, sign) for sign in signs)]
        content = form(nifti(np.ascontiguousarray(stored), affine))
        assert is_nifti(content)
        np.testing.assert_array_equal(decode_nifti(content, look(text)), expected)
        assert size_of_nifti(content, look(text)) == expected.shape


def test_values_are_in_units_by_slope_and_intercept_and_signed_and_of_decimals():
    stored = np.array([[[-100], [0], [27]]], dtype=np.int16)
    shown = decode_nifti(nifti(stored, slope=2, intercept=200), look("axial:1"))
    assert shown.tolist() == [[254], [200], [0]]
    decimals = decode_nifti(nifti(np.array([[[1.6], [7.2]]], dtype=np.float32)), look("axial:1"))
    assert decimals.tolist() == [[7], [2]]


def test_values_of_8_bits_need_no_window_and_others_do_and_tell_their_range():
    plain, axial = VALUES.astype(np.uint8), Look.read(slice="axial:1")
    assert decode_nifti(nifti(plain), axial).tolist() == VALUES[::-1, ::-1, 0].T.tolist()
    for content in (nifti(VALUES), nifti(plain, slope=2), nifti(plain.astype(np.int8))):
        with pytest.raises(ImageError, match=r"values from 0 to \d+, which need a window"):
            decode_nifti(content, axial)


@pytest.mark.parametrize(
    ("content", "text", "says"),
    [
        (nifti(VALUES, code=0), "axial:1", "left and right are unknown"),
        (nifti(VALUES)[:280] + bytes(16) + nifti(VALUES)[296:], "axial:1", "an orientation that is none"),
        (nifti(VALUES), "", "is a volume"),
        (nifti(VALUES), "axial:5", "has 4 axial slices, and none has the number 5"),
        (nifti(np.zeros((2, 2, 2, 3), np.int16)), "axial:1", "has 4 dimensions"),
        (nifti(np.zeros((2, 2, 2), np.complex64)), "axial:1", "no single numbers"),
        (nifti(np.full((2, 2, 2), np.nan, np.float32)), "axial:1", "values that are no numbers"),
        (nifti(VALUES)[:-1], "axial:4", "ends before its last value"),
        (gzip.compress(b"notes", mtime=0), "axial:1", "is no NIfTI file"),
    ],
)
def test_what_is_not_understood_is_refused(content, text, says):
    with pytest.raises(ImageError, match=says):
        decode_nifti(content, look(text) if text else PLAIN)


def test_two_orientations_are_read_where_their_axes_agree_and_refused_where_they_differ():
    image = nibabel.Nifti1Image(VALUES, np.eye(4))
    image.set_sform(np.eye(4), code=4)
    image.set_qform(np.diag([2.0, 2.0, 2.0, 1.0]), code=1)
    np.testing.assert_array_equal(decode_nifti(image.to_bytes(), look("axial:1")), VALUES[::-1, ::-1, 0].T)
    image.set_qform(np.diag([-1.0, 1.0, 1.0, 1.0]), code=1)
    with pytest.raises(ImageError, match="two orientations"):
        decode_nifti(image.to_bytes(), look("axial:1"))


def test_without_a_slice_and_a_window_both_are_asked_for_at_once():
    for options, needs in ((PLAIN, True), (Look.read(window="40,400"), False)):
        with pytest.raises(ImageError) as error:
            decode_nifti(nifti(VALUES), options)
        assert "slice=axial:middle" in error.value.remedy
        assert ("window=CENTER,WIDTH" in error.value.remedy) is needs


def test_the_fourth_dimension_may_be_of_one_volume():
    assert decode_nifti(nifti(VALUES[..., None]), look("axial:1")).shape == (3, 2)


def claiming(*shape):
    """A volume that says to have a shape."""
    content = bytearray(nifti(VALUES))
    content[40:56] = np.array([len(shape), *shape, *[1] * (7 - len(shape))], "<i2").tobytes()
    return bytes(content)


@pytest.mark.parametrize(
    "shape", [(32767, 32767, 32767), (32767, 32767, 1), (1, 1, 32767), (0, 1, 1), (-3, 1, 1)]
)
def test_a_shape_takes_neither_memory_nor_time(shape):
    tracemalloc.start()
    with pytest.raises(ImageError):
        decode_nifti(gzip.compress(claiming(*shape) + bytes(2**23)), look("sagittal:9"))
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()


def test_what_gzip_makes_of_few_bytes_is_read_no_further_than_the_slice():
    content = gzip.compress(nifti(VALUES) + bytes(2**25), 1)
    tracemalloc.start()
    assert decode_nifti(content, look("axial:1")).shape == (3, 2)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


@pytest.mark.parametrize("form", [bytes, gzip.compress], ids=["nii", "gz"])
def test_a_damaged_file_raises_our_error_or_is_read(form):
    content, refused = form(nifti(np.random.default_rng(0).normal(size=(9, 8, 7)))), 0
    for axis, each in enumerate(damaged(content)):
        try:
            decode_nifti(each, look(f"{AXES[axis % 3]}:middle"))
        except ImageError:
            refused += 1
    assert refused > 50
