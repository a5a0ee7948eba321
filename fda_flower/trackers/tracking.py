"""All trackers of a run, as best they can: one that fails is off, and the run goes on."""

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fda_flower.files import write_atomically
from fda_flower.records import Record
from fda_flower.run_folder import RunFolder
from fda_flower.trackers.registry import TRACKERS
from fda_flower.trackers.tracked_run import TrackedRun, Tracker
from fda_flower.trackers.values import numbers

STATE = "trackers.json"
"""In the run's folder: by tracker, the id of its run and the last round that it has."""
LOG = logging.getLogger("flwr.trackers")


class Tracking:
    """Shows the rounds of a run in trackers, from ``with`` until its end.

    A tracker of a resumed run goes on where it was. Rounds that it lacks, such as those before it was asked
    for, are taken from the run's folder; rounds that it has are not shown again.

    Parameters
    ----------
    names : sequence of str
        Keys of `TRACKERS`.
    run : TrackedRun
        The run.
    """

    def __init__(self, names: Sequence[str], run: TrackedRun) -> None:
        self._names = names
        self._run = run
        self._trackers: dict[str, Tracker] = {}
        self._rounds = dict.fromkeys(names, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, tracker in list(self._trackers.items()):
            self._try(name, partial(tracker.close, finished=kind is None))

    def record(self, record: Record) -> None:
        """Show a round in all trackers that work; the first round begins them."""
        if not self._trackers and self._names:
            self._begin()
        for name, tracker in list(self._trackers.items()):
            self._try(name, partial(self._show, name, tracker, record))
        self._names = list(self._trackers)

    def _begin(self) -> None:
        known = self._read_state()
        for name in self._names:
            id_, self._rounds[name] = known.get(name, (None, 0))
            self._try(name, partial(self._add, name, id_))

    def _add(self, name: str, id_: str | None) -> None:
        self._trackers[name] = TRACKERS[name].begin(replace(self._run, id=id_))

    def _show(self, name: str, tracker: Tracker, record: Record) -> None:
        last = self._rounds[name]
        if record["round"] <= last:
            return
        before = RunFolder(self._run.folder).read_rounds() if record["round"] > last + 1 else []
        missing = [each for each in before if last < each["round"] < record["round"]]
        for each in (*missing, record):
            tracker.record(each["round"], numbers(each))
        self._rounds[name] = record["round"]
        state = {key: [each.id, self._rounds[key]] for key, each in self._trackers.items()}
        write_atomically(self._run.folder / STATE, (json.dumps(state) + "\n").encode())

    def _read_state(self) -> dict[str, Any]:
        path: Path = self._run.folder / STATE
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return {}

    def _try(self, name: str, call: Callable[[], None]) -> None:
        try:
            # What a tracker's package warns of is not for the user of this one.
            with warnings.catch_warnings(action="ignore"), _variables(TRACKERS[name].variables):
                call()
        except Exception as error:
            self._trackers.pop(name, None)
            LOG.warning("The tracker %s is off, the run goes on: %r", name, error)


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Inside, set the environment variables that are not set."""
    new = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)
