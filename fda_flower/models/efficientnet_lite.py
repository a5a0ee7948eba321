"""EfficientNet-Lite: its layers, by the names that files of earlier versions have."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu6

STEM, FEATURES = 32, 1280
"""Channels of the first convolution, and features; they are the same in every size."""

EPSILON = 1e-3
"""What TensorFlow's BatchNorm adds to a variance."""

STAGES = ((3, 1, 1), (3, 2, 6), (5, 2, 6), (3, 2, 6), (5, 1, 6), (5, 2, 6), (3, 1, 6))
"""By stage: the depthwise kernel, the stride of its first block, and the expansion."""


class Size(NamedTuple):
    """The size of a network: the side of its images in pixels, and by stage its channels and blocks."""

    side: int
    channels: tuple[int, ...]
    depths: tuple[int, ...]


_NARROW, _DEEP = (16, 24, 40, 80, 112, 192, 320), (1, 3, 3, 4, 4, 5, 1)

SIZES = {
    0: Size(224, _NARROW, (1, 2, 2, 3, 3, 4, 1)),
    1: Size(240, _NARROW, _DEEP),
    2: Size(260, (16, 24, 48, 88, 120, 208, 352), _DEEP),
}
"""The sizes by the number of the network."""

UNUSED = 144
"""Random numbers that are drawn in vain, as by earlier versions: a seed keeps its head."""


class Strided(nn.Conv2d):
    """A convolution padded as TensorFlow's ``SAME``, by more to the right and below if the margin is odd."""

    def forward(self, input: Tensor) -> Tensor:
        """Map images, shape ``(n, inputs, h, w)``, to ``(n, outputs, ⌈h / stride⌉, ⌈w / stride⌉)``."""
        return super().forward(pad(input, [*self._margins(input.shape[3]), *self._margins(input.shape[2])]))

    def _margins(self, size: int) -> tuple[int, int]:
        kernel, stride = self.kernel_size[0], self.stride[0]
        missing = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
        return missing // 2, missing - missing // 2


def _convolution(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    if stride > 1:
        return Strided(inputs, outputs, kernel, stride, groups=groups, bias=False)
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)


class Norm(nn.BatchNorm2d):
    """BatchNorm, followed by ReLU6 if it is `active`."""

    def __init__(self, channels: int, active: bool = True) -> None:
        super().__init__(channels, eps=EPSILON)
        self.active = active

    def forward(self, input: Tensor) -> Tensor:
        """Return images of the same shape."""
        images = super().forward(input)
        return relu6(images, inplace=True) if self.active else images


class Block(nn.Module):
    """A depthwise convolution between two pointwise ones; the first adds channels, if there is one.

    A block that keeps the shape adds its inputs.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.adds = stride == 1 and inputs == outputs
        if expansion == 1:
            self.conv_dw, self.bn1 = _convolution(inner, inner, kernel, stride, inner), Norm(inner)
            self.conv_pw, self.bn2 = _convolution(inner, outputs), Norm(outputs, active=False)
        else:
            self.conv_pw, self.bn1 = _convolution(inputs, inner), Norm(inner)
            self.conv_dw, self.bn2 = _convolution(inner, inner, kernel, stride, inner), Norm(inner)
            self.conv_pwl, self.bn3 = _convolution(inner, outputs), Norm(outputs, active=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map images of shape ``(n, inputs, h, w)`` to ``(n, outputs, ⌈h / stride⌉, ⌈w / stride⌉)``."""
        inputs = x
        for layer in self.children():
            x = layer(x)
        return x + inputs if self.adds else x


class EfficientNetLite(nn.Module):
    """The network of a number in `SIZES`, for three channels; weights are random if they are `drawn`.

    Tan and Le, "EfficientNet", ICML 2019, without squeeze and excitation, with ReLU6, and with a first and a
    last stage that do not grow; Liu, "Higher accuracy on vision models with EfficientNet-Lite", 2020. Each
    child takes the outputs of the one before, so that the network can be cut between two.
    """

    def __init__(self, number: int, classes: int, drawn: bool = True) -> None:
        super().__init__()
        self.conv_stem, self.bn1 = _convolution(3, STEM, 3, stride=2), Norm(STEM)
        torch.rand(UNUSED)
        stages, channels = list[nn.Module](), STEM
        size = SIZES[number]
        for shape, outputs, depth in zip(STAGES, size.channels, size.depths, strict=True):
            stages.append(_stage(channels, outputs, shape, depth))
            channels = outputs
        self.blocks = nn.Sequential(*stages)
        self.conv_head, self.bn2 = _convolution(channels, FEATURES), Norm(FEATURES)
        self.global_pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(FEATURES, classes)
        if drawn:  # on the device meta it would take seconds
            self.apply(_draw)

    def forward(self, x: Tensor) -> Tensor:
        """Map images of shape ``(n, 3, height, width)`` to outputs of shape ``(n, classes)``."""
        x = self.blocks(self.bn1(self.conv_stem(x)))
        x = self.global_pool(self.bn2(self.conv_head(x)))
        outputs: Tensor = self.classifier(x)
        return outputs


def _stage(inputs: int, outputs: int, shape: Sequence[int], depth: int) -> nn.Sequential:
    kernel, stride, expansion = shape
    more = (Block(outputs, outputs, kernel, 1, expansion) for _ in range(depth - 1))
    return nn.Sequential(Block(inputs, outputs, kernel, stride, expansion), *more)


def _draw(module: nn.Module) -> None:
    """Draw random weights as the authors do, by the number of a layer's outputs."""
    if isinstance(module, nn.Conv2d):
        kernel, groups = module.kernel_size[0], module.groups
        nn.init.normal_(module.weight, std=math.sqrt(2 * groups / (kernel**2 * module.out_channels)))
    elif isinstance(module, nn.Linear):
        bound = 1 / math.sqrt(module.out_features)
        nn.init.uniform_(module.weight, -bound, bound)
        nn.init.zeros_(module.bias)
