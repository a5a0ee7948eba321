"""Shifts, which turn a data set into different domains, and partitions, which deal samples to clients.

Both are dataclasses whose fields are their options. NumPy is imported where samples are dealt.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from fda_flower.datasets.domains import Domain
from fda_flower.errors import ConfigError, invalid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fda_flower.datasets.domains import Split
    from fda_flower.datasets.drawing import Generator
    from fda_flower.datasets.samples import Samples


class Partition(ABC):
    """A way to deal samples to clients; the first line of a subclass's docstring describes it."""

    target: bool = False
    """Whether the partition also applies to the target; else the target gets an even share."""

    @abstractmethod
    def deal(self, samples: Samples, parts: int, generator: Generator) -> list[Samples]:
        """Return the disjoint samples of each of `parts` clients.

        Raise a `ConfigError` if a client would get none.
        """

    def deal_with_target(
        self, samples: Samples, sources: int, generator: Generator
    ) -> tuple[list[Samples], Samples]:
        """Return the sources' parts, and the target's."""
        if self.target:
            *parts, target = self.deal(samples, sources + 1, generator)
            return parts, target
        order, size = samples.order(generator), len(samples) // (sources + 1)
        if not size:
            raise _too_few(samples, sources + 1)
        return self.deal(samples.take(order[size:]), sources, generator), samples.take(order[:size])


@dataclass(frozen=True)
class Even(Partition):
    """Every client gets the same number of samples, at random."""

    target = True

    def deal(self, samples: Samples, parts: int, generator: Generator) -> list[Samples]:
        """Shuffle the samples, then cut them into even parts."""
        if len(samples) < parts:
            raise _too_few(samples, parts)
        import numpy as np

        return [samples.take(part) for part in np.array_split(samples.order(generator), parts)]


@dataclass(frozen=True)
class Dirichlet(Partition):
    """Each class is dealt in shares drawn from a Dirichlet distribution; a small alpha is uneven."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf:
            thing = "option 'alpha' of partition 'dirichlet'"
            raise invalid(thing, self.alpha, "it must be a number above 0")

    def deal(self, samples: Samples, parts: int, generator: Generator) -> list[Samples]:
        """Deal the samples class by class (Hsu et al., 2019)."""
        import numpy as np

        random = np.random.default_rng(generator.integer(2**62))
        members: list[list[NDArray[np.int64]]] = [[] for _ in range(parts)]
        for _, of_class in samples.by_class(generator):
            shares = random.dirichlet(np.full(parts, self.alpha))
            cuts = (shares.cumsum()[:-1] * len(of_class)).round().astype(np.int64)
            for mine, piece in zip(members, np.split(of_class, cuts), strict=True):
                mine.append(piece)
        return [_not_empty(samples.take(*mine), "dirichlet") for mine in members]


@dataclass(frozen=True)
class Labels(Partition):
    """Each source holds only `k` of the classes; with `target`, so does the target (Li et al., 2022)."""

    k: int = 3
    target: bool = False

    def __post_init__(self) -> None:
        if self.k < 1:
            raise invalid("option 'k' of partition 'labels'", self.k, "it must be at least 1")

    def deal(self, samples: Samples, parts: int, generator: Generator) -> list[Samples]:
        """Give client `i` class ``i mod classes`` and `k - 1` random others; clients share a class evenly."""
        import numpy as np

        labels = np.unique(samples.y)
        if self.k > len(labels):
            what = f"option 'k' of partition 'labels' is {self.k}, but there are {len(labels)} classes"
            raise ConfigError(what, thing="option 'k' of partition 'labels'", value=self.k)
        holders: list[list[int]] = [[] for _ in labels]
        for client in range(parts):
            first = client % len(labels)
            others = [i for i in range(len(labels)) if i != first]
            chosen = generator.permutation(len(others))[: self.k - 1].tolist()
            for index in (first, *(others[i] for i in chosen)):
                holders[index].append(client)
        members: list[list[NDArray[np.int64]]] = [[] for _ in range(parts)]
        for (_, of_class), clients in zip(samples.by_class(generator), holders, strict=True):
            for client, piece in zip(clients, np.array_split(of_class, max(len(clients), 1)), strict=False):
                members[client].append(piece)
        return [_not_empty(samples.take(*mine), "labels") for mine in members]


def _too_few(samples: Samples, clients: int) -> ConfigError:
    what = f"{len(samples)} samples cannot be dealt to {clients} clients"
    return ConfigError(what, thing="clients", value=clients, remedy="use fewer sources")


def _not_empty(samples: Samples, name: str) -> Samples:
    if not len(samples):
        what, remedy = "leaves a client without samples", "use fewer sources, or other options"
        raise ConfigError(f"partition '{name}' {what}", thing="partition", value=name, remedy=remedy)
    return samples


PARTITIONS: dict[str, type[Partition]] = {"even": Even, "dirichlet": Dirichlet, "labels": Labels}
"""The partitions by name. Add one with a class and a line here."""

EVEN = Even()


class Shift(ABC):
    """A way to make domains from a data set; the first line of a subclass's docstring describes it."""

    default_sources: ClassVar[int] = 3
    default_target: ClassVar[str] = "target"
    takes_partition: ClassVar[bool] = True

    def names(self, num_sources: int) -> list[str]:
        """Return the names of the domains, including the target's."""
        return [*(f"source-{i + 1}" for i in range(num_sources)), "target"]

    @abstractmethod
    def domains(
        self, data: Split, num_sources: int, generator: Generator, partition: Partition = EVEN
    ) -> list[Domain]:
        """Return the domains, in the order of `names`: `num_sources`, and the target."""

    def classes(self, data: Split) -> int:
        """Return the number of classes after the shift."""
        return data.classes


