"""A folder of images: what lies below it, read once, in one way, for all commands."""

import os
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

from fda_flower.datasets.dicom import MARK, MARK_AT, is_dicom
from fda_flower.datasets.folders import LISTED, is_shown, unusable
from fda_flower.datasets.looks import PLAIN, ImageError, Look
from fda_flower.datasets.nifti import SUFFIXES as NIFTI
from fda_flower.datasets.pixels import DICOM, frames_of
from fda_flower.datasets.units import TAG, Grouping
from fda_flower.files import file_hash
from fda_flower.names.packages import require
from fda_flower.own_data.image_names import SEGMENTATION, names_masks, stem_of
from fda_flower.own_data.table_options import as_option

ORDINARY = (".bmp", ".gif", ".heic", ".heif", ".jfif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
SUFFIXES = (*ORDINARY, DICOM, *NIFTI)
"""The suffixes of images, in either case; DICOM files need none."""

Files = dict[str, list[Path]]
"""Images by class."""


class Picture(NamedTuple):
    """A sample: a file, the number of its frame, 0 for its only one, and its patient, empty if unknown."""

    path: Path
    frame: int
    patient: str


@dataclass(frozen=True)
class ImageFolder:
    """What lies below a folder, by relative paths: images, other files, and folders without files.

    Files that are hidden or of the system are none of them. `look` says which frames are samples.
    """

    place: Path
    images: tuple[Path, ...]
    others: tuple[Path, ...]
    empty: tuple[Path, ...]
    grouping: Grouping | None = None
    look: Look = PLAIN

    @classmethod
    def read(cls, place: Path, grouping: Grouping | None = None, look: Look = PLAIN) -> "ImageFolder":
        """Return what lies below a folder.

        Raise a `ConfigError` if a folder there cannot be read, and a `ModuleNotFoundError` if a package is
        missing that reads its images.
        """
        files: dict[bool, list[Path]] = {True: [], False: []}
        empty = []
        for here, folders, names in os.walk(place, onerror=_refuse, followlinks=True):
            where = Path(here).relative_to(place)
            folders[:], files_here = (sorted(filter(is_shown, each)) for each in (folders, names))
            _check_links(Path(here), folders)
            for path in map(where.joinpath, files_here):
                files[is_image(place / path)].append(path)
            empty += [] if files_here or folders else [where]
        images, others, without = (tuple(sorted(each)) for each in (files[True], files[False], empty))
        check_packages(map(place.joinpath, images))
        return cls(place, images, others, without, grouping, look)

    @property
    def levels(self) -> int:
        """The number of folders from this one to an image in its place."""
        return 1 if self.grouping is None else self.grouping.levels

    @cached_property
    def classes(self) -> Files:
        """The images in their place, by class: the folders directly below."""
        by_class: Files = {}
        for path in self.images:
            if _depth(path) == self.levels:
                by_class.setdefault(path.parts[0], []).append(self.place / path)
        return dict(sorted(by_class.items()))

    def patient_of(self, path: Path) -> str:
        """Return the patient of an image; empty if unknown."""
        return "" if self.grouping is None else self.grouping.patient(path)

    @property
    def names_patients(self) -> bool:
        """Whether the patient of each image is known."""
        return self.grouping is not None

    missing: ClassVar[Counter[str]] = Counter()

    @cached_property
    def pictures(self) -> dict[str, list[Picture]]:
        """The samples by class."""
        return {
            label: [
                Picture(path, frame, self.patient_of(path)) for path in paths for frame in self._frames(path)
            ]
            for label, paths in self.classes.items()
        }

    def _frames(self, path: Path) -> Iterable[int]:
        try:
            return frames_of(path, self.look)
        except ImageError:
            return (0,)  # decoding names it

    @property
    def samples(self) -> int:
        """The number of samples in their place."""
        return len(self.words)

    @cached_property
    def groups(self) -> list[str]:
        """The patient of each sample in its place, by class and name; empty if unknown."""
        return [one.patient for each in self.pictures.values() for one in each] if self.names_patients else []

    @cached_property
    def words(self) -> list[str]:
        """The class of each sample in its place, in the order of `groups`."""
        return [label for label, each in self.pictures.items() for _ in each]

    def check(self, thing: str, remedy: str, in_classes: bool = True) -> None:
        """Raise a `ConfigError` if this folder, a `thing`, has no image: then `remedy` says what to do.

        With `in_classes`, each must be in its place and, with `grouping`, of a patient.
        """
        if astray := [path for path in self.images if in_classes and _depth(path) != self.levels]:
            raise unusable(thing, self.place, *self._astray(astray))
        if not self.images:
            others = f", but {by_suffix(self.others)}" if self.others else ""
            where = " in the folder of a class" if in_classes else ""
            raise unusable(thing, self.place, f"has no image{where} ({', '.join(SUFFIXES)}){others}", remedy)
        if in_classes and self.grouping is not None:
            self.grouping.check(thing, self.place, [path for each in self.classes.values() for path in each])

    def _astray(self, astray: Sequence[Path]) -> tuple[str, str]:
        """Return what is wrong with images that are not in their place, and the remedy."""
        of_patients = self.levels > 1
        where = (
            "in a folder of a patient in that of a class"
            if of_patients
            else "directly in the folder of a class"
        )
        what = f"has images that are not {where}: {len(astray)}, such as '{astray[0]}'"
        if any(names_masks(name) for path in astray for name in path.parts[:-1]):
            return what, SEGMENTATION
        place = self.place / "CLASS" / "PATIENT" if of_patients else self.place / "CLASS"
        move = f"move each to '{place}', or remove it"
        if of_patients and all(_depth(path) == 1 for path in astray):
            move += "; if the patient is in the files' names, give a pattern of them in the option 'group'"
        if not of_patients and all(_depth(path) == len(PATIENT) for path in astray):
            move += "; if the folders in those of classes are patients, give --dataset-option group=folder"
        if not self.classes:
            move += f"; if '{self.place.name}' is a class, give a folder one level higher"
        return what, move


PATIENT = ("CLASS", "PATIENT")
"""The folders to an image in one of its patient's."""


def is_image(path: Path) -> bool:
    """Return whether a file is an image by its suffix or, of DICOM, by its first bytes."""
    if path.name.lower().endswith(SUFFIXES):
        return True
    if not path.is_file():
        return False
    with suppress(OSError), path.open("rb") as stream:
        return is_dicom(stream.read(MARK_AT + len(MARK)))
    return False


def check_packages(images: Iterable[Path]) -> None:
    """Raise a `ModuleNotFoundError` if a package is missing that reads some of the images."""
    names = [path.name.lower() for path in images]
    if any(not name.endswith((*ORDINARY, *NIFTI)) for name in names):
        require("pydicom")
    if any(name.endswith(NIFTI) for name in names):
        require("nibabel")


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


def repeated(folders: Iterable[ImageFolder]) -> list[str]:
    """Return sentences on images that are, or may be, there more than once, if there are any."""
    label_of, patient_of = dict[Path, str](), dict[Path, str]()
    for folder in folders:
        label_of |= {path: label for label, paths in folder.classes.items() for path in paths}
        if folder.names_patients:
            patients = (one for each in folder.pictures.values() for one in each)
            patient_of |= {one.path: f"{folder.place}/{one.patient}" for one in patients}
    return [*told_of_same(same_content(label_of), label_of, patient_of), *_same_name(label_of)]


def told_by_tag(folders: Iterable[ImageFolder]) -> list[str]:
    """Return a sentence on DICOM files of patients with several, if there are any."""
    tag, several, total = Grouping(in_tag=True), 0, 0
    for folder in folders:
        files = (path for each in folder.classes.values() for path in each)
        dicom = [path for path in files if not path.name.lower().endswith((*ORDINARY, *NIFTI))]
        counts = Counter(filter(None, map(tag.patient, dicom)))
        several, total = several + sum(n for n in counts.values() if n > 1), total + len(dicom)
    if not several:
        return []
    return [
        f"DICOM files whose patient has several: {several:,} of {total:,}; keep each patient's together by "
        f"{as_option('group', [TAG])}"
    ]


def named_by_files(folders: Mapping[str, ImageFolder]) -> dict[str, list[str]]:
    """Return the patient of each sample by domain; one whom DICOM files name is called after the first."""
    first, names = dict[str, str](), dict[str, list[str]]()
    for domain, folder in folders.items():
        names[domain] = folder.groups
        if folder.grouping is not None and folder.grouping.in_tag:
            for one in (one for each in folder.pictures.values() for one in each):
                first.setdefault(one.patient, f"the one of {domain}/{one.path.relative_to(folder.place)}")
            names[domain] = [first[name] for name in folder.groups]
    return names


def same_content(files: Iterable[Path]) -> list[list[Path]]:
    """Return the files that have the same content, of which there are several."""
    by_size: dict[int, list[Path]] = {}
    for path in filter(Path.is_file, files):
        by_size.setdefault(path.stat().st_size, []).append(path)
    by_hash: dict[str, list[Path]] = {}
    for path in (path for alike in by_size.values() if len(alike) > 1 for path in alike):
        with suppress(OSError):  # decoding names it
            by_hash.setdefault(file_hash(path), []).append(path)
    return [alike for alike in by_hash.values() if len(alike) > 1]


Place = TypeVar("Place", bound=Hashable)


def told_of_same(
    same: Iterable[Sequence[Place]], label_of: Mapping[Place, str], patient_of: Mapping[Place, str]
) -> list[str]:
    """Return sentences on images of the same content: in several classes, or more than once in one.

    Images of one patient, if patients are known, stay together, and are not told.
    """
    contrary, again = [], list[tuple[Place, Place]]()
    for first, *others in same:
        if other := [each for each in others if label_of[each] != label_of[first]]:
            contrary.append((first, other[0]))
            continue
        again += [
            (each, first)
            for each in others
            if each not in patient_of or patient_of[each] != patient_of.get(first)
        ]
    notes = []
    if contrary:
        first, second = contrary[0]
        notes.append(
            f"identical samples with different labels: {len(contrary)}, such as '{first}' and '{second}'; "
            "correct the label, or leave both out"
        )
    if again:
        path, first = again[0]
        notes.append(
            "images that are there more than once, so that one may train and the other test: "
            f"{len(again)}, such as '{path}', the same as '{first}'; keep one of each"
        )
    return notes


def _same_name(files: Iterable[Path]) -> list[str]:
    by_name: dict[Path, list[Path]] = {}
    for path in files:
        by_name.setdefault(path.with_name(stem_of(path.name)), []).append(path)
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
