"""The one way in for the data: from names and numbers to the domains of a federation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from fda_flower.datasets.amounts import Amount, count, read_amount
from fda_flower.datasets.partitions import PARTITIONS, shuffled
from fda_flower.datasets.registry import DATASETS
from fda_flower.datasets.samples import Domain, Split
from fda_flower.datasets.shifts import SHIFTS, Shift
from fda_flower.errors import ConfigError, unknown
from fda_flower.options import read_options
from fda_flower.seeds import derive_seed

Pairs = tuple[tuple[str, str | int | float | bool], ...]


@dataclass(frozen=True)
class DataSpec:
    """What defines a federation's data.

    Attributes
    ----------
    dataset : str
        A name in the registry.
    shift : str, optional
        A name in the registry. Default: the data set's; None where its domains are its own.
    shift_options, dataset_options, partition_options : tuple
        Options as sorted pairs.
    num_sources : int, optional
        Default: the shift's.
    target : str, optional
        The target's domain. Default: the shift's, or the last of the data set's own.
    target_samples : Amount, optional
        Labelled samples of the target. Default: all it has to train on.
    source_samples : Amount, optional
        Samples of each source. Default: all it has.
    partition : str
        How training samples are dealt to the clients of a data set without domains of its own.
    only_sources : tuple of str, optional
        The sources that take part. Default: all.
    seed : int
        Decides who gets which samples.
    data_dir : str, optional
        The folder of data sets.

    Raises
    ------
    ConfigError
        If a name or number cannot work.
    """

    dataset: str
    shift: str | None = None
    shift_options: Pairs = ()
    num_sources: int | None = None
    target: str | None = None
    target_samples: Amount | None = None
    seed: int = 0
    data_dir: str | None = None
    dataset_options: Pairs = ()
    partition: str = "even"
    partition_options: Pairs = ()
    source_samples: Amount | None = None
    only_sources: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.dataset not in DATASETS:
            raise unknown("data set", self.dataset, DATASETS)
        load = DATASETS[self.dataset].load
        self._read("dataset_options", f"data set '{self.dataset}'", load, "data_dir", "seed")
        if self.partition not in PARTITIONS:
            raise unknown("partition", self.partition, PARTITIONS)
        self._read("partition_options", f"partition '{self.partition}'", PARTITIONS[self.partition])
        PARTITIONS[self.partition](**dict(self.partition_options))
        self._check_shift()
        if self.num_sources is not None and self.num_sources < 1:
            raise ConfigError(f"sources is {self.num_sources}, at least 1 is needed")
        for name in ("target_samples", "source_samples"):
            called = name.replace("_", "-")
            object.__setattr__(self, name, read_amount(called, getattr(self, name)))
        if self.target_name not in self._all_names:
            raise unknown("target domain", self.target_name, self._all_names)
        sources = [name for name in self._all_names if name != self.target_name]
        if self.only_sources is not None and not self.only_sources:
            raise ConfigError(f"only-sources names no source: choose some of {', '.join(sorted(sources))}")
        for name in self.only_sources or ():
            if name not in sources:
                raise unknown("source", name, sources)

    def _check_shift(self) -> None:
        dataset = DATASETS[self.dataset]
        if dataset.domains:
            for name, given, without in (
                ("shift", self.shift, None),
                ("sources", self.num_sources, None),
                ("partition", self.partition, "even"),
            ):
                if given != without:
                    raise ConfigError(
                        f"{name} is {given!r}, but data set '{self.dataset}' has domains of its own "
                        f"({', '.join(dataset.domains)}): leave it out"
                    )
            if self.shift_options:
                raise ConfigError(f"data set '{self.dataset}' takes no shift, and no options of one")
            return
        shift = dataset.shift if self.shift is None else self.shift
        if shift not in SHIFTS:
            raise unknown("shift", shift, SHIFTS)
        object.__setattr__(self, "shift", shift)
        self._read("shift_options", f"shift '{shift}'", SHIFTS[shift])
        if self.partition != "even" and not SHIFTS[shift].takes_partition:
            raise ConfigError(
                f"partition is '{self.partition}', but shift '{shift}' deals evenly: leave it out"
            )

    def _read(self, name: str, what: str, build: Callable[..., Any], *hidden: str) -> None:
        options = read_options(what, build, dict(getattr(self, name)), set(hidden))
        object.__setattr__(self, name, tuple(sorted(options.items())))

    @property
    def shift_object(self) -> Shift:
        """The shift with its options.

        Raises
        ------
        ConfigError
            If the data set's domains are its own.
        """
        if self.shift is None:
            raise ConfigError(f"data set '{self.dataset}' has no shift")
        return SHIFTS[self.shift](**dict(self.shift_options))

    @property
    def _all_names(self) -> list[str]:
        if self.shift is None:
            return list(DATASETS[self.dataset].domains)
        shift = self.shift_object
        return shift.names(self.num_sources or shift.default_sources)

    @property
    def domain_names(self) -> list[str]:
        """The domains that take part, in the order of Flower's partition ids."""
        return [
            name
            for name in self._all_names
            if self.only_sources is None or name == self.target_name or name in self.only_sources
        ]

    @property
    def target_name(self) -> str:
        """The target's domain."""
        if self.target is not None:
            return self.target
        own = DATASETS[self.dataset].domains
        return own[-1] if own else SHIFTS[str(self.shift)].default_target

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
        Number of classes; of outputs where the task is a regression.
    shape : tuple[int, ...]
        Of one sample: channels, height, width of an image, or the number of features.
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
        If a name or number cannot work, or data are missing or damaged.
    """
    data = _load(spec.dataset, spec.data_dir, derive_seed(spec.seed, "split"), spec.dataset_options)
    generator = torch.Generator().manual_seed(derive_seed(spec.seed, "domains"))
    if isinstance(data, Split):
        shift = spec.shift_object
        partition = PARTITIONS[spec.partition](**dict(spec.partition_options))
        sources = len(spec._all_names) - 1
        domains = shift.domains(data, sources, generator, partition)
        classes = shift.classes(data)
    else:
        domains = [Domain(name, split.train, split.test) for name, split in data.items()]
        classes = next(iter(data.values())).classes
    named = {domain.name: domain for domain in domains if domain.name in spec.domain_names}
    target = named[spec.target_name]
    if spec.target_samples is not None:
        named[target.name] = _cut(target, "target-samples", spec.target_samples, generator)
    if spec.source_samples is not None:
        for name in named.keys() - {target.name}:
            named[name] = _cut(
                named[name],
                "source-samples",
                spec.source_samples,
                torch.Generator().manual_seed(derive_seed(spec.seed, "source-samples", name)),
            )
    for domain in named.values():
        if not (len(domain.train) and len(domain.test)):
            what = "train" if not len(domain.train) else "test"
            raise ConfigError(f"domain '{domain.name}' has no sample to {what} on: give it more")
    return Federation(named, target.name, classes, tuple(target.train.x.shape[1:]))


@lru_cache(maxsize=1)
def _load(name: str, data_dir: str | None, seed: int, options: Pairs) -> Split | Mapping[str, Split]:
    return DATASETS[name].load(Path(data_dir) if data_dir else None, seed, **dict(options))


def _cut(domain: Domain, name: str, amount: Amount, generator: torch.Generator) -> Domain:
    wanted = count(name, amount, len(domain.train))
    kept = shuffled(torch.arange(len(domain.train)), generator)[:wanted]
    return Domain(domain.name, domain.train.take(kept), domain.test)
