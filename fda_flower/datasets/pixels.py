"""Pixels of image files: read in one way for folders, data sets and predictions, as a viewer shows them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from fda_flower.datasets.dicom import decode_dicom, header, is_dicom
from fda_flower.datasets.dicom import decoders as of_dicom
from fda_flower.datasets.looks import DEPTHS, EACH, LEAST, MOST, PLAIN, File, ImageError, Look
from fda_flower.datasets.nifti import SUFFIXES as NIFTI
from fda_flower.datasets.nifti import decode_nifti, is_nifti, size_of_nifti
from fda_flower.datasets.nifti import decoders as of_nifti
from fda_flower.datasets.problems import Problem

MODES = ("1", "CMYK", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "YCbCr")
"""Pillow's modes of at most 8 bits that it converts to RGB in only one way."""
FIRST = ("HEIF", "MPO")
"""Formats of phones that say which of several images is shown."""
UPRIGHT, SIDEWAYS = 1, range(5, 9)
"""EXIF's orientations of pictures that are shown as stored, and turned by 90 degrees."""

HEIC = (b"heic", b"heim", b"heis", b"heix", b"hevc", b"hevx", b"mif1", b"msf1")
"""The brands of HEIC files, which follow ``ftyp``."""
TIFF, PNG = (b"II", b"MM"), b"\x89PNG"
HEAD, HEAD_OF_PNG = 348, 25
"""Bytes of a file that hold its brand, and those of a PNG file that hold the bits of a value."""
DICOM = ".dcm"
"""The suffix of DICOM files; those that have none are known by their first bytes."""


def decode(file: File, height: int, width: int, look: Look = PLAIN) -> NDArray[np.uint8]:
    """Return an image as a viewer shows it, in RGB, resized, uint8, shape ``(3, height, width)``.

    What is transparent becomes white. Raise `ImageError` if it needs another look, is damaged, or can be
    understood in several ways.
    """
    if (kind := kind_of(file)) is None:
        with opened(file) as image:
            return _resized(_shown(image, look.depth), height, width)
    return _resized(Image.fromarray(kind.decode(file, look)).convert("RGB"), height, width)


def _resized(image: Image.Image, height: int, width: int) -> NDArray[np.uint8]:
    rgb = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(rgb).transpose(2, 0, 1))


def checked(file: File, look: Look) -> tuple[int, int]:
    """Return the height and width of an image that `decode` reads; raise its `ImageError` otherwise.

    A JPEG's data are all read, but only an eighth of its rows and columns is computed.
    """
    if (kind := kind_of(file)) is not None:
        height, width = kind.decode(file, look).shape[:2]
        return height, width
    with opened(file) as image:
        size = size_of(image)
        if image.format == "JPEG":
            image.draft("L", (1, 1))
        _shown(image, look.depth)
        return size


@dataclass(frozen=True)
class Kind:
    """A format of medical images: how its files are decoded and measured, and with what packages."""

    decode: Callable[[File, Look], NDArray[np.uint8]]
    size: Callable[[File, Look], tuple[int, int]]
    decoders: Callable[[], str]


def _size_of_dicom(file: File, look: Look) -> tuple[int, int]:
    return header(file).size


KINDS = {
    "DICOM": Kind(decode_dicom, _size_of_dicom, of_dicom),
    "NIfTI": Kind(decode_nifti, size_of_nifti, of_nifti),
}


def kind_of(file: File) -> Kind | None:
    """Return the format of a medical image, by its suffix or its first bytes; None for other images."""
    name = file.name.lower() if isinstance(file, Path) else ""
    try:
        head = _head(file)
    except OSError:
        return None  # opening it says why
    if not head:
        return None
    if name.endswith(DICOM) or is_dicom(head):
        return KINDS["DICOM"]
    return KINDS["NIfTI"] if name.endswith(NIFTI) or is_nifti(head) else None


def measured(file: File, look: Look) -> tuple[int, int]:
    """Return the height and width of an image, which is not decoded; raise `ImageError` if it is damaged."""
    if (kind := kind_of(file)) is not None:
        return kind.size(file, look)
    with opened(file) as image:
        return size_of(image)


