"""The rules of a site: which runs it joins, and which replies may leave it.

A reply is judged by its bytes and values, not by its own claims.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import log
from numpy.typing import NDArray

from fda_flower.errors import ConfigError, RunError, check_choice, invalid, printable, unknown
from fda_flower.files import PRIVATE, locked, make_private, write_atomically
from fda_flower.names import EVERY_SITE, split_options
from fda_flower.site.config import PrivacySettings, SiteConfig
from fda_flower.site.entries import is_rule
from fda_flower.site.log import REFUSED_CODE, SENT, Facts, SentLog, WithheldError
from fda_flower.site.records import ALLOW_RECORDS, RecordRule, size_of
from fda_flower.site.releases import Kind, always_released, question_of, release_of
from fda_flower.site.secure_with import (
    Fingerprints,
    identity_of,
    read_secure_with,
    refuses_keys,
    refuses_sum,
    sign_keys,
)
from fda_flower.site.words import kept
from fda_flower.wire import protocol
from fda_flower.wire.arrays import num_bytes, to_read
from fda_flower.wire.questions import QUESTIONS, Answer, MaskSums, Question
from fda_flower.wire.releases import OF_SUMS, Release

LEVELS = ("none", "norms", "sketch", "full")
"""Per-batch data that a run may request, in order: each level includes those before it."""

HEADER = 256
"""Upper bound on the header of NumPy's file format for an array of numbers."""

SKETCHES = "sketches.json"
"""Name of the memory of sketches in a node's ``state-dir``."""

SHARE = 8
"""Inverse share of a vector's numbers that all its sketches together may have: one in eight."""

LONGEST = 1000
"""Characters of an error that leave a site."""

WITHHELD = "this site withholds what its app replies: the site's log says why"
"""All that leaves of an error, or a record that may not, at a site with the rule ``allow-records``."""

STRANGERS = (
    "the server names the sources whose masks hide a site's sums, and one that lies invents them: list the "
    "sources and their keys in the node configuration's secure-with, or trust the server by secure-with = any"
)

SMALL = 4096
"""Bytes allowed for metrics, settings and other details of a reply, even with the smallest model."""

NAMES = 1 << 17
"""Bytes allowed for the names of classes and columns in the answer to the role query."""


@dataclass(frozen=True)
class Asked:
    """A message with its context and, if known, the run's method and masked sums, and the node's role.

    `messages` are the types of the messages that the run's method sends to nodes of the role.
    """

    message: Message
    context: Context
    method: str | None = None
    role: str | None = None
    secure: bool = False
    messages: Collection[str] | None = None

    @cached_property
    def asks(self) -> tuple[str, ...]:
        """The types of the message: its own, and that of a question among its settings (`in_settings`)."""
        hidden = map(str, self.values_of(Question.record_name))
        return (self.message.metadata.message_type, *hidden)

    @cached_property
    def kind(self) -> str:
        """``"query"``, ``"train"`` or ``"evaluate"``."""
        return self.message.metadata.message_type.partition(".")[0]

    def values_of(self, setting: str) -> list[Any]:
        """Return the values of a setting in the message, in records of any name."""
        return [record[setting] for record in self.settings.values() if setting in record]

    @cached_property
    def settings(self) -> Mapping[str, ConfigRecord]:
        """The message's records of settings; unlike Flower's own view, this copies no records."""
        records = self.message.content.items()
        return {name: record for name, record in records if isinstance(record, ConfigRecord)}

    @property
    def of_patients(self) -> bool:
        """Whether sums have noise for each patient by the site's own settings, not the run's."""
        return self._noise is not None and self._noise.of_patients

    @property
    def has_noise(self) -> bool:
        """Whether what leaves has noise by the site's own settings; what has no known noise then stays."""
        return self._noise is not None and self._noise.private

    @cached_property
    def _noise(self) -> PrivacySettings | None:
        try:
            return SiteConfig.of(self.context).privacy
        except ConfigError:
            return None

    @cached_property
    def model(self) -> ArrayRecord:
        """The model in the message, or else its largest record of arrays; empty without one."""
        records = self.message.content.array_records
        return records.get(protocol.ARRAYS) or max(records.values(), key=numbers_in, default=ArrayRecord())

    @cached_property
    def numbers(self) -> int:
        """The number of floating-point numbers in the message's model."""
        return numbers_in(self.model)


