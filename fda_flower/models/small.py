"""Small networks: dense, convolutional, ResNet-9.

Each function takes the `shape` of a sample, ``(features,)`` or ``(channels, height, width)``, and the number
of `classes` or, for a regression, outputs. `fda_flower.models.MODELS` says which samples a network takes.
"""

import torch
from torch import Size, Tensor, nn

from fda_flower.errors import invalid


def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build one linear layer: logistic regression or, for a regression task, linear regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(Size(shape).numel(), classes))


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build one hidden layer of 64 with ReLU."""
    return _hidden(shape, classes, 64, nn.ReLU())


def sigmoid(shape: tuple[int, ...], classes: int, hidden: int = 100) -> nn.Module:
    """Build one hidden layer with sigmoid, as in Jiang et al.'s synthetic regression (ICLR 2024, Appendix B).

    The paper does not state the width of the hidden layer.
    """
    if hidden < 1:
        raise invalid("option 'hidden' of model 'sigmoid'", hidden, "it must be at least 1")
    return _hidden(shape, classes, hidden, nn.Sigmoid())


def _hidden(shape: tuple[int, ...], classes: int, hidden: int, activation: nn.Module) -> nn.Module:
    inputs = Size(shape).numel()
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), activation, nn.Linear(hidden, classes))


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build two 3x3 convolutions with pooling, then two linear layers, for images of 4x4 or more."""
    features = nn.Sequential(
        nn.Conv2d(shape[0], 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    with torch.no_grad():
        width = features(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(features, nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, classes))


def lenet(shape: tuple[int, ...], classes: int, batch_norm: bool = False) -> nn.Module:
    """Build two 5x5 convolutions with pooling, then three linear layers, for images of 16x16 or more.

    The network of Jiang et al.'s Fashion-MNIST experiments (ICLR 2024, Section C.7), with 44,426 parameters
    for 1x28x28 and 10 classes. `batch_norm` adds BatchNorm after each convolution; without it, plain SGD
    hardly trains the network.
    """

    def norm(channels: int) -> list[nn.Module]:
        return [nn.BatchNorm2d(channels)] if batch_norm else []

    side = [((length - 4) // 2 - 4) // 2 for length in shape[1:]]
    return nn.Sequential(
        *(nn.Conv2d(shape[0], 6, 5), *norm(6), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), *norm(16), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        *(nn.Linear(16 * side[0] * side[1], 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU()),
        nn.Linear(84, classes),
    )


def conv4(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build four 3x3 convolutions of 64, 128 (stride 2), 128 and 128, the mean over pixels, a linear layer.

    Each convolution is followed by ReLU and normalisation over 8 groups of channels. The network of Jiang et
    al.'s Colored MNIST experiments (ICLR 2024, Section C.2) in the size of DomainBed's (Gulrajani, Lopez-Paz,
    ICLR 2021), with 372,426 parameters for 2x28x28 and 10 classes. It normalises groups, not batches, because
    a target's batch may have only one or two samples.
    """
    layers: list[nn.Module] = []
    inputs = shape[0]
    for outputs, stride in ((64, 1), (128, 2), (128, 1), (128, 1)):
        convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
        layers += [convolution, nn.ReLU(), nn.GroupNorm(8, outputs)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def resnet9(shape: tuple[int, ...], classes: int, width: int = 64) -> nn.Module:
    """Build eight 3x3 convolutions with BatchNorm, two pairs of them residual, then a linear layer.

    Their channels are 64, 128, (128, 128), 256, 512, (512, 512), with the residual pairs in brackets; all
    scale with `width`, and on a CPU a width of 8 trains about 40 times as fast as 64. From the second on, the
    other convolutions halve the image, of at least 16x16, which leaves enough pixels to train BatchNorm on a
    single image. The head takes each channel's maximum. A small variant of He et al., "Deep Residual Learning
    for Image Recognition" (CVPR 2016), with 6,573,130 parameters for 3x32x32 and 10 classes.
    """
    if width < 1:
        raise invalid("option 'width' of model 'resnet9'", width, "it must be at least 1")
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
    """The maximum of each channel, like `torch.nn.AdaptiveMaxPool2d` but deterministic on a GPU too."""

    def forward(self, x: Tensor) -> Tensor:
        """Map images of shape ``(n, channels, height, width)`` to ``(n, channels)``."""
        return x.flatten(2).max(dim=2).values


def _convolution(inputs: int, outputs: int, pool: bool = False) -> nn.Module:
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []))
