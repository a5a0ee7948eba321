"""Images of four scanners: an ellipse to segment, and smaller discs that are none of it."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fda_flower.datasets import Dataset, Samples, Split

SIDE, TRAIN, TEST = 32, 120, 150
SCANNERS = {"a": (0.6, 0.05), "b": (0.4, 0.1), "c": (0.8, 0.1), "inverted": (-0.5, 0.2)}
"""By scanner its contrast and the standard deviation of its noise."""


def load(data_dir: Path | None, seed: int) -> dict[str, Split]:
    """Return images of each scanner, and their masks as rows of 0 and 1, one number for each pixel."""
    domains = {}
    for number, (name, (contrast, noise)) in enumerate(SCANNERS.items()):
        generator = torch.Generator().manual_seed(10 * (seed % 2**32) + number)
        images, masks = draw(TRAIN + TEST, contrast, noise, generator)
        samples, every = Samples(images.numpy(), masks.numpy()), np.arange(TRAIN + TEST)
        domains[name] = Split(samples.take(every[:TRAIN]), samples.take(every[TRAIN:]), classes=SIDE**2)
    return domains


def draw(count: int, contrast: float, noise: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return images, shape ``(n, 1, 32, 32)``, and masks, ``(n, 1024)``."""
    masks, brightness = ellipses(count, 5.0, 9.0, generator), torch.zeros(count, SIDE, SIDE)
    for _ in range(3):
        brightness = torch.maximum(brightness, ellipses(count, 1.5, 3.0, generator))
    brightness = torch.maximum(brightness, masks)
    images = 0.5 + contrast * (brightness - 0.5) + noise * torch.randn(brightness.shape, generator=generator)
    return images.clamp(0, 1)[:, None], masks.flatten(1)


def ellipses(count: int, least: float, most: float, generator: torch.Generator) -> Tensor:
    """Return masks, shape ``(n, 32, 32)``, of an ellipse each, with semi-axes in these bounds."""
    centre = 8 + 16 * torch.rand(count, 2, 1, 1, generator=generator)
    axes = least + (most - least) * torch.rand(count, 2, 1, 1, generator=generator)
    grid = torch.stack(torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij"))
    return ((((grid - centre) / axes) ** 2).sum(dim=1) <= 1).float()


ELLIPSES = Dataset(
    "ellipses under four scanners, with masks",
    load,
    domains=tuple(SCANNERS),
    regression=True,
    mask=True,
    model="unet",
    public=True,
)
