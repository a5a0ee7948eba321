"""A node as its configuration describes it: here alone the configuration is read, once and whole."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context

from fda_flower.errors import ConfigError, check_choice, invalid, own_files, unknown
from fda_flower.files import as_file_name
from fda_flower.names.options import read_options
from fda_flower.site.batches import LEVELS
from fda_flower.site.config import LEDGER, MIN_CELL, PrivacySettings, check_entries, is_rule
from fda_flower.site.records import ALLOW_RECORDS, RecordRule
from fda_flower.site.rules import Rules
from fda_flower.site.secure_with import SECURE_KEY, SECURE_WITH, read_secure_with
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.protocol import GATED


@dataclass(frozen=True, eq=False)
class Site:
    """A node: who it is, and what it requires.

    Attributes
    ----------
    node : Mapping
        The node configuration; entries of other packages are ignored.
    node_id : int
        Flower's id of the node.
    terms : Rules or ConfigError
        What the node requires, or why its configuration is invalid; see `rules`.
    domain, partition, role, data_dir : str, optional
        The entries ``domain``, ``partition-id``, ``role`` and ``data-dir``.
    state_dir, secure_key : Path, optional
        The folder for the site's private files, ``state-dir``, and the key with which it signs.
    resident : bool
        Whether the node has a resident worker.
    gated : bool
        Whether the SuperNode itself holds the site's rules and logs what leaves.
    checks_itself : bool
        Whether the node's own operator asks, before a run, and may read all words of its errors.
    in_force : Mapping
        The entries that are rules or privacy settings, by name.

    Examples
    --------
    >>> site = Site.read({"domain": "north", "state-dir": "/srv/state", "min-samples": 100}, 7)
    >>> site.label, site.role, site.rules.min_samples
    ('north', None, 100)
    >>> Site.read({"allow-method": "fedavg"}).rules  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fda_flower.errors.ConfigError: unknown entry 'allow-method' ('fedavg') of the node configuration ...
    """

    node: Mapping[str, Any]
    node_id: int
    terms: Rules | ConfigError
    domain: str | None
    partition: str | None
    role: str | None
    data_dir: str | None
    state_dir: Path | None
    secure_key: Path | None
    resident: bool
    gated: bool
    checks_itself: bool
    in_force: Mapping[str, Any]

    @classmethod
    def of(cls, context: Context) -> "Site":
        """Return the node of a context, whose configuration is read when it is first seen."""
        # A type is part of the key: 1, 1.0 and True are equal, and not the same entry.
        node = tuple((name, type(value), value) for name, value in context.node_config.items())
        return _read(node, context.node_id)

    @classmethod
    def read(cls, node: Mapping[str, Any], node_id: int = 0) -> "Site":
        """Return the node that a configuration describes; if that is invalid, `rules` raises the error."""
        terms: Rules | ConfigError
        try:
            terms = _read_rules(node)
        except ConfigError as error:
            terms = error
        state_dir, key = _text(node, "state-dir"), _text(node, SECURE_KEY)
        return cls(
            node,
            node_id,
            terms,
            domain=_text(node, "domain"),
            partition=_text(node, "partition-id"),
            role=_text(node, "role"),
            data_dir=_text(node, "data-dir"),
            state_dir=None if state_dir is None else Path(state_dir).expanduser(),
            secure_key=None if key is None else Path(key),
            resident=node.get("resident") is True,
            gated=node.get(GATED) is True,
            checks_itself=node.get("checks-itself") is True,
            in_force={name: value for name, value in sorted(node.items()) if is_rule(name)},
        )

    @property
    def rules(self) -> Rules:
        """What the node requires.

        Raises a `ConfigError` for an unknown value, invalid privacy settings, ``dp-open-target`` at a source,
        and a name similar to a known entry's: a misspelt rule would allow everything.
        """
        if isinstance(self.terms, ConfigError):
            raise self.terms.with_traceback(None)
        return self.terms

    @property
    def privacy(self) -> PrivacySettings | None:
        """The node's own settings, as `rules` has them; None if it has none."""
        return self.rules.privacy

    @property
    def number(self) -> int | None:
        """The node's number in a simulation, from 0."""
        return None if self.partition is None else int(self.partition)

    @property
    def label(self) -> str:
        """The node's label: its domain, else its number, else Flower's id."""
        return self.own_name or str(self.node_id)

    @property
    def own_name(self) -> str | None:
        """The label without Flower's id, which may change when the node restarts."""
        return self.domain or self.partition

    @property
    def is_site(self) -> bool:
        """Whether the configuration belongs to a site rather than a simulated node."""
        return _is_site(self.node)

    @property
    def speaks(self) -> bool:
        """Whether the node says all words of its errors: a simulated one, and a site that checks itself."""
        return not self.is_site or self.checks_itself

    @property
    def has_ungated_rules(self) -> bool:
        """Whether only the node's app holds its rules and noise, since its SuperNode has no gate."""
        return not self.gated and bool(self.in_force)

    def about(self) -> dict[str, str]:
        """Return the node's domain and, if set, its role."""
        return {"domain": self.label} | ({} if self.role is None else {"role": self.role})

    def check_ledger(self) -> None:
        """Raise a `ConfigError` if the node could not keep what its own noise spends; see `ledger_path`."""
        if self.rules.has_noise:
            self.ledger_path(self.label)

    def ledger_path(self, label: str) -> Path:
        """Return the file of what a node has spent, which errors call `label`.

        Raises a `ConfigError` without a ``state-dir``, or if that has the ledger of another name: under a new
        name the same data would have the whole budget again.
        """
        if self.state_dir is None:
            raise ConfigError(
                f"'{label}' adds noise, but has no state-dir in which to keep what it has spent: give the "
                'node configuration state-dir="..."',
                thing=label,
            )
        # The node's own name: a run may map a number to any domain, differently each time.
        own = LEDGER if self.own_name is None else f"{as_file_name(self.own_name)}-{LEDGER}"
        ledgers = (path.name for path in self.state_dir.glob(f"*{LEDGER}") if path.name[0] != ".")
        for other in sorted({*ledgers} - {own}):
            former = other.removesuffix(LEDGER).removesuffix("-") or "a node without a name"
            with own_files():
                raise invalid(
                    "state-dir",
                    str(self.state_dir),
                    "give the node its former name if it has the same data, or else a state-dir of its own",
                    f"which has the ledger of '{former}', not of '{label}'",
                )
        return self.state_dir / own


