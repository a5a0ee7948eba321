"""Rounds as TensorBoard's events, in the run's folder."""

import time
from collections.abc import Mapping

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from fda_flower.reporting.trackers.tracking import TrackedRun


class TensorBoard:
    """Writes a round's numbers as scalars, at the round's step; they can be read at once."""

    def __init__(self, run: TrackedRun) -> None:
        self.id = run.name
        self._writer = EventFileWriter(str(run.folder))

    def record(self, number: int, values: Mapping[str, float]) -> None:
        """Write a round."""
        scalars = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=number, summary=Summary(value=scalars)))
        self._writer.flush()

    def close(self, finished: bool) -> None:
        """Close the file, and end the thread that writes it."""
        self._writer.close()
