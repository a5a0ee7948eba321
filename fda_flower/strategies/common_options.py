"""The options that every strategy takes, for the signatures of subclasses."""

from collections.abc import Callable, Collection
from typing import TypedDict

from fda_flower.records import Record
from fda_flower.run_folder import RunFolder
from fda_flower.strategies.validation import OnLargeUpdate


class CommonOptions(TypedDict, total=False):
    """Options that every strategy takes; see `DomainAdaptationStrategy`."""

    target: str | None
    min_sources: int
    wait_for: int | None
    wait_seconds: float
    query_timeout: float
    max_held_rounds: int
    max_update_norm: float | None
    on_large_update: OnLargeUpdate
    warmup_rounds: int
    learning_rate_factor: float
    buffers: Collection[str] | None
    arrayrecord_key: str
    configrecord_key: str
    output: RunFolder | None
    outcomes: bool
    on_round: Callable[[Record], None] | None
