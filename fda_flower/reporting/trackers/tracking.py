"""The numbers of a round, for all trackers alike."""

import json
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol, Self

from fda_flower.files import write_atomically
from fda_flower.records.folder import RunFolder
from fda_flower.records.record import Record
from fda_flower.reporting.trackers import TRACKERS


def numbers(record: Record) -> dict[str, float]:
    """Return the finite numbers of a record by their paths, without the round's.

    A number of a source is called ``KEY/SOURCE``, which groups all sources.

    Examples
    --------
    >>> record = {"round": 3, "accuracy": 0.5, "sources": {"usps": {"beta": 0.25, "domain": "usps"}}}
    >>> numbers(record | {"held": None, "seconds": {"train": 1.5}})
    {'accuracy': 0.5, 'seconds/train': 1.5, 'beta/usps': 0.25}
    """
    rest = {key: value for key, value in record.items() if key not in ("round", "sources")}
    values = dict(_below("", rest))
    for source, entry in record["sources"].items():
        values |= {f"{key}/{source}": value for key, value in _below("", entry)}
    return values


def _below(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _below(f"{path}{key}/", value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield f"{path}{key}", float(value)


PROJECT = "fda-flower"
"""The name under which trackers keep all runs of this package, unless their own variables give another."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers take it: its folder and settings, and versions of packages by name; never its data.

    `store` is the folder of a local store: the run's, its comparison's or its experiment's. `id` is what
    `Tracker.id` was when the run was begun; None if it begins now.
    """

    folder: Path
    store: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name


class Tracker(Protocol):
    """Shows one run. Its class takes a `TrackedRun`; whatever it raises turns it off."""

    id: str
    """Lets a resumed run find its tracked run again."""

    def record(self, number: int, values: Mapping[str, float]) -> None:
        """Show a round's numbers."""

    def close(self, finished: bool) -> None:
        """End, and say whether the run is finished."""


STATE = "trackers.json"
"""In the run's folder: by tracker, the id of its run and the last round that it has."""
LOG = logging.getLogger("flwr.trackers")


class Tracking:
    """Shows the rounds of a run in trackers, from ``with`` until its end.

    A tracker of a resumed run goes on where it was. Rounds that it lacks, such as those before it was asked
    for, are taken from the run's folder; rounds that it has are not shown again. `names` are keys of
    `TRACKERS`.
    """

    def __init__(self, names: Sequence[str], run: TrackedRun) -> None:
        self._names = names
        self._run = run
        self._trackers: dict[str, Tracker] = {}
        self._rounds = dict.fromkeys(names, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
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
        try:
            known = dict(json.loads((self._run.folder / STATE).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            known = {}
        for name in self._names:
            id_, self._rounds[name] = known.get(name, (None, 0))
            self._try(name, partial(self._add, name, id_))

    def _add(self, name: str, id_: str | None) -> None:
        self._trackers[name] = resolve_name(TRACKERS[name].tracker)(replace(self._run, id=id_))

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

    def _try(self, name: str, call: Callable[[], None]) -> None:
        try:
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
