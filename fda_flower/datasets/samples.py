"""Labelled samples as tensors in memory."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Samples:
    """Labelled images, or rows of features.

    Attributes
    ----------
    x : Tensor
        Images in [0, 1], float32, shape ``(n, channels, height, width)``, or uint8 in [0, 255]; or
        features, float32, shape ``(n, features)``. It may be anything that can be indexed by a tensor,
        moved by ``to``, and, to take samples, cut by ``index_select``: `ImageFiles`.
    y : Tensor
        Classes, int64, shape ``(n,)``; or, where the task is a regression, float32, ``(n, outputs)``.
    noise : float
        Standard deviation of the Gaussian noise added afresh at every access.
    """

    x: Tensor
    y: Tensor
    noise: float = 0.0

    def __len__(self) -> int:
        return len(self.y)

    def take(self, *positions: Tensor) -> "Samples":
        """The samples at these positions, one tensor of them after the other."""
        indices = torch.cat(positions)
        return replace(self, x=self.x.index_select(0, indices), y=self.y[indices])

    def order(self, generator: torch.Generator) -> Tensor:
        """All positions in random order."""
        return torch.randperm(len(self), generator=generator)

    def by_class(self, generator: torch.Generator) -> Iterator[tuple[int, Tensor]]:
        """Each class that occurs, by number, with the positions of its samples in random order."""
        for label in torch.unique(self.y).tolist():
            members = (self.y == label).nonzero().flatten()
            yield label, members[torch.randperm(len(members), generator=generator)]

    def of_classes(self, others: "Samples") -> "Samples":
        """The samples whose class occurs in `others`."""
        return self.take(torch.isin(self.y, others.y).nonzero().flatten())

    def to(self, device: torch.device) -> "Samples":
        """The same samples on a device."""
        return replace(self, x=self.x.to(device), y=self.y.to(device))

    def batches(
        self, size: int, generator: torch.Generator, shuffle: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples once, in as few batches of at most `size` as there can be, of nearly equal size.

        Even batches are what the estimators of auto-weighting assume, and leave none of a single sample,
        which BatchNorm cannot train on.

        Parameters
        ----------
        size : int
            Samples in a batch at most.
        generator : torch.Generator
            On the CPU; decides the order and the noise, the same on every device.
        shuffle : bool
            In a random order.
        """
        order = self.order(generator) if shuffle else torch.arange(len(self))
        for part in order.to(self.y.device).tensor_split(-(-len(self) // size)):
            x = self.x[part]
            if x.dtype == torch.uint8:
                x = x.float() / 255
            if self.noise:
                x = x + self.noise * torch.randn(x.shape, generator=generator).to(x.device)
            yield x, self.y[part]
