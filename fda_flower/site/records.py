"""The records of a reply: what they release, and the rule by kind, name and size, whatever the app is."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fda_flower.errors import invalid
from fda_flower.metrics import LIMITS, METRICS, SET_METRICS, SETS
from fda_flower.wire import protocol, releases
from fda_flower.wire.arrays import num_bytes
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.questions import Answer, Question
from fda_flower.wire.releases import Release

Kind = Release | None
"""What something releases; None if nobody has declared it."""


def question_of(message_type: str) -> type[Question] | None:
    """Return the question of a type of message; None for a plain message, or one of another app."""
    return QUESTIONS.get(message_type)


def always_released(message_type: str) -> frozenset[Kind]:
    """Return what each reply to a type of message releases, whatever its optional fields.

    Examples
    --------
    >>> sorted(always_released("train.fit_head")), sorted(always_released("train"))
    ([<Release.HEAD: 'head'>], [<Release.MODEL: 'model'>])
    """
    return _always(question_of(message_type), message_type)  # type: ignore[arg-type]  # a class has a hash


@lru_cache(maxsize=256)
def _always(question: type[Question] | None, message_type: str) -> frozenset[Kind]:
    if question is None:
        return frozenset({Release.MODEL} if message_type == protocol.TRAIN else ())
    model = {question.model} if question.kind == protocol.TRAIN else {Release.FIGURES}
    return question.answer.always() | model


def release_of(message_type: str, record: str, entry: str = "") -> Kind:
    """Return what an entry of a record of a reply releases.

    Examples
    --------
    >>> release_of("train.sum_rows", "answer/sums", "gram")
    <Release.SUMS: 'sums'>
    >>> release_of("train", "rows", "0") is None
    True
    """
    question, kind = question_of(message_type), message_type.partition(".")[0]
    first, _, field = record.partition("/")
    if first == Answer.record_name:
        name = (field or entry).partition("/")[0]
        return None if question is None else question.answer.releases().get(name)
    if record == protocol.METRICS:
        return releases.METRICS.get(entry, Release.FIGURES)
    if record == protocol.INFO:
        return releases.INFO.get(entry)
    if record == protocol.ARRAYS and question is not None and kind == protocol.TRAIN:
        return question.model
    return releases.RECORDS.get(kind, {}).get(record)


def entries_of(reply: RecordDict) -> Iterator[tuple[str, str, Any]]:
    """Yield the record, the name and the value of each entry of a reply; a record of arrays is one entry."""
    for record, content in reply.items():
        if isinstance(content, ArrayRecord):
            yield record, "", content
        else:
            yield from ((record, name, value) for name, value in content.items())


def released_by(message_type: str, reply: RecordDict) -> dict[Kind, list[str]]:
    """Return the names of a reply's entries by what they release."""
    names: dict[Kind, list[str]] = {}
    for record, entry, _ in entries_of(reply):
        kind = release_of(message_type, record, entry)
        names.setdefault(kind, []).append(f"{record}.{entry}" if entry else record)
    return names


def table() -> Mapping[str, frozenset[Kind]]:
    """Return all that the replies to each type of message may release, plain messages first."""
    plain = {
        protocol.ROLE_QUERY: frozenset(releases.INFO.values()),
        protocol.TRAIN: frozenset(
            {*releases.RECORDS[protocol.TRAIN].values(), *releases.METRICS.values(), Release.FIGURES}
        ),
        protocol.EVALUATE: frozenset({*releases.RECORDS[protocol.EVALUATE].values(), Release.COUNTS}),
    }
    messages = {
        name: always_released(name) | {*question.answer.releases().values(), Release.COUNTS}
        for name, question in sorted(QUESTIONS.items())
    }
    return {**plain, **messages}


ALLOW_RECORDS = "allow-records"
"""The rule's name in a node configuration."""

KINDS: dict[str, type] = {"arrays": ArrayRecord, "metrics": MetricRecord, "config": ConfigRecord}
"""Flower's kinds of records, by the word for them in a pattern."""

KIND_OF = {
    **dict.fromkeys((protocol.ARRAYS, protocol.BATCH_UPDATES, protocol.GRADIENTS), "arrays"),
    **dict.fromkeys((protocol.OUTCOMES, protocol.CONFUSION), "arrays"),
    **{protocol.METRICS: "metrics"},
    **dict.fromkeys((protocol.CONFIG, protocol.INFO, Answer.record_name), "config"),
}
"""The kinds of the records of this package's messages, and of Flower's templates."""

KNOWN = frozenset(
    {
        *(protocol.NUM_EXAMPLES, protocol.NUM_STEPS, protocol.LEARNING_RATE, protocol.BATCH_SIZE),
        *(protocol.TRAIN_LOSS, "train_loss", "eval_loss", "eval_acc"),
        *(f"{prefix}{name}" for name in METRICS for prefix in ("", f"{protocol.VALIDATION}-")),
        *(f"{SETS}-{name}" for name in SET_METRICS),
        *LIMITS,
    }
)
"""Names of metrics that say nothing, since they are always the same: those of ``fda run`` and of Flower's
templates."""

WILD = frozenset("*?[")
"""Marks that stand for other characters in a pattern."""


