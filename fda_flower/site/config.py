"""The names of a node configuration's entries, and the privacy settings among them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from math import inf
from typing import TYPE_CHECKING, Annotated, Any

from fda_flower.errors import ConfigError, check_choice, invalid, near
from fda_flower.names.options import Bounds, Positive, built_from, read_fields
from fda_flower.names.words import ROW

if TYPE_CHECKING:
    pass

RULES = (
    *("apps", "allow-methods", "allow-questions", "allow-batch-updates", "allow-records"),
    *("allow-models", "require-secure", "secure-with", "min-samples", "min-per-class"),
    *("min-cell", "max-epsilon"),
)
"""Entries of a node configuration that are rules; the last one belongs to `PrivacySettings`."""

MIN_CELL = 5
"""What counts of patients are multiples of, where a site says nothing else."""

OWN = ("domain", "role", "data-dir", "state-dir", "secure-key", "resident")
"""Entries that describe the node."""

FLOWERS = ("partition-id", "num-partitions", "gated", "checks-itself")
"""Entries that Flower, a SuperNode or `fda deploy check` adds."""

RESERVED = ("allow-", "require-", "min-", "max-", "dp-")
"""Prefixes of names that only rules and privacy settings have."""

FIRST = ("dp", "datadir", "statedir")
"""Beginnings of names, without their marks, that only this package's entries have."""

SHORT = {
    **{"clip": "dp-clip", "clipping": "dp-clip", "noise": "dp-noise", "noisemultiplier": "dp-noise"},
    **{"privacy": "dp-noise", "delta": "dp-delta", "epsilon": "max-epsilon", "methods": "allow-methods"},
    **{"batchupdates": "allow-batch-updates", "secure": "require-secure"},
}
"""By a name that another project hardly has, without its marks, the entry that is probably meant."""

ALIKE = 0.83
"""Least similarity of a misspelt name; Python's ratio of ``main`` and ``domain`` is 0.8, of ``samples`` and
``minsamples`` 0.82."""


def is_rule(name: str) -> bool:
    """Return whether an entry is a rule or a privacy setting."""
    return name in RULES or name.startswith("dp-")


def check_entries(node: Mapping[str, Any]) -> None:
    """Raise a `ConfigError` for an entry that is misspelt or an empty text.

    A Flower project may have entries of its own.
    """
    known = _known()
    for name, value in node.items():
        if name not in (*known, *FLOWERS) and is_misspelt(name, known):
            meant = SHORT.get(_plain(name))
            raise ConfigError(
                f"unknown entry '{name}' ({value!r}) of the node configuration"
                + (f" (did you mean '{meant}'?)" if meant else near(name, known)),
                thing="entry of the node configuration",
                value=name,
                remedy=f"write one of {', '.join(known)}",
            )
        if name in known and isinstance(value, str) and not value.strip():
            raise invalid(name, value, "give it a value, or leave it out")


@cache
def _known() -> tuple[str, ...]:
    return (*RULES, *OWN, *sorted(PrivacySettings.entries() - {*RULES}))


@lru_cache(maxsize=256)
def is_misspelt(name: str, known: tuple[str, ...]) -> bool:
    """Return whether an unknown name of an entry is probably meant to be a known one."""
    tables = (name, name.partition(".")[0], name.rpartition(".")[2])  # Flower joins a table's name by a point
    return (
        any(_plain(each, "-").startswith(RESERVED) or _plain(each) in SHORT for each in tables)
        or _plain(name).startswith(FIRST)
        or bool(get_close_matches(_plain(name), map(_plain, known), 1, ALIKE))
    )


def _plain(name: str, mark: str = "") -> str:
    """Return a name in lower case, with one mark between its words."""
    return re.sub(r"[\W_]+", mark, name.casefold().strip())


SITE, PATIENT = "site", "patient"
"""Units of privacy: all data of a site together, or each patient's."""

CLIP = 1.0
"""The limit for the norm of a patient's gradient. Features have numbers of about 1, so that nearly every
gradient is longer, and all patients count alike; Adam's steps do not depend on the limit."""

LEDGER = "privacy.json"
"""Name of the ledger in a node's ``state-dir``, after the node's own name."""

NONE, FIGURES, FULL = "none", "figures", "full"
"""Contents of a reply to an evaluation."""

Noise = Annotated[float, Bounds("0, or at least 0.001", lambda number: number == 0 or 1e-3 <= number < inf)]
Delta = Annotated[float, Bounds("between 0 and 1, such as 1e-5", lambda number: 0 < number < 1)]


