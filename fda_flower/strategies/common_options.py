"""The options that every strategy takes, for the signatures of subclasses, and what their numbers may be."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import TypedDict

from fda_flower.errors import ConfigError
from fda_flower.records import Record
from fda_flower.run_folder import RunFolder
from fda_flower.strategies.buffers import Buffers


class CommonOptions(TypedDict, total=False):
    """Options that every strategy takes; see `DomainAdaptationStrategy`."""

    target: str | None
    min_sources: int
    wait_for: int | None
    wait_seconds: float
    query_timeout: float
    max_held_rounds: int
    max_update_norm: float | None
    warmup_rounds: int
    learning_rate_factor: float
    average: str | None
    buffers: Buffers
    source_mean: str | None
    buffer_names: Collection[str] | None
    arrayrecord_key: str
    configrecord_key: str
    output: RunFolder | None
    outcomes: bool
    evaluate_every: int
    on_round: Callable[[Record], None] | None
    select_by: str
    metric: str | None
    patience: int | None
    validation: Mapping[int, float]


def check_numbers(
    counts: Mapping[str, int | None], warmup_rounds: int, learning_rate_factor: float, query_timeout: float
) -> None:
    """Raise a `ConfigError` if a number cannot work; `counts`, by name, are those that begin at 1."""
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ConfigError(f"{name} is {value}, it must be at least 1")
    if warmup_rounds < 0:
        raise ConfigError(f"warmup_rounds is {warmup_rounds}, it must not be negative")
    if not query_timeout > 0:
        raise ConfigError(f"query_timeout is {query_timeout} seconds, it must be above 0")
    if not 0 < learning_rate_factor < math.inf:
        raise ConfigError(f"learning_rate_factor is {learning_rate_factor}, it must be a number above 0")


def check_rounds(num_rounds: int, warmup_rounds: int) -> None:
    """Raise a `ConfigError` if the warm-up rounds leave no round to the method."""
    if num_rounds <= warmup_rounds:
        raise ConfigError(
            f"num_rounds is {num_rounds}, it must be at least {warmup_rounds + 1}"
            + (f" with {warmup_rounds} warm-up rounds" if warmup_rounds else "")
        )