class TargetShift(Shift):
    """A shift that changes only the target's samples."""

    @abstractmethod
    def shifted(self, samples: Samples) -> Samples:
        """Return the samples as the target sees them."""

    def domains(
        self, data: Split, num_sources: int, generator: Generator, partition: Partition = EVEN
    ) -> list[Domain]:
        """Deal the training samples; all domains share the test samples, the target only its classes'."""
        sources, target = partition.deal_with_target(data.train, num_sources, generator)
        known = data.test.of_classes(target)
        *names, target_name = self.names(num_sources)
        return [
            *(Domain(name, part, data.test) for name, part in zip(names, sources, strict=True)),
            Domain(target_name, self.shifted(target), self.shifted(known)),
        ]


def _rotated(x: NDArray[np.float32], angle: float) -> NDArray[np.float32]:
    """Return images rotated by `angle` degrees; torchvision is not needed for right angles of squares."""
    import numpy as np

    turns, rest = divmod(angle, 90.0)
    if not rest and x.shape[-2] == x.shape[-1]:
        return np.ascontiguousarray(np.rot90(x, int(turns % 4), (-2, -1)))
    import torch
    from torchvision.transforms.v2.functional import InterpolationMode, rotate

    rotated: NDArray[np.float32] = rotate(
        torch.from_numpy(x), angle, interpolation=InterpolationMode.BILINEAR
    ).numpy()
    return rotated


@dataclass(frozen=True)
class Rotate(TargetShift):
    """The target's images are rotated by `angle` degrees and, with `invert`, inverted."""

    angle: float = 90.0
    invert: bool = True

    def __post_init__(self) -> None:
        if not math.isfinite(self.angle):
            raise invalid("option 'angle' of shift 'rotate'", self.angle, "give a number of degrees")

    def shifted(self, samples: Samples) -> Samples:
        """Return the samples rotated counter-clockwise, then inverted."""
        x = _rotated(samples.scaled().x, self.angle)
        return replace(samples, x=1 - x if self.invert else x)


@dataclass(frozen=True)
class Noise(TargetShift):
    """The target's images get Gaussian noise of deviation `std`, drawn at every access."""

    std: float = 0.4

    def __post_init__(self) -> None:
        if not 0 <= self.std < math.inf:
            raise invalid("option 'std' of shift 'noise'", self.std, "it must be at least 0")

    def shifted(self, samples: Samples) -> Samples:
        """Return the samples with noise."""
        return replace(samples, noise=self.std)


