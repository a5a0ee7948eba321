"""Small networks for small images."""

import torch
from torch import nn

from fda_flower.errors import ConfigError


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 3x3 convolutions with pooling, then two linear layers.

    Parameters
    ----------
    shape : tuple[int, ...]
        Of one image: channels, height, width.
    classes : int
        Number of classes.
    """
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


def lenet(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5x5 convolutions with pooling, then three linear layers; 44,426 parameters for 1x28x28 and 10.

    The network of Jiang et al.'s Fashion-MNIST experiments (ICLR 2024, Section C.7).

    Parameters
    ----------
    shape : tuple[int, ...]
        Of one image: channels, height, width; at least 16x16.
    classes : int
        Number of classes.

    Raises
    ------
    ConfigError
        If the images are too small.
    """
    if min(shape[1:]) < 16:
        raise ConfigError(f"model 'lenet' needs images of 16x16 or more, these are {shape[1]}x{shape[2]}")
    side = [((length - 4) // 2 - 4) // 2 for length in shape[1:]]
    return nn.Sequential(
        *(nn.Conv2d(shape[0], 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        *(nn.Linear(16 * side[0] * side[1], 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU()),
        nn.Linear(84, classes),
    )


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One hidden layer of 64, on the flattened image.

    Parameters
    ----------
    shape : tuple[int, ...]
        Of one image: channels, height, width.
    classes : int
        Number of classes.
    """
    inputs = torch.Size(shape).numel()
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, classes))