def _shown(image: Image.Image, depth: int) -> Image.Image:
    """Return an image in RGB as a viewer shows it; see `decode`."""
    _check(image)
    deep, inverted = is_deep(image), _is_inverted(image)
    if deep and (bits := bits_of(image)) > depth:
        what = f"uses {bits} bits for each value, but those in training use {depth}"
        raise ImageError(what, f"save it with {depth} bits, or train with the option depth={bits}")
    if deep and image.mode[0] != "I" and depth < MOST:
        what = f"has colours of {MOST} bits, but the images of {MOST} bits in training use {depth}"
        raise ImageError(what, "save it with 8 bits for each colour")
    image = _upright(image)
    if image.mode[0] == "I":
        image = _scaled(image, depth, inverted)
    elif image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        white.alpha_composite(image.convert("RGBA"))
        image = white
    return image if image.mode == "RGB" else image.convert("RGB")


def _upright(image: Image.Image) -> Image.Image:
    """Return an image, turned or mirrored as its orientation says; Pillow would copy an upright one, too."""
    image.load()
    upright = image.getexif().get(ExifTags.Base.Orientation, UPRIGHT) == UPRIGHT
    return image if upright else ImageOps.exif_transpose(image)


FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
"""The formats that are read, by their names in Pillow, which runs other programs for some others."""


@contextmanager
def opened(file: File) -> Iterator[Image.Image]:
    """Open an image, not yet decoded; raise `ImageError` if that fails, or decoding in this context."""
    formats = (*FORMATS, "HEIF") if _read_heic() else FORMATS
    try:
        with Image.open(BytesIO(file) if isinstance(file, bytes) else file, formats=formats) as image:
            yield image
    except ImageError:
        raise
    except Exception as error:  # Pillow's decoders raise errors of many kinds.
        raise _why(file, error) from error


def _why(file: File, error: Exception) -> ImageError:
    try:
        head = _head(file)
    except OSError as failed:
        return ImageError(f"cannot be read ({failed.strerror})", "correct its path, or make it readable")
    if not head:
        return ImageError("is empty", "get it again, or remove it")
    if head[4:8] == b"ftyp" and head[8:12] in HEIC and not _read_heic():
        remedy = "pip install 'fda-flower[heic]', or save it as JPEG"
        return ImageError("is in HEIC, but pillow-heif is not installed", remedy)
    if isinstance(error, Image.DecompressionBombError):
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        return ImageError(f"has more than {limit:,} pixels", "save it smaller")
    known = not isinstance(error, UnidentifiedImageError)
    reason = f" ({str(error).partition(' (')[0] or type(error).__name__})" if known else ""
    remedy = "get it again, save it as PNG, or remove it"
    return ImageError(f"is damaged, or of a kind that is not read{reason}", remedy)


@cache
def _read_heic() -> bool:
    """Let Pillow read HEIC images, too, if pillow-heif is installed; return whether it is."""
    try:
        from pillow_heif import register_heif_opener
    except ModuleNotFoundError:
        return False
    register_heif_opener()
    return True


def _head(file: File) -> bytes:
    if isinstance(file, bytes):
        return file[:HEAD]
    with file.open("rb") as stream:
        return stream.read(HEAD)


def _check(image: Image.Image) -> None:
    """Raise `ImageError` if an image can be understood in several ways."""
    frames = 1 if image.format in FIRST else int(getattr(image, "n_frames", 1))
    if frames > 1:
        raise ImageError(f"has {frames} frames or pages", "save the one to use as an image of its own")
    if image.mode == "F" or (image.mode == "I" and not _in_16_bits(image)):
        raise ImageError(
            "has values beyond 16 bits, below 0 or with decimals", "scale it, and save it as PNG"
        )
    if image.mode[0] != "I" and image.mode not in MODES:
        raise ImageError(f"has colours of the kind {image.mode}", "save it in RGB")


