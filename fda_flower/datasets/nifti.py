"""Slices of NIfTI volumes, turned so that all patients lie in one way, through the window of DICOM images."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from io import BytesIO
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from fda_flower.datasets.looks import (
    AGAIN,
    AXES,
    MIDDLE,
    File,
    ImageError,
    Look,
    check_size,
    instead_of_errors,
)

SUFFIXES = (".nii", ".nii.gz")
GZIP = b"\x1f\x8b"
MARKS = ((344, b"n+1\0"), (4, b"n+2\0"))
"""Where the header of version 1 or 2 holds what."""
HEAD = 348

MOST_BYTES, MOST_OF_PLANE, MOST_ALONG = 4 * 2**30, 2**28, 2**15
"""The most bytes of a volume, however small its file is, and of a plane, and the most points along a side."""


def is_nifti(head: bytes) -> bool:
    """Return whether the first bytes of a file are of NIfTI, or of a file that gzip has compressed."""
    return head.startswith(GZIP) or any(head[at : at + 4] == mark for at, mark in MARKS)


def decoders() -> str:
    """Return the package that decodes, with its version."""
    return f"nibabel {version('nibabel')}"


def size_of_nifti(file: File, look: Look) -> tuple[int, int]:
    """Return the height and width of the slice to look at; raise `ImageError` if it is damaged."""
    with _opened(file) as stream:
        volume = Volume(stream, look)
        return volume.size


def decode_nifti(file: File, look: Look) -> NDArray[np.uint8]:
    """Return a slice, uint8, shape ``(height, width)``.

    The volume is turned to RAS+ first. A slice is shown as of DICOM: the patient's right is at the left, and
    what is in front, or above, is at the top.

    Raises
    ------
    ImageError
        If the file is damaged, has no orientation (both of its codes are 0) or two whose axes differ, is no
        volume of single numbers, or needs a window or a slice.
    """
    with _opened(file) as stream:
        volume = Volume(stream, look)
        stored = volume.read()
        values = stored.astype(np.float64) * volume.slope + volume.intercept
        if not np.isfinite(values).all():
            raise ImageError("has values that are no numbers", "save it with numbers in their place")
        is_plain = stored.dtype == np.uint8 and (volume.slope, volume.intercept) == (1.0, 0.0)
        return look.grey(values, stored if is_plain else None)


@contextmanager
def _opened(file: File) -> Iterator[BinaryIO]:
    """Open a file, decompressed; raise `ImageError` in place of what a damaged one raises in this context."""
    with (
        instead_of_errors("NIfTI", "nibabel", "save slices as PNG"),
        BytesIO(file) if isinstance(file, bytes) else file.open("rb") as stream,
        np.errstate(all="ignore"),
    ):
        head = stream.read(len(GZIP))
        stream.seek(0)
        yield cast(BinaryIO, gzip.GzipFile(fileobj=stream)) if head == GZIP else stream


class Volume:
    """A volume, and the slice of it that is shown.

    Attributes
    ----------
    shape : tuple of int
        Its three sides in the order of storage; the first changes fastest.
    slope, intercept : float
        What turns a stored number into its unit.
    size : tuple of int
        Height and width of the slice on the screen.
    """

    def __init__(self, stream: BinaryIO, look: Look) -> None:
        header = _header(stream)
        self._stream, self._offset = stream, int(header.get_data_offset())
        self._dtype = np.dtype(header.get_data_dtype())
        slope, intercept = header.get_slope_inter()
        self.slope = 1.0 if slope is None else float(slope)
        self.intercept = 0.0 if intercept is None else float(intercept)
        sides = [int(side) for side in header.get_data_shape()]
        while len(sides) > 3 and sides[-1] == 1:
            sides.pop()
        self.shape = (*sides, *[1] * (3 - len(sides)))
        self._check()
        self._stored, self._flipped = _orientation(header)
        self._axis, self._number = self._slice(look)
        across = [side for axis, side in enumerate(self._shown) if axis != self._axis]
        self.size = across[1], across[0]
        check_size(*self.size)

    @property
    def _shown(self) -> list[int]:
        """The sides in the order of `AXES`."""
        return [self.shape[axis] for axis in self._stored]

    def _check(self) -> None:
        if len(self.shape) != 3:
            raise ImageError(f"has {len(self.shape)} dimensions", "save one volume of it, in three")
        if self._dtype.kind not in "iuf":
            raise ImageError("has values that are no single numbers", "save one number for each point")
        if min(self.shape) < 1 or self._offset < HEAD:
            raise ImageError("is damaged NIfTI", AGAIN)
        size = float(np.prod([float(side) for side in self.shape])) * self._dtype.itemsize
        plane = self.shape[0] * self.shape[1] * self._dtype.itemsize
        if size + self._offset > MOST_BYTES or plane > MOST_OF_PLANE or max(self.shape) > MOST_ALONG:
            raise ImageError(
                f"takes more than {MOST_BYTES // 2**30} GiB, or a side is too long", "save it smaller"
            )

    def _slice(self, look: Look) -> tuple[int, int]:
        """Return the axis of `AXES`, and the position along it."""
        if look.axis is None:
            remedy = f"name a slice: --dataset-option slice=axial:{MIDDLE}, or a number in its place"
            if look.window is None and self._dtype.itemsize > 1:
                remedy += "; its values need a window, too: --dataset-option window=CENTER,WIDTH"
            raise ImageError("is a volume", remedy)
        side = self._shown[look.axis]
        if look.number > side:
            what = f"has {side} {AXES[look.axis]} slices, and none has the number {look.number}"
            raise ImageError(what, "name another, or remove it")
        return look.axis, look.number - 1 if look.number else side // 2

    def read(self) -> NDArray[Any]:
        """Return the stored values of the slice, turned as it is on the screen."""
        stored = self._stored[self._axis]
        at = self.shape[stored] - 1 - self._number if self._flipped[self._axis] else self._number
        plane = self._plane(stored, at)
        first, second = (axis for axis in range(3) if axis != self._axis)
        if self._stored[first] > self._stored[second]:
            plane = plane.T
        # A volume runs to the right, front and top, and is shown from there.
        rows = slice(None, None, 1 if self._flipped[first] else -1)
        columns = slice(None, None, 1 if self._flipped[second] else -1)
        return np.ascontiguousarray(plane[rows, columns].T)

    def _plane(self, axis: int, at: int) -> NDArray[Any]:
        """Return the values across a stored axis, in the order of the other two."""
        width, height, depth = self.shape
        if axis == 2:
            self._stream.seek(self._offset + at * width * height * self._dtype.itemsize)
            return self._next()
        self._stream.seek(self._offset)
        return np.stack([self._next().take(at, axis=axis) for _ in range(depth)], axis=1)

    def _next(self) -> NDArray[Any]:
        width, height, _ = self.shape
        wanted = width * height * self._dtype.itemsize
        content = self._stream.read(wanted)
        if len(content) < wanted:
            raise ImageError("ends before its last value", AGAIN)
        return np.frombuffer(content, self._dtype).reshape(width, height, order="F")


def _header(stream: BinaryIO) -> Any:
    from nibabel.nifti1 import Nifti1Header
    from nibabel.nifti2 import Nifti2Header

    head = stream.read(HEAD)
    stream.seek(0)
    for (at, mark), kind in zip(MARKS, (Nifti1Header, Nifti2Header), strict=True):
        if head[at : at + 4] == mark:
            return kind.from_fileobj(stream, check=False)  # type: ignore[no-untyped-call]
    raise ImageError("is no NIfTI file", AGAIN)


def _orientation(header: Any) -> tuple[list[int], list[bool]]:
    """Return by axis of `AXES` the stored axis that is closest, and whether it runs the other way.

    A file may have two orientations: of both, the axes must be the same.
    """
    from nibabel.orientations import io_orientation

    affines = [header.get_sform()] if int(header["sform_code"]) else []
    affines += [header.get_qform()] if int(header["qform_code"]) else []
    if not affines:
        what = "says nothing of its orientation, so left and right are unknown (both of its codes are 0)"
        raise ImageError(what, "save it with the orientation of the scan")
    directions, *others = map(io_orientation, affines)
    if not np.isfinite(directions).all():
        raise ImageError("has an orientation that is none", AGAIN)
    if any(not np.array_equal(directions, other) for other in others):
        what = "has two orientations (qform and sform), whose axes differ"
        raise ImageError(what, "save it with the scan's alone")
    stored = [int(np.flatnonzero(directions[:, 0] == axis)[0]) for axis in range(3)]
    return stored, [bool(directions[axis, 1] < 0) for axis in stored]
