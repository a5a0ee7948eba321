"""The numbers of a round, for all trackers alike."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from fda_flower.records import Record


def numbers(record: Record) -> dict[str, float]:
    """Return the finite numbers of a record by their paths, without the round's.

    A number of a source is called ``KEY/SOURCE``, so that those of all sources stand side by side.

    Examples
    --------
    >>> record = {"round": 3, "accuracy": 0.5, "sources": {"usps": {"beta": 0.25, "domain": "usps"}}}
    >>> numbers(record | {"held": None, "seconds": {"train": 1.5}})
    {'accuracy': 0.5, 'seconds/train': 1.5, 'beta/usps': 0.25}
    """
    rest = {key: value for key, value in record.items() if key not in ("round", "sources")}
    found = dict(_below("", rest))
    for source, entry in record["sources"].items():
        found |= {f"{key}/{source}": value for key, value in _below("", entry)}
    return found


def _below(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _below(f"{path}{key}/", value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield f"{path}{key}", float(value)
