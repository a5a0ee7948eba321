"""Images of DICOM files, in units of their modality; of patients at most their number is read.

pydicom's warnings and errors may hold what a file says of a patient, and are not passed on.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fda_flower.datasets.looks import AGAIN, EACH, File, ImageError, Look, check_size, instead_of_errors

if TYPE_CHECKING:
    from pydicom import Dataset

MARK, MARK_AT = b"DICM", 128
"""What a file holds after 128 bytes that are free."""

TAGS = (
    *("Rows", "Columns", "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration"),
    *("BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "NumberOfFrames", "PixelData"),
    *("FloatPixelData", "DoubleFloatPixelData", "ExtendedOffsetTable", "ExtendedOffsetTableLengths"),
    *("PixelPaddingValue", "PixelPaddingRangeLimit", "RescaleSlope", "RescaleIntercept", "Modality"),
    *("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence", "ModalityLUTSequence"),
    *(
        f"{colour}PaletteColorLookupTable{what}"
        for colour in ("Red", "Green", "Blue")
        for what in ("Descriptor", "Data")
    ),
    *(f"Segmented{colour}PaletteColorLookupTableData" for colour in ("Red", "Green", "Blue")),
)
"""All that is read of an image: of the patient, nothing."""
PATIENT = "PatientID"
"""The tag that names a patient, and the option ``group`` that reads it."""
FLAG = "LossyImageCompression"

DEFLATED = "1.2.840.10008.1.2.1.99"
JPEG = "1.2.840.10008.1.2.4"
LOSSY = frozenset(f"{JPEG}.{number}" for number in (50, 51, 81, 91, 203))
"""Transfer syntaxes of JPEG, JPEG-LS and JPEG 2000 that may change values."""

PLUGINS = {
    "1.2.840.10008.1.2.5": ("pydicom", "pydicom"),
    f"{JPEG}.50": ("pillow", "pillow"),
    f"{JPEG}.90": ("pillow", "pillow"),
    f"{JPEG}.91": ("pillow", "pillow"),
    **{f"{JPEG}.{number}": ("pylibjpeg", "pylibjpeg pylibjpeg-openjpeg") for number in (201, 202, 203)},
}
"""By transfer syntax (RLE, JPEG of 8 bits, JPEG 2000), the only decoder and its packages: others give other
pixels."""
OTHER_PLUGIN = "pylibjpeg", "pylibjpeg pylibjpeg-libjpeg"
"""The decoder of JPEG of 12 bits, without loss, and JPEG-LS."""

GREY, PALETTE = ("MONOCHROME1", "MONOCHROME2"), "PALETTE COLOR"
SCALED = ("CT", "PT")
"""Modalities whose values mean nothing without their slope and intercept."""
OF_COLOURS = "has colours of a kind that is not read", "save it in RGB of 8 bits"
ONE_AT_A_TIME = Lock()
"""Python's filter of warnings is not of a thread."""


def is_dicom(head: bytes) -> bool:
    """Return whether the first bytes of a file are of DICOM."""
    return head[MARK_AT : MARK_AT + len(MARK)] == MARK


@dataclass(frozen=True)
class Header:
    """What a file says of its pixels: height and width, the number of frames, and how it lost values.

    `lossy` is empty, ``"syntax"`` by its compression, or ``"flag"`` by an earlier one.
    """

    size: tuple[int, int]
    frames: int
    lossy: str


def header(file: File) -> Header:
    """Return the header of an image; raise `ImageError` if it is damaged."""
    with _reading():
        dataset = _dataset(file, [*TAGS, FLAG], pixels=False)
        flagged = str(dataset.get(FLAG, "")).strip() == "01"
        by_syntax = str(dataset.file_meta.TransferSyntaxUID) in LOSSY
        size = int(dataset.Rows), int(dataset.Columns)
        return Header(size, _frames(dataset), "syntax" if by_syntax else "flag" if flagged else "")


def patient_in(file: File) -> str:
    """Return the number of a patient without blanks around it; empty if there is not exactly one."""
    with _reading():
        value = _dataset(file, [PATIENT], pixels=False).get(PATIENT)
        return value.strip() if isinstance(value, str) else ""


def decoders() -> str:
    """Return the packages that decode, with their versions."""
    return f"pydicom {version('pydicom')}, pillow {version('pillow')}"


