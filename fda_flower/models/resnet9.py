"""The 9-layer residual network for small images."""

from torch import Tensor, nn

from fda_flower.errors import ConfigError
from fda_flower.models.shapes import check_images


def resnet9(shape: tuple[int, ...], classes: int, width: int = 64) -> nn.Module:
    """Build eight 3x3 convolutions with BatchNorm, two pairs of them residual, then a linear layer.

    The convolutions have 64 and 128 channels, a residual pair 128, then 256 and 512, a residual pair 512. All
    from the second on except the residual ones halve the image; the maxima of the channels are classified. A
    small variant of He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016).
    6,573,130 parameters for 3x32x32 and 10.

    Parameters
    ----------
    shape : tuple[int, ...]
        Channels, height and width of one image; at least 16x16, so that BatchNorm can be trained on a
        batch of a single image.
    classes : int
        Number of classes.
    width : int
        Channels of the first convolution; the others scale with it. On a CPU, 8 trains about 40 times as
        fast as 64.

    Raises
    ------
    ConfigError
        If the samples are not images, or too small, or the width is below 1.
    """
    check_images("resnet9", shape, 16)
    if width < 1:
        raise ConfigError(f"option 'width' of model 'resnet9' is {width}, it must be at least 1")
    return nn.Sequential(
        _convolution(shape[0], width),
        _convolution(width, 2 * width, pool=True),
        Residual(*(_convolution(2 * width, 2 * width) for _ in range(2))),
        _convolution(2 * width, 4 * width, pool=True),
        _convolution(4 * width, 8 * width, pool=True),
        Residual(*(_convolution(8 * width, 8 * width) for _ in range(2))),
        ChannelMaximum(),
        nn.Flatten(),
        nn.Linear(8 * width, classes),
    )


class Residual(nn.Sequential):
    """Layers whose input is added to their output."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x + f(x)``, with the shape of `x`."""
        inputs = x
        for layer in self:
            x = layer(x)
        return inputs + x


class ChannelMaximum(nn.Module):
    """The largest value of each channel, as `torch.nn.AdaptiveMaxPool2d`, but deterministic on a GPU too."""

    def forward(self, x: Tensor) -> Tensor:
        """Map images of shape ``(n, channels, height, width)`` to ``(n, channels)``."""
        return x.flatten(2).max(dim=2).values


def _convolution(inputs: int, outputs: int, pool: bool = False) -> nn.Module:
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []))