@lru_cache(maxsize=256)
def _read(node: tuple[tuple[str, type, Any], ...], node_id: int) -> Site:
    return Site.read({name: value for name, _, value in node}, node_id)


def _text(node: Mapping[str, Any], name: str) -> str | None:
    return str(node[name]) if name in node else None


def _is_site(node: Mapping[str, Any]) -> bool:
    return not {"domain", "data-dir", "state-dir"}.isdisjoint(node)


def _read_rules(node: Mapping[str, Any]) -> Rules:
    """Return the rules of a node configuration, which is checked whole; see `Site.rules` for the errors."""
    check_entries(node)
    role = _text(node, "role")
    privacy = _privacy(node, role)
    models = _models(node)
    if not isinstance(value := node.get("resident", False), bool):
        raise invalid("the node configuration's resident", value, "choose true or false")
    questions = _names(node, "allow-questions") if "allow-questions" in node else None
    for name in questions or ():
        if name not in (*QUESTIONS, "all", "none"):
            raise unknown("question", name, [*QUESTIONS, "all", "none"])
    methods = _names(node, "allow-methods")
    if not all(methods):
        raise unknown("method", "", ["all"])
    samples, per_class = (_count(node, rule) for rule in ("min-samples", "min-per-class"))
    cell = _count(node, "min-cell", MIN_CELL)
    if cell < 1:
        raise invalid("min-cell", cell, "give 1 for exact counts, or more, such as 5")
    secure = node.get("require-secure", _is_site(node))
    if not isinstance(secure, bool):
        raise invalid("require-secure", secure, "give true or false")
    as_target = not secure or ("require-secure" not in node and role == "target")
    is_open = as_target or (privacy is not None and privacy.private)
    level = str(node.get("allow-batch-updates", LEVELS[-1] if is_open else "norms"))
    check_choice("allow-batch-updates", level, LEVELS)
    return Rules(
        methods,
        questions,
        level,
        secure,
        as_target,
        samples,
        per_class,
        _digests(node),
        RecordRule.read(str(node[ALLOW_RECORDS])) if ALLOW_RECORDS in node else None,
        is_strict="allow-batch-updates" in node and level != LEVELS[-1],
        secure_with=read_secure_with(_text(node, SECURE_WITH), secure, _text(node, "domain")),
        allow_models=models,
        privacy=privacy,
        min_cell=cell,
    )


def _privacy(node: Mapping[str, Any], role: str | None) -> PrivacySettings | None:
    given = {name: value for name, value in node.items() if name in PrivacySettings.entries()}
    if not given:
        return None
    settings = PrivacySettings(**read_options("the node configuration", PrivacySettings, given, set()))
    if settings.dp_open_target and role == "source":
        why = "but the node's role is source"
        raise invalid("dp-open-target", True, "leave it out: it is for the target", why)
    return settings


def _models(node: Mapping[str, Any]) -> tuple[str, ...] | None:
    text = _text(node, "allow-models")
    if text is None:
        return () if "apps" in node else None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise invalid("allow-models", text, "give modules and files of weights, separated by commas")
    return names


def _digests(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the SHA-256 digests in the rule ``apps``; none without the rule."""
    digests = []
    for text in str(node["apps"]).split(",") if "apps" in node else ():
        kind, _, digest = text.strip().lower().partition(":")
        if kind != "sha256" or not re.fullmatch("[0-9a-f]{64}", digest):
            remedy = "give sha256: and 64 hexadecimal digits, as `fda deploy app-hash` prints them"
            raise invalid("apps", text.strip(), remedy)
        digests.append(digest)
    return tuple(digests)


def _count(node: Mapping[str, Any], rule: str, usual: int = 0) -> int:
    samples = str(node.get(rule, usual)).strip()
    if not (samples.isascii() and samples.isdecimal()):
        raise invalid(rule, node[rule], "give a number of samples, 0 or more")
    return int(samples)


def _names(node: Mapping[str, Any], rule: str) -> tuple[str, ...]:
    """Return the names in a rule; by default ``all``."""
    names = tuple(name.strip() for name in str(node.get(rule, "all")).split(","))
    if len(names) > 1 and not {"all", "none"}.isdisjoint(names):
        raise invalid(rule, node[rule], "give all or none alone, or names")
    return names
