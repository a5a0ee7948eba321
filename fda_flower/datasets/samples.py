"""Labelled samples as tensors in memory."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

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

    def take(self, indices: Tensor) -> "Samples":
        """The samples at these positions."""
        return replace(self, x=self.x.index_select(0, indices), y=self.y[indices])

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
        order = torch.randperm(len(self), generator=generator) if shuffle else torch.arange(len(self))
        for part in order.to(self.y.device).tensor_split(-(-len(self) // size)):
            x = self.x[part]
            if x.dtype == torch.uint8:
                x = x.float() / 255
            if self.noise:
                x = x + self.noise * torch.randn(x.shape, generator=generator).to(x.device)
            yield x, self.y[part]


@dataclass(frozen=True)
class Split:
    """A data set before it is shifted, or one of its own domains.

    Attributes
    ----------
    train, test : Samples
        Samples to train on, and to test on.
    classes : int
        Number of classes; of outputs where the task is a regression.
    class_names, features : tuple of str
        Names of the classes and of the features, in order; empty where they have none.
    """

    train: Samples
    test: Samples
    classes: int
    class_names: tuple[str, ...] = ()
    features: tuple[str, ...] = ()


class Splits(Mapping[str, Split]):
    """The domains of a data set, each read once, when it is asked for: a site has no files but its own.

    Parameters
    ----------
    names : tuple of str
        The domains.
    read : callable
        From a domain's name to its samples.
    """

    def __init__(self, names: tuple[str, ...], read: Callable[[str], Split]) -> None:
        self._names = names
        self._read = cache(read)

    def __getitem__(self, name: str) -> Split:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class Domain:
    """One client's data."""

    name: str
    train: Samples
    test: Samples
