"""DICOM files, as pydicom writes them: every pixel in units, through one window; no word of a patient."""

import logging
import traceback
import warnings
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from medical import EIGHT, PATIENT, damaged, dicom, saved

from fda_flower.datasets.dicom import PLUGINS, decode_dicom, header, is_dicom, patient_in
from fda_flower.datasets.looks import EACH, PLAIN, ImageError, Look, Window

pydicom = pytest.importorskip("pydicom")

from pydicom.dataset import Dataset  # noqa: E402
from pydicom.uid import (  # noqa: E402
    MPEG2MPML,
    UID,
    DeflatedExplicitVRLittleEndian,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLSLossless,
    RLELossless,
)

WINDOW = Look(window=Window(128.0, 256.0))
"""Shows the values 0 to 255 as they are."""
GREY = np.array([[0, 100], [200, 255]])
COLOURS = {"SamplesPerPixel": 3, "PlanarConfiguration": 0, "Rows": 2, "Columns": 2, **EIGHT}


def group(slope, intercept):
    """The functional group of a frame."""
    scale, result = Dataset(), Dataset()
    scale.RescaleSlope, scale.RescaleIntercept, scale.RescaleType = slope, intercept, "HU"
    result.PixelValueTransformationSequence = [scale]
    return result


def table():
    """The sequence of a Modality LUT."""
    lut = Dataset()
    lut.LUTDescriptor, lut.LUTData, lut.ModalityLUTType = [2, 0, 16], b"\0\0\1\0", "HU"
    return [lut]


def encapsulated(syntax, **tags):
    """A file that says that it is compressed in a way."""
    dataset = pydicom.dcmread(BytesIO(dicom(GREY, **tags)))
    dataset.compress(RLELossless)
    dataset.file_meta.TransferSyntaxUID = syntax
    return saved(dataset)


