"""Images that stay in their files until they are needed."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fda_flower.errors import ConfigError

CHANNELS = 3
CPU = torch.device("cpu")


@dataclass(frozen=True)
class ImageFiles:
    """Image files that replace a tensor in `Samples`: they are selected as files and decoded when indexed.

    Attributes
    ----------
    paths : tuple of Path
        The files.
    size : int or (int, int)
        Height and width, in pixels, of the resized images.
    device : torch.device
        The device of decoded images.
    """

    paths: tuple[Path, ...]
    size: int | tuple[int, int]
    device: torch.device = CPU
    dtype: ClassVar[torch.dtype] = torch.uint8

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> torch.Size:
        """``(n, 3, height, width)``."""
        height, width = (self.size, self.size) if isinstance(self.size, int) else self.size
        return torch.Size([len(self), CHANNELS, height, width])

    def to(self, device: torch.device) -> "ImageFiles":
        """Return the same files, to be decoded to another device."""
        return replace(self, device=device)

    def index_select(self, dim: int, index: Tensor) -> "ImageFiles":
        """Return the files at these positions, not yet decoded; `dim` is 0."""
        return replace(self, paths=tuple(self.paths[i] for i in index.tolist()))

    def joined(self, others: "ImageFiles") -> "ImageFiles":
        """Return these files followed by others of the same size."""
        return replace(self, paths=self.paths + others.paths)

    def __getitem__(self, indices: Tensor | slice) -> Tensor:
        """Return the images at these positions, uint8, shape ``(images, 3, height, width)``.

        Raises
        ------
        ConfigError
            If an image cannot be decoded; the message names the file.
        """
        chosen = range(len(self))[indices] if isinstance(indices, slice) else indices.tolist()
        paths = [self.paths[i] for i in chosen]
        images = np.empty((len(paths), *self.shape[1:]), dtype=np.uint8)
        with ThreadPoolExecutor() as pool:
            decoded = pool.map(self._decode, paths)
            for i, image in enumerate(decoded):
                images[i] = image
        return torch.from_numpy(images).to(self.device)

    def _decode(self, path: Path) -> NDArray[np.uint8]:
        try:
            with Image.open(path) as image:
                return pixels_of(image, self.shape[2], self.shape[3])
        except Exception as error:  # Pillow's decoders raise errors of many kinds.
            raise ConfigError(
                f"the image '{path}' is damaged ({error}): get it again", thing="image", value=path
            ) from error


def pixels_of(image: Image.Image, height: int, width: int) -> NDArray[np.uint8]:
    """Return an image as RGB in another size, uint8, shape ``(3, height, width)``."""
    # 16 bits of grey are scaled to 8: Pillow's conversion would clip them to white.
    eight_bits = image.point(lambda grey: grey / 256) if image.mode[0] == "I" else image
    rgb = eight_bits.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(rgb).transpose(2, 0, 1))


def unreadable(paths: Iterable[Path]) -> list[str]:
    """Decode images, and return a message for each that is damaged, which names the file."""

    def message(path: Path) -> str | None:
        try:
            ImageFiles((path,), 1)[torch.zeros(1, dtype=torch.int64)]
        except ConfigError as error:
            return str(error)
        return None

    return [found for found in map(message, paths) if found]
