"""The rules of a site: which runs it joins, and which replies may leave it.

A reply is judged by its forms and values, not by its own claims.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fda_flower.aggregation.sums import counts_of_classes
from fda_flower.errors import unknown
from fda_flower.site.asked import Asked, announced, values_in
from fda_flower.site.batches import LEVELS, level_in, refuses_sketch, wanted_level
from fda_flower.site.config import MIN_CELL, PrivacySettings
from fda_flower.site.records import (
    ALLOW_RECORDS,
    Kind,
    RecordRule,
    always_released,
    question_of,
    release_of,
)
from fda_flower.site.secure_with import Fingerprints, refuses_keys, refuses_sum
from fda_flower.site.words import WithheldError
from fda_flower.wire import protocol
from fda_flower.wire.asked.columns import DescribeColumns
from fda_flower.wire.asked.secure_sums import MaskSums
from fda_flower.wire.questions import Answer, Question
from fda_flower.wire.releases import OF_SUMS, Release

STRANGERS = (
    "the server names the sources whose masks hide a site's sums, and one that lies invents them: list the "
    "sources and their keys in the node configuration's secure-with, or trust the server by secure-with = any"
)

OF_COLUMNS = {each.message_type() for each in (DescribeColumns, MaskSums)}
"""Types of messages with which runs on tables, not all runs, learn what the columns have in common."""
ANNOUNCED = {protocol.OPEN_SUMS: Release.SUMS, protocol.FEATURES: Release.SAMPLES}
"""What a run releases by what it says in the role query."""


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
        ``none``; see `fda_flower.wire.asked`. Default: the questions of the allowed methods.
    allow_batch_updates : str
        ``allow-batch-updates``: the per-batch data that may leave the site, one of `LEVELS`. Default:
        ``full``, and with `require_secure`, but not `as_target`, ``norms``: the others are sums of gradients.

        It covers the records ``batch-updates`` and ``gradients``, by their form.

        Several sketches of one vector with different maps together reveal the vector. Therefore a sketch
        leaves only with the round's number as seed, and of all rounds only as many as `sketch_may_leave`
        permits.
    require_secure : bool
        ``require-secure``: what is a function of sums over rows leaves the site only masked, or with its own
        noise: open sums, Gaussians, heads fitted to sums and their metrics, sketches of batches (`held`).
        Features of samples stay whatever their noise. Default: at each node with a ``domain``, ``data-dir``
        or ``state-dir``. Open sums stay, too, if the run's configuration has the method option
        ``secure``, whatever a message asks for.
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
    min_cell : int
        ``min-cell``: what each count of samples or patients in an array that leaves is a multiple of, so that
        no small count can be read off; 1 for exact counts.
    apps : tuple of str
        ``apps``: the apps that may start, by the SHA-256 of their bundles, such as ``sha256:5d41...``. Only
        ``fda-supernode`` can hold this rule: under another SuperNode the site refuses all messages.
    allow_records : RecordRule, optional
        ``allow-records``: the records that may leave. The reasons of errors then stay at the site.
    allow_models : tuple of str, optional
        ``allow-models``: the modules and files of weights that a run's model may name. A site that approves
        apps by their digests has the rule, too, since a run's configuration is no part of its app.
    privacy : PrivacySettings, optional
        The site's own settings; setting any of them overrides all of the run's.
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
    is_strict: bool = False
    """Whether what nobody has declared counts as ``full``: if the site itself has set the level."""
    secure_with: Fingerprints | None = None
    allow_models: tuple[str, ...] | None = None
    privacy: PrivacySettings | None = None
    min_cell: int = MIN_CELL

    @property
    def has_noise(self) -> bool:
        """Whether what leaves has noise by the site's own settings; what has no known noise then stays."""
        return self.privacy is not None and self.privacy.private

    @property
    def of_patients(self) -> bool:
        """Whether sums have noise for each patient by the site's own settings, not the run's."""
        return self.privacy is not None and self.privacy.of_patients

    @property
    def opens_target(self) -> bool:
        """Whether a model that the target trains leaves without noise by the site's own settings."""
        return self.privacy is not None and self.privacy.dp_open_target

    def check_methods(self, methods: Collection[str]) -> None:
        """Raise a `ConfigError` for a method in ``allow-methods`` that is not among the existing ones."""
        for name in self.allow_methods if methods else ():
            if name != "all" and name not in methods:
                raise unknown("method", name, [*methods, "all"])

    def refuses_app(self, digest: str) -> str | None:
        """Return why an app, by the SHA-256 of its bundle, may not start; None if it may."""
        if not self.apps or digest in self.apps:
            return None
        return f"the site has not approved the app sha256:{digest} (the site's apps)"

    def refuses_message(self, asked: Asked) -> str | None:
        """Return why the site refuses a message, before any data are read; None if it accepts."""
        if self._is_open and not asked.secure:
            return self._another_question(asked)
        if self.apps and not asked.site.gated:
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
        released |= {kind for word, kind in ANNOUNCED.items() if announced(asked) == word}
        return self._in_the_open(held & released)

    def _with_strangers(self, asked: Asked) -> str | None:
        masks = MaskSums.among(asked.asks)
        if not masks and announced(asked) != protocol.MASKED_SUMS:
            return None
        if self.secure_with is None:
            return STRANGERS if self.require_secure else None
        reason = refuses_sum(asked.site, self.secure_with)
        if reason is not None or not masks:
            return reason
        return refuses_keys(asked.message, asked.context.run_id, asked.site.domain, self.secure_with)

    @property
    def hides_heads(self) -> bool:
        """Whether a head that is fitted to the site's rows, and all that follows from it, stays here."""
        return Release.HEAD in self._held[False]

    def held(self, asked: Asked) -> frozenset[Kind]:
        """Return the kinds of `Release` that stay at the site, None for what nobody has declared."""
        return self._held[asked.secure]

    @cached_property
    def _held(self) -> tuple[frozenset[Kind], frozenset[Kind]]:
        """What stays at the site in a run with open sums, and in one with masked sums."""
        required = {Release.SUMS, Release.SAMPLES, None} | (set() if self.as_target else {Release.HEAD})
        own: set[Kind] = {*required} if self.require_secure else set()
        covered = {Release.HEAD} if self.has_noise else set()
        covered |= {Release.SUMS} if self.of_patients else set()
        return frozenset(own - covered), frozenset((own | {Release.SUMS}) - covered)

    def _in_the_open(self, kinds: Collection[Kind]) -> str | None:
        """Return why something of these `kinds`, which the site holds, may not leave; None if none."""
        if not kinds:
            return None
        if not self.require_secure:
            return "sums leave this site only masked, not open (the run's option secure)"
        said = "(the site's require-secure)"
        if Release.SAMPLES in kinds:
            return (
                "features of samples reveal the samples and leave this site only if its node configuration "
                f"has require-secure = false: choose a method that sends none, such as kd3a {said}"
            )
        if Release.SUMS in kinds:
            return (
                "open sums reveal samples exactly and leave this site only if its node configuration has "
                "require-secure = false: mask them by the method option secure=true, or let the site add "
                f"noise by dp-unit = patient {said}"
            )
        if Release.HEAD in kinds:
            return (
                "a head fitted to the site's rows reveals their sums to whoever chooses what is added to "
                "them, and leaves this site only if its node configuration has role = target and no "
                f"require-secure, or require-secure = false {said}"
            )
        return f"nobody has declared what the answer releases: give each field a Release {said}"

    def refuses_rare(self, asked: Asked, fewest: object) -> str | None:
        """Return why a reply may not leave, given the fewest units of a class; None if it may."""
        has_noise = self.has_noise and not (self.opens_target and asked.role == "target")
        if not isinstance(fewest, int) or fewest >= self.min_per_class or has_noise:
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
            f"the site's model would be trained on fewer labelled patients than the {self.min_samples} that "
            "the site requires: let the run use more of its samples (the site's min-samples)"
        )

    def _rare_class(self, asked: Asked, record: ArrayRecord) -> str | None:
        """Return why open sums may not leave; see `fda_flower.aggregation.to_targets` for what they hold."""
        if self.of_patients or not self.min_per_class:
            return None
        names = ("gram", "products", "squares")
        gram, products, squares = (values_in(record[name]) if name in record else None for name in names)
        if (
            (gram is None or products is None or squares is None)
            or (gram.ndim, products.ndim, products.shape[1:]) != (1, 2, squares.shape)
            or not (gram.size and products.size)
        ):
            return "its sums are of an unknown form"
        counts = counts_of_classes(float(gram[-1]), products, squares)
        if counts is None or not any(0.5 < count < self.min_per_class - 0.5 for count in counts):
            return None
        return (
            f"a class has fewer than {self.min_per_class} samples here, and open sums reveal them: mask the "
            "sums by the method option secure=true"
        )

    def refuses_reply(self, asked: Asked, reply: RecordDict) -> str | None:
        """Return why a reply may not leave the site, whatever was requested; None if it may.

        Raises a `WithheldError` if the rule ``allow-records`` does not know something in it.
        """
        if self._is_open and not asked.secure:
            return self._a_small_cell(asked, reply)
        unnamed = self.allow_records and self.allow_records.refuses(asked.message.content, reply)
        if unnamed:
            remedy = "name it, or give its pattern a size"
            raise WithheldError(f"{unnamed} may not leave this site: {remedy} (the site's {ALLOW_RECORDS})")
        if reason := self._tells_too_much(asked, reply):
            return f"{reason} (the site's allow-batch-updates)"
        if reason := self._too_few_samples(asked, reply):
            return reason
        if protocol.SUMS in reply and (reason := self._rare_class(asked, reply.array_records[protocol.SUMS])):
            return f"{reason} (the site's min-per-class)"
        if reason := self._a_small_cell(asked, reply):
            return reason
        if not (held := self.held(asked)):
            return None
        kind, answers = asked.message.metadata.message_type, _answers_in(reply)
        kinds: set[Kind] = {release_of(kind, *each) for each in answers}
        return self._in_the_open(held & (kinds | ({Release.SUMS} if protocol.SUMS in reply else set())))

    @cached_property
    def _is_open(self) -> bool:
        """Whether, with open sums, only another question or a small count could be against the rules."""
        return replace(self, privacy=None, min_cell=MIN_CELL) == Rules()

    def _a_small_cell(self, asked: Asked, reply: RecordDict) -> str | None:
        """Return why a reply may not leave if an array of counts in it has a small one."""
        kind = asked.message.metadata.message_type
        for name, record in reply.items():
            if isinstance(record, ArrayRecord) and release_of(kind, name) == Release.COUNTS:
                for counts in map(values_in, record.values()):
                    if counts is None or (counts % self.min_cell != 0).any():
                        return f"a count is no multiple of {self.min_cell} (the site's min-cell)"
        return None

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
        """Return why the site does not answer a message, or what a run that asks for its role will ask."""
        plain = (protocol.TRAIN, protocol.EVALUATE)
        coming = sorted({*(asked.messages or ())} - OF_COLUMNS)
        for kind in asked.asks if asked.kind in plain else coming:
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
        remedy = (question or Question).remedy
        return (
            f"the site answers the questions {allowed}, not '{kind}': {remedy} (the site's allow-questions)"
        )

    def _asks_too_much(self, asked: Asked) -> str | None:
        if self.allow_batch_updates == LEVELS[-1]:
            return None
        wanted = wanted_level(asked)
        if not self._allows(wanted):
            return (
                f"the site allows '{self.allow_batch_updates}' of each batch, not the requested '{wanted}': "
                "choose another encoding, aggregate_on=target, a fixed beta, or another method; or let the "
                "site allow it, a target by its role = target, a source by require-secure = false"
            )
        return refuses_sketch(asked) if wanted == self.allow_batch_updates == "sketch" else None

    def _tells_too_much(self, asked: Asked, reply: RecordDict) -> str | None:
        level = self.allow_batch_updates
        if level == LEVELS[-1]:
            return None
        for name in reply:
            found = level_in(asked, reply, name, self.is_strict)
            if not self._allows(found):
                return f"the site allows '{level}' of each batch, the record '{name}' has '{found}'"
        return None

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
        return (
            f"the site's model would be trained on fewer labelled samples than the {self.min_samples} that "
            "the site requires: let the run use more of its samples, or hold out fewer (the site's "
            "min-samples)"
        )

    def _allows(self, level: str) -> bool:
        return LEVELS.index(level) <= LEVELS.index(self.allow_batch_updates)


def _answers_in(reply: RecordDict) -> list[tuple[str, str]]:
    """Return the records and entries of a reply's answer; a record other than ``answer`` is one."""
    answers = [name for name in reply if name.startswith(Answer.record_name)]
    if not answers:
        return []
    answers = [name for name in answers if name.partition("/")[0] == Answer.record_name]
    whole = [(name, "") for name in answers if name != Answer.record_name]
    numbers = reply.get(Answer.record_name, ConfigRecord())
    return whole + [(Answer.record_name, entry) for entry in numbers]


def _field(record: str, entry: str) -> str:
    return (record.partition("/")[2] or entry).partition("/")[0]
