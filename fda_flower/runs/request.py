"""What is asked of a run: its settings, read by their types, before anything follows from them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fda_flower.datasets.amounts import read_amount
from fda_flower.datasets.registry import DATASETS
from fda_flower.datasets.shifts import PARTITIONS, SHIFTS
from fda_flower.datasets.spec import AMOUNTS, EVERY_SITE
from fda_flower.datasets.splitting import HeldOut, read_validation
from fda_flower.errors import ConfigError, invalid, unknown
from fda_flower.models import MODELS
from fda_flower.models.own import check_at_site
from fda_flower.names.options import (
    as_text,
    as_written,
    built_from,
    read_fields,
    read_options,
    split_options,
)
from fda_flower.names.registry import known_name
from fda_flower.runs.methods import run_names
from fda_flower.runs.settings import AUTO, OPTION_FIELDS, SETTINGS, OptionPairs, RunSettings, as_flower
from fda_flower.site.config import PrivacySettings

if TYPE_CHECKING:
    from fda_flower.site import Site

NAMED: Mapping[str, Callable[[], Iterable[str]]] = {
    "method": lambda: (AUTO, *run_names()),
    "dataset": lambda: DATASETS,
    "shift": lambda: SHIFTS,
    "partition": lambda: PARTITIONS,
    "model": lambda: MODELS,
}
"""Settings that are names, and the valid names; case does not matter."""


def _read(kind: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request; raise a `ConfigError` on a value of another type."""
    for each in SETTINGS:
        if each.plain and arguments[each.name] is None and not each.optional:
            raise invalid(each.name, None, "give a value, or leave it out")
    plain = {e.name: arguments[e.name] for e in SETTINGS if e.plain and arguments[e.name] is not None}
    values = {**arguments, **read_options("the run", RunSettings, plain, set())}
    for name, names in NAMED.items():
        if values[name] is not None:
            values[name] = known_name(values[name], names())
    values = read_fields(kind, values)
    values |= {name: _read_pairs(name, values[name]) for name in OPTION_FIELDS}
    values |= {name: read_amount(name.replace("_", "-"), values[name]) for name in AMOUNTS}
    held_out = read_validation(values["validation"])
    values["validation"] = None if held_out is None else str(held_out)
    values["only_sources"] = _read_sources(values["only_sources"])
    if isinstance(values["beta"], str):
        values["beta"] = parse_beta(values["beta"])
    if isinstance(values["beta"], list):
        values["beta"] = tuple(values["beta"])
    if isinstance(values["beta"], Mapping):
        raise invalid("beta", values["beta"], "give one number, or one for each source in order")
    return values


def _read_pairs(name: str, options: Any) -> OptionPairs:
    try:
        read = split_options(options) if isinstance(options, str) else dict(options)
        return tuple(sorted(read.items()))
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        remedy = "give options by name, such as {'mu': 0.1}"
        raise invalid(name.replace("_", "-"), options, remedy) from error


def _read_sources(names: Any) -> tuple[str, ...] | None:
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    if names is None:
        return None
    if not isinstance(names, Sequence):
        raise invalid("only-sources", names, "give a list of domains")
    try:
        return tuple(map(as_text, names))
    except TypeError as error:
        raise invalid("only-sources", names, f"{error}: a list of domains") from error


def parse_beta(text: str) -> float | tuple[float, ...]:
    """Parse ``"0.5"``, or ``"0.2,0.3,0.5"`` with one number per source."""
    try:
        values = tuple(float(as_written(part)) for part in text.split(","))
    except ValueError:
        raise invalid("beta", text, "give a number, or one for each source separated by commas") from None
    return values[0] if len(values) == 1 else values


@built_from(_read)
@dataclass(frozen=True, kw_only=True)
class Request(RunSettings):
    """The settings of a run as somebody asks for them; nothing is loaded, completed or compared.

    Every setting may also be given as text, as on the command line or in Flower's configuration. A value of
    another type raises a `ConfigError`; `fda_flower.RunConfig.of` completes and checks the rest.

    `site` and `patients` are no settings: they say whose view of the run this is, as in `DataSpec`. Without
    `patients`, these are of the run's own settings.
    """

    site: str | None = None
    patients: str | None = None

    @property
    def every_site(self) -> bool:
        """Whether every site is a target."""
        return self.target == EVERY_SITE

    @property
    def held_out(self) -> HeldOut | None:
        """The labels held out for validation; None for none."""
        return read_validation(self.validation)

    @cached_property
    def privacy(self) -> PrivacySettings:
        """The privacy of the clients' replies."""
        return PrivacySettings(**{each.name: getattr(self, each.name) for each in fields(PrivacySettings)})

    @property
    def values(self) -> dict[str, Any]:
        """All fields by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def settings(self) -> dict[str, Any]:
        """Return all settings by name, as JSON values; the data folder is absolute."""
        values = {each.name: getattr(self, each.name) for each in SETTINGS}
        values |= {name: dict(values[name]) for name in OPTION_FIELDS}
        folder = None if self.data_dir is None else str(Path(self.data_dir).expanduser().absolute())
        return values | {"data_dir": folder}

    def to_flower(self) -> dict[str, Any]:
        """Return the settings as a Flower run configuration: text and numbers by kebab-case names."""
        return {each.key: as_flower(getattr(self, each.name)) for each in SETTINGS}

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> Self:
        """Read settings by name; raise a `ConfigError` for an unknown name."""
        names = [each.name for each in SETTINGS]
        for name in settings:
            if name not in names:
                raise unknown("setting", name, names)
        return cls(**settings)

    @classmethod
    def from_flower(cls, config: Mapping[str, Any], site: "Site | None" = None) -> Self:
        """Read a Flower run configuration, with a `site` as `at_site` does; ignore unknown keys."""
        known = {key.replace("-", "_"): value for key, value in config.items()}
        settings: dict[str, Any] = {
            each.name: None if known[each.name] == "" else known[each.name]
            for each in SETTINGS
            if each.name in known and (known[each.name] != "" or each.optional)
        }
        return cls.at_site(settings, site)

    @classmethod
    def at_site(cls, settings: Mapping[str, Any], site: "Site | None") -> Self:
        """Read settings by name as a site reads them.

        A site's data are in its own ``data-dir``, whatever the run says, and no more of a run's model is
        imported or read than the site allows. Without a site, or for a simulated node, it is the run itself.
        """
        if site is None or not site.is_site:
            return cls(**settings)
        options = settings.get("model_options", ())
        options = split_options(options) if isinstance(options, str) else dict(options)
        check_at_site(str(settings.get("model", AUTO)), options, site.rules.allow_models)
        patients = None if site.privacy is None else site.privacy.dp_group
        own = {"data_dir": site.data_dir, "site": site.domain or "", "patients": patients}
        run = cls(**{**settings, **own})
        if patients is None and run.dp_group and not DATASETS[run.dataset].public:
            remedy = "let the site's node configuration have dp-unit and dp-group"
            raise invalid(
                "dp-group", run.dp_group, remedy, "but at a site the run does not say who is a patient"
            )
        return run
