"""Partitions: how the training samples of one data set are dealt to clients.

A partition is a dataclass; its fields are its options. Names and options are read without torch, which only
the methods that deal import.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fda_flower.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fda_flower.datasets.samples import Samples


class Partition(ABC):
    """A way to deal samples to clients; the first line of a subclass's docstring describes it."""

    @abstractmethod
    def deal(self, samples: Samples, parts: int, generator: torch.Generator) -> list[Samples]:
        """Return the samples of each of `parts` clients; no sample goes to two clients.

        Raises
        ------
        ConfigError
            If a client would have no samples.
        """

    def deal_with_target(
        self, samples: Samples, sources: int, generator: torch.Generator
    ) -> tuple[list[Samples], Samples]:
        """Return the sources' parts, and an even share for the target."""
        rest, target = _cut(samples, sources, generator)
        return self.deal(rest, sources, generator), target


@dataclass(frozen=True)
class Even(Partition):
    """Every client gets the same number of samples, at random."""

    def deal(self, samples: Samples, parts: int, generator: torch.Generator) -> list[Samples]:
        """Shuffle the samples, then cut them into even parts."""
        if len(samples) < parts:
            raise ConfigError(f"{len(samples)} samples cannot be dealt to {parts} clients: use fewer sources")
        return [samples.take(part) for part in samples.order(generator).tensor_split(parts)]

    def deal_with_target(
        self, samples: Samples, sources: int, generator: torch.Generator
    ) -> tuple[list[Samples], Samples]:
        """Cut even parts for all clients, the last for the target."""
        *parts, target = self.deal(samples, sources + 1, generator)
        return parts, target


@dataclass(frozen=True)
class Dirichlet(Partition):
    """Each class is dealt in shares drawn from a Dirichlet distribution; a small alpha is uneven."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf:
            raise ConfigError(
                f"option 'alpha' of partition 'dirichlet' is {self.alpha}, it must be a number above 0"
            )

    def deal(self, samples: Samples, parts: int, generator: torch.Generator) -> list[Samples]:
        """Deal the samples class by class (Hsu et al., 2019)."""
        import numpy as np
        import torch

        seed = int(torch.randint(2**62, (1,), generator=generator))
        random = np.random.default_rng(seed)
        members: list[list[Tensor]] = [[] for _ in range(parts)]
        for _, of_class in samples.by_class(generator):
            shares = random.dirichlet(np.full(parts, self.alpha))
            cuts = torch.from_numpy((shares.cumsum()[:-1] * len(of_class)).round().astype(np.int64))
            for mine, piece in zip(members, of_class.tensor_split(cuts), strict=True):
                mine.append(piece)
        return [_not_empty(samples.take(*mine), "dirichlet") for mine in members]


@dataclass(frozen=True)
class Labels(Partition):
    """Each source holds only `k` of the classes; with `target`, so does the target (Li et al., 2022)."""

    k: int = 3
    target: bool = False

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError(f"option 'k' of partition 'labels' is {self.k}, it must be at least 1")

    def deal(self, samples: Samples, parts: int, generator: torch.Generator) -> list[Samples]:
        """Give client `i` class ``i mod classes`` and `k - 1` random others; clients share a class evenly."""
        import torch

        labels = torch.unique(samples.y)
        if self.k > len(labels):
            raise ConfigError(
                f"option 'k' of partition 'labels' is {self.k}, but there are {len(labels)} classes"
            )
        holders: list[list[int]] = [[] for _ in labels]
        for client in range(parts):
            first = client % len(labels)
            others = [i for i in range(len(labels)) if i != first]
            chosen = torch.randperm(len(others), generator=generator)[: self.k - 1].tolist()
            for index in (first, *(others[i] for i in chosen)):
                holders[index].append(client)
        members: list[list[Tensor]] = [[] for _ in range(parts)]
        for (_, of_class), clients in zip(samples.by_class(generator), holders, strict=True):
            for client, piece in zip(clients, of_class.tensor_split(max(len(clients), 1)), strict=False):
                members[client].append(piece)
        return [_not_empty(samples.take(*mine), "labels") for mine in members]

    def deal_with_target(
        self, samples: Samples, sources: int, generator: torch.Generator
    ) -> tuple[list[Samples], Samples]:
        """Give the target `k` classes too if `target` is True, else an even share of all."""
        if not self.target:
            return super().deal_with_target(samples, sources, generator)
        *parts, target = self.deal(samples, sources + 1, generator)
        return parts, target


def _cut(samples: Samples, sources: int, generator: torch.Generator) -> tuple[Samples, Samples]:
    order = samples.order(generator)
    size = len(samples) // (sources + 1)
    if not size:
        raise ConfigError(
            f"{len(samples)} samples cannot be dealt to {sources + 1} clients: use fewer sources"
        )
    return samples.take(order[size:]), samples.take(order[:size])


def _not_empty(samples: Samples, name: str) -> Samples:
    if not len(samples):
        raise ConfigError(
            f"partition '{name}' leaves a client without samples: use fewer sources, or other options"
        )
    return samples


PARTITIONS: dict[str, type[Partition]] = {
    "even": Even,
    "dirichlet": Dirichlet,
    "labels": Labels,
}
"""The partitions by name. A new one is a class and one line here."""
