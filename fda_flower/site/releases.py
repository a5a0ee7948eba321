"""What the replies to each type of message release: the table that a site's rules, noise and log read."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from flwr.app import ArrayRecord, RecordDict

from fda_flower.wire import protocol
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.questions import Answer, Question
from fda_flower.wire.releases import INFO, METRICS, RECORDS, Release

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
        return METRICS.get(entry, Release.FIGURES)
    if record == protocol.INFO:
        return INFO.get(entry)
    if record == protocol.ARRAYS and question is not None and kind == protocol.TRAIN:
        return question.model
    return RECORDS.get(kind, {}).get(record)


def entries_of(reply: RecordDict) -> Iterator[tuple[str, str, Any]]:
    """Yield the record, the name and the value of each entry of a reply; a record of arrays is one entry."""
    for record, content in reply.items():
        if isinstance(content, ArrayRecord):
            yield record, "", content
        else:
            yield from ((record, name, value) for name, value in content.items())


def released_by(message_type: str, reply: RecordDict) -> dict[Kind, list[str]]:
    """Return the names of a reply's entries by what they release."""
    found: dict[Kind, list[str]] = {}
    for record, entry, _ in entries_of(reply):
        kind = release_of(message_type, record, entry)
        found.setdefault(kind, []).append(f"{record}.{entry}" if entry else record)
    return found


def table() -> Mapping[str, frozenset[Kind]]:
    """Return all that the replies to each type of message may release, plain messages first."""
    plain = {
        protocol.ROLE_QUERY: frozenset(INFO.values()),
        protocol.TRAIN: frozenset({*RECORDS[protocol.TRAIN].values(), *METRICS.values(), Release.FIGURES}),
        protocol.EVALUATE: frozenset({*RECORDS[protocol.EVALUATE].values(), Release.COUNTS}),
    }
    asked = {
        name: always_released(name) | {*question.answer.releases().values(), Release.COUNTS}
        for name, question in sorted(QUESTIONS.items())
    }
    return {**plain, **asked}
