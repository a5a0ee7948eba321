"""A small U-Net (Ronneberger et al., MICCAI 2015) that returns a number for each pixel."""

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from fda_flower.models import Model


class UNet(nn.Module):
    """Two levels down and up; outputs are near 1 inside the mask and near 0 outside."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.down, self.middle = block(channels, width), block(width, 2 * width)
        self.bottom = block(2 * width, 2 * width)
        self.up, self.top = block(4 * width, width), block(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)
        self.larger = nn.Upsample(scale_factor=2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the pixels of images, shape ``(n, height * width)``."""
        first = self.down(x)
        second = self.middle(max_pool2d(first, 2))
        third = self.larger(self.bottom(max_pool2d(second, 2)))
        fourth = self.larger(self.up(torch.cat([second, third], dim=1)))
        pixels: Tensor = self.head(self.top(torch.cat([first, fourth], dim=1)))
        return pixels.flatten(1)


def block(inputs: int, outputs: int) -> nn.Module:
    """Return a convolution with BatchNorm and ReLU."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


def unet(shape: tuple[int, ...], classes: int, width: int = 12) -> nn.Module:
    """Build it for images of a shape; sides are multiples of 4."""
    return UNet(shape[0], width)


UNET = Model("a small U-Net, for masks", unet)
