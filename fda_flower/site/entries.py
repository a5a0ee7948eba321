"""The names in a node's configuration: a misspelt one would be a rule that nobody holds."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Any

from fda_flower.errors import ConfigError, invalid, near

RULES = (
    *("apps", "allow-methods", "allow-questions", "allow-batch-updates", "allow-records"),
    *("allow-models", "require-secure", "secure-with", "min-samples", "min-per-class", "max-epsilon"),
)
"""Entries of a node configuration that are rules; the last one belongs to `PrivacySettings`."""

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


def check_entries(node: Mapping[str, Any], words: frozenset[str]) -> None:
    """Raise a `ConfigError` for an entry that is misspelt or an empty text.

    `words` are the names of privacy settings. A Flower project may have entries of its own.
    """
    known = _known(words)
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
def _known(words: frozenset[str]) -> tuple[str, ...]:
    return (*RULES, *OWN, *sorted(words - {*RULES}))


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
