"""The records that may leave a site: their names, kinds and sizes, whatever the app is."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from flwr.app import Array, ArrayRecord, RecordDict

from fda_flower.errors import invalid
from fda_flower.wire.arrays import num_bytes

ALLOW_RECORDS = "allow-records"
"""The rule's name in a node configuration."""

Form = tuple[str, tuple[int, ...], str, int]
"""An array's type, shape, format and number of bytes."""


@dataclass(frozen=True)
class Allowed:
    """A pattern of `RecordRule`, and the bytes that its entries may have together; None without a size."""

    pattern: str
    size: int | None

    def fits(self, record: str, entry: str) -> bool:
        """Return whether the pattern is for an entry of a record."""
        return fnmatchcase(record, self.pattern) or fnmatchcase(f"{record}.{entry}", self.pattern)


@dataclass(frozen=True)
class RecordRule:
    """The entries of records that may leave a site: ``allow-records``.

    ``"arrays,metrics.train_loss,info:4000"`` names records, or their entries after a point; ``*`` stands for
    any characters. An array of the name and form of one in the message, and a number, may leave if a pattern
    fits. Anything else, such as a text, may leave if its pattern has a size, in bytes. All entries of a
    pattern with a size share it; names count.

    Examples
    --------
    >>> from flwr.app import MetricRecord
    >>> rule = RecordRule.read("arrays, metrics.loss, info:100")
    >>> rule.refuses(RecordDict(), RecordDict({"metrics": MetricRecord({"loss": 0.5})}))
    >>> rule.refuses(RecordDict(), RecordDict({"metrics": MetricRecord({"patient 7": 0.5})}))
    "the entry 'patient 7' of the record 'metrics'"
    """

    allowed: tuple[Allowed, ...]

    @classmethod
    def read(cls, text: str) -> "RecordRule":
        """Return a rule from its text; raise a `ConfigError` if a pattern is empty or a size no number."""
        patterns = []
        for part in text.split(","):
            pattern, colon, size = (word.strip() for word in part.partition(":"))
            if not pattern or (colon and not size.isdecimal()):
                raise invalid(ALLOW_RECORDS, part.strip(), "give names, with a size in bytes after a colon")
            patterns.append(Allowed(pattern, int(size) if colon else None))
        return cls(tuple(patterns))

    def refuses(self, message: RecordDict, reply: RecordDict) -> str | None:
        """Return the first entry of a reply that may not leave, in words; None if all may."""
        forms = {name: _forms(record) for name, record in message.array_records.items()}
        spent: dict[Allowed, int] = {}
        for record, entry, value in _entries(reply):
            fitting = [each for each in self.allowed if each.fits(record, entry)]
            is_plain = _is_number(value) or _form(value) == forms.get(record, {}).get(entry, ())
            if is_plain and any(each.size is None for each in fitting):
                continue
            for each in fitting:
                needed = spent.get(each, 0) + len(entry.encode()) + _bytes_of(value)
                if each.size is not None and needed <= each.size:
                    spent[each] = needed
                    break
            else:
                what = f"the entry {entry!r} of the record {record!r}" if entry else f"the record {record!r}"
                return what + (f", of {_bytes_of(value)} bytes" if fitting else "")
        return None


def _entries(reply: RecordDict) -> Iterator[tuple[str, str, Any]]:
    """Yield each entry with its record's name; an empty record counts as an entry without a name."""
    for name, record in reply.items():
        yield from ((name, entry, value) for entry, value in record.items()) if record else [(name, "", 0)]


def _forms(record: ArrayRecord) -> dict[str, Form]:
    return {name: form for name, array in record.items() if (form := _form(array))}


def _form(value: object) -> Form | tuple[()]:
    if not isinstance(value, Array):
        return ()
    return value.dtype, tuple(value.shape), value.stype, num_bytes(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _bytes_of(value: Any) -> int:
    if isinstance(value, Array):
        return num_bytes(value) + len(value.dtype.encode()) + len(value.stype.encode())
    if isinstance(value, str | bytes):
        return len(value.encode() if isinstance(value, str) else value)
    return sum(map(_bytes_of, value)) if isinstance(value, list) else 8
