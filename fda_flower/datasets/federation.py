"""The one way in for the data: from names and numbers to the domains of a federation."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from fda_flower.datasets import digits, mnist
from fda_flower.datasets.samples import Domain, Samples, Split
from fda_flower.datasets.shifts import SHIFTS, Shift, shuffled
from fda_flower.errors import ConfigError, unknown
from fda_flower.options import read_options
from fda_flower.seeds import derive_seed


@dataclass(frozen=True)
class Dataset:
    """A data set that can be named.

    Attributes
    ----------
    summary : str
        One line for ``fda list``.
    load : callable
        From the folder of data and a seed to its samples.
    """

    summary: str
    load: Callable[[Path | None, int], Split]


DATASETS: dict[str, Dataset] = {
    "digits": Dataset("scikit-learn's 1,797 handwritten digits, 8x8; no download", digits.load),
    "fashion-mnist": Dataset("70,000 grey images of clothing, 28x28", mnist.load_fashion_mnist),
    "mnist": Dataset("70,000 handwritten digits, 28x28", mnist.load_mnist),
}
"""The data sets by name. A new one is a file with a `load`, and one line here."""


@dataclass(frozen=True)
class DataSpec:
    """What defines a federation's data.

    Attributes
    ----------
    dataset, shift : str
        Names in the registries.
    shift_options : tuple
        Options of the shift, as sorted pairs.
    num_sources : int, optional
        Default: the shift's.
    target : str, optional
        The target's domain. Default: the shift's.
    target_samples : int, optional
        Labelled samples of the target. Default: all it has.
    seed : int
        Decides who gets which samples.
    data_dir : str, optional
        The folder of data sets.
    """

    dataset: str
    shift: str
    shift_options: tuple[tuple[str, str | int | float | bool], ...] = ()
    num_sources: int | None = None
    target: str | None = None
    target_samples: int | None = None
    seed: int = 0
    data_dir: str | None = None

    def __post_init__(self) -> None:
        if self.dataset not in DATASETS:
            raise unknown("data set", self.dataset, DATASETS)
        if self.shift not in SHIFTS:
            raise unknown("shift", self.shift, SHIFTS)
        options = read_options(f"shift '{self.shift}'", SHIFTS[self.shift], dict(self.shift_options), set())
        object.__setattr__(self, "shift_options", tuple(sorted(options.items())))
        if self.num_sources is not None and self.num_sources < 1:
            raise ConfigError(f"sources is {self.num_sources}, at least 1 is needed")
        if self.target_samples is not None and self.target_samples < 1:
            raise ConfigError(f"target-samples is {self.target_samples}, at least 1 is needed")
        if self.target_name not in self.domain_names:
            raise unknown("target domain", self.target_name, self.domain_names)

    @property
    def shift_object(self) -> Shift:
        """The shift with its options."""
        return SHIFTS[self.shift](**dict(self.shift_options))

    @property
    def domain_names(self) -> list[str]:
        """The domains, in the order of Flower's partition ids."""
        shift = self.shift_object
        return shift.names(self.num_sources or shift.default_sources)

    @property
    def target_name(self) -> str:
        """The target's domain."""
        return self.target or SHIFTS[self.shift].default_target

    @property
    def source_names(self) -> list[str]:
        """The sources' domains, in alphabetical order, as strategies have them."""
        return sorted(set(self.domain_names) - {self.target_name})


@dataclass(frozen=True)
class Federation:
    """The data of all clients.

    Attributes
    ----------
    domains : dict[str, Domain]
        By name; the target's has only its labelled samples to train on.
    target : str
        The name of the target's domain.
    classes : int
        Number of classes.
    shape : tuple[int, ...]
        Of one image: channels, height, width.
    """

    domains: dict[str, Domain]
    target: str
    classes: int
    shape: tuple[int, ...]


@lru_cache(maxsize=4)
def load_federation(spec: DataSpec) -> Federation:
    """Load, shift and deal the data; cached per process.

    Raises
    ------
    ConfigError
        If a name or number cannot work.
    """
    data = _load(spec.dataset, spec.data_dir, derive_seed(spec.seed, "split"))
    shift = spec.shift_object
    generator = torch.Generator().manual_seed(derive_seed(spec.seed, "domains"))
    domains = shift.domains(data, len(spec.domain_names) - 1, generator)
    named = {domain.name: domain for domain in domains}
    target = named[spec.target_name]
    if spec.target_samples is not None:
        labelled = _choose(target.train, spec.target_samples, generator)
        named[target.name] = Domain(target.name, labelled, target.test)
    shape = tuple(target.train.x.shape[1:])
    return Federation(named, target.name, shift.classes(data), shape)


@lru_cache(maxsize=1)
def _load(name: str, data_dir: str | None, seed: int) -> Split:
    return DATASETS[name].load(Path(data_dir) if data_dir else None, seed)


def _choose(samples: Samples, count: int, generator: torch.Generator) -> Samples:
    if count > len(samples):
        raise ConfigError(f"target-samples is {count}, but the target has {len(samples)}: ask for fewer")
    return samples.take(shuffled(torch.arange(len(samples)), generator)[:count])