@dataclass(frozen=True)
class Allowed:
    """A pattern of `RecordRule`.

    Attributes
    ----------
    kind : type
        Flower's class of the record.
    record, entry : str
        What the names of the record and of its entry must be like; None for any entry.
    size : int or None
        The bytes that all entries of the pattern may have together; None for numbers of known form alone.
    """

    kind: type
    record: str
    entry: str | None
    size: int | None

    @classmethod
    def read(cls, text: str) -> "Allowed":
        """Return a pattern; raise a `ConfigError` if a part of it is missing or unknown."""
        names, colon, size = (word.strip() for word in text.partition(":"))
        word, _, rest = names.partition(" ")
        kind, name = (word, rest.strip()) if word in KINDS and rest else (None, names)
        record, point, entry = name.partition(".")
        if not record or (point and not entry) or (colon and not (size.isascii() and size.isdecimal())):
            raise invalid(ALLOW_RECORDS, text.strip(), "give names, with a size in bytes after a colon")
        if (kind := kind or KIND_OF.get(record)) is None:
            remedy = f"write 'arrays {name}', 'metrics {name}' or 'config {name}'"
            raise invalid(ALLOW_RECORDS, text.strip(), remedy, "whose kind is not known")
        return cls(KINDS[kind], record, entry if point else None, int(size) if colon else None)

    def fits(self, name: str, record: Any, entry: str) -> bool:
        """Return whether the pattern is for an entry of a record."""
        of_entry = self.entry is None or fnmatchcase(entry, self.entry)
        return isinstance(record, self.kind) and fnmatchcase(name, self.record) and of_entry

    def told_by_names(self, name: str, entry: str) -> int:
        """Return the bytes of the names of a record and its entry that the pattern does not give itself."""
        told = 0 if WILD.isdisjoint(self.record) else len(name.encode())
        if self.entry is not None and WILD.isdisjoint(self.entry):
            return told
        return told if self.kind is MetricRecord and entry in KNOWN else told + len(entry.encode())


@dataclass(frozen=True)
class RecordRule:
    """The entries of records that may leave a site: ``allow-records``.

    ``"arrays, metrics.train_loss, info:4000, arrays answer/sums:9000"`` names records, or their entries after
    a point, and before them the records' kind: ``arrays``, ``metrics`` or ``config``. A record of another
    kind does not fit; only names of `KIND_OF` need no kind. ``*`` stands for any characters.

    Under a pattern without a size a number may leave, and an array of the name and form of one in the
    message's record. All else needs a size in bytes, which the entries of a pattern share: texts, bytes,
    lists, other arrays, and names that the pattern does not give in full, unless they are among `KNOWN`.

    Examples
    --------
    >>> rule = RecordRule.read("arrays, metrics.loss, info:100")
    >>> rule.refuses(RecordDict(), RecordDict({"metrics": MetricRecord({"loss": 0.5})}))
    >>> rule.refuses(RecordDict(), RecordDict({"metrics": MetricRecord({"patient 7": 0.5})}))
    "the entry 'patient 7' of the MetricRecord 'metrics'"
    """

    allowed: tuple[Allowed, ...]

    @classmethod
    def read(cls, text: str) -> "RecordRule":
        """Return a rule from its text; raise a `ConfigError` on the first pattern that is wrong."""
        return cls(tuple(map(Allowed.read, text.split(","))))

    def refuses(self, message: RecordDict, reply: RecordDict) -> str | None:
        """Return the first entry of a reply that may not leave, in words; None if all may."""
        spent = Counter[Allowed]()
        for name, record, entry, value in _entries(reply):
            fitting = {
                each: each.told_by_names(name, entry)
                for each in self.allowed
                if each.fits(name, record, entry)
            }
            is_in_message = is_in(message.get(name), entry, value)
            is_plain = is_in_message or isinstance(value, int | float)
            if is_plain and any(
                p.size is None and (is_in_message or not told) for p, told in fitting.items()
            ):
                continue
            for pattern, told in fitting.items():
                needed = spent[pattern] + told + size_of(value)
                if pattern.size is not None and needed <= pattern.size:
                    spent[pattern] = needed
                    break
            else:
                what = f"{type(record).__name__} {name!r}"
                what = f"the entry {entry!r} of the {what}" if record else f"the empty {what}"
                return what + (f", of {len(entry.encode()) + size_of(value)} bytes" if fitting else "")
        return None


def _entries(reply: RecordDict) -> Iterator[tuple[str, Any, str, Any]]:
    """Yield each entry with its record; an empty record counts as one with a number without a name."""
    for name, record in reply.items():
        yield from ((name, record, *each) for each in record.items()) if record else [(name, record, "", 0)]


def is_in(record: object, entry: str, value: object) -> bool:
    """Return whether a value is an array of the name, type, shape, format and length of one in a record."""
    other = record.get(entry) if isinstance(record, ArrayRecord) else None
    return isinstance(value, Array) and other is not None and _form(value) == _form(other)


def _form(array: Array) -> tuple[str, tuple[int, ...], str, int]:
    return array.dtype, tuple(array.shape), array.stype, num_bytes(array)


def size_of(value: object) -> int:
    """Return the bytes in a record, a value of one or an array, including names and other texts."""
    if isinstance(value, Array):
        return size_of(value.dtype) + size_of(value.stype) + 8 * len(value.shape) + num_bytes(value)
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, list):
        return sum(max(1, size_of(each)) for each in value)  # a list of empty texts has a length, too
    if hasattr(value, "items"):
        return sum(size_of(name) + size_of(each) for name, each in value.items())
    return 8