@dataclass(frozen=True)
class Label(Shift):
    """Sources hold a share `eta` of the first 3 classes and 1-eta of the others; the target holds the rest.

    Jiang et al., ICLR 2024, Section 5.1: with 0.5 there is no shift, with 0 no class is shared.
    """

    eta: float = 0.1
    FIRST: ClassVar[int] = 3

    def __post_init__(self) -> None:
        if not 0 <= self.eta <= 0.5:
            raise invalid("option 'eta' of shift 'label'", self.eta, "it must be in [0, 0.5]")

    def domains(
        self, data: Split, num_sources: int, generator: Generator, partition: Partition = EVEN
    ) -> list[Domain]:
        """Divide each class by `eta`, then deal the sources' share."""
        train, target_train = self._divide(data.train, generator)
        test, target_test = self._divide(data.test, generator)
        parts = partition.deal(train, num_sources, generator)
        *names, target = self.names(num_sources)
        domains = [Domain(name, part, test) for name, part in zip(names, parts, strict=True)]
        return [*domains, Domain(target, target_train, target_test)]

    def _divide(self, samples: Samples, generator: Generator) -> tuple[Samples, Samples]:
        sources, target = [], []
        for label, members in samples.by_class(generator):
            share = self.eta if label < self.FIRST else 1 - self.eta
            cut = round(share * len(members))
            sources.append(members[:cut])
            target.append(members[cut:])
        return samples.take(*sources), samples.take(*target)


@dataclass(frozen=True)
class Color(Shift):
    """As in Colored MNIST: a binary label, and a colour that agrees with it in 90%, 80% or 10% of cases.

    The label says whether the class is in the first half, and is flipped in 25% of cases; the image goes
    into one of two colour channels (Arjovsky et al., 2019, as DomainBed builds it).
    """

    default_sources: ClassVar[int] = 2
    default_target: ClassVar[str] = "-90%"
    takes_partition: ClassVar[bool] = False
    FLIPPED: ClassVar[float] = 0.25
    DISAGREEMENT: ClassVar[dict[str, float]] = {"+90%": 0.1, "+80%": 0.2, "-90%": 0.9}

    def names(self, num_sources: int) -> list[str]:
        """Return the three domains, named by how often the colour agrees with the label."""
        if num_sources != len(self.DISAGREEMENT) - 1:
            what = f"shift 'color' has 2 sources, but {num_sources} were asked for"
            raise ConfigError(what, thing="sources", value=num_sources)
        return list(self.DISAGREEMENT)

    def domains(
        self, data: Split, num_sources: int, generator: Generator, partition: Partition = EVEN
    ) -> list[Domain]:
        """Colour an even part of the samples for each domain."""
        names, half = self.names(num_sources), data.classes // 2
        parts, tests = (EVEN.deal(each, len(names), generator) for each in (data.train, data.test))
        return [
            Domain(
                name, self._colored(part, half, name, generator), self._colored(test, half, name, generator)
            )
            for name, part, test in zip(names, parts, tests, strict=True)
        ]

    def classes(self, data: Split) -> int:
        """Return 2, for the binary label."""
        return 2

    def _colored(self, samples: Samples, half: int, name: str, generator: Generator) -> Samples:
        import numpy as np

        def coins(probability: float) -> NDArray[np.int64]:
            return (generator.uniform(len(samples)) < probability).astype(np.int64)

        label = (samples.y < half).astype(np.int64) ^ coins(self.FLIPPED)
        color = label ^ coins(self.DISAGREEMENT[name])
        gray = samples.scaled().x.mean(axis=1)
        x = np.stack([gray * (color == at)[:, None, None] for at in (0, 1)], axis=1)
        return replace(samples, x=x, y=label)


def summary(thing: object) -> str:
    """Return the first line of an entry's docstring."""
    return (thing.__doc__ or "").splitlines()[0]


SHIFTS: dict[str, type[Shift]] = {"rotate": Rotate, "noise": Noise, "label": Label, "color": Color}
"""The shifts by name. Add one with a class and a line here."""
