"""Several networks that read the same samples; Ridge fits a linear layer to the features of each."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fda_flower.errors import ConfigError
from fda_flower.models.parts import estimate_statistics
from fda_flower.names.registry import resolve

Backbone = TypeVar("Backbone", bound=nn.Module)

BATCH = 64
"""Samples in a batch from which statistics are estimated."""


class Together(nn.Module):
    """Networks whose outputs add up; `adapted` numbers the ones that are also used with own statistics."""

    def __init__(self, networks: list[nn.Module], adapted: Sequence[int] = ()) -> None:
        super().__init__()
        self.networks, self.adapted = nn.ModuleList(networks), tuple(adapted)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the networks' outputs, shape ``(n, classes)``."""
        return torch.stack([network(x) for network in self.networks]).sum(dim=0)


def together(
    builders: Sequence[str | Callable[..., nn.Module] | None], shape: tuple[int, ...], classes: int
) -> nn.Module:
    """Build several networks; None means the one before, with a site's own statistics."""
    networks, adapted = list[Any](), list[int]()
    for build in builders:
        if build is None:
            adapted.append(len(networks) - 1)
        else:
            networks.append(resolve(build)(shape, classes))
    return Together(networks, adapted)


class TwoStatistics(nn.Module):
    """A network without its head, whose tail also runs with BatchNorm statistics of a site's own samples.

    Until `adapt`, these are the network's. Li et al., "Adaptive Batch Normalization for practical domain
    adaptation", 2018, for a network's last block.

    Raises
    ------
    ConfigError
        If the tail has no BatchNorm. It calls the network `name`.
    """

    def __init__(self, trunk: nn.Module, tail: nn.Module, name: str) -> None:
        super().__init__()
        self.trunk, self.tail, self.own = trunk, tail, copy.deepcopy(tail)
        if not self._layers:
            what = f"'{name}' has no BatchNorm in its last block, where a site would have its own statistics"
            raise ConfigError(what, thing="model", value=name, remedy="leave '+adabn' out")

    @property
    def _layers(self) -> list[_BatchNorm]:
        layers = [module for module in self.own.modules() if isinstance(module, _BatchNorm)]
        return [layer for layer in layers if layer.running_mean is not None]

    def forward(self, x: Tensor) -> Tensor:
        """Return features with both statistics, one after the other, shape ``(n, 2 features)``."""
        return self.after_trunk(self.trunk(x))

    def after_trunk(self, inner: Tensor) -> Tensor:
        """Return the features of samples from the trunk's outputs."""
        return torch.cat([tail(inner).flatten(1) for tail in (self.tail, self.own)], dim=1)

    def adapt(self, inner: Sequence[Tensor]) -> None:
        """Estimate the statistics from the trunk's outputs of some samples.

        A single sample has no variance: then the network's statistics stay.
        """
        device = next(iter(self.own.state_dict().values())).device
        samples = torch.stack(list(inner)).to(device)
        batches = [samples[begin : begin + BATCH] for begin in range(0, len(samples), BATCH)]
        estimate_statistics(self.own, self._layers, batches)

    @property
    def statistics(self) -> Tensor:
        """The means and variances of the tail's BatchNorm layers, float32, of one dimension."""
        return torch.cat([each.detach().cpu() for each in self._tensors])

    @statistics.setter
    def statistics(self, values: Tensor) -> None:
        sizes = [len(each) for each in self._tensors]
        with torch.no_grad():
            for each, part in zip(self._tensors, torch.split(values, sizes), strict=True):
                each.copy_(part)

    @property
    def _tensors(self) -> list[Tensor]:
        pairs = [(layer.running_mean, layer.running_var) for layer in self._layers]
        return [each for pair in pairs for each in pair if each is not None]


def adaptable(backbone: nn.Module) -> list[TwoStatistics]:
    """Return the networks of a backbone that also use a site's own statistics."""
    return [module for module in backbone.modules() if isinstance(module, TwoStatistics)]


def to_adapt(backbone: Backbone) -> Backbone:
    """Return a copy of a backbone to hold a site's own statistics; the rest of these networks is shared."""
    networks = adaptable(backbone)
    return copy.deepcopy(backbone, {id(each): each for net in networks for each in (net.trunk, net.tail)})


def with_statistics(backbone: nn.Module, values: NDArray[np.float32]) -> nn.Module:
    """Return a copy of a backbone with a site's statistics, one `adaptable` network's after the other."""
    backbone = to_adapt(backbone)
    networks = adaptable(backbone)
    sizes = [len(network.statistics) for network in networks]
    for network, own in zip(networks, torch.split(torch.tensor(values), sizes), strict=True):
        network.statistics = own
    return backbone
