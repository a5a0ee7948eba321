"""The rules of a site: which runs it takes part in, and what may leave it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fda_flower import protocol
from fda_flower.errors import ConfigError, check_choice, unknown

LEVELS = ("none", "norms", "sketch", "full")
"""What a run may ask of single batches, in order: each level allows those before it."""


@dataclass(frozen=True)
class Asked:
    """A message, and the run that it belongs to.

    Attributes
    ----------
    message : Message
        The message.
    context : Context
        Of the node and the run.
    method : str, optional
        The run's method, if it tells one.
    role : str, optional
        The node's role in the run, if it is known: ``"source"`` or ``"target"``.
    """

    message: Message
    context: Context
    method: str | None = None
    role: str | None = None

    @property
    def kind(self) -> str:
        """``"query"``, ``"train"`` or ``"evaluate"``."""
        return self.message.metadata.message_type.partition(".")[0]

    @property
    def settings(self) -> dict[str, Any]:
        """The message's settings, whatever the records are called that hold them."""
        records = self.message.content.config_records
        return {key: value for record in records.values() for key, value in record.items()}

    @property
    def numbers(self) -> int:
        """How many numbers the model in the message has; 0 without one."""
        records = self.message.content.array_records
        model = records.get(protocol.ARRAYS)
        return max(map(count, records.values()), default=0) if model is None else count(model)


class Rule:
    """A rule: an entry of the node configuration, which refuses a message or the reply to it.

    A subclass overrides `read`, and `before`, `after` or both; a line of `RULES` makes it a rule. This one
    takes any value and refuses nothing: it is for an entry that another part of the package enforces.
    """

    @classmethod
    def read(cls, value: Any, methods: Collection[str]) -> "Rule":
        """Return the rule with the value of the node configuration.

        Parameters
        ----------
        value : Any
            The value.
        methods : Collection[str]
            The methods that exist, if they are known.

        Raises
        ------
        ConfigError
            If the rule does not know the value.
        """
        return cls()

    def before(self, asked: Asked) -> str | None:
        """Return why the site refuses a message, before any data are read; None if it does not."""
        return None

    def after(self, asked: Asked, reply: RecordDict) -> str | None:
        """Return why a reply may not leave the site; None if it may."""
        return None


@dataclass(frozen=True)
class AllowMethods(Rule):
    """``allow-methods``: names of methods, separated by commas, or ``all``."""

    allowed: tuple[str, ...]

    @classmethod
    def read(cls, value: Any, methods: Collection[str]) -> Rule:
        """Read the names; one that is not among `methods` is an error, if there are any."""
        names = tuple(name.strip() for name in str(value).split(","))
        for name in names:
            if not name or (methods and name not in (*methods, "all")):
                raise unknown("method", name, [*methods, "all"])
        return cls(names)

    def before(self, asked: Asked) -> str | None:
        """Refuse a run with another method, or without one."""
        if "all" in self.allowed or asked.method in self.allowed:
            return None
        allowed = ", ".join(self.allowed)
        if asked.method is None:
            return (
                f"the site allows the methods {allowed}, and the run names none: set 'method' in the run's "
                "configuration"
            )
        return f"the site allows the methods {allowed}, not '{asked.method}': choose one of them"


@dataclass(frozen=True)
class AllowBatchUpdates(Rule):
    """``allow-batch-updates``: how much of single batches may leave the site, one of `LEVELS`.

    It covers the records ``batch-updates`` and ``gradients``. With less than ``full`` no other record may
    have more numbers than the model, so that batch updates do not leave under another name.
    """

    level: str

    @classmethod
    def read(cls, value: Any, methods: Collection[str]) -> Rule:
        """Read the level."""
        check_choice("allow-batch-updates", str(value), LEVELS)
        return cls(str(value))

    def before(self, asked: Asked) -> str | None:
        """Refuse a run that asks for more."""
        if self._allows(wanted := wanted_level(asked)):
            return None
        return (
            f"the site allows '{self.level}' of each batch, the run asks for '{wanted}': choose another "
            "encoding, aggregate_on=target, a fixed beta, or another method"
        )

    def after(self, asked: Asked, reply: RecordDict) -> str | None:
        """Refuse a reply with more, whatever was asked for."""
        if self.level == LEVELS[-1]:
            return None
        steps = next((r[protocol.NUM_STEPS] for r in reply.metric_records.values() if "num-steps" in r), 0)
        for name, record in reply.items():
            if name in (protocol.BATCH_UPDATES, protocol.GRADIENTS):
                found = level_of(record, asked.numbers, int(float(str(steps))))
                if not self._allows(found):
                    return f"the site allows '{self.level}' of each batch, the record '{name}' has '{found}'"
            elif (numbers := count(record)) > asked.numbers:
                return (
                    f"the record '{name}' has {numbers} numbers, more than the model's {asked.numbers}: that "
                    "leaves the site only with allow-batch-updates=full"
                )
        return None

    def _allows(self, level: str) -> bool:
        return LEVELS.index(level) <= LEVELS.index(self.level)