@dataclass(frozen=True)
class Rules:
    """The rules of a site; by default everything is allowed.

    Attributes
    ----------
    allow_methods : tuple of str
        ``allow-methods``: names of methods, or ``all``. The run itself says which method it is. Where its
        messages to each role are known, as in the app of ``fda run``, a node answers no others, whatever
        its rules.
    allow_questions : tuple of str, optional
        ``allow-questions``: types of messages such as ``train.distil``, beyond plain ones, ``all`` or
        ``none``; see `fda_flower.wire.questions`. Default: the questions of the allowed methods.
    allow_batch_updates : str
        ``allow-batch-updates``: the per-batch data that may leave the site, one of `LEVELS`. Default:
        ``full``, and with `require_secure`, but not `as_target`, ``norms``: the others are sums of gradients.

        It covers the records ``batch-updates`` and ``gradients``. Below ``full``, all other bytes of a reply
        are counted, whatever their form and name. They may add up to one model more than requested (some
        methods send a second one), and an eighth of a model.

        Several sketches of one vector with different maps together reveal the vector. Therefore a sketch
        leaves only with the round's number as seed, and of all rounds only as many as `may_leave` permits.
    require_secure : bool
        ``require-secure``: what is a function of sums over rows leaves the site only masked, or with its own
        noise: open sums, Gaussians, heads fitted to sums and their figures, sketches of batches (`held`).
        Default: at each node with a ``domain``, ``data-dir`` or ``state-dir``. Open sums stay, too, if the
        run's configuration has the method option ``secure``, whatever a message asks for.
    as_target : bool
        Whether what a target alone sends leaves all the same, the head that it fits and its batch updates: at
        a node whose own ``role`` is ``target``, unless it has set ``require-secure``.
    min_samples : int
        ``min-samples``: the least number of labelled samples that the site's client must train on; of
        patients, where several samples are of one.
    min_per_class : int
        ``min-per-class``: the least number of samples, or patients, of each class in what is a function of
        sums of rows and leaves without mask or noise: open sums, heads, Gaussians, trained models
        (`OF_SUMS`). Sums hold the number of each class; of a class with one sample they hold the sample.
    secure_with : mapping, optional
        ``secure-with``: the other sources whose masks the site's sums may have, each with the fingerprint of
        its SuperNode's key, which has signed them; empty for ``any``, where the server names them. Without it
        no sums leave in a mask while `require_secure` holds. The site's own keys are signed by
        ``secure-key``; see `fda_flower.site.secure_with`.
    apps : tuple of str
        ``apps``: the apps that may start, by the SHA-256 of their bundles, such as ``sha256:5d41...``. Only
        ``fda-supernode`` can hold this rule: under another SuperNode the site refuses all messages.
    allow_records : RecordRule, optional
        ``allow-records``: the records that may leave. The reasons of errors then stay at the site.

    Examples
    --------
    >>> Rules.read({"domain": "north", "min-samples": 100}).min_samples
    100
    >>> Rules.read({"allow-method": "fedavg"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fda_flower.errors.ConfigError: unknown entry 'allow-method' ('fedavg') of the node configuration ...
    """

    allow_methods: tuple[str, ...] = ("all",)
    allow_questions: tuple[str, ...] | None = None
    allow_batch_updates: str = LEVELS[-1]
    require_secure: bool = False
    as_target: bool = True
    min_samples: int = 0
    min_per_class: int = 0
    apps: tuple[str, ...] = ()
    allow_records: RecordRule | None = None
    counts_bytes: bool = False
    """Whether all other bytes of a reply are counted, too: if the site has set ``allow-batch-updates``."""
    secure_with: Fingerprints | None = None

    @classmethod
    def read(cls, node: Mapping[str, Any], methods: Collection[str] = ()) -> "Rules":
        """Return the rules of a node configuration, which is checked whole.

        Raises a `ConfigError` for an unknown value, including a method not in `methods` if given, for invalid
        privacy settings, and for a name similar to a known entry's: a misspelt rule would allow everything.
        """
        site = SiteConfig(node, 0)
        site.check()
        questions = _names(node, "allow-questions") if "allow-questions" in node else None
        for name in questions or ():
            if name not in (*QUESTIONS, "all", "none"):
                raise unknown("question", name, [*QUESTIONS, "all", "none"])
        allowed = _names(node, "allow-methods")
        for name in allowed:
            if not name or (methods and name not in (*methods, "all")):
                raise unknown("method", name, [*methods, "all"])
        samples, per_class = (_count(node, rule) for rule in ("min-samples", "min-per-class"))
        secure = node.get("require-secure", site.is_site)
        if not isinstance(secure, bool):
            raise invalid("require-secure", secure, "give true or false")
        as_target = not secure or ("require-secure" not in node and site.role == "target")
        is_open = as_target or (site.privacy is not None and site.privacy.private)
        level = str(node.get("allow-batch-updates", LEVELS[-1] if is_open else "norms"))
        check_choice("allow-batch-updates", level, LEVELS)
        records = RecordRule.read(str(node[ALLOW_RECORDS])) if ALLOW_RECORDS in node else None
        return cls(
            allowed,
            questions,
            level,
            secure,
            as_target,
            samples,
            per_class,
            _digests(node),
            records,
            secure_with=read_secure_with(node, secure),
            counts_bytes="allow-batch-updates" in node and level != LEVELS[-1],
        )

    def refuses_app(self, digest: str) -> str | None:
        """Return why an app, by the SHA-256 of its bundle, may not start; None if it may."""
        if not self.apps or digest in self.apps:
            return None
        return f"the site has not approved the app sha256:{digest} (the site's apps)"

    def refuses_message(self, asked: Asked) -> str | None:
        """Return why the site refuses a message, before any data are read; None if it accepts."""
        if self.apps and not SiteConfig.of(asked.context).gated:
            return "only fda-supernode can approve apps: start the node with it (the site's apps)"
        if reason := self._another_method(asked):
            return f"{reason} (the site's allow-methods)"
        if reason := self._another_question(asked):
            return reason
        if reason := self._asks_too_much(asked):
            return f"{reason} (the site's allow-batch-updates)"
        if reason := self._with_strangers(asked):
            return f"{reason} (the site's {'secure-with' if self.secure_with else 'require-secure'})"
        if not (held := self.held(asked)):
            return None
        released = {kind for each in asked.asks for kind in always_released(each)}
        if announced(asked) == protocol.OPEN_SUMS:
            released.add(Release.SUMS)
        return self._in_the_open(held & released)

    def _with_strangers(self, asked: Asked) -> str | None:
        masks = MaskSums.message_type() in asked.asks
        if not masks and announced(asked) != protocol.MASKED_SUMS:
            return None
        if self.secure_with is None:
            return STRANGERS if self.require_secure else None
        site = SiteConfig.of(asked.context)
        reason = refuses_sum(site.node, self.secure_with)
        if reason is not None or not masks:
            return reason
        return refuses_keys(asked.message, asked.context.run_id, site.domain, self.secure_with)

    def held(self, asked: Asked) -> set[Kind]:
        """Return the kinds of `Release` that stay at the site, None for what nobody has declared."""
        held: set[Kind] = {Release.SUMS} if asked.secure else set()
        if not held and not self.require_secure:
            return held
        if self.require_secure:
            held |= {Release.SUMS, None, *(() if self.as_target else (Release.HEAD,))}
        if asked.has_noise:
            held.discard(Release.HEAD)
        return held - {Release.SUMS} if asked.of_patients else held

    def _in_the_open(self, found: Collection[Kind]) -> str | None:
        """Return why something of the kinds `found`, which the site holds, may not leave; None without any."""
        if not found:
            return None
        if not self.require_secure:
            return "sums leave this site only masked, not open (the run's option secure)"
        said = "(the site's require-secure)"
        if Release.SUMS in found:
            return (
                "open sums reveal samples exactly and leave this site only if its node configuration has "
                "require-secure = false: mask them by the method option secure=true, or let the site add "
                f"noise by dp-unit = patient {said}"
            )
        if Release.HEAD in found:
            return (
                "a head fitted to the site's rows reveals their sums to whoever chooses what is added to "
                "them, and leaves this site only if its node configuration has role = target and no "
                f"require-secure, or require-secure = false {said}"
            )
        return f"nobody has declared what the answer releases: give each field a Release {said}"

    def refuses_rare(self, asked: Asked, fewest: object) -> str | None:
        """Return why a reply may not leave, given the fewest units of a class; None if it may."""
        if not isinstance(fewest, int) or fewest >= self.min_per_class or asked.has_noise:
            return None
        if all(OF_SUMS.isdisjoint(always_released(each)) for each in asked.asks):
            return None
        return (
            f"a class has fewer than {self.min_per_class} samples or patients here, and what leaves without "
            "mask or noise reveals them (the site's min-per-class)"
        )

    def refuses_few(self, units: object) -> str | None:
        """Return why so many units with labels, such as patients, are too few; None if they are not."""
        if not isinstance(units, int) or units >= self.min_samples:
            return None
        return (
            f"the site's model would be trained on {units} labelled patients, but the site requires at least "
            f"{self.min_samples}: let the run use more of its samples (the site's min-samples)"
        )

    def _rare_class(self, asked: Asked, record: ArrayRecord) -> str | None:
        """Return why open sums may not leave; see `fda_flower.aggregation.to_targets` for what they hold."""
        if asked.of_patients or not self.min_per_class:
            return None
        gram, products = (
            values_in(record[name]) if name in record else None for name in ("gram", "products")
        )
        if gram is None or products is None or not gram.size or products.ndim != 2:
            return "its sums are of an unknown form"
        classes = products.shape[1]
        counts = products[-1] + gram.flat[-1] / classes
        if classes < 2 or not any(0.5 < count < self.min_per_class - 0.5 for count in counts):
            return None
        return (
            f"a class has fewer than {self.min_per_class} samples here, and open sums reveal them: mask the "
            "sums by the method option secure=true"
        )

    def refuses_reply(self, asked: Asked, reply: RecordDict) -> str | None:
        """Return why a reply may not leave the site, whatever was requested; None if it may.

        Raises a `WithheldError` if the rule ``allow-records`` does not know something in it.
        """
        unnamed = self.allow_records and self.allow_records.refuses(asked.message.content, reply)
        if unnamed:
            remedy = "name it, or give its pattern a size"
            raise WithheldError(f"{unnamed} may not leave this site: {remedy} (the site's {ALLOW_RECORDS})")
        if reason := self._tells_too_much(asked, reply):
            return f"{reason} (the site's allow-batch-updates)"
        if reason := self._too_few_samples(asked, reply):
            return f"{reason} (the site's min-samples)"
        if protocol.SUMS in reply and (reason := self._rare_class(asked, reply.array_records[protocol.SUMS])):
            return f"{reason} (the site's min-per-class)"
        if not (held := self.held(asked)):
            return None
        kind, answers = asked.message.metadata.message_type, _answers_in(reply)
        kinds: set[Kind] = {release_of(kind, *each) for each in answers}
        return self._in_the_open(held & (kinds | ({Release.SUMS} if protocol.SUMS in reply else set())))

    def withhold(self, asked: Asked, reply: RecordDict) -> list[str]:
        """Remove from a reply the fields of an answer that may stay away and that the site holds.

        Returns their names.
        """
        kind = asked.message.metadata.message_type
        question, held = question_of(kind), self.held(asked)
        if question is None or not held:
            return []
        named = [
            (record, entry)
            for record, entry in _answers_in(reply)
            if release_of(kind, record, entry) in held and question.answer.may_lack(_field(record, entry))
        ]
        for record, entry in named:
            if entry:
                del reply[record][entry]
            else:
                del reply[record]
        return sorted({_field(record, entry) for record, entry in named})

    def _another_method(self, asked: Asked) -> str | None:
        if "all" in self.allow_methods or asked.method in self.allow_methods:
            return None
        allowed = ", ".join(self.allow_methods)
        if asked.method is None:
            return (
                f"the site allows the methods {allowed}, and the run names none: set 'method' in the run's "
                "configuration"
            )
        return f"the site allows the methods {allowed}, not '{asked.method}': choose one of them"

    def _another_question(self, asked: Asked) -> str | None:
        plain = (protocol.TRAIN, protocol.EVALUATE)
        if asked.kind not in plain:
            return None
        for kind in asked.asks:
            if reason := self._another(asked, kind, kind in plain):
                return reason
        return None

    def _another(self, asked: Asked, kind: str, is_plain: bool) -> str | None:
        if asked.messages is not None and kind not in asked.messages:
            return f"the method '{asked.method}' does not ask '{kind}' of a {asked.role}"
        question = question_of(kind)
        if question is not None and asked.role in ("source", "target") and asked.role not in question.roles:
            return f"'{kind}' is a question to a {question.roles[0]}, and this node is a {asked.role}"
        if is_plain or self.allow_questions is None or not {kind, "all"}.isdisjoint(self.allow_questions):
            return None
        allowed = ", ".join(self.allow_questions)
        return (
            f"the site answers the questions {allowed}, not '{kind}': choose a method that asks no other "
            "(the site's allow-questions)"
        )

    def _asks_too_much(self, asked: Asked) -> str | None:
        if self.allow_batch_updates == LEVELS[-1]:
            return None
        wanted = wanted_level(asked)
        if not self._allows(wanted):
            return (
                f"the site allows '{self.allow_batch_updates}' of each batch, not the requested '{wanted}': "
                "choose another encoding, aggregate_on=target, a fixed beta, or another method; or let the "
                "site say that its role is target"
            )
        return _check_sketch(asked) if wanted == self.allow_batch_updates == "sketch" else None

    def _tells_too_much(self, asked: Asked, reply: RecordDict) -> str | None:
        level = self.allow_batch_updates
        if level == LEVELS[-1]:
            return None
        counted: dict[str, Any] = dict(reply)
        for name in {protocol.BATCH_UPDATES, protocol.GRADIENTS} & set(reply):
            found = level_of(reply[name], asked.numbers, _steps_of(reply))
            if not self._allows(found):
                return f"the site allows '{level}' of each batch, the record '{name}' has '{found}'"
            counted[name] = {key: array for key, array in reply[name].items() if key != "sketch"}
        if not self.counts_bytes:
            return None
        if asked.message.metadata.message_type == protocol.ROLE_QUERY:
            counted |= _without_names(reply)
        model, size = size_of(asked.model), size_of(counted)
        most = model * (2 if asked.kind == "train" else 1) + max(SMALL, model // SHARE)
        if size <= most:
            return None
        return (
            f"the reply has {size} bytes, and may have {most} with a model of {model}: more leaves the site "
            "only with allow-batch-updates=full"
        )

    def _too_few_samples(self, asked: Asked, reply: RecordDict) -> str | None:
        if not self.min_samples:
            return None
        if asked.kind == "query":
            info = reply.config_records.get(protocol.INFO, ConfigRecord())
            if reason := self.refuses_few(info.get(protocol.GROUPS)):
                return reason
            told = info.get(protocol.LABELLED)
        elif asked.kind == "train":
            records = reply.metric_records.values()
            told = next((r[protocol.NUM_EXAMPLES] for r in records if protocol.NUM_EXAMPLES in r), 0)
        else:
            return None
        if told is None or (isinstance(told, int | float) and told >= self.min_samples):
            return None
        shown = f"{told:g}" if isinstance(told, int | float) else "an unknown number of"
        return (
            f"the site's model would be trained on {shown} labelled samples, but the site requires at least "
            f"{self.min_samples}: let the run use more of its samples, or hold out fewer"
        )

    def _allows(self, level: str) -> bool:
        return LEVELS.index(level) <= LEVELS.index(self.allow_batch_updates)


def _without_names(answer: RecordDict) -> dict[str, Any]:
    """Return the ``info`` of a role answer without the names of classes and columns, if those are short."""
    info = answer.get(protocol.INFO)
    if not isinstance(info, ConfigRecord):
        return {}
    names = {key: info[key] for key in (protocol.CLASS_NAMES, protocol.FEATURES) if key in info}
    if size_of(names) > NAMES:
        return {}
    return {protocol.INFO: {key: value for key, value in info.items() if key not in names}}


def _answers_in(reply: RecordDict) -> list[tuple[str, str]]:
    """Return the records and entries of a reply's answer; a record other than ``answer`` is one."""
    answers = [name for name in reply if name.partition("/")[0] == Answer.record_name]
    whole = [(name, "") for name in answers if name != Answer.record_name]
    numbers = reply.get(Answer.record_name, ConfigRecord())
    return whole + [(Answer.record_name, entry) for entry in numbers]


def _field(record: str, entry: str) -> str:
    return (record.partition("/")[2] or entry).partition("/")[0]


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


def _count(node: Mapping[str, Any], rule: str) -> int:
    samples = str(node.get(rule, 0)).strip()
    if not (samples.isascii() and samples.isdecimal()):
        raise invalid(rule, node[rule], "give a number of samples, 0 or more")
    return int(samples)


def _names(node: Mapping[str, Any], rule: str) -> tuple[str, ...]:
    """Return the names in a rule; by default ``all``."""
    names = tuple(name.strip() for name in str(node.get(rule, "all")).split(","))
    if len(names) > 1 and not {"all", "none"}.isdisjoint(names):
        raise invalid(rule, node[rule], "give all or none alone, or names")
    return names


def announced(asked: Asked) -> object:
    """Return what a role query says that the run will request from a node of this role."""
    asks = asked.settings.get(protocol.ASKS, ConfigRecord()) if asked.kind == "query" else {}
    return asks.get(asked.role or "", "none")


def wanted_level(asked: Asked) -> str:
    """Return the most that a message requests of single batches from this site.

    The role query includes it for both roles, a train message for the node itself.
    """
    records = asked.settings
    if asked.kind == "query":
        told = announced(asked)
        return "none" if told in (protocol.OPEN_SUMS, protocol.MASKED_SUMS) else _known(told)
    if protocol.AGGREGATE in records:
        return "none"
    wanted = [
        value for name in (protocol.BATCH_UPDATES, protocol.GRADIENTS) for value in asked.values_of(name)
    ]
    return max(map(_known, wanted), key=LEVELS.index, default="none")


def _check_sketch(asked: Asked) -> str | None:
    """Return why a site that allows sketches does not send the requested one; None if it does."""
    folder = SiteConfig.of(asked.context).state_dir
    if folder is None:
        return (
            "the site allows a sketch of each batch, but has no state-dir in which to remember those that "
            'have left: give the node configuration state-dir="..."'
        )
    if asked.kind == "query":
        return None
    if any(values_in(array) is None for array in asked.model.values()):
        return "the message's model has an array that is not of plain numbers"
    told = (protocol.SKETCH_SIZE, protocol.SKETCH_SEED, protocol.SERVER_ROUND)
    size, seed, number = (_only(asked.values_of(setting)) for setting in told)
    if size is None or seed is None or seed != number:
        return (
            f"the run asks for a sketch of size {size} with the seed {seed} in round {number}: the site "
            f"sends sketches whose {protocol.SKETCH_SEED} is the number of the round"
        )
    try:
        if may_leave(folder / SKETCHES, asked.model, size, seed):
            return None
    except (OSError, ValueError) as error:
        return f"the site cannot record which sketches have left it: {error}"
    return (
        f"the run asks for a sketch of {size} numbers in round {number}, and the sizes of the sketches of "
        f"all rounds and runs may add up to {asked.numbers // SHARE}, an eighth of the model's numbers: "
        "choose a smaller sketch_size or fewer rounds"
    )


def _only(values: list[Any]) -> int | None:
    """Return the only element of a list if it is an integer, else None."""
    return values[0] if len(values) == 1 and type(values[0]) is int else None


def _steps_of(reply: RecordDict) -> int:
    """Return the number of steps in a reply, or 0."""
    told = (record.get(protocol.NUM_STEPS) for record in reply.metric_records.values())
    return next((int(steps) for steps in told if isinstance(steps, int | float) and math.isfinite(steps)), 0)


NUMBERS = frozenset({"norm", "variance", "batches", protocol.SKETCH_SIZE, protocol.SKETCH_SEED})
"""Arrays of one number each in a record of gradients."""


def level_of(record: object, numbers: int, steps: int) -> str:
    """Return the level of a record of batch updates or gradients, judged by its arrays.

    A sketch longer than an eighth of the model's `numbers` counts as ``"full"``, and so does anything other
    than one norm, and at most one sketch, for each of the `steps`.
    """
    if not isinstance(record, ArrayRecord):
        return "full"
    rows = ((), (steps,)) if "norms" in record else ((),)
    forms: dict[str, tuple[int, ...]] = {"norms": (steps,), **dict.fromkeys(NUMBERS, ())}
    level = "norms"
    for name, array in record.items():
        values = values_in(array)
        if values is None:
            return "full"
        is_sketch = name == "sketch" and values.ndim > 0 and values.shape[:-1] in rows
        if is_sketch and values.shape[-1] * SHARE <= numbers:
            level = "sketch"
        elif values.shape != forms.get(name):
            return "full"
    return level


def _known(level: object) -> str:
    """Return a level; treat an unknown word as the last one."""
    return str(level) if level in LEVELS else LEVELS[-1]


def may_leave(memory: Path, model: ArrayRecord, size: int, seed: int) -> bool:
    """Return whether a sketch of this size and seed may leave for a model; if so, remember it.

    The memory has the sizes and seeds of sketches that have left, by the model's number of numbers of any
    type: a server cannot make the same model another one by sending some layers as integers. A server also
    may send one model in many rounds. The sizes of all maps therefore add up, and bound what can be learned
    about a vector in any run; a map that has been used before reveals nothing new.

    Raises an `OSError` or `ValueError` if the file cannot be read or written.
    """
    make_private(memory.parent)
    with locked(memory.with_name(f".{memory.name}.lock")):
        kept = _read(memory)
        maps = kept.setdefault(str(numbers_in(model, "fiub")), [])
        if [size, seed] in maps:
            return True
        maps.append([size, seed])
        if size < 1 or SHARE * sum(length for length, _ in maps) > numbers_in(model):
            return False
        write_atomically(memory, json.dumps(kept).encode(), PRIVATE)
    return True


def _read(memory: Path) -> dict[str, list[list[int]]]:
    try:
        kept = json.loads(memory.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    if not isinstance(kept, dict) or not all(_are_maps(maps) for maps in kept.values()):
        raise ValueError(f"'{memory}' is damaged: restore the file from a copy")
    return kept


def _are_maps(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, list) and [type(number) for number in each] == [int, int] and each[0] > 0
        for each in value
    )


def values_in(array: Array) -> NDArray[Any] | None:
    """Return the numbers in an array; None if its bytes are not an ndarray of plain numbers."""
    try:
        values: object = to_read(array)
    except Exception:  # bytes from another program may raise anything
        return None
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiub" or values.dtype.itemsize > 8:
        return None
    return values if num_bytes(array) <= values.nbytes + HEADER else None


def numbers_in(record: ArrayRecord, kinds: str = "f") -> int:
    """Return the number of numbers in a record of arrays, of NumPy's kinds; by default not of integers."""
    found = (values_in(array) for array in record.values())
    return sum(values.size for values in found if values is not None and values.dtype.kind in kinds)


def rules_of(node: Mapping[str, Any], methods: Collection[str] = ()) -> Rules:
    """Return the rules of a node configuration, which is read when it is first seen; see `Rules.read`."""
    # A type is part of the key: 1, 1.0 and True are equal, and not the same rule.
    return _rules_of(tuple((name, type(value), value) for name, value in node.items()), tuple(methods))


@lru_cache(maxsize=64)
def _rules_of(node: tuple[tuple[str, type, Any], ...], methods: tuple[str, ...]) -> Rules:
    return Rules.read({name: value for name, _, value in node}, methods)


def has_ungated_rules(site: SiteConfig) -> bool:
    """Return whether a node has rules or noise that only its app holds, since its SuperNode has no gate."""
    return not site.gated and any(map(is_rule, site.node))


def as_told(asked: Asked) -> Asked:
    """Return a copy with the method and its masks of the run's configuration, and the role of the node's.

    Where every site is a target, the role does not matter.
    """
    method, options = (asked.context.run_config.get(name) for name in ("method", "method-options"))
    secure = str(split_options(str(options or "")).get("secure", "")).lower() == "true"
    every_site = asked.context.run_config.get("target") == EVERY_SITE
    role = None if every_site else SiteConfig.of(asked.context).role
    return replace(asked, method=None if method is None else str(method), role=role, secure=secure)


@dataclass(frozen=True)
class SiteGate:
    """A Flower mod that applies the rules of the node configuration, and logs replies.

    Make it the first of a ``ClientApp``'s mods, so that it sees the replies as they leave the others;
    `fda_flower.clients.serve` includes it. A message that its `Rules` refuse does not reach the app. With a
    ``state-dir`` each reply is logged in ``sent.jsonl``, and does not leave if it cannot be logged.

    Parameters
    ----------
    about : callable
        Adds the run's method and the node's role to a message. Default: ``method`` of the run's
        configuration, ``role`` of the node's.
    methods : Collection[str]
        The existing methods, to check the node configuration. Default: unknown.
    app : str, optional
        The SHA-256 of the app's bundle, for the log.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[SiteGate()])
    """

    about: Callable[[Asked], Asked] = as_told
    methods: Collection[str] = ()
    app: str | None = None

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer a message with the app below if the site's rules allow it."""
        asked = Asked(message, context)
        try:
            rules = rules_of(context.node_config, self.methods)
        except ConfigError as error:
            why = str(error)
            return _logged(asked, lambda: refusal(asked, why), app=self.app)
        withholds = rules.allow_records is not None
        return _logged(asked, lambda: self._answer(asked, rules, call_next), withholds, self.app)

    def refuse(self, message: Message, context: Context, reason: str) -> Message:
        """Answer a message that the site refuses, whatever the app would answer."""
        asked = Asked(message, context)
        return _logged(asked, lambda: refusal(asked, reason, by_rule=True), app=self.app)

    def _answer(self, asked: Asked, rules: Rules, call_next: ClientAppCallable) -> Message:
        try:
            asked = self.about(asked)
        except ConfigError as error:
            return refusal(asked, str(error))
        if reason := rules.refuses_message(asked):
            return refusal(asked, reason, by_rule=True)
        with kept(asked.context):
            reply = _shortened(call_next(asked.message, asked.context), asked.message)
        if reply.has_error():
            return reply
        facts = reply.content.pop(protocol.LOGGED, None)
        if own := rules.withhold(asked, reply.content):
            log(INFO, "This site keeps %s of its answer (the site's require-secure)", ", ".join(own))
        fewest = None if facts is None else facts.get(protocol.FEWEST)
        units = None if facts is None or asked.kind != "train" else facts.get("units")
        reason = rules.refuses_reply(asked, reply.content) or rules.refuses_rare(asked, fewest)
        reason = reason or rules.refuses_few(units)
        if reason is not None:
            return refusal(asked, reason, by_rule=True)
        if facts is not None:
            reply.content[protocol.LOGGED] = facts
        return _signed(asked, rules, reply)


def _signed(asked: Asked, rules: Rules, reply: Message) -> Message:
    """Return a reply whose keys of a masked sum, if it has any, this site has signed.

    Behind the gate of a SuperNode nothing is signed here: the gate does it.
    """
    site = SiteConfig.of(asked.context)
    if asked.message.metadata.message_type != MaskSums.message_type() or site.gated or site.domain is None:
        return reply
    try:
        if (identity := identity_of(site.node, rules.secure_with)) is not None:
            sign_keys(asked.message, asked.context.run_id, site.domain, identity, reply.content)
    except ConfigError as error:
        return refusal(asked, str(error), by_rule=True)
    return reply


def _logged(
    asked: Asked, answer: Callable[[], Message], withholds: bool = False, app: str | None = None
) -> Message:
    """Return an answer once it is logged; if the site `withholds` the words of errors, they stay here.

    Behind the gate of a SuperNode nothing is logged or withheld here: the gate does both, and also takes out
    what the client tells the log.
    """
    site = SiteConfig.of(asked.context)
    sent = None if site.gated or site.state_dir is None else SentLog(site.state_dir / SENT)
    withholds = withholds and not site.gated
    try:
        reply = answer()
    except Exception as error:  # Flower sends it to the server
        shown = error if len(str(error)) <= LONGEST else RunError(f"{str(error)[:LONGEST]}...")
        if sent is not None:
            sent.note(asked.message, asked.context, shown, Facts(app))
        if withholds:
            raise RunError(WITHHELD) from None
        if shown is error:
            raise
        raise shown from None
    told: Mapping[str, Any] = {}
    if not site.gated and reply.has_content():
        told = reply.content.pop(protocol.LOGGED, told)
    if sent is not None:
        try:
            sent.note(asked.message, asked.context, reply, Facts(app, told))
        except OSError as error:
            return refusal(asked, f"the site cannot log its reply in '{sent.path}': {error}")
    if withholds and reply.has_error() and not isinstance(reply.error, RefusalError):
        return Message(Error(reply.error.code, WITHHELD), reply_to=asked.message)
    return reply


class RefusalError(Error):
    """An error that this process makes, and whose reason has nothing of an app's words."""

    def __init__(self, reason: str) -> None:
        super().__init__(REFUSED_CODE, reason)


def _shortened(reply: Message, message: Message) -> Message:
    """Return a reply whose error or problem has at most `LONGEST` characters."""
    if reply.has_error():
        reason = str(reply.error.reason or "")
        short = Error(reply.error.code, f"{reason[:LONGEST]}...")
        return reply if len(reason) <= LONGEST else Message(short, reply_to=message)
    info = protocol.settings_in(reply.content, protocol.INFO)
    if len(problem := str(info.get(protocol.PROBLEM, ""))) > LONGEST:
        info[protocol.PROBLEM] = f"{problem[:LONGEST]}..."
    return reply


def refusal(asked: Asked, reason: str, by_rule: bool = False) -> Message:
    """Return the reply that refuses: the node's ``problem`` to the role query, otherwise an error."""
    reason = printable(reason)
    log(WARNING, "This site refuses: %s", reason)
    if asked.message.metadata.message_type != protocol.ROLE_QUERY:
        return Message(RefusalError(reason), reply_to=asked.message)
    info: dict[str, str | bool] = {**SiteConfig.of(asked.context).about(), protocol.PROBLEM: reason}
    if by_rule:
        info[protocol.REFUSED] = True
    return Message(RecordDict({protocol.INFO: ConfigRecord({**info})}), reply_to=asked.message)
