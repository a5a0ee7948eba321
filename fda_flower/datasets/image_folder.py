"""A folder of images: what lies below it, read once, in one way, for all commands."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fda_flower.datasets.folders import LISTED, is_shown, unusable
from fda_flower.files import file_hash

SUFFIXES = (".bmp", ".gif", ".heic", ".heif", ".jfif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
"""The suffixes of images, in either case."""

Files = dict[str, list[Path]]
"""Images by class."""


@dataclass(frozen=True)
class ImageFolder:
    """What lies below a folder, by relative paths: images, other files, and folders without files.

    Files that are hidden or of the system are none of them.
    """

    place: Path
    images: tuple[Path, ...]
    others: tuple[Path, ...]
    empty: tuple[Path, ...]

    @classmethod
    def read(cls, place: Path) -> "ImageFolder":
        """Return what lies below a folder; raise a `ConfigError` if a folder there cannot be read."""
        files: dict[bool, list[Path]] = {True: [], False: []}
        empty = []
        for here, folders, names in os.walk(place, onerror=_refuse, followlinks=True):
            where = Path(here).relative_to(place)
            folders[:], files_here = (sorted(filter(is_shown, each)) for each in (folders, names))
            _check_links(Path(here), folders)
            for path in map(where.joinpath, files_here):
                files[is_image(path)].append(path)
            empty += [] if files_here or folders else [where]
        return cls(place, *(tuple(sorted(each)) for each in (files[True], files[False], empty)))

    @cached_property
    def classes(self) -> Files:
        """The images in the folders directly below, by class."""
        by_class: Files = {}
        for path in self.images:
            if _depth(path) == 1:
                by_class.setdefault(path.parts[0], []).append(self.place / path)
        return dict(sorted(by_class.items()))

    def check(self, thing: str, remedy: str, in_classes: bool = True) -> None:
        """Raise a `ConfigError` on this folder, a `thing`, if it has no image: then `remedy` says what to do.

        With `in_classes`, each must be directly in the folder of a class.
        """
        astray = [path for path in self.images if in_classes and _depth(path) != 1]
        if astray:
            what = f"has images that are not directly in the folder of a class: {len(astray)}, such as"
            move = f"move each to '{self.place / 'CLASS'}', or remove it"
            if not self.classes:
                move += f"; if '{self.place.name}' is a class, give a folder one level higher"
            raise unusable(thing, self.place, f"{what} '{astray[0]}'", move)
        if not self.images:
            others = f", but {by_suffix(self.others)}" if self.others else ""
            where = " in the folder of a class" if in_classes else ""
            raise unusable(thing, self.place, f"has no image{where} ({', '.join(SUFFIXES)}){others}", remedy)


def is_image(path: Path) -> bool:
    """Return whether a file is an image by its suffix."""
    return path.suffix.lower() in SUFFIXES


def _depth(path: Path) -> int:
    return len(path.parts) - 1


def _check_links(here: Path, folders: Iterable[str]) -> None:
    for path in map(here.joinpath, folders):
        if path.is_symlink() and here.resolve().is_relative_to(path.resolve()):
            raise unusable("folder", path, "is a link to a folder above it", "remove the link")


def _refuse(error: OSError) -> None:
    what = f"cannot be read ({error.strerror})"
    raise unusable("folder", error.filename, what, "make it readable, or remove it") from error


def by_suffix(files: Iterable[Path]) -> str:
    """Return the number of files by suffix, in words.

    Examples
    --------
    >>> by_suffix(map(Path, ["a.mov", "b.MOV", "c"]))
    '2 .mov, 1 without a suffix'
    """
    counts = Counter(path.suffix.lower() or "without a suffix" for path in files)
    listed = [f"{count} {suffix}" for suffix, count in counts.most_common(LISTED)]
    more = counts.total() - sum(count for _, count in counts.most_common(LISTED))
    return ", ".join([*listed, *([f"{more} more"] if more else [])])


def left_out(others: Iterable[Path], empty: Iterable[Path] = ()) -> list[str]:
    """Return sentences on files that are no images and on empty folders, if there are any."""
    files, folders = list(others), list(map(str, empty))
    notes = []
    if files:
        remedy = "if some are pictures, save them as JPEG or PNG"
        notes.append(
            f"files that are no images are left out: {by_suffix(files)}, such as '{files[0]}'; {remedy}"
        )
    if folders:
        more = f" and {len(folders) - LISTED} more" if len(folders) > LISTED else ""
        notes.append(f"folders without files: {', '.join(folders[:LISTED])}{more}")
    return notes


def repeated(files: Sequence[Path]) -> list[str]:
    """Return sentences on images that are, or may be, there more than once, if there are any."""
    return [*_same_content(files), *_same_name(files)]


def _same_content(files: Iterable[Path]) -> list[str]:
    by_size: dict[int, list[Path]] = {}
    for path in filter(Path.is_file, files):
        by_size.setdefault(path.stat().st_size, []).append(path)
    seen: dict[str, Path] = {}
    again = []
    for path in (path for alike in by_size.values() if len(alike) > 1 for path in alike):
        with suppress(OSError):  # decoding names it
            if (first := seen.setdefault(file_hash(path), path)) != path:
                again.append((path, first))
    if not again:
        return []
    path, first = again[0]
    return [
        f"images that are there more than once, so that one may train and the other test: {len(again)}, such "
        f"as '{path}', the same as '{first}'; keep one of each"
    ]


def _same_name(files: Iterable[Path]) -> list[str]:
    by_name: dict[Path, list[Path]] = {}
    for path in files:
        by_name.setdefault(path.with_suffix(""), []).append(path)
    twins = [alike for alike in by_name.values() if len(alike) > 1]
    if not twins:
        return []
    first, second = twins[0][:2]
    return [
        f"names of images that are there in several formats: {len(twins)}, such as '{first}' and '{second}'; "
        "if both show the same, keep one of them"
    ]


def check_loose(root: Path, files: Iterable[Path]) -> None:
    """Raise a `ConfigError` if files directly in the folder of the domains are images."""
    if astray := [path for path in files if is_image(path)]:
        what = f"has images that are in no domain's folder: {len(astray)}, such as '{astray[0].name}'"
        raise unusable("data folder", root, what, f"move each to '{root / 'DOMAIN' / 'CLASS'}', or remove it")
