"""Several networks that read the same images; Ridge fits a linear layer to the features of each."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fda_flower.models.small import check_images
from fda_flower.names import resolve


class Together(nn.Module):
    """Networks whose outputs add up."""

    def __init__(self, networks: list[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the networks' outputs, shape ``(n, classes)``."""
        return torch.stack([network(x) for network in self.networks]).sum(dim=0)


def together(
    builders: Mapping[str, str | Callable[..., nn.Module]], shape: tuple[int, ...], classes: int
) -> nn.Module:
    """Build several networks for images of a `shape`; raise a `ConfigError` for other samples."""
    check_images("+".join(builders), shape)
    networks: list[Any] = [resolve(build)(shape, classes) for build in builders.values()]
    return Together(networks)