def _in_16_bits(image: Image.Image) -> bool:
    lowest, highest = map(int, image.getextrema())  # type: ignore[arg-type]
    return lowest >= 0 and highest < 2**MOST


def _is_inverted(image: Image.Image) -> bool:
    """Return whether 0 is white in a TIFF file; Pillow inverts only those of 8 bits."""
    tags: Any = getattr(image, "tag_v2", {})
    return bool(tags.get(ExifTags.Base.PhotometricInterpretation, 1) == 0)


def _scaled(image: Image.Image, depth: int, inverted: bool) -> Image.Image:
    values, white = np.array(image, dtype=np.int64), 2**depth - 1
    clear = image.info.get("transparency", -1)
    scaled = np.where(values == clear, white, white - values if inverted else values)
    return Image.fromarray((scaled >> (depth - LEAST)).astype(np.uint8))


def is_deep(image: Image.Image) -> bool:
    """Return whether an image that is not yet decoded has 16 bits for each value.

    Of colours, Pillow decodes only the first 8 of them.
    """
    tiles: Any = getattr(image, "tile", ())
    colours = image.format in ("PNG", "TIFF") and any(";16" in str(tile) for tile in tiles)
    return image.mode[0] == "I" or colours


def bits_of(image: Image.Image) -> int:
    """Return how many bits, one of `DEPTHS`, the values of an image of 16 bits use."""
    if image.mode[0] == "I":
        highest = int(np.asarray(image).max())
    else:
        highest = int(np.asarray(image.convert("RGB")).max()) * 256 + 255
    return next((bits for bits in DEPTHS if highest < 2**bits), MOST)


def bits_in(files: Iterable[File]) -> Counter[int]:
    """Count images of 16 bits by how many bits their values use, without those that cannot be read."""
    with ThreadPoolExecutor() as pool:
        return Counter(bits for bits in pool.map(_bits, filter(_may_be_deep, files)) if bits)


def _may_be_deep(file: File) -> bool:
    try:
        head = _head(file)
    except OSError:
        return False
    return head.startswith(TIFF) or (
        head.startswith(PNG) and head[HEAD_OF_PNG - 1 : HEAD_OF_PNG] == bytes([MOST])
    )


def _bits(file: File) -> int:
    try:
        with opened(file) as image:
            return bits_of(image) if is_deep(image) else 0
    except ImageError:
        return 0


def depth_of(bits: Counter[int]) -> int:
    """Return how many bits the images use together that `bits_in` has counted; 8 without any."""
    return max(bits, default=LEAST)


def describe_bits(bits: Counter[int]) -> str:
    """Return a sentence on images that use fewer than their 16 bits; empty if all use them.

    Examples
    --------
    >>> describe_bits(Counter({12: 20, 10: 1}))
    'images of 16 bits use up to 12 (12 bits: 20, 10 bits: 1), so 4095 is white'
    """
    if min(bits, default=MOST) == MOST:
        return ""
    counts = ", ".join(f"{each} bits: {bits[each]}" for each in sorted(bits, reverse=True))
    depth = depth_of(bits)
    return f"images of {MOST} bits use up to {depth} ({counts}), so {2**depth - 1} is white"


def describe_fewer_bits(bits: Counter[int], depth: int) -> list[str]:
    """Return a sentence if all images of 16 bits use fewer than the `depth` of those in training.

    Examples
    --------
    >>> describe_fewer_bits(Counter({12: 20}), 16)
    ['images of 16 bits use up to 12, but those in training 16: if white is 4095 in them, they are too dark']
    """
    used = max(bits, default=depth)
    what = f"images of {MOST} bits use up to {used}, but those in training {depth}"
    return [f"{what}: if white is {2**used - 1} in them, they are too dark"] if used < depth else []


