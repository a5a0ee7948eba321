"""The settings that define a federation's data, checked before anything is loaded."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fda_flower.datasets.amounts import Amount, read_amount
from fda_flower.datasets.folders import options_in, read_domains
from fda_flower.datasets.registry import DATASETS, Dataset, Options
from fda_flower.datasets.shifts import PARTITIONS, SHIFTS, Shift
from fda_flower.datasets.site_options import by_patient, options_at_site
from fda_flower.datasets.splitting import HeldOut, read_validation
from fda_flower.errors import ConfigError, invalid, unknown
from fda_flower.names.options import EVERY_SITE as EVERY_SITE
from fda_flower.names.options import Count, Natural, built_from, read_fields, read_options
from fda_flower.names.registry import resolve
from fda_flower.names.tasks import Task
from fda_flower.names.words import ROW

Pairs = tuple[tuple[str, str | int | float | bool], ...]


AMOUNTS = ("target_samples", "source_samples", "test_samples")
"""Settings that are numbers of samples."""


def _complete(kind: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a spec, with what follows from the data set, its folder and its shift."""
    values = read_fields(kind, arguments, {"num_sources": "sources"})
    if values["dataset"] not in DATASETS:
        raise unknown("data set", values["dataset"], DATASETS)
    entry = DATASETS[values["dataset"]]
    values["dataset_options"] = _dataset_options(entry, values)
    if values["partition"] not in PARTITIONS:
        raise unknown("partition", values["partition"], PARTITIONS)
    what, build = f"partition '{values['partition']}'", PARTITIONS[values["partition"]]
    values["partition_options"] = _read_options(what, build, values["partition_options"])
    if own := _own_domains(entry, values["dataset_options"]):
        _check_own(own, values)
    else:
        values |= _shift(entry, values)
    values |= {name: read_amount(name.replace("_", "-"), values[name]) for name in AMOUNTS}
    if values["target"] is None:
        values["target"] = own[-1] if own else SHIFTS[values["shift"]].default_target
    return values


def _dataset_options(entry: Dataset, values: Mapping[str, Any]) -> Pairs:
    """Return the options with those in the data's folder, and those that follow from it if it is here."""
    what, patients = f"data set '{values['dataset']}'", values["patients"]
    options = dict(values["dataset_options"])
    at_site = values["site"] is not None and not entry.public
    group = str(options.pop("group", "")) if patients and at_site else ""
    completed: dict[str, Any] = {}
    if at_site:
        options = _options_at_site(what, entry, values, options)
    else:
        folder = None if values["data_dir"] is None else Path(values["data_dir"]).expanduser()
        if entry.is_own:
            options = options_in(folder, entry.loader) | options
        if entry.complete is not None:
            complete = resolve(entry.complete)
            grouped = {"group": patients} if patients not in ("", ROW) else {}
            completed = dict(complete(folder, options | grouped, values["target"], values["only_sources"]))
            _check_number(what, entry, folder, completed)
    if patients:
        options = by_patient(what, entry.loader, patients, group, options, completed)
    options |= completed
    return _read_options(what, entry.loader, options, "data_dir", "seed") if options else ()  # it is heavy


def _check_number(what: str, entry: Dataset, folder: Path | None, completed: Options) -> None:
    """Raise a `ConfigError` if a folder has the data of one domain, which leaves no source."""
    names = read_domains(str(completed["domains"]), below=True) if "domains" in completed else ()
    if len(names) == 1:
        remedy = "a run needs two or more: put the data of the others there"
        if "domain" in inspect.signature(entry.loader).parameters:
            remedy += ", or name the column that says which row is whose by --dataset-option domain=COLUMN"
        said = f"{what} finds only one domain in '{folder}', '{names[0]}'"
        raise ConfigError(said, thing="data set", value=names[0], remedy=remedy)