@built_from(read_fields)
@dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """A site's privacy settings; by default replies are sent unchanged.

    Attributes
    ----------
    dp_unit : {"site", "patient"}
        The unit of protection: all of the site's data together, or each patient.
    dp_group : str
        Who is a patient, with the unit ``patient``: ``"row"``, each row or image, or a value of the data
        set's option ``group``, such as a column.
    dp_clip : float, optional
        ``C``, the limit on the norm of an update; with the unit ``patient`` on a patient's gradient,
        by default `CLIP`.
    dp_noise : float
        ``z``, the noise multiplier: the noise's standard deviation over the sensitivity. With the unit
        ``patient`` it may be 0, and then follows from `max_epsilon`.
    dp_delta : float
        ``δ`` of the guarantee.
    max_epsilon : float, optional
        The site's budget: it refuses a request that would raise its ``ε`` above this.
    dp_report : {"none", "figures", "full"}
        Contents of an evaluation, without noise: the number of samples, also the metrics, or everything.
    dp_open_target : bool
        With the unit ``patient``: whether a model that the site trains, and all that follows from it, leave
        without noise.
    dp_allow : str
        Metrics of train replies that leave without noise, such as ``"train-loss,contribution-*"``.

    Raises
    ------
    ConfigError
        If a value is invalid or would have no effect.

    Examples
    --------
    >>> PrivacySettings(dp_clip=1.0, dp_noise=2.0).on, PrivacySettings().on
    (True, False)
    """

    dp_unit: str = SITE
    dp_group: str = ""
    dp_clip: Positive | None = None
    dp_noise: Noise = 0.0
    dp_delta: Delta = 1e-5
    max_epsilon: Positive | None = None
    dp_report: str = FIGURES
    dp_open_target: bool = False
    dp_allow: str = ""

    def __post_init__(self) -> None:
        check_choice("dp-unit", self.dp_unit, (SITE, PATIENT))
        check_choice("dp-report", self.dp_report, (NONE, FIGURES, FULL))
        if self.max_epsilon is not None and self.dp_noise == 0 and not self.of_patients:
            why = "but dp-noise is 0, which has no finite ε"
            raise invalid("max-epsilon", self.max_epsilon, "give dp-noise, such as 1.0", why)
        if self.of_patients and not self.private:
            remedy = "give max-epsilon, such as 4, or dp-noise"
            raise invalid("dp-unit", self.dp_unit, remedy, "but dp-noise is 0, which protects nobody")
        self._check_group()
        if self.dp_open_target and not self.of_patients:
            why = "but dp-unit is site, which has noise on all that leaves"
            raise invalid("dp-open-target", True, "leave it out, or choose dp-unit patient", why)
        if not self.on:
            why = "but without dp-clip replies are sent unchanged"
            for each in fields(self):
                if (value := getattr(self, each.name)) != each.default:
                    raise invalid(each.name.replace("_", "-"), value, "give dp-clip, such as 1.0", why)

    def _check_group(self) -> None:
        if self.dp_group and not self.of_patients:
            why = "but dp-unit is site, and all rows are protected together"
            raise invalid("dp-group", self.dp_group, "leave it out, or choose dp-unit patient", why)
        if self.of_patients and not self.dp_group:
            remedy = (
                f'give "{ROW}" if each row or image is another patient, for a table the COLUMN with the '
                'patient, for images "folder" or a pattern of their names'
            )
            raise invalid("dp-group", self.dp_group, remedy, "and dp-unit patient needs to know who is one")

    @property
    def of_patients(self) -> bool:
        """Whether the unit of privacy is a patient rather than the site."""
        return self.dp_unit == PATIENT

    @property
    def on(self) -> bool:
        """Whether replies are changed at all."""
        return self.dp_clip is not None or self.of_patients

    @property
    def private(self) -> bool:
        """Whether replies get noise and thus have a finite ``ε``."""
        return self.dp_noise > 0 or self.chooses_noise

    @property
    def chooses_noise(self) -> bool:
        """Whether the noise follows from the budget."""
        return self.of_patients and self.dp_noise == 0 and self.max_epsilon is not None

    def allows(self, metric: str) -> bool:
        """Return whether the site lets a metric leave without noise."""
        patterns = (pattern.strip() for pattern in self.dp_allow.split(","))
        return any(fnmatchcase(metric, pattern) for pattern in patterns)

    @classmethod
    @cache
    def entries(cls) -> frozenset[str]:
        """Return the names of the settings in a node configuration."""
        return frozenset(each.name.replace("_", "-") for each in fields(cls))
