"""Rounds as TensorBoard events, to watch a run."""

import time
from collections.abc import Callable
from pathlib import Path

from fda_flower.errors import ConfigError
from fda_flower.metrics import METRICS
from fda_flower.records import Record


def tensorboard_writer(folder: Path) -> Callable[[Record], None]:
    """Make an ``on_round`` callback that writes a round's scalars into `folder`, at the round's step.

    ``target/NAME`` and ``target/NAME-average`` of each figure of `fda_flower.metrics.METRICS`,
    ``beta/<source>``, ``weight/<source>``, ``cosine/<source>``, ``kept/<source>`` and
    ``seconds/<phase>``, each if it is known.

    Raises
    ------
    ConfigError
        If tensorboard is not installed, or the folder cannot be written.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
        from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
        from tensorboard.summary.writer.event_file_writer import (  # type: ignore[import-untyped]
            EventFileWriter,
        )
    except ImportError as error:
        raise ConfigError("tensorboard is not installed: pip install 'fda-flower[tensorboard]'") from error
    try:
        writer = EventFileWriter(str(folder))
    except OSError as error:
        raise ConfigError(f"cannot write TensorBoard events to '{folder}': {error}") from error

    def write(record: Record) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(record).items()]
        writer.add_event(Event(wall_time=time.time(), step=record["round"], summary=Summary(value=values)))
        writer.flush()

    return write


def scalars(record: Record) -> dict[str, float]:
    """Return the numbers of a round to plot, by tag."""
    values = {
        f"target/{name}{ending}": record.get(f"{name}{ending}")
        for ending in ("", "-average")
        for name in METRICS
    }
    for key in ("beta", "weight", "cosine", "kept"):
        values |= {f"{key}/{domain}": entry.get(key) for domain, entry in record["sources"].items()}
    values |= {f"seconds/{phase}": seconds for phase, seconds in record["seconds"].items()}
    return {tag: value for tag, value in values.items() if value is not None}