def describe_lossy(domain: str, paths: Iterable[Path]) -> list[str]:
    """Return a sentence on DICOM files of a domain that were compressed with loss, if there are any."""
    lost, total = Counter[str](), 0
    for path in paths:
        if kind_of(path) is KINDS["DICOM"]:
            total += 1
            with suppress(ImageError):  # decoding names it
                lost[header(path).lossy] += 1
    del lost[""]
    if not lost:
        return []
    ways = {"syntax": "by their compression", "flag": "by an earlier one, as a flag says"}
    listed = ", ".join(f"{lost[way]:,} {words}" for way, words in ways.items() if lost[way])
    return [f"domain {domain}: DICOM files that were compressed with loss: {listed}, of {total:,}"]


LOOKED_AT, LITTLE, FAR = 50, 16, 64
"""Scans of a domain whose greys are compared, the side to which they are reduced, and a large difference."""


def describe_greys(domains: Mapping[str, Sequence[Path]], look: Look) -> list[str]:
    """Return sentences on scans that the window does not show, or not as others: their values may differ.

    `domains` are the images of each. Compared are the quartiles of the mean greys of up to `LOOKED_AT` scans.
    """
    scans = {name: [path for path in paths if kind_of(path)] for name, paths in domains.items()}
    count, total = sum(map(len, scans.values())), sum(map(len, domains.values()))
    mixed = "{:,} DICOM or NIfTI images, which the window shows, are among {:,} others, which it does not"
    notes = [mixed.format(count, total - count)] if 0 < count < total else []
    quartiles = dict[str, NDArray[np.float64]]()
    for name, paths in scans.items():
        chosen = paths[:: -(-len(paths) // LOOKED_AT) or 1]
        if not (seen := [grey for path in chosen for grey in _greys(path, look)]):
            continue
        if all(grey.min() == grey.max() for grey in seen):
            notes.append(f"domain {name}: each scan is of a single grey: no value lies in the window")
        quartiles[name] = np.quantile([grey.mean() for grey in seen], (0.25, 0.5, 0.75))
    dark = min(quartiles, key=lambda name: quartiles[name][1], default="")
    bright = max(quartiles, key=lambda name: quartiles[name][1], default="")
    if quartiles and quartiles[bright][0] - quartiles[dark][2] > FAR:
        greys = (f"{quartiles[name][1]:.0f} at {name}" for name in (dark, bright))
        notes.append(f"scans are of other greys by domain (about {', '.join(greys)}): in other units?")
    return notes


def _greys(path: Path, look: Look) -> list[NDArray[np.uint8]]:
    """Return a scan through the window, small; nothing if it cannot be read."""
    with suppress(ImageError):  # decoding names it
        return [decode(path, LITTLE, LITTLE, look.at(frame)) for frame in [*frames_of(path, look)][:1]]
    return []


def faults(paths: Iterable[Path], look: Look) -> Iterator[Problem]:
    """Decode images, and yield a problem for each that cannot be read.

    Those that need a window are one kind, with the range of the values of all.
    """

    def fault(path: Path) -> tuple[Path, ImageError] | None:
        try:
            for frame in frames_of(path, look):
                checked(path, look.at(frame))
        except ImageError as error:
            return path, error
        return None

    with ThreadPoolExecutor() as pool:
        failed = [each for each in pool.map(fault, paths) if each]
    if ends := [error.ends for _, error in failed if error.ends]:
        of_all = ImageError.needs_window(min(least for least, _ in ends), max(largest for _, largest in ends))
        failed = [(path, of_all if error.ends else error) for path, error in failed]
    yield from (error.problem(path) for path, error in failed)


def frames_of(file: File, look: Look) -> Iterable[int]:
    """Return the numbers of the frames that are samples, counted from 1; 0 for the only picture of a file."""
    if look.frame != EACH or kind_of(file) is not KINDS["DICOM"]:
        return (0,)
    number = header(file).frames
    return range(1, number + 1)


def size_of(image: Image.Image) -> tuple[int, int]:
    """Return the height and width of an image as a viewer shows it; it is not decoded."""
    # Pillow turns a TIFF itself.
    turned = image.format != "TIFF" and image.getexif().get(ExifTags.Base.Orientation, 1) in SIDEWAYS
    return (image.width, image.height) if turned else (image.height, image.width)