@pytest.mark.parametrize(
    ("stored", "tags", "expected"),
    [
        (GREY, {}, GREY),
        (GREY + 1000, {"RescaleSlope": 1, "RescaleIntercept": -1000}, GREY),
        (GREY // 5, {"RescaleSlope": 5, "RescaleIntercept": 0, "Modality": "CT"}, GREY),
        (
            np.array([[0xFFF, 0x800, 0x064]]),
            {"PixelRepresentation": 1, "RescaleSlope": 0.05, "RescaleIntercept": 110},
            [[110, 8, 115]],
        ),
        (GREY + 0x3000, {}, GREY),
        (GREY, {"PhotometricInterpretation": "MONOCHROME1"}, 255 - GREY),
        (
            GREY,
            {"PhotometricInterpretation": "MONOCHROME1", "RescaleSlope": 1, "RescaleIntercept": -100},
            [[255, 255], [155, 100]],
        ),
        (GREY, {"PixelPaddingValue": 200}, [[0, 100], [0, 255]]),
        (GREY, {"PixelPaddingValue": 90, "PixelPaddingRangeLimit": 210}, [[0, 0], [0, 255]]),
        (
            GREY,
            {"PixelPaddingValue": 255, "RescaleSlope": 1, "RescaleIntercept": 55},
            [[55, 155], [255, 0]],
        ),
        (GREY, {"PixelPaddingValue": 0, "PhotometricInterpretation": "MONOCHROME1"}, [[0, 155], [55, 0]]),
        (np.array([[4095, 300]]), {}, [[255, 255]]),
    ],
)
def test_values_are_padded_rescaled_inverted_and_seen_through_the_window_in_this_order(
    stored, tags, expected
):
    np.testing.assert_array_equal(decode_dicom(dicom(stored, **tags), WINDOW), expected)


def test_the_window_is_the_linear_one_of_the_standard_and_no_window_of_the_file():
    shown = Window(40, 400).shown(np.array([-160.0, -159.5, 39.5, 239.5, 500]))
    assert shown.tolist() == [0, 0, 128, 255, 255]  # black up to 39.5 - 399/2, white from 39.5 + 399/2
    np.testing.assert_array_equal(decode_dicom(dicom(GREY, WindowCenter=9, WindowWidth=5), WINDOW), GREY)


def test_grey_of_8_bits_needs_no_window_and_other_grey_does_and_tells_its_range():
    np.testing.assert_array_equal(decode_dicom(dicom(GREY, **EIGHT), PLAIN), GREY)
    scaled = {**EIGHT, "RescaleSlope": 2, "RescaleIntercept": -1}
    for tags, ends in (
        ({}, "0 to 255"),
        (scaled, "-1 to 509"),
        ({**EIGHT, "PixelRepresentation": 1}, "-56 to 100"),
    ):
        with pytest.raises(ImageError, match=f"from {ends}, which need a window") as refusal:
            decode_dicom(dicom(GREY, **tags), PLAIN)
        assert "window=CENTER,WIDTH" in refusal.value.remedy


FRAMES = np.stack([GREY, GREY // 2])


def test_a_frame_is_named_and_has_its_own_scale():
    tags = {"NumberOfFrames": 2, "PerFrameFunctionalGroupsSequence": [group(1, 0), group(2, 1)]}
    content = dicom(FRAMES, Modality="CT", **tags)
    np.testing.assert_array_equal(decode_dicom(content, WINDOW.at(1)), GREY)
    np.testing.assert_array_equal(decode_dicom(content, WINDOW.at(2)), (GREY // 2 * 2 + 1).clip(0, 255))
    assert header(content).frames == 2
    for look in (WINDOW, WINDOW.at(3)):
        with pytest.raises(ImageError, match="has 2 frames"):
            decode_dicom(content, look)
    with pytest.raises(ImageError, match="has 1 frame, and none has the number 2"):
        decode_dicom(dicom(GREY), WINDOW.at(2))


def test_the_next_frame_of_a_file_is_of_the_file_as_it_is_now(tmp_path):
    path, tags = tmp_path / "a.dcm", {"NumberOfFrames": 2}
    for stored in (FRAMES, FRAMES[::-1]):
        path.write_bytes(dicom(stored, **tags) + b"\0" * int(stored is not FRAMES))
        for frame in (1, 2):
            np.testing.assert_array_equal(decode_dicom(path, WINDOW.at(frame)), stored[frame - 1])


def test_a_scale_of_a_frame_comes_before_that_of_all_and_this_before_the_files():
    tags = {"SharedFunctionalGroupsSequence": [group(2, 0)], "RescaleSlope": 9, "RescaleIntercept": 9}
    np.testing.assert_array_equal(decode_dicom(dicom(GREY // 2, **tags), WINDOW), GREY // 2 * 2)
    tags["PerFrameFunctionalGroupsSequence"] = [group(1, 0)]
    np.testing.assert_array_equal(decode_dicom(dicom(GREY, **tags), WINDOW), GREY)


@pytest.mark.parametrize(
    ("stored", "tags", "says"),
    [
        (GREY, {"Modality": "CT"}, "CT or PET image without slope and intercept"),
        (
            FRAMES,
            {"Modality": "PT", "NumberOfFrames": 2, **EIGHT},
            "CT or PET image without slope and intercept",
        ),
        (GREY, {"RescaleSlope": 2}, "one of slope and intercept alone"),
        (GREY, {"RescaleSlope": 0, "RescaleIntercept": 1}, "a slope or an intercept that is none"),
        (GREY, {"ModalityLUTSequence": table()}, "Modality LUT"),
        (GREY, {"HighBit": 15}, "HighBit"),
        (GREY, {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7, "Rows": 9}, "damaged DICOM"),
        (GREY, {"NumberOfFrames": -1}, "a number of frames that is none"),
        (GREY, {"Rows": 60000, "Columns": 60000}, "has more than 178,956,970 pixels"),
        (GREY, {"Rows": 0}, "has no pixels"),
        (GREY, {"PhotometricInterpretation": PATIENT}, "colours of a kind that is not read"),
    ],
)
def test_what_is_not_understood_is_refused(stored, tags, says):
    with pytest.raises(ImageError, match=says):
        decode_dicom(dicom(stored, **tags), WINDOW.at(1))


def test_files_without_an_image_without_the_preamble_and_compressed_as_a_whole_are_refused():
    dataset = pydicom.dcmread(BytesIO(dicom(GREY)))
    dataset.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    deflated = saved(dataset)
    del dataset.PixelData
    dataset.file_meta.TransferSyntaxUID = UID("1.2.840.10008.1.2.1")
    cases = {"Deflated": deflated, "without an image": saved(dataset), "preamble": dicom(GREY)[132:]}
    for says, content in cases.items():
        with pytest.raises(ImageError, match=says):
            decode_dicom(content, WINDOW)


def test_a_palette_is_colours_of_8_bits():
    tables: dict[str, Any] = {}
    for colour, entries in {"Red": [0, 0x8000], "Green": [0xFF00, 0], "Blue": [0, 0xFFFF]}.items():
        tables[f"{colour}PaletteColorLookupTableDescriptor"] = [2, 0, 16]
        tables[f"{colour}PaletteColorLookupTableData"] = np.array(entries, "<u2").tobytes()
    content = dicom(np.array([[0, 1]]), **EIGHT, PhotometricInterpretation="PALETTE COLOR", **tables)
    assert decode_dicom(content, PLAIN).tolist() == [[[0, 255, 0], [128, 0, 255]]]


@pytest.mark.parametrize(
    ("kind", "stored", "shown"),
    [("RGB", [9, 200, 30], [9, 200, 30]), ("YBR_FULL", [76, 85, 255], [254, 0, 0])],
)
def test_colours_are_rgb(kind, stored, shown):
    content = dicom(np.tile(stored, (2, 2, 1)), PhotometricInterpretation=kind, **COLOURS)
    assert decode_dicom(content, PLAIN).tolist() == [[shown] * 2] * 2


def test_compressed_pixels_have_one_decoder_and_a_missing_one_is_named():
    assert PLUGINS[JPEGBaseline8Bit] == ("pillow", "pillow")
    np.testing.assert_array_equal(decode_dicom(encapsulated(RLELossless), WINDOW), GREY)
    for syntax, says in ((JPEGLSLossless, "JPEG-LS"), (JPEGExtended12Bit, "JPEG Extended")):
        with pytest.raises(ImageError, match=rf"{says}.*pylibjpeg-libjpeg is not installed") as refusal:
            decode_dicom(encapsulated(syntax), WINDOW)
        assert "pip install pylibjpeg pylibjpeg-libjpeg" in refusal.value.remedy
    for syntax in (MPEG2MPML, UID("1.2.3.4")):
        with pytest.raises(ImageError, match="compressed in a way that is not read"):
            decode_dicom(encapsulated(syntax), WINDOW)


def test_what_lost_values_is_known_by_compression_and_by_flag():
    files = [dicom(GREY), dicom(GREY, LossyImageCompression="01"), encapsulated(JPEGBaseline8Bit)]
    assert [header(each).lossy for each in files] == ["", "flag", "syntax"]


@pytest.mark.parametrize(("number", "name"), [(" p 1 ", "p 1"), ("", ""), (["a", "b"], ""), (None, "")])
def test_a_patient_is_exactly_one_number_without_blanks_around_it(number, name):
    assert patient_in(dicom(GREY, PatientID=number)) == name
    dataset = pydicom.dcmread(BytesIO(dicom(GREY)))
    del dataset.PatientID
    assert patient_in(saved(dataset)) == ""


def test_no_warning_error_or_log_tells_what_is_in_a_tag(caplog):
    content = dicom(GREY, RescaleSlope=1, RescaleIntercept=0)
    length = chr(len(PATIENT)).encode() + b"\0"
    broken = [content.replace(b"DS\4\x001.0 ", b"DS" + length + PATIENT.encode(), 1), *damaged(content, 50)]
    broken += [content.replace(b"UI\6\x001.2.3\0", b"UI" + length + PATIENT.encode())]
    assert all(len(each) > len(content) for each in (broken[0], broken[-1]))
    words = []
    with warnings.catch_warnings(record=True) as said, caplog.at_level(logging.DEBUG):
        for each in broken:
            for read in (header, patient_in, lambda file: decode_dicom(file, WINDOW)):
                try:
                    read(each)
                except ImageError as error:
                    words += traceback.format_exception(error)
    assert [str(each.message) for each in said] == caplog.messages == []
    assert "damaged DICOM" in "".join(words)
    assert "Doe" not in "".join(words)


def test_a_damaged_file_raises_our_error_or_is_read():
    content, refused = dicom(np.arange(400).reshape(20, 20)), 0
    assert is_dicom(content)
    for each in damaged(content):
        try:
            decode_dicom(each, WINDOW)
            header(each)
            patient_in(each)
        except ImageError:
            refused += 1
    assert refused > 50
    assert decode_dicom(content, Look(window=WINDOW.window, frame=EACH)).shape == (20, 20)
