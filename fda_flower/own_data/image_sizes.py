"""How large one's own images are, and the size to which they are brought."""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from statistics import median
from typing import Any

from fda_flower.datasets.looks import PLAIN, ImageError, Look
from fda_flower.datasets.pixels import measured
from fda_flower.datasets.registry import network_for_images
from fda_flower.own_data.image_folder import Files

LARGEST = 224
"""Height and width, in pixels, to which larger images are reduced, as networks for photos expect."""

LOOKED_AT = 1000
"""The number of images per domain whose size is read."""

Size = tuple[int, int]
"""Height and width, in pixels."""


def sizes_of(domains: Iterable[Files], look: Look = PLAIN) -> Counter[Size]:
    """Count the sizes of up to `LOOKED_AT` images per domain, without damaged files."""
    sizes: Counter[Size] = Counter()
    for files in domains:
        paths = [path for each in files.values() for path in each]
        for path in paths[:: -(-len(paths) // LOOKED_AT) or 1]:
            with suppress(ImageError):  # decoding names the file
                sizes[measured(path, look)] += 1
    return sizes


def describe_sizes(sizes: Counter[Size], options: Mapping[str, Any]) -> str:
    """Return in words how large images are, and to which size the option ``image_size`` brings them."""
    listed = ", ".join(f"{height}x{width}: {count}" for (height, width), count in sizes.most_common(5))
    more = f", and {len(sizes) - 5} other sizes" if len(sizes) > 5 else ""
    size = options.get("image_size")
    fits = f", for the network {network_for_images(options)}" if size else ""
    return f"images of {listed}{more}; brought to {size}{fits}"


def common_size(sizes: Counter[Size]) -> Size:
    """Return the size to which images are resized: the size of at least half of them, up to `LARGEST`.

    If there is none, it is a square of their median shorter side, at most `LARGEST`.

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
