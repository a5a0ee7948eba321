"""The options that every strategy takes, for the signatures of subclasses."""

from collections.abc import Callable, Collection
from typing import TypedDict

from fda_flower.strategies.collect import Oversized
from fda_flower.strategies.run_folder import Record, RunFolder


class CommonOptions(TypedDict, total=False):
    """Options that every strategy takes; see `DomainAdaptationStrategy`."""

    target: str | None
    min_sources: int
    wait_for: int | None
    wait_seconds: float
    max_target_misses: int
    max_update_norm: float | None
    oversized: Oversized
    initial_rounds: int
    rate_factor: float
    buffers: Collection[str] | None
    arrayrecord_key: str
    configrecord_key: str
    output: RunFolder | None
    on_round: Callable[[Record], None] | None
