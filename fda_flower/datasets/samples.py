"""Labelled samples: selection, concatenation, batches."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fda_flower.aggregation import Outcomes
from fda_flower.errors import ConfigError
from fda_flower.names.tasks import Task


@dataclass(frozen=True, eq=False)
class Samples:
    """Labelled images, or rows of features.

    Attributes
    ----------
    x : Tensor
        Images in [0, 1], float32, shape ``(n, channels, height, width)``, or uint8 in [0, 255]; or features,
        float32, shape ``(n, features)``; or an object with the methods of `ImageFiles`.
    y : Tensor
        Classes, int64, shape ``(n,)``; or, if the task is a regression, float32, ``(n, outputs)``; or what
        follows from `outcomes`.
    noise : float
        Standard deviation of the Gaussian noise that every access draws and adds.
    groups : Tensor, optional
        The group of each sample, such as a patient, int64, shape ``(n,)``; groups are held out as a whole.
        Default: every sample is its own.
    what : str, optional
        What `y` says, a name of `fda_flower.names.tasks.TASKS`. Default: integers are classes, and real
        numbers a regression's.
    outcomes : Outcomes, optional
        What happened to patients, from which `y` follows anew whenever some are selected, as each label
        depends on all of them.
    values : Tensor, optional
        The numbers of a table's columns as they were read, on the CPU: float64, shape ``(n, columns)``, NaN
        where one is missing.
    """

    x: Tensor
    y: Tensor
    noise: float = 0.0
    groups: Tensor | None = None
    what: Task | None = None
    outcomes: Outcomes | None = None
    values: Tensor | None = None

    @classmethod
    def of_outcomes(cls, x: Tensor, outcomes: Outcomes, **fields: Any) -> "Samples":
        """Return the samples of patients, with other `fields`."""
        return cls(x, _labels(outcomes, x.device), what="survival", outcomes=outcomes, **fields)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def task(self) -> Task:
        """What a model predicts of them."""
        return self.what or ("regression" if self.y.is_floating_point() else "classes")

    @property
    def truth(self) -> Any:
        """What outputs are compared with: the outcomes if there are any, else `y` as an array."""
        return self.y.cpu().numpy() if self.outcomes is None else self.outcomes

    @property
    def units(self) -> int:
        """The number of independent units: of groups, such as patients, or else of samples."""
        return len(self) if self.groups is None else len(torch.unique(self.groups))

    def take(self, *positions: Tensor) -> "Samples":
        """Return the samples at positions, one tensor of positions, on any device, after the other."""
        indices = torch.cat(positions).to(self.y.device)
        groups = None if self.groups is None else self.groups[indices]
        values = None if self.values is None else self.values[indices.cpu()]
        outcomes = None if self.outcomes is None else self.outcomes.take(indices.cpu().numpy())
        y = self.y[indices] if outcomes is None else _labels(outcomes, self.y.device)
        x = self.x.index_select(0, indices)
        return replace(self, x=x, y=y, groups=groups, outcomes=outcomes, values=values)

    def joined(self, others: "Samples") -> "Samples":
        """Return these samples followed by others of the same kind, with the noise of these.

        Raise a `ConfigError` if the groups of one part alone are known: then nobody knows those of both.
        """
        if (self.groups is None) != (others.groups is None):
            why = "some samples have groups, such as patients, and the others have none"
            raise ConfigError(why, thing="groups", remedy="give the groups of all, or of none")
        x = torch.cat([self.x, others.x]) if isinstance(self.x, Tensor) else self.x.joined(others.x)
        groups, values = (
            None if one is None or two is None else torch.cat([one, two])
            for one, two in ((self.groups, others.groups), (self.values, others.values))
        )
        y, outcomes = torch.cat([self.y, others.y]), self.outcomes
        if outcomes is not None and others.outcomes is not None:
            outcomes = outcomes.joined(others.outcomes)
            y = _labels(outcomes, self.y.device)
        return replace(self, x=x, y=y, groups=groups, outcomes=outcomes, values=values)

    def digest(self) -> str:
        """Return a digest of all numbers, labels and groups; image files count by their names and sizes."""
        x: Any = self.x
        inputs = x.cpu().numpy().tobytes() if isinstance(x, Tensor) else x.listing()
        others = b"".join(each.cpu().numpy().tobytes() for each in (self.y, self.groups) if each is not None)
        if self.outcomes is not None:
            others += self.outcomes.times.tobytes() + self.outcomes.events.tobytes()
        return hashlib.blake2b(inputs + others, digest_size=8).hexdigest()

    def order(self, generator: torch.Generator) -> Tensor:
        """Return all positions in random order."""
        return torch.randperm(len(self), generator=generator)

    def by_class(self, generator: torch.Generator) -> Iterator[tuple[int, Tensor]]:
        """Yield each class present, by number, with its samples' positions in random order."""
        for label in torch.unique(self.y).tolist():
            members = (self.y == label).nonzero().flatten()
            yield label, members[torch.randperm(len(members), generator=generator)]

    def of_classes(self, others: "Samples") -> "Samples":
        """Return the samples whose class occurs in `others`."""
        return self.take(torch.isin(self.y, others.y).nonzero().flatten())

    def without_labels(self) -> "Samples":
        """Return the samples without labels: ``y`` is -1, or NaN for a regression."""
        y = torch.full_like(self.y, torch.nan if self.y.is_floating_point() else -1)
        return replace(self, y=y, outcomes=None)

    def scaled(self) -> "Samples":
        """Return the samples with images of uint8 in [0, 1]."""
        return replace(self, x=self.x.float().div_(255)) if self.x.dtype == torch.uint8 else self

    def in_memory(self) -> "Samples":
        """Return the samples with image files decoded, if they fit into memory."""
        x: Any = self.x
        return self if isinstance(x, Tensor) else replace(self, x=x.in_memory)

    def to(self, device: torch.device) -> "Samples":
        """Return the samples on a device."""
        groups = None if self.groups is None else self.groups.to(device)
        return replace(self, x=self.x.to(device), y=self.y.to(device), groups=groups)

    def batches(
        self, size: int, generator: torch.Generator, shuffle: bool = False, cut: str = "even"
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the samples once, in batches of at most `size` samples.

        Without shuffling, noise or a conversion from uint8, a batch is the samples themselves, not a copy:
        a network must not write into it.

        Parameters
        ----------
        size : int
            The most samples in a batch.
        generator : torch.Generator
            On the CPU; determines the order, the same on every device, and the noise.
        shuffle : bool
            Whether to shuffle the samples.
        cut : {"even", "keep-last", "drop-last"}
            ``"even"``: the fewest batches, of nearly equal size, as the estimators of auto-weighting assume;
            none has a single sample, on which BatchNorm cannot train. Else batches of exactly `size`, and a
            rest, which ``"drop-last"`` drops unless it is the only batch.

        Raises
        ------
        ConfigError
            If there are no samples.
        """
        if not len(self):
            remedy = "give the client labelled samples to train on and others to test on, or leave it out"
            raise ConfigError("a client has no samples", thing="samples", value=0, remedy=remedy)
        positions = (self.order(generator) if shuffle else torch.arange(len(self))).to(self.y.device)
        number = -(-len(self) // size)
        parts = positions.tensor_split(number) if cut == "even" else torch.split(positions, size)
        if cut == "drop-last" and len(parts) > 1 and len(parts[-1]) < size:
            parts = parts[:-1]
        noisy = on_device(generator, self.y.device) if self.noise else generator
        begin = 0
        for part in parts:
            where = part if shuffle else slice(begin, begin + len(part))
            x, y, begin = _picked(self.x, where), _picked(self.y, where), begin + len(part)
            if x.dtype == torch.uint8:
                x = x.float() / 255
            if self.noise:
                x = x + self.noise * torch.randn(x.shape, generator=noisy, device=x.device)
            yield x, y


def _labels(outcomes: Outcomes, device: torch.device) -> Tensor:
    return torch.from_numpy(outcomes.labels).float().to(device)


def _picked(values: Tensor, where: Tensor | slice) -> Tensor:
    """Return ``values[where]``; for positions by `index_select`, in half the time."""
    if isinstance(values, Tensor) and isinstance(where, Tensor):
        return values.index_select(0, where)
    return values[where]


def on_device(generator: torch.Generator, device: torch.device) -> torch.Generator:
    """Return a generator of random numbers on a device.

    On the CPU it is the given one, which seeds a GPU's. All GPUs draw the same numbers: their generator
    counts (Philox; Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011).
    """
    if device.type == "cpu":
        return generator
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    return torch.Generator(device).manual_seed(seed)