@dataclass(frozen=True)
class MinSamples(Rule):
    """``min-samples``: how many labelled samples the site's client must train on, at least."""

    samples: int

    @classmethod
    def read(cls, value: Any, methods: Collection[str]) -> Rule:
        """Read the number."""
        try:
            samples = int(str(value))
        except ValueError:
            samples = -1
        if samples < 0:
            raise ConfigError(f"min-samples is {value!r}: give a number of samples, 0 or more")
        return cls(samples)

    def after(self, asked: Asked, reply: RecordDict) -> str | None:
        """Refuse to take part, or to send what was trained, with fewer samples."""
        if asked.kind == "query":
            told = reply.config_records.get(protocol.INFO, ConfigRecord()).get(protocol.LABELLED)
        elif asked.kind == "train":
            records = reply.metric_records.values()
            told = next((r[protocol.NUM_EXAMPLES] for r in records if protocol.NUM_EXAMPLES in r), 0)
        else:
            return None
        if told is None or float(str(told)) >= self.samples:
            return None
        return (
            f"the site's model would be trained on {told!s} labelled samples, the site wants at least "
            f"{self.samples}: have the run take more of its samples, or hold out fewer"
        )


RULES: Mapping[str, type[Rule]] = {
    "allow-methods": AllowMethods,
    "allow-batch-updates": AllowBatchUpdates,
    "min-samples": MinSamples,
    # `fda_flower.privacy` holds the run to it.
    "max-epsilon": Rule,
}
"""The rules by their entry in the node configuration. A new one is a class, and one line here."""

RESERVED = ("allow-", "min-", "max-")
"""Beginnings of names that only rules have in a node configuration."""


def read_rules(node: Mapping[str, Any], methods: Collection[str] = ()) -> dict[str, Rule]:
    """Return the rules of a node configuration, by name.

    Parameters
    ----------
    node : Mapping
        The node configuration; entries that are no rules are for others.
    methods : Collection[str]
        The methods that exist. Default: not known.

    Raises
    ------
    ConfigError
        If a value is unknown, or a name is like that of a rule: a rule that is misspelt would allow all.

    Examples
    --------
    >>> read_rules({"domain": "north", "min-samples": 100})
    {'min-samples': MinSamples(samples=100)}
    >>> read_rules({"allow-method": "fedavg"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fda_flower.errors.ConfigError: unknown rule of the node configuration 'allow-method' (did you mean ...
    """
    for name in node:
        if _is_misspelt(name):
            raise unknown("rule of the node configuration", name, RULES)
    return {name: RULES[name].read(node[name], methods) for name in RULES if name in node}


@lru_cache(maxsize=256)
def _is_misspelt(name: str) -> bool:
    plain = name.replace("_", "-")
    return name not in RULES and (plain.startswith(RESERVED) or bool(get_close_matches(plain, RULES, 1, 0.8)))


def wanted_level(asked: Asked) -> str:
    """Return the most that a message asks of single batches, and that would leave the site.

    The role query tells it for both roles, a train message for the node itself.
    """
    records = asked.message.content.config_records
    if asked.kind == "query":
        told = records.get(protocol.ASKS, ConfigRecord())
        return _known(told.get(asked.role or "", "none"))
    if protocol.AGGREGATE in records:
        return "none"
    settings = asked.settings
    wanted = (settings.get(name, "none") for name in (protocol.BATCH_UPDATES, protocol.GRADIENTS))
    return max(map(_known, wanted), key=LEVELS.index)


def level_of(record: object, numbers: int, steps: int) -> str:
    """Return what a record tells of single batches.

    Parameters
    ----------
    record : ArrayRecord
        Of batch updates or gradients; a record of another kind counts as ``"full"``.
    numbers : int
        Of the model. A sketch that is as long as the model hides nothing of it, and counts as ``"full"``.
    steps : int
        Of the training: norms are one number each.

    Examples
    --------
    >>> import numpy as np
    >>> batches = {"norms": np.ones(5), "sketch": np.ones((5, 16))}
    >>> record = protocol.to_record(batches)
    >>> level_of(record, numbers=100, steps=5), level_of(record, numbers=10, steps=5)
    ('sketch', 'full')
    """
    if not isinstance(record, ArrayRecord):
        return "full"
    level = "norms"
    for name, array in record.items():
        size = array.shape[-1] if array.shape else 1
        if name == "sketch" and size < numbers and len(array.shape) <= 2:
            level = "sketch"
        elif array.shape not in ((), (steps,)):
            return "full"
    return level


def count(record: object) -> int:
    """Return how many numbers a record of arrays, or of lists of metrics, has; others have none."""
    if isinstance(record, ArrayRecord):
        return sum(_size(array.shape) for array in record.values() if "int" not in array.dtype)
    if isinstance(record, MetricRecord):
        return sum(len(value) for value in record.values() if isinstance(value, list))
    return 0


def _size(shape: Collection[int]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _known(level: object) -> str:
    """Return a level; a word that is none counts as the last one."""
    return str(level) if level in LEVELS else LEVELS[-1]
