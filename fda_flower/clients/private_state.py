"""A client's private state between rounds: files, or records of Flower's context."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from logging import WARNING
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, RecordDict
from flwr.common import log
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fda_flower.aggregation import Layers
from fda_flower.errors import RunError
from fda_flower.files import PRIVATE, as_safetensors, checksum, make_private, write_atomically
from fda_flower.wire.protocol import to_layers, to_record

Kept = tuple[dict[str, NDArray[Any]], dict[str, Any]]
"""Arrays, and notes that JSON can represent."""


@dataclass(frozen=True)
class PrivateState:
    """A client's private store of arrays with notes, which the server never sees.

    A client object lasts for one message; this lasts as long as the context (`records`) or the files in a
    `folder`. Save last in a round, so that a failed training changes nothing.
    """

    records: RecordDict
    folder: Path | None = None

    def load(self, name: str) -> Kept | None:
        """Return the arrays and notes under a name; None if they are missing or damaged."""
        try:
            return self.read(name)
        except RunError as error:
            log(
                WARNING,
                "The client's state '%s' is damaged (%s): it is made again",
                error.value,
                error.__cause__,
            )
            return None

    def read(self, name: str) -> Kept | None:
        """Return the arrays and notes under a name; None if they are missing.

        Raises a `RunError` if they are damaged: for what a site must not forget.
        """
        if self.folder is None:
            if name not in self.records.array_records:
                return None
            notes = json.loads(str(self.records.config_records[_notes(name)]["json"]))
            return to_layers(self.records.array_records[name]), notes
        path = self._path(self.folder, name)
        try:
            with safe_open(path, "numpy") as file:
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
                notes = json.loads(file.metadata()["notes"])
            if checksum(notes, arrays) != notes["sha256"]:
                raise ValueError("its checksum does not match")
            return arrays, notes
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise RunError(
                f"the client's state '{path}' is damaged ({error})",
                thing="client's state",
                value=path,
                remedy="restore the file from a copy, or start another run",
            ) from error

    def save(self, name: str, layers: Layers, notes: Mapping[str, Any]) -> None:
        """Store arrays and notes under a name; raise a `RunError` if the file cannot be written."""
        if self.folder is None:
            self.records[name] = to_record(layers)
            self.records[_notes(name)] = ConfigRecord({"json": json.dumps(dict(notes))})
            return
        path = self._path(self.folder, name)
        text = json.dumps({**notes, "sha256": checksum(notes, layers)})
        with _writing(path):
            make_private(path.parent)
            write_atomically(path, as_safetensors(layers, {"notes": text}), PRIVATE)

    def load_before(self, name: str, round: int) -> Kept | None:
        """Return the last arrays and notes from before a round, so that a repeated round starts equally."""
        states = [state for state in (self.load(name), self.load(_before(name))) if state is not None]
        return next((state for state in states if state[1]["round"] < round), None)

    def save_after(self, name: str, layers: Layers, notes: Mapping[str, Any], round: int) -> None:
        """Store arrays and notes of a round, and keep those from before it; see `load_before`."""
        last = self.load(name)
        if last is not None and last[1]["round"] < round:
            self._move(name, _before(name))
        self.save(name, layers, {**notes, "round": round})

    def _move(self, name: str, other: str) -> None:
        if self.folder is not None:
            with _writing(self._path(self.folder, other)) as path:
                self._path(self.folder, name).replace(path)
            return
        for own, to in ((name, other), (_notes(name), _notes(other))):
            self.records[to] = self.records.pop(own)

    @staticmethod
    def _path(folder: Path, name: str) -> Path:
        return folder / f"{name}.safetensors"


@contextmanager
def _writing(path: Path) -> Iterator[Path]:
    try:
        yield path
    except OSError as error:
        raise RunError(
            f"the client's state '{path}' cannot be written ({error}): make room, or make the folder "
            "writable",
            thing="client's state",
            value=path,
        ) from error


def _before(name: str) -> str:
    return f"{name}-before"


def _notes(name: str) -> str:
    return f"{name}.notes"
