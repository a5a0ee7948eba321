"""torchvision's residual networks, with random or given weights."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fda_flower.errors import ConfigError
from fda_flower.models.shapes import check_images
from fda_flower.models.weights import load_weights

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's mean and deviation of red, green and blue."""


def resnet(name: str, shape: tuple[int, ...], classes: int, weights: str = "") -> nn.Module:
    """Build a residual network of torchvision, with a last layer for the given number of classes.

    Its state dictionary is torchvision's. With given weights, the network first normalises images in [0, 1]
    by ImageNet's mean and deviation. Grey images are repeated for red, green and blue.

    Parameters
    ----------
    name : {"resnet18", "resnet50"}
        torchvision's name.
    shape : tuple[int, ...]
        Channels (1 or 3), height and width of one image; at least 32x32. BatchNorm cannot be trained on a
        batch of a single image if it has 32x32 or less.
    classes : int
        Number of classes.
    weights : str
        Empty for random weights, ``imagenet`` for torchvision's best, which are downloaded, or a file with
        a state dictionary (``.pth``, ``.safetensors``). A last layer that does not fit is left out.

    Raises
    ------
    ConfigError
        If the samples are not images, are too small or have another number of channels, or the weights
        cannot be loaded or do not fit.

    References
    ----------
    He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.
    """
    from torchvision import models

    check_images(name, shape, 32)
    if shape[0] not in (1, 3):
        raise ConfigError(
            f"model '{name}' needs images of 3 channels, or 1 if grey, but these have {shape[0]}: choose "
            "conv4 or resnet9"
        )
    network: nn.Module = getattr(models, name)(num_classes=classes)
    if weights:
        load_weights(network, name, weights)
    if weights or shape[0] == 1:
        network.prepare = Prepare(bool(weights))
        network.register_forward_pre_hook(_prepare)
    return network


resnet18 = partial(resnet, "resnet18")
resnet50 = partial(resnet, "resnet50")


class Prepare(nn.Module):
    """Prepares images for a network with three input channels.

    Parameters
    ----------
    normalise : bool
        Whether to normalise by ImageNet's mean and deviation.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, normalise: bool) -> None:
        super().__init__()
        for name, values in (("mean", MEAN), ("deviation", DEVIATION)):
            buffer = torch.tensor(values)[:, None, None] if normalise else None
            self.register_buffer(name, buffer, persistent=False)
        self.normalise = normalise

    def forward(self, x: Tensor) -> Tensor:
        """Map images of shape ``(n, 1 or 3, height, width)`` to ``(n, 3, height, width)``."""
        x = x.expand(-1, 3, -1, -1)
        return (x - self.mean) / self.deviation if self.normalise else x


def _prepare(network: nn.Module, inputs: tuple[Any, ...]) -> Any:
    assert isinstance(network.prepare, Prepare)
    return network.prepare(*inputs)
