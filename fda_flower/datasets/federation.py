"""Loading of data: all domains of a federation, or the one domain of a site."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fda_flower.datasets.amounts import Amount, count
from fda_flower.datasets.domains import Domain, Split, Splits
from fda_flower.datasets.drawing import Generator
from fda_flower.datasets.few_samples import check_horizons
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.datasets.registry import DATASETS
from fda_flower.datasets.samples import Samples
from fda_flower.datasets.shifts import PARTITIONS
from fda_flower.datasets.spec import DataSpec, Pairs
from fda_flower.datasets.splitting import hold_out
from fda_flower.errors import ConfigError, unknown
from fda_flower.files import derive_seed
from fda_flower.names.options import join_categories, join_names


@dataclass(frozen=True, eq=False)
class FederatedDataset:
    """The data of all clients, or of one.

    Attributes
    ----------
    domains : dict[str, Domain]
        The domains by name.
    target : str
        The target's domain; not a domain's name if every site is a target.
    classes : int
        Number of classes, or of outputs if the task is a regression.
    shape : tuple[int, ...]
        Shape of one sample: channels, height and width of an image, or the number of features.
    class_names, features : tuple of str
        Names of the classes and of the features, in order; empty if there are none.
    """

    domains: dict[str, Domain]
    target: str
    classes: int
    shape: tuple[int, ...]
    class_names: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    def in_memory(self) -> "FederatedDataset":
        """Return a copy with image files decoded, if they fit into memory."""
        return replace(self, domains={name: domain.in_memory() for name, domain in self.domains.items()})


@lru_cache(maxsize=4)
def load_federation(spec: DataSpec) -> FederatedDataset:
    """Load, shift and deal the data of all clients; cached per process.

    Raise a `ConfigError` if a setting is invalid, or data are missing or damaged.
    """
    if spec.shift is None:
        sites = {name: load_domain(spec, name) for name in spec.domain_names}
        first = sites[spec.domain_names[0]]
        return replace(first, domains={name: site.domains[name] for name, site in sites.items()})
    data, generator = data_of(spec), _generator(spec, "domains")
    assert isinstance(data, Split)
    shift = spec.shift_object
    partition = PARTITIONS[spec.partition](**dict(spec.partition_options))
    data = replace(data, test=data.test.scaled())  # once for all domains, which share them
    dealt = shift.domains(data, len(spec.all_names) - 1, generator, partition)
    domains = {domain.name: domain for domain in dealt if domain.name in spec.domain_names}
    cut = {name: _cut(domain, spec, generator).scaled() for name, domain in domains.items()}
    return FederatedDataset(cut, spec.target_name, shift.classes(data), tuple(dealt[0].train.x.shape[1:]))


@lru_cache(maxsize=16)
def load_domain(spec: DataSpec, name: str) -> FederatedDataset:
    """Load one client's domain, with the same bits as in `load_federation`; cached per process.

    If the data set has domains of its own, only this domain's files are needed; a shift needs the whole data
    set. For errors see `load_federation`.
    """
    if name not in spec.domain_names:
        raise unknown("domain", name, spec.domain_names)
    if spec.shift is not None:
        return of_domain(load_federation(spec), name)
    try:
        data = data_of(spec)
        assert isinstance(data, Mapping)
        split = data[name]
        if isinstance(data, Splits):
            target = name if spec.every_site else spec.target_name
            data.check(target, [each for each in spec.domain_names if each != target])
    except ConfigError:
        # After an error, the next call reads the files again: the user may have corrected them.
        _load.cache_clear()
        raise
    whole = Domain(name, split.train, split.test, preparation=split.preparation, cut=split.cut)
    domain = _cut(whole, spec, _generator(spec, "domains"), split.class_names)
    shape = tuple(split.train.x.shape[1:])
    return FederatedDataset(
        {name: domain}, spec.target_name, split.classes, shape, split.class_names, split.features
    )


@lru_cache(maxsize=16)
def data_digests(spec: DataSpec) -> dict[str, str]:
    """Return a digest of each domain's own samples, as read; empty if a shift makes the domains.

    A run that continues compares them: files may have changed in between. Cached per process.
    """
    if spec.shift is not None:
        return {}
    data = data_of(spec)
    assert isinstance(data, Mapping)
    splits = {name: data[name] for name in spec.domain_names}
    return {name: f"{split.train.digest()}-{split.test.digest()}" for name, split in splits.items()}


def found_options(spec: DataSpec) -> dict[str, str]:
    """Return the options that a machine with all domains finds, and a site alone does not.

    These are the classes and a table's categories, where the data set has such options. With them a site
    reads its own domain as this machine does. For errors see `load_federation`.
    """
    known, federation = inspect.signature(DATASETS[spec.dataset].loader).parameters, load_federation(spec)
    prepared = next(iter(federation.domains.values())).preparation
    options = {}
    if "classes" in known and spec.task == "classes":
        options["classes"] = join_names(federation.class_names or map(str, range(federation.classes)))
    if "categories" in known and isinstance(prepared, TablePreparation) and prepared.categories:
        options["categories"] = join_categories(prepared.categories)
    return options


def of_domain(whole: FederatedDataset, name: str) -> FederatedDataset:
    """Return one client's part of a federation's data."""
    return replace(whole, domains={name: whole.domains[name]})


def forget() -> None:
    """Free the data cached in this process."""
    for cached in (load_federation, load_domain, data_digests, _load):
        cached.cache_clear()


def _generator(spec: DataSpec, *purpose: str) -> Generator:
    return Generator(derive_seed(spec.seed, *purpose))


def data_of(spec: DataSpec) -> Split | Mapping[str, Split]:
    """Return the data set of a spec, whose domains are read on access; cached until an error."""
    seed = derive_seed(spec.seed, "split")
    return _load(spec.dataset, spec.data_dir, seed, spec.dataset_options, spec.site)


@lru_cache(maxsize=1)
def _load(
    name: str, data_dir: str | None, seed: int, options: Pairs, site: str | None
) -> Split | Mapping[str, Split]:
    data = DATASETS[name].loader(Path(data_dir) if data_dir else None, seed, **dict(options))
    if site and isinstance(data, Splits):
        data.here = (site,)
    return data


def _cut(domain: Domain, spec: DataSpec, generator: Generator, classes: Sequence[str] = ()) -> Domain:
    """Cut a domain to the spec's numbers of samples, and hold out its validation samples.

    A number is of samples, also where several are of one group: some may then have labels and others none.
    """
    is_source, domain = domain.name != spec.target_name, replace(domain, mask=spec.mask)
    if spec.every_site or not is_source:
        labelled, rest = _dealt(domain.train, "target-samples", spec.target_samples, generator)
        unlabelled = domain.train.take(rest).without_labels() if len(rest) else None
        own = _generator(spec, "test-samples", domain.name)
        tested, _ = _dealt(domain.test, "test-samples", spec.test_samples, own)
        domain = replace(domain, train=labelled, unlabelled=unlabelled, test=tested)
    if is_source:
        own = _generator(spec, "source-samples", domain.name)
        labelled, _ = _dealt(domain.train, "source-samples", spec.source_samples, own)
        domain = replace(domain, train=labelled)
    if spec.held_out is not None and not is_source:
        seed = derive_seed(spec.seed, "validation", domain.name)
        train, held = hold_out(domain.train, spec.held_out, seed, f"domain '{domain.name}'", classes)
        domain = replace(domain, train=train, validation=held)
    check_horizons(domain.name, domain.train, is_source)
    for samples, what in ((domain.train, "train"), (domain.test, "test")):
        if not len(samples) and not (spec.every_site and what == "test"):
            said = f"domain '{domain.name}' has no sample to {what} on"
            raise ConfigError(said, thing="domain", value=domain.name, remedy="give it more")
    return domain


def _dealt(
    samples: Samples, name: str, amount: Amount | None, generator: Generator
) -> tuple[Samples, NDArray[np.int64]]:
    """Return a random amount of samples, and the positions of the others."""
    if amount is None:
        return samples, np.empty(0, np.int64)
    wanted = count(name, amount, len(samples))
    order = samples.order(generator)
    return samples.take(order[:wanted]), order[wanted:]
