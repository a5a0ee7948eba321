"""Small networks for small images."""

import torch
from torch import nn

from fda_flower.models.shapes import check_images


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build two 3x3 convolutions with pooling, then two linear layers.

    Parameters
    ----------
    shape : tuple[int, ...]
        Channels, height and width of one image; at least 4x4.
    classes : int
        Number of classes.

    Raises
    ------
    ConfigError
        If the samples are not images, or too small.
    """
    check_images("cnn", shape, 4)
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
    """Build two 5x5 convolutions with pooling, then three linear layers.

    The network of Jiang et al.'s Fashion-MNIST experiments (ICLR 2024, Section C.7), with 44,426 parameters
    for 1x28x28 and 10 classes.

    Parameters
    ----------
    shape : tuple[int, ...]
        Channels, height and width of one image; at least 16x16.
    classes : int
        Number of classes.
    batch_norm : bool
        With BatchNorm after each convolution, without which plain SGD hardly trains the network.

    Raises
    ------
    ConfigError
        If the samples are not images, or too small.
    """
    check_images("lenet", shape, 16)

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
    ICLR 2021), with 372,426 parameters for 2x28x28 and 10 classes. It normalises groups, not batches, since a
    target's batch may have only one or two samples.

    Parameters
    ----------
    shape : tuple[int, ...]
        Channels, height and width of one image.
    classes : int
        Number of classes.

    Raises
    ------
    ConfigError
        If the samples are not images.
    """
    check_images("conv4", shape)
    layers: list[nn.Module] = []
    inputs = shape[0]
    for outputs, stride in ((64, 1), (128, 2), (128, 1), (128, 1)):
        convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
        layers += [convolution, nn.ReLU(), nn.GroupNorm(8, outputs)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
