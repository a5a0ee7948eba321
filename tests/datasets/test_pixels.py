"""Image files become the pixels that a viewer shows, or are refused with what to do."""

import struct
import sys
import zlib
from collections import Counter
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fda_flower.datasets import pixels
from fda_flower.datasets.looks import ImageError, Look
from fda_flower.datasets.pixels import bits_in, decode, depth_of, faults, opened, size_of

GREY = np.array([[0, 4095], [2048, 700]], dtype=np.uint16)
INVERTED = {262: 0}
"""TIFF's tag that says that 0 is white."""


def saved(image: Any, kind="png", **options) -> bytes:
    """The file of an image, or of an array's."""
    stream = BytesIO()
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    picture.save(stream, kind, **options)
    return stream.getvalue()


def png(width, height, bits=8, kind=0, rows=b"") -> bytes:
    """A PNG file of any kind."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def colours(values) -> bytes:
    """A PNG file of colours of 16 bits."""
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return png(values.shape[1], values.shape[0], bits=16, kind=2, rows=rows)


def read(file, depth=16, size=2):
    """The pixels of an image, height x width x 3."""
    return decode(file, size, size, Look(depth)).transpose(1, 2, 0)


def frames(*colours):
    return [Image.new("RGB", (2, 2), colour) for colour in colours]


# Images of 16 bits


@pytest.mark.parametrize("bits", [8, 10, 12, 14, 16])
@pytest.mark.parametrize("kind", ["png", "tiff"])
def test_values_of_16_bits_are_scaled_by_the_bits_that_a_folder_uses(bits, kind):
    white = 2**bits - 1
    file = saved(np.array([[0, white], [white // 2, white // 4]], dtype=np.uint16), kind)
    others = [saved(np.array([[1]], np.uint16), kind), saved(Image.new("L", (2, 2), 255))]
    depth = depth_of(bits_in([file, *others]))
    assert depth == bits
    assert read(file, depth)[..., 0].tolist() == [[0, 255], [127, 63]]


def test_the_bits_are_counted_by_image_and_8_without_any():
    files = [saved(GREY), saved(GREY // 8), saved(Image.new("L", (2, 2))), b"none"]
    assert bits_in(files) == Counter({12: 1, 10: 1})
    assert depth_of(bits_in(files[2:])) == 8
    assert pixels.describe_bits(Counter({16: 3})) == ""


def test_an_image_with_more_bits_than_in_training_is_refused():
    with pytest.raises(ImageError, match="12 bits"):
        decode(saved(GREY), 2, 2, Look(10))
    with pytest.raises(ImageError, match="12 bits"):
        decode(saved(GREY), 2, 2, Look(8))


@pytest.mark.parametrize("packed", ["raw", "tiff_lzw", "tiff_adobe_deflate"])
def test_a_tiff_whose_0_is_white_is_inverted(packed):
    shown = read(saved(GREY, "tiff", compression=packed), 12)
    inverted = read(saved(GREY, "tiff", compression=packed, tiffinfo=INVERTED), 12)
    np.testing.assert_array_equal(shown[..., 0], GREY >> 4)
    np.testing.assert_array_equal(inverted, 255 - shown)


@pytest.mark.parametrize(("kind", "bright"), [("L", 200), ("1", 255)])
def test_a_tiff_of_fewer_bits_whose_0_is_white_is_inverted_once(kind, bright):
    image = Image.new("L", (2, 2), 200).convert(kind, dither=Image.Dither.NONE)
    for tags in ({}, INVERTED):
        assert (read(saved(image, "tiff", tiffinfo=tags)) == bright).all()


def test_colours_of_16_bits_keep_their_first_8_unless_those_are_not_all():
    values = np.arange(12, dtype=np.uint16).reshape(2, 2, 3) * 5957
    assert bits_in([colours(values), colours(values // 16)]) == Counter({16: 1, 12: 1})
    np.testing.assert_array_equal(read(colours(values)), values // 256)
    for file, depth in ((colours(values // 16), 12), (colours(values), 12)):
        with pytest.raises(ImageError):
            decode(file, 2, 2, Look(depth))


def test_a_bmp_of_16_bits_for_all_colours_is_not_of_16_for_each():
    header = struct.pack("<IiiHHIIiiII", 40, 1, 1, 1, 16, 0, 4, 0, 0, 0, 0)
    file = b"BM" + struct.pack("<IHHI", 58, 0, 0, 54) + header + struct.pack("<HH", 0x7FFF, 0)
    assert not bits_in([file])
    assert (read(file, 8, 1) == 255).all()


# What else a mode says


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16"])
def test_white_is_white_in_every_mode(mode):
    white = np.full((2, 2), 0xFFFF, np.uint16) if mode == "I;16" else frames("white")[0].convert(mode)
    assert (read(saved(white, "tiff")) == 255).all()


def test_a_jpeg_of_printers_colours_is_not_inverted():
    red = Image.new("CMYK", (2, 2), (0, 255, 255, 0))
    assert np.abs(read(saved(red, "jpeg")).astype(int) - (255, 0, 0)).max() < 4


CLEAR = {
    "RGBA": saved(Image.new("RGBA", (2, 2), (9, 9, 9, 0))),
    "LA": saved(Image.new("LA", (2, 2), (9, 0))),
    "a palette": saved(Image.new("L", (2, 2), 3).convert("P"), transparency=3),
    "a palette of GIF": saved(Image.new("P", (2, 2), 3), "gif", transparency=3),
    "a grey": saved(Image.new("L", (2, 2), 9), transparency=9),
    "a colour": saved(Image.new("RGB", (2, 2), (9, 9, 9)), transparency=(9, 9, 9)),
    "a grey of 16 bits": saved(np.full((2, 2), 700, np.uint16), transparency=700),
}


@pytest.mark.parametrize("kind", CLEAR)
def test_what_is_transparent_is_white(kind):
    assert (read(CLEAR[kind], 12) == 255).all()


def test_what_is_half_transparent_is_lighter():
    assert (read(saved(Image.new("RGBA", (2, 2), (0, 0, 0, 51)))) == 204).all()


PHOTO = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)

REFUSED = {
    "decimals": (saved(np.array([[0.5]], np.float32), "tiff"), "PNG"),
    "32 bits": (saved(np.array([[1 << 16]], np.int32), "tiff"), "PNG"),
    "negative values": (saved(np.array([[-1]], np.int32), "tiff"), "PNG"),
    "Lab": (saved(Image.new("LAB", (2, 2)), "tiff"), "RGB"),
    **{
        f"several frames of {kind}": (
            saved(frames("red")[0], kind, save_all=True, append_images=frames("blue")),
            "the one to use",
        )
        for kind in ("gif", "png", "tiff", "webp")
    },
    **{
        f"half of {kind}": ((file := saved(PHOTO, kind))[: len(file) // 2], "get it again")
        for kind in ("bmp", "gif", "jpeg", "png", "tiff", "webp")
    },
    **{
        f"jpeg without its end, progressive {each}": (
            saved(PHOTO, "jpeg", progressive=each)[:-20],
            "get it again",
        )
        for each in (False, True)
    },
    "nothing": (b"", "get it again"),
    "text": (b"a text and no image", "get it again"),
    "too many pixels": (png(1 << 15, 1 << 15), "smaller"),
    "no width": (png(0, 1), "get it again"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_is_damaged_or_has_several_meanings_is_refused_with_what_to_do(tmp_path, fault):
    content, remedy = REFUSED[fault]
    path = tmp_path / "image.png"
    path.write_bytes(content)
    for file in (content, path):
        with pytest.raises(ImageError) as caught:
            decode(file, 2, 2)
        assert remedy in caught.value.remedy
    (problem,) = faults([path], Look())
    assert (problem.path, remedy in problem.remedy) == (path, True)


def test_a_file_that_is_not_there_is_named_so(tmp_path):
    with pytest.raises(ImageError, match="No such file"):
        decode(tmp_path / "none.png", 2, 2)


def test_the_first_image_of_a_phone_is_shown():
    file = saved(frames("red")[0], "mpo", save_all=True, append_images=frames("blue"))
    assert read(file)[..., 0].min() > 250


# HEIC


def heic(image, **options) -> bytes:
    plugin = pytest.importorskip("pillow_heif", reason="pillow-heif is not installed: fda-flower[heic]")
    plugin.register_heif_opener()
    return saved(image, "heif", **options)


@pytest.mark.parametrize("turned", [1, 6])
def test_heic_is_read_upright(tmp_path, turned):
    image = Image.new("RGB", (64, 32), "white")
    image.paste("black", (0, 0, 32, 32))
    exif = Image.Exif()
    exif[0x0112] = turned
    image.info["exif"] = exif.tobytes()
    path = tmp_path / "photo.HEIC"
    path.write_bytes(heic(image))
    with opened(path) as found:
        size = size_of(found)
    assert size == ((64, 32) if turned > 1 else (32, 64))
    dark = read(path, size=32)[..., 0] < 128
    assert (dark[:16] if turned > 1 else dark[:, :16]).all()
    assert not (dark[16:] if turned > 1 else dark[:, 16:]).any()


def test_without_pillow_heif_a_heic_file_says_what_to_install_whatever_its_suffix(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setattr(Image, "ID", [name for name in Image.ID if name != "HEIF"])
    monkeypatch.setattr(pixels, "_read_heic", pixels._read_heic.__wrapped__)
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    with pytest.raises(ImageError) as caught:
        decode(path, 2, 2)
    assert "fda-flower[heic]" in caught.value.remedy


def test_a_file_of_another_kind_never_reaches_a_program_of_its_kind(tmp_path, monkeypatch):
    mark, program = tmp_path / "mark", tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(ImageError):
        decode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n", 2, 2, Look(8))
    assert not mark.exists()
