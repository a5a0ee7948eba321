"""How images of files are looked at, in one way at all sites, in training and for predictions."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fda_flower.datasets.problems import Problem
from fda_flower.errors import invalid

File = Path | bytes
"""An image file, or its content."""

DEPTHS = (8, 10, 12, 14, 16)
"""The bits that the values of an image of 16 bits may use."""
Depth = Literal["auto", "8", "10", "12", "14", "16"]
"""One of them as an option, or ``auto``: those that the images of a domain use together."""
LEAST, MOST = DEPTHS[0], DEPTHS[-1]

EACH = 0
"""The number of a frame that stands for all frames, each a sample of its own."""
ALL, MIDDLE = "all", "middle"
AXES = ("sagittal", "coronal", "axial")
"""The slices across the axes of a volume, from left to right, from back to front, and from below."""


class ImageError(Exception):
    """An image that is not read: `what` is said of it, and `remedy` says what to do.

    `ends` are its least and its largest value, if it needs a window.
    """

    def __init__(self, what: str, remedy: str, ends: tuple[float, float] | None = None) -> None:
        super().__init__(what)
        self.what, self.remedy, self.ends = what, remedy, ends

    @classmethod
    def needs_window(cls, least: float, largest: float) -> "ImageError":
        """Return the error of values that nobody knows how to show."""
        center, width = (least + largest) / 2 + 0.5, largest - least + 1
        what = f"has values from {least:g} to {largest:g}, which need a window"
        remedy = "give one for all sites: --dataset-option window=CENTER,WIDTH, such as window=40,400; "
        return cls(what, f"{remedy}{center:g},{width:g} shows all of these", (least, largest))

    def problem(self, path: Path, line: int = 0, column: str = "") -> Problem:
        """Return it as a problem of a file, in a line and column if it is one of several there."""
        return Problem(f"an image that {self.what}", self.remedy, path, line, column)


AGAIN = "get it again, or remove it"
"""The remedy of a damaged file."""


@contextmanager
def instead_of_errors(form: str, package: str, otherwise: str) -> Iterator[None]:
    """Raise `ImageError` in place of what a damaged file of a form raises in the context.

    Without the `package` that reads it, the remedy is its extra, which is called as the form, or `otherwise`.
    """
    try:
        yield
    except ImageError:
        raise
    except ModuleNotFoundError:
        remedy = f"pip install 'fda-flower[{form.lower()}]', or {otherwise}"
        raise ImageError(f"is {form}, but {package} is not installed", remedy) from None
    except OSError as error:
        raise ImageError(f"cannot be read ({error.strerror or 'damaged'})", AGAIN) from None
    except Exception as error:  # a damaged file raises errors of many kinds
        raise ImageError(f"is damaged {form} ({type(error).__name__})", AGAIN) from None


@dataclass(frozen=True)
class Window:
    """The values that are shown: `center` is grey, and `width` reaches from black to white.

    Both are in units of the modality, such as Hounsfield units; see DICOM PS3.3, C.11.2.1.2.
    """

    center: float
    width: float

    @classmethod
    def read(cls, text: str) -> "Window | None":
        """Return the window of ``"40,400"``, None of an empty text; raise a `ConfigError` for others."""
        if not text:
            return None
        try:
            center, width = map(float, text.split(","))
        except ValueError:
            center = width = np.nan
        if not (np.isfinite(center) and 1 < width < np.inf):
            raise invalid("option 'window'", text, "give CENTER,WIDTH, such as 40,400; the width is above 1")
        return cls(center, width)

    def shown(self, values: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Return values as grey from 0 to 255, in the linear form of DICOM."""
        share = (values - (self.center - 0.5)) / (self.width - 1) + 0.5
        return np.round(255 * share.clip(0, 1)).astype(np.uint8)


@dataclass(frozen=True)
class Look:
    """What is seen of an image file.

    Attributes
    ----------
    depth : int
        How many bits the values of images of 16 bits use.
    window : Window, optional
        The values of DICOM and NIfTI files that are shown. Default: files of 8 bits alone are read.
    frame : int, optional
        The frame of DICOM files, counted from 1, or `EACH`. Default: files of several frames are refused.
    axis, number : int
        The slice of NIfTI volumes: across one of `AXES`, by its number, counted from 1, or 0 for the middle.
        Default: none is named, and volumes are refused.
    """

    depth: int = MOST
    window: Window | None = None
    frame: int | None = None
    axis: int | None = None
    number: int = 0

    @classmethod
    def read(cls, depth: int = MOST, window: str = "", frame: str = "", slice: str = "") -> "Look":
        """Return the look of options; raise a `ConfigError` for a value that is none.

        Examples
        --------
        >>> Look.read(window="40,400", slice="axial:middle").axis, Look.read(frame="3").frame
        (2, 3)
        """
        if frame and frame != ALL and not re.fullmatch("[1-9][0-9]{0,8}", frame):
            raise invalid("option 'frame'", frame, f"give a number, counted from 1, or {ALL}")
        axis, number = _slice(slice) if slice else (None, 0)
        number_of_frame = None if not frame else EACH if frame == ALL else int(frame)
        return cls(depth, Window.read(window), number_of_frame, axis, number)

    def at(self, frame: int) -> "Look":
        """Return the look at one frame of several."""
        return replace(self, frame=frame) if frame else self

    def grey(self, values: NDArray[np.float64], plain: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
        """Return values through the window or, without one, `plain` values of 8 bits unchanged.

        Raise `ImageError` if there are neither; it tells the range of the values.
        """
        if self.window is not None:
            return self.window.shown(values)
        if plain is None:
            raise ImageError.needs_window(float(values.min()), float(values.max()))
        return plain


PLAIN = Look()
"""How ordinary images are looked at."""


@dataclass(frozen=True, kw_only=True)
class LookOptions:
    """The options of a data set that say how its images are looked at."""

    depth: Depth = "auto"
    window: str = ""
    frame: str | int = ""
    slice: str = ""

    def look(self, bits: int = MOST) -> Look:
        """Return the look, with the bits that images of 16 bits use where no option says it.

        Raise a `ConfigError` for a value that is none.
        """
        return Look.read(bits if self.depth == "auto" else int(self.depth), *self.of_volumes)

    @property
    def of_volumes(self) -> tuple[str, str, str]:
        """The options of DICOM and NIfTI files, as text."""
        return self.window, str(self.frame), self.slice


def _slice(text: str) -> tuple[int, int]:
    axis, _, number = text.partition(":")
    if axis not in AXES or not re.fullmatch(f"{MIDDLE}|[1-9][0-9]{{0,8}}", number):
        remedy = f"give AXIS:NUMBER, counted from 1, or AXIS:{MIDDLE}; the axis is one of {', '.join(AXES)}"
        raise invalid("option 'slice'", text, remedy)
    return AXES.index(axis), 0 if number == MIDDLE else int(number)


def check_size(*sides: int) -> None:
    """Raise `ImageError` if an image has more pixels than are read of any."""
    limit = 2 * (Image.MAX_IMAGE_PIXELS or 0)
    if min(sides) < 1:
        raise ImageError("has no pixels", "get it again, or remove it")
    if np.prod([float(side) for side in sides]) > limit:
        raise ImageError(f"has more than {limit:,} pixels", "save it smaller")