def decode_dicom(file: File, look: Look) -> NDArray[np.uint8]:
    """Return an image, uint8, shape ``(height, width)`` or, in colours, ``(height, width, 3)``.

    Values are rescaled to units of the modality, by each frame's own numbers if it has any, and shown
    through the window; padding is black, and MONOCHROME1 inverted. Grey of 8 bits needs no window.

    Raises
    ------
    ImageError
        If the file is damaged, needs a window, a frame or another package, or is a CT or PET image without
        slope and intercept.
    """
    with _reading():
        dataset = _with_pixels(file)
        if not any(name in dataset for name in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")):
            raise ImageError("is DICOM without an image", "remove it")
        check_size(int(dataset.Rows), int(dataset.Columns))
        kind, at = str(dataset.get("PhotometricInterpretation", "")), _frame_of(look, _frames(dataset))
        if kind not in (*GREY, PALETTE) and not kind.startswith(("RGB", "YBR")):
            raise ImageError(*OF_COLOURS)
        pixels = _pixels(dataset, at)
        if kind in GREY:
            return _grey(pixels, dataset, at, look)
        if kind == PALETTE:
            return _coloured(pixels, dataset)
        if pixels.dtype != np.uint8 or pixels.ndim != 3:
            raise ImageError(*OF_COLOURS)
        return pixels


@contextmanager
def _reading() -> Iterator[None]:
    """Raise `ImageError` in place of what a damaged file raises, and let no word of pydicom pass."""
    logger = logging.getLogger("pydicom")
    with ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before, logger.disabled = logger.disabled, True
        try:
            with instead_of_errors("DICOM", "pydicom", "save it as PNG"):
                yield
        finally:
            logger.disabled = before


_LAST: dict[tuple[Path, int, int], "Dataset"] = {}
"""The last file of several frames, whose next one is asked for soon."""


def _with_pixels(file: File) -> "Dataset":
    """Return all that is read of an image."""
    if isinstance(file, bytes):
        return _dataset(file, list(TAGS))
    status = file.stat()
    state = file, status.st_mtime_ns, status.st_size
    if (dataset := _LAST.get(state)) is None:
        dataset = _dataset(file, list(TAGS))
        if _frames(dataset) > 1:
            _LAST.clear()
            _LAST[state] = dataset
    return dataset


def _dataset(file: File, tags: list[str], pixels: bool = True) -> "Dataset":
    """Return tags of a file; none is of a patient unless it is asked for."""
    from pydicom import dcmread
    from pydicom.filereader import read_dataset

    with BytesIO(file) if isinstance(file, bytes) else file.open("rb") as stream:
        if not is_dicom(stream.read(MARK_AT + len(MARK))):
            raise ImageError(
                "is no DICOM file, or one without its preamble", "save it as DICOM, or remove it"
            )
        meta = read_dataset(stream, False, True, stop_when=lambda tag, vr, length: tag >> 16 != 2)
        if str(meta.TransferSyntaxUID) == DEFLATED:
            raise ImageError("is compressed as a whole (Deflated Explicit VR)", "save it uncompressed")
        stream.seek(0)
        source: BinaryIO = stream
        return dcmread(source, specific_tags=list(tags), stop_before_pixels=not pixels)


def _frames(dataset: "Dataset") -> int:
    number = int(dataset.get("NumberOfFrames") or 1)
    if not 1 <= number < 10**6:
        raise ImageError("has a number of frames that is none", AGAIN)
    return number


def _frame_of(look: Look, frames: int) -> int:
    """Return the position of the frame to read."""
    if look.frame in (None, EACH) and frames > 1:
        what = f"name one: --dataset-option frame=1 (to {frames}), or frame=all, each a sample"
        raise ImageError(f"has {frames} frames", what)
    if (frame := look.frame or 1) > frames:
        only = "frame" if frames == 1 else "frames"
        raise ImageError(
            f"has {frames} {only}, and none has the number {frame}", "name another, or remove it"
        )
    return frame - 1


def _pixels(dataset: "Dataset", frame: int) -> NDArray[Any]:
    """Return the stored values of a frame; colours are RGB."""
    from pydicom.pixels import get_decoder  # type: ignore[attr-defined]

    if dataset.get("BitsAllocated") == 1:
        raise ImageError("has values of 1 bit, as segmentations have", "give the images that it is of")
    high, stored = dataset.get("HighBit"), dataset.get("BitsStored")
    if high is not None and high + 1 != stored:
        raise ImageError("has its values in other than the low bits (HighBit)", "save it again")
    syntax = dataset.file_meta.TransferSyntaxUID
    name = syntax.name if not syntax.name[:1].isdigit() else "an unknown transfer syntax"
    try:
        decoder = get_decoder(syntax)
    except NotImplementedError:
        raise ImageError(
            f"is compressed in a way that is not read ({name})", "save it uncompressed"
        ) from None
    if not syntax.is_compressed:
        return decoder.as_array(dataset, index=frame)[0]
    plugin, packages = PLUGINS.get(str(syntax), OTHER_PLUGIN)
    if plugin not in decoder.available_plugins:
        what = f"is compressed ({name}), for which {packages.rpartition(' ')[2]} is not installed"
        raise ImageError(what, f"pip install {packages}, or save it uncompressed")
    return decoder.as_array(dataset, index=frame, decoding_plugin=plugin)[0]


def _grey(pixels: NDArray[Any], dataset: "Dataset", frame: int, look: Look) -> NDArray[np.uint8]:
    padding = _padding(pixels, dataset)
    slope, intercept = _scale(dataset, frame)
    values = pixels.astype(np.float64) * slope + intercept
    if not np.isfinite(values).all():
        raise ImageError("has values that are no numbers", "save it with numbers in their place")
    unsigned = not dataset.get("PixelRepresentation") and dataset.get("BitsStored") == 8
    is_plain = unsigned and (slope, intercept) == (1.0, 0.0)
    plain = pixels.astype(np.uint8) if is_plain and pixels.dtype.kind == "u" else None
    grey = look.grey(values, plain)
    inverted = str(dataset.PhotometricInterpretation) == GREY[0]
    return np.where(padding, 0, 255 - grey if inverted else grey).astype(np.uint8)


def _padding(pixels: NDArray[Any], dataset: "Dataset") -> NDArray[np.bool_]:
    """Return where pixels are no part of the picture."""
    value = dataset.get("PixelPaddingValue")
    if value is None:
        return np.zeros(pixels.shape, dtype=bool)
    ends = int(value), int(dataset.get("PixelPaddingRangeLimit", value))
    return (pixels >= min(ends)) & (pixels <= max(ends))


def _scale(dataset: "Dataset", frame: int) -> tuple[float, float]:
    """Return slope and intercept: a frame's own, else those shared by all frames, else the file's."""
    if dataset.get("ModalityLUTSequence"):
        raise ImageError(
            "has a table of values (Modality LUT)", "apply it, and save the image with its values"
        )
    groups = [
        *list(dataset.get("PerFrameFunctionalGroupsSequence") or ())[frame : frame + 1],
        *list(dataset.get("SharedFunctionalGroupsSequence") or ())[:1],
    ]
    transformed = [each.get("PixelValueTransformationSequence") for each in groups]
    for each in [*(sequence[0] for sequence in transformed if sequence), dataset]:
        slope, intercept = each.get("RescaleSlope"), each.get("RescaleIntercept")
        if (slope is None) != (intercept is None):
            raise ImageError("has one of slope and intercept alone", "get it with both")
        if slope is not None:
            scale = float(slope), float(intercept)
            if not (np.isfinite(scale).all() and scale[0]):
                raise ImageError("has a slope or an intercept that is none", AGAIN)
            return scale
    deep = dataset.get("BitsStored") != 8 or _frames(dataset) > 1
    if deep and str(dataset.get("Modality", "")) in SCALED:
        what = "is a CT or PET image without slope and intercept"
        raise ImageError(what, "get it with RescaleSlope and RescaleIntercept")
    return 1.0, 0.0


def _coloured(pixels: NDArray[Any], dataset: "Dataset") -> NDArray[np.uint8]:
    """Return the colours of a palette's indices, with 8 bits."""
    from pydicom.pixels import apply_color_lut  # type: ignore[attr-defined]

    colours = apply_color_lut(pixels, dataset)
    bits = int(dataset.RedPaletteColorLookupTableDescriptor[2])
    return (colours >> (bits - 8)).astype(np.uint8) if bits > 8 else colours.astype(np.uint8)
