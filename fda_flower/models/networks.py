"""Small networks for small images."""

import torch
from torch import nn


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