def _options_at_site(
    what: str, entry: Dataset, values: Mapping[str, Any], options: Options
) -> dict[str, Any]:
    if not values["site"]:
        remedy = 'give it domain="...": a run does not say which data of a site are read'
        raise ConfigError("the node configuration has no domain", thing="domain", remedy=remedy)
    return options_at_site(what, entry.loader, values["data_dir"], options)


def _check_own(own: Sequence[str], values: Mapping[str, Any]) -> None:
    """Raise a `ConfigError` for settings that a data set with domains of its own does not have."""
    if len(own) == 1:
        remedy = "name two domains or more, separated by commas"
        raise invalid("option 'domains'", own[0], remedy, "which leaves no source besides the target")
    partition = None if values["partition"] == "even" else values["partition"]
    unused = {"shift": values["shift"], "sources": values["num_sources"], "partition": partition}
    why = f"but data set '{values['dataset']}' has domains of its own ({', '.join(own)})"
    for name, value in unused.items():
        if value is not None:
            raise invalid(name, value, "leave it out", why)
    if values["shift_options"]:
        what = f"data set '{values['dataset']}' takes no shift options"
        raise ConfigError(what, thing="data set", value=values["dataset"], remedy="leave them out")


def _shift(entry: Dataset, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shift with its options."""
    shift = entry.shift if values["shift"] is None else values["shift"]
    if shift not in SHIFTS:
        raise unknown("shift", shift, SHIFTS)
    options = _read_options(f"shift '{shift}'", SHIFTS[shift], values["shift_options"])
    if values["partition"] != "even" and not SHIFTS[shift].takes_partition:
        raise invalid("partition", values["partition"], "leave it out", f"but shift '{shift}' deals evenly")
    return {"shift": shift, "shift_options": options}


def _read_options(what: str, build: Callable[..., Any], options: Options | Pairs, *hidden: str) -> Pairs:
    return tuple(sorted(read_options(what, build, dict(options), set(hidden)).items()))


def _own_domains(entry: Dataset, options: Pairs) -> tuple[str, ...]:
    """Return a data set's own domains, fixed or named by its options."""
    if entry.domains is not None:
        return entry.domains
    named = dict(options)
    if "domains" not in named:
        raise ConfigError(
            "option 'domains' is missing: name the domains, separated by commas, or give the folder that "
            "holds them by --data-dir",
            thing="option 'domains'",
        )
    return read_domains(str(named["domains"]), below=True)


@built_from(_complete)
@dataclass(frozen=True)
class DataSpec:
    """The settings that define a federation's data; an invalid one raises a `ConfigError`.

    What follows from the data set and its shift is completed: options, the shift, the target.

    Attributes
    ----------
    dataset : str
        A name in `DATASETS`.
    shift : str, optional
        A name in `SHIFTS`. Default: the data set's; None for a data set with domains of its own.
    shift_options, dataset_options, partition_options : tuple
        Options as sorted pairs.
    num_sources : int, optional
        The number of sources. Default: the shift's.
    target : str, optional
        The target's domain, or `EVERY_SITE`. Default: the shift's, or the data set's last domain.
    target_samples : Amount, optional
        Labelled training samples of the target. Default: all.
    source_samples : Amount, optional
        Training samples of each source. Default: all.
    test_samples : Amount, optional
        Test samples of the target. Default: all.
    partition : str
        The partition that deals training samples, for a data set without domains of its own.
    only_sources : tuple of str, optional
        The sources that take part. Default: all.
    validation : str, optional
        The target's labelled samples held out from training: a share, or ``fold:I/K``. Default: none.
    seed : int
        Determines which client gets which samples.
    data_dir : str, optional
        The folder of data sets.
    site : str, optional
        The domain at whose site the data are read: then only its files count, and the site decides how its
        own data are read; see `fda_flower.datasets.site_options`. Empty for a site without a domain. Default:
        a machine that may have all domains.
    patients : str
        Who is a patient, where each is protected: `fda_flower.names.words.ROW`, or a value of the option
        ``group`` that counts in place of the run's. Default: nobody is.
    """

    dataset: str
    shift: str | None = None
    shift_options: Pairs = ()
    num_sources: Count | None = None
    target: str | None = None
    target_samples: Amount | None = None
    seed: Natural = 0
    data_dir: str | None = None
    dataset_options: Pairs = ()
    partition: str = "even"
    partition_options: Pairs = ()
    source_samples: Amount | None = None
    test_samples: Amount | None = None
    only_sources: tuple[str, ...] | None = None
    validation: str | None = None
    site: str | None = None
    patients: str = ""

    def __post_init__(self) -> None:
        PARTITIONS[self.partition](**dict(self.partition_options))
        _ = self.held_out
        self._check_target()
        sources = [name for name in self.all_names if name != self.target_name]
        if self.only_sources is not None and not self.only_sources:
            what, remedy = "only-sources names no source", f"choose some of {', '.join(sorted(sources))}"
            raise ConfigError(what, thing="only-sources", value=(), remedy=remedy)
        for name in self.only_sources or ():
            if name not in sources:
                raise unknown("source", name, sources)

    def _check_target(self) -> None:
        if not self.every_site:
            if self.target_name not in self.all_names:
                raise unknown("target domain", self.target_name, self.all_names)
            return
        if EVERY_SITE in self.all_names:
            why = "but a domain is called so"
            raise invalid("target", EVERY_SITE, "give the domain another name", why)
        if self.source_samples is not None and self.target_samples is not None:
            why = f"but target-samples is {self.target_samples}, and here both are a site's labels"
            raise invalid("source-samples", self.source_samples, "give one of them", why)
        if self.validation is not None:
            why = "but with target all there is one round, which leaves nothing to choose"
            raise invalid("validation", self.validation, "leave it out", why)

    @property
    def shift_object(self) -> Shift:
        """The shift with its options; raise a `ConfigError` if the data set has domains of its own."""
        if self.shift is None:
            raise ConfigError(f"data set '{self.dataset}' has no shift", thing="data set", value=self.dataset)
        return SHIFTS[self.shift](**dict(self.shift_options))

    @property
    def task(self) -> Task:
        """What a model predicts."""
        options = dict[str, Any](self.dataset_options)
        return "regression" if self._entry.regression else options.get("task", "classes")

    @property
    def mask(self) -> bool:
        """Whether a model predicts the pixels of a mask."""
        return self._entry.mask

    @property
    def lists_classes(self) -> bool:
        """Whether the names of the classes are known before the data are read, or public, so may leave."""
        return self.site is None or self._entry.public or "classes" in dict(self.dataset_options)

    @property
    def fitting_model(self) -> str:
        """The name of the network that fits the samples."""
        model = self._entry.model
        return model if isinstance(model, str) else model(dict(self.dataset_options))

    @property
    def held_out(self) -> HeldOut | None:
        """The samples held out; None for none."""
        return read_validation(self.validation)

    @property
    def _entry(self) -> Dataset:
        return DATASETS[self.dataset]

    @property
    def all_names(self) -> list[str]:
        """All domains, including those that do not take part."""
        if self.shift is None:
            return list(_own_domains(self._entry, self.dataset_options))
        shift = self.shift_object
        return shift.names(self.num_sources or shift.default_sources)

    @cached_property
    def domain_names(self) -> list[str]:
        """The domains that take part, in the order of Flower's partition ids."""
        return [
            name
            for name in self.all_names
            if self.only_sources is None or name == self.target_name or name in self.only_sources
        ]

    @property
    def every_site(self) -> bool:
        """Whether every site is a target."""
        return self.target == EVERY_SITE

    @property
    def target_name(self) -> str:
        """The target's domain, or `EVERY_SITE`."""
        return str(self.target)

    @cached_property
    def source_names(self) -> list[str]:
        """The sources' domains in alphabetical order, as in strategies."""
        return sorted(set(self.domain_names) - {self.target_name})
