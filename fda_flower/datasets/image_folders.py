"""Image folders of a consortium, as they are found: domains, classes, and the size of the images."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from fda_flower.datasets.own_data import found_names, is_here, visible
from fda_flower.options import split_names

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")

LARGEST = 224
"""Height and width, in pixels, to which larger images are reduced, as networks for photos expect."""

LOOKED_AT = 1000
"""Images of a domain whose size is looked at."""

Size = tuple[int, int]
"""Height and width, in pixels."""

Files = dict[str, list[Path]]
"""The images of one domain, by class."""


def complete(folder: Path | None, options: Mapping[str, Any], target: str | None) -> dict[str, Any]:
    """Return the options that are not given, but follow from a folder: the domains, and the images' size."""
    found: dict[str, Any] = {}
    if folder is None or not is_here(folder, options):
        return found
    if "domains" not in options:
        found["domains"] = ",".join(find_domains(folder))
    if "image_size" not in options:
        domains = split_names("option 'domains'", str({**options, **found}["domains"]))
        if sizes := sizes_of(files_of(folder / name) for name in domains):
            found["image_size"] = "x".join(map(str, common_size(sizes)))
    return found


def find_domains(folder: Path) -> tuple[str, ...]:
    """Return the folders that hold images in folders, by name; raise a `ConfigError` if there is none."""
    names = [path.name for path in visible(folder) if path.is_dir() and files_of(path)]
    return found_names("images", folder, names, "a folder for each domain, and in it one for each class")


def files_of(place: Path) -> Files:
    """Return the images of a domain's folder by class, without classes that have none."""
    if not place.is_dir():
        return {}
    files = {
        path.name: [file for file in visible(path) if file.suffix.lower() in SUFFIXES]
        for path in visible(place)
        if path.is_dir()
    }
    return {name: paths for name, paths in files.items() if paths}


def sizes_of(domains: Iterable[Files]) -> Counter[Size]:
    """Count the sizes of the images, of some `LOOKED_AT` of each domain, without damaged files."""
    from PIL import Image

    sizes: Counter[Size] = Counter()
    for files in domains:
        paths = [path for each in files.values() for path in each]
        for path in paths[:: -(-len(paths) // LOOKED_AT) or 1]:
            try:
                with Image.open(path) as image:
                    sizes[image.height, image.width] += 1
            except Exception:  # Pillow's decoders raise errors of many kinds; decoding names the file.
                continue
    return sizes


def common_size(sizes: Counter[Size]) -> Size:
    """Return the size to which images are brought.

    It is the size of at least half of them, if it is not above `LARGEST`. Otherwise it is a square of their
    median shorter side, at most `LARGEST`.

    Examples
    --------
    >>> common_size(Counter({(32, 32): 9, (48, 32): 1})), common_size(Counter({(300, 400): 5}))
    ((32, 32), (224, 224))
    """
    size, count = sizes.most_common(1)[0]
    if 2 * count >= sizes.total() and max(size) <= LARGEST:
        return size
    side = min(LARGEST, int(median(min(size) for size in sizes.elements())))
    return side, side
