"""A message as a site's rules see it: its types, settings and model, and what the run says of itself."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from numpy.typing import NDArray

from fda_flower.names.options import EVERY_SITE, split_options
from fda_flower.wire import protocol
from fda_flower.wire.arrays import num_bytes, to_read
from fda_flower.wire.questions import Question

if TYPE_CHECKING:
    from fda_flower.site.node import Site

HEADER = 256
"""Upper bound on the header of NumPy's file format for an array of numbers."""


@dataclass(frozen=True)
class Asked:
    """A message with its context, the node, and, if known, the run's method and masked sums, and a role.

    `messages` are the types of the messages that the run's method sends to nodes of the role.
    """

    message: Message
    context: Context
    site: "Site"
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

    @cached_property
    def model(self) -> ArrayRecord:
        """The model in the message, or else its largest record of arrays; empty without one."""
        records = self.message.content.array_records
        return records.get(protocol.ARRAYS) or max(records.values(), key=count_numbers, default=ArrayRecord())

    @cached_property
    def numbers(self) -> int:
        """The number of floating-point numbers in the message's model."""
        return count_numbers(self.model)


def announced(asked: Asked) -> object:
    """Return what a role query says that the run will request from a node of this role."""
    asks = asked.settings.get(protocol.ASKS, ConfigRecord()) if asked.kind == "query" else {}
    return asks.get(asked.role or "", "none")


def values_in(array: Array) -> NDArray[Any] | None:
    """Return the numbers in an array; None if its bytes are not an ndarray of plain numbers."""
    try:
        values: object = to_read(array)
    except Exception:  # bytes from another program may raise anything
        return None
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiub" or values.dtype.itemsize > 8:
        return None
    return values if num_bytes(array) <= values.nbytes + HEADER else None


def count_numbers(record: ArrayRecord, kinds: str = "f") -> int:
    """Return the number of numbers in a record of arrays, of NumPy's kinds; by default not of integers."""
    found = (values_in(array) for array in record.values())
    return sum(values.size for values in found if values is not None and values.dtype.kind in kinds)


def as_told(asked: Asked) -> Asked:
    """Return a copy with the method and its masks of the run's configuration, and the role of the node's.

    Where every site is a target, the role does not matter.
    """
    run = asked.context.run_config
    method, secure, every_site = _of_run(*(run.get(name) for name in ("method", "method-options", "target")))
    return replace(asked, method=method, role=None if every_site else asked.site.role, secure=secure)


@lru_cache(maxsize=64)
def _of_run(method: object, options: object, target: object) -> tuple[str | None, bool, bool]:
    """Return the method, whether its sums are masked, and whether every site is a target."""
    secure = str(split_options(str(options or "")).get("secure", "")).lower() == "true"
    return None if method is None else str(method), secure, target == EVERY_SITE
