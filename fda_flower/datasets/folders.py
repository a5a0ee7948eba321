"""Data sets of image folders, as DomainBed lays them out: ``<folder>/<domain>/<class>/<image>``."""

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fda_flower.datasets.samples import Samples, Split
from fda_flower.errors import ConfigError
from fda_flower.seeds import derive_seed

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
CHANNELS = 3
TEST_SHARE = 0.2
CPU = torch.device("cpu")

MEMORY_LIMIT = 4 * 2**30
"""Bytes that a data set's decoded images may take; those of a larger one are read batch by batch."""

logger = logging.getLogger("fda_flower")

Files = dict[str, list[Path]]
"""The images of one domain, by class."""

Labelled = list[tuple[Path, int]]
"""Images with their classes."""


def load(
    folder: str,
    domains: tuple[str, ...],
    source: str,
    data_dir: Path | None,
    seed: int,
    image_size: int = 224,
) -> dict[str, Split]:
    """The domains, each with four fifths of every class to train on and a fifth to test on.

    Parameters
    ----------
    folder : str
        The data set's folder in `data_dir`; it is only read.
    domains : tuple of str
        The folders of its domains. The classes are the folders with images in any of them, by name.
    source : str
        Where to get the data set, for errors.
    data_dir : Path, optional
        The folder of data sets. Such a data set cannot be downloaded, so None is an error.
    seed : int
        Decides, for each domain by itself, which images are tested on.
    image_size : int
        Height and width in pixels that images are resized to; they are RGB.

    Returns
    -------
    dict[str, Split]
        By domain; images are uint8, ``(n, 3, image_size, image_size)``, or `ImageFiles` of this shape
        where all would take more than `MEMORY_LIMIT`.

    Raises
    ------
    ConfigError
        If a folder is missing or has no image, an image is damaged, or `image_size` is below 1.
    """
    if image_size < 1:
        raise ConfigError(f"option 'image_size' of {folder} is {image_size}, it must be at least 1")
    root = _root(folder, source, data_dir)
    files = {domain: _files(root / domain, source) for domain in domains}
    classes = sorted({name for found in files.values() for name in found})
    _log_missing_classes(folder, files, classes)
    total = sum(len(paths) for found in files.values() for paths in found.values())
    in_memory = total * CHANNELS * image_size**2 <= MEMORY_LIMIT

    def samples(pairs: Labelled) -> Samples:
        images = ImageFiles(tuple(path for path, _ in pairs), image_size)
        x = images[torch.arange(len(pairs))] if in_memory else cast(Tensor, images)
        return Samples(x, torch.tensor([label for _, label in pairs], dtype=torch.int64))

    splits = {}
    for domain, found in files.items():
        train, test = _divide(found, classes, derive_seed(seed, domain))
        splits[domain] = Split(samples(train), samples(test), len(classes))
    return splits


@dataclass(frozen=True)
class ImageFiles:
    """Image files in the place of a tensor in `Samples`: chosen as files, decoded when indexed.

    Attributes
    ----------
    paths : tuple of Path
        The files.
    size : int
        Height and width in pixels that images are resized to.
    device : torch.device
        Where decoded images go.
    """

    paths: tuple[Path, ...]
    size: int
    device: torch.device = CPU
    dtype: ClassVar[torch.dtype] = torch.uint8

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> torch.Size:
        """``(n, 3, size, size)``."""
        return torch.Size([len(self), CHANNELS, self.size, self.size])

    def to(self, device: torch.device) -> "ImageFiles":
        """The same files, decoded for another device."""
        return replace(self, device=device)

    def index_select(self, dim: int, index: Tensor) -> "ImageFiles":
        """The files at these positions, not yet decoded; `dim` is 0."""
        return replace(self, paths=tuple(self.paths[i] for i in index.tolist()))

    def __getitem__(self, indices: Tensor) -> Tensor:
        """The images at these positions, uint8, shape ``(len(indices), 3, size, size)``.

        Raises
        ------
        ConfigError
            If one cannot be decoded; it names the file.
        """
        images = np.empty((len(indices), *self.shape[1:]), dtype=np.uint8)
        with ThreadPoolExecutor() as pool:
            decoded = pool.map(self._decode, (self.paths[i] for i in indices.tolist()))
            for i, image in enumerate(decoded):
                images[i] = image
        return torch.from_numpy(images).to(self.device)

    def _decode(self, path: Path) -> NDArray[np.uint8]:
        try:
            with Image.open(path) as image:
                # 16 bits of grey are scaled to 8: Pillow's conversion would cut them off at white.
                eight_bits = image.point(lambda grey: grey / 256) if image.mode[0] == "I" else image
                rgb = eight_bits.convert("RGB").resize((self.size, self.size), Image.Resampling.BILINEAR)
        except Exception as error:  # Pillow's decoders raise errors of many kinds.
            raise ConfigError(f"the image '{path}' is damaged ({error}): get it again") from error
        return np.ascontiguousarray(np.asarray(rgb).transpose(2, 0, 1))


def _root(folder: str, source: str, data_dir: Path | None) -> Path:
    if data_dir is None:
        raise ConfigError(
            f"{folder} cannot be downloaded: get it from {source}, and name the folder that holds "
            f"'{folder}' by --data-dir (FDA_DATA_DIR)"
        )
    root = data_dir.expanduser() / folder
    if not root.is_dir():
        raise ConfigError(f"the data folder '{root}' is missing: get it from {source}, and put it there")
    return root


def _files(place: Path, source: str) -> Files:
    if not place.is_dir():
        found = ", ".join(path.name for path in _visible(place.parent) if path.is_dir()) or "nothing"
        raise ConfigError(
            f"the domain folder '{place}' is missing (there is {found}): get it from {source}, "
            "and put it there"
        )
    files = {
        path.name: [file for file in _visible(path) if file.suffix.lower() in SUFFIXES]
        for path in _visible(place)
        if path.is_dir()
    }
    files = {name: paths for name, paths in files.items() if paths}
    if not files:
        raise ConfigError(
            f"the domain folder '{place}' has no image ({', '.join(SUFFIXES)}) in a folder of a class: "
            f"get it from {source}"
        )
    return files


def _visible(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if not path.name.startswith("."))


def _log_missing_classes(folder: str, files: dict[str, Files], classes: list[str]) -> None:
    missing = {domain: [name for name in classes if name not in found] for domain, found in files.items()}
    told = [f"{domain} has no {', '.join(names)}" for domain, names in missing.items() if names]
    if told:
        logger.warning("%s: classes without an image: %s", folder, "; ".join(told))


def _divide(files: Files, classes: list[str], seed: int) -> tuple[Labelled, Labelled]:
    """Files with their classes, to train on and to test on; the only image of a class is trained on."""
    generator = torch.Generator().manual_seed(seed)
    train: Labelled = []
    test: Labelled = []
    for label, name in enumerate(classes):
        paths = files.get(name, [])
        tested = max(1, round(TEST_SHARE * len(paths))) if len(paths) > 1 else 0
        pairs = [(paths[i], label) for i in torch.randperm(len(paths), generator=generator).tolist()]
        test += pairs[:tested]
        train += pairs[tested:]
    return train, test
