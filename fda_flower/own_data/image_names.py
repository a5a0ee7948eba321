"""Warnings from the names of image files: several images of one patient, and masks among the images."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

from fda_flower.datasets.folders import unusable
from fda_flower.datasets.units import EXAMPLE
from fda_flower.own_data.table_options import as_option

FEWEST_STEMS = 3
"""The fewest beginnings of names that are taken for patients."""

LEVELS = (1, 2, 3)
"""How many numbers and views may end a name, as in p01_left_2."""

VIEWS = "left|right|l|r|lt|rt|ap|pa|lat|lateral|front|frontal|back|side|top|cc|mlo|axial|coronal|sagittal"
ENDING = re.compile(
    rf"[ _.-]*\(\d+\)$|[ _.-]+(?:[^\W\d_]{{0,6}}\d+|{VIEWS})$|(?<=\d)(?:[a-d]|{VIEWS})$", re.IGNORECASE
)
"""A number, such as ``_2``, ``-img02`` and ``(2)``, or a view at the end of a name."""

MASKS = (
    *("mask", "masks", "seg", "segmentation", "segmentations", "label", "labels", "gt", "groundtruth", "roi"),
    *("annotation", "annotations", "contour", "contours", "overlay", "heatmap"),
)
"""Words that name masks."""
WORD = re.compile(r"[ _.-]+([^\W\d_]+)(?:[ _.-]*\d+)?$")
"""A word at the end of a name."""

OF_FOLDERS = re.compile(
    rf"(?:{'|'.join(MASKS)}|ground[ _.-]?truth)s?[ _.-]?(?:tr|ts|train|test|val|class|object|\d+)?"
    r"|.*[ _.-](?:masks|segmentations|annotations|contours)"
)
"""Names of folders that hold masks, in lower case."""

SEGMENTATION = (
    "segmentation is no task here: see docs/plug-in.md for a project of your own; to train classes, move the "
    "masks elsewhere, and each image into the folder of its class"
)
"""What to do with masks."""
OR_CLASSES = "; if these are classes, list all in the option 'classes'"

Named = Mapping[str, Sequence[str]]
"""Names of files by the folder that they are in: of one class at one domain."""


def stem_of(name: str) -> str:
    """Return a file's name without what says its format.

    Examples
    --------
    >>> stem_of("p1.mask.nii.gz"), stem_of("1.2.840.10008")
    ('p1.mask', '1.2.840.10008')
    """
    return re.sub(r"\.nii\.gz$|\.[a-z][a-z0-9]*$", "", name, flags=re.IGNORECASE)


def names_masks(folder: str) -> bool:
    """Return whether a folder is named like one of masks, such as ``masks`` or ``labelsTr``."""
    return OF_FOLDERS.fullmatch(folder.casefold()) is not None


def check_masks(thing: str, place: Path, names: Iterable[str], more: str = "") -> None:
    """Raise a `ConfigError` on a folder, a `thing`, if some in it have the names of folders of masks."""
    if masks := [name for name in names if names_masks(name)]:
        raise unusable(thing, place, f"has folders of masks: {', '.join(masks)}", SEGMENTATION + more)


def told_by_names(folders: Named, remedy: str = "", grouped: bool = False) -> list[str]:
    """Return sentences on masks and, unless they are `grouped`, on images that may be of one patient.

    `remedy` says how to keep these together. Default: by a pattern of their names.
    """
    masks, notes = masks_in(folders)
    if grouped:
        return notes
    images = {place: [name for name in names if name not in masks[place]] for place, names in folders.items()}
    return [*notes, *_stems(images, remedy)]


def masks_in(folders: Named) -> tuple[dict[str, set[str]], list[str]]:
    """Return the files that are named like another with a word more, by folder, and sentences on them."""
    twins: dict[str, list[tuple[str, str]]] = {}
    for place, names in folders.items():
        known = {stem_of(name) for name in names}
        for name in names:
            stem = stem_of(name)
            ends, (first, _, rest) = WORD.search(stem), _parts(stem)
            if ends and stem[: ends.start()] in known:
                twins.setdefault(ends[1].lower(), []).append((place, name))
            elif rest in known and first.lower() in MASKS:
                twins.setdefault(first.lower(), []).append((place, name))
    total, masks = sum(map(len, folders.values())), {place: set[str]() for place in folders}
    notes = []
    for word, found in twins.items():
        others = total - len(found)
        if word not in MASKS and (2 * len(found) < others or re.fullmatch(VIEWS, word)):
            continue
        for place, name in found:
            masks[place].add(name)
        notes.append(
            f"images that are named like another with '{word}': {len(found):,} of {total:,}, such as "
            f"'{found[0][1]}'; if they are masks, move them out of the folders of images"
        )
    return masks, notes


def _parts(stem: str) -> tuple[str, str, str]:
    found = re.match(r"([^\W\d_]+)([ _.-]+)", stem)
    return (found[1], found[2], stem[found.end() :]) if found else ("", "", "")


def _stems(folders: Named, remedy: str) -> list[str]:
    """Return a sentence if most files share a beginning with some, but not with most, of their folder."""
    total = sum(map(len, folders.values()))
    for level in LEVELS:
        stems: dict[tuple[str, str], list[str]] = {}
        for place, names in folders.items():
            for name in names:
                stems.setdefault((place, _stem(name, level)), []).append(name)
        several = {
            key: names
            for key, names in stems.items()
            if len(names) > 1 and 2 * len(names) <= len(folders[key[0]])
        }
        together = sum(map(len, several.values()))
        if len(several) < FEWEST_STEMS or 2 * together <= total:
            continue
        first, second, *_ = next(iter(several.values()))
        return [
            f"names of images have {len(several):,} beginnings in common, and then a number or a view alone: "
            f"{together:,} of {total:,}, such as '{first}' and '{second}'; if each is a patient, keep the "
            f"images of one together by {remedy or _option(folders, several)}"
        ]
    return []


def _stem(name: str, level: int) -> str:
    stem = stem_of(name)
    for _ in range(level):
        stem = ENDING.sub("", stem) or stem
    return stem


def _option(folders: Named, several: Mapping[tuple[str, str], Sequence[str]]) -> str:
    """Return the option whose pattern matches all files and makes the same patients, or an example."""
    names = [name for each in folders.values() for name in each]
    stem_of = {name: stem for (_, stem), each in several.items() for name in each}
    for mark, form in product(("_", "-", r"\s", r"\.", r"\("), ("^([^{0}]+){0}", "^(.+){0}")):
        pattern = form.format(mark)
        found = {name: re.search(pattern, name) for name in names}
        pairs = {(stem, match[1]) for name, stem in stem_of.items() if (match := found[name])}
        if all(found.values()) and len(pairs) == len({*stem_of.values()}) == len({one for _, one in pairs}):
            return as_option("group", [pattern])
    return f"{as_option('group', [EXAMPLE])}, or another pattern, whose first parenthesis is the patient"
