"""What a client keeps for itself between rounds and never sends: files, or records of Flower's context."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from logging import WARNING
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, RecordDict
from flwr.common.logger import log
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fda_flower.aggregation import Layers
from fda_flower.errors import RunError
from fda_flower.files import write_atomically
from fda_flower.protocol import to_layers, to_record

Kept = tuple[dict[str, NDArray[Any]], dict[str, Any]]
"""Arrays, and notes that JSON can hold."""


@dataclass(frozen=True)
class OwnState:
    """A client's own store of arrays with notes.

    Attributes
    ----------
    records : RecordDict
        The context's state, which lasts as long as the run's processes.
    folder : Path, optional
        Where files are kept instead; made if it does not exist.
    """

    records: RecordDict
    folder: Path | None = None

    def load(self, name: str) -> Kept | None:
        """Return the arrays and notes kept under a name; None if there are none, or they are damaged."""
        if self.folder is None:
            if name not in self.records.array_records:
                return None
            notes = json.loads(str(self.records.config_records[_notes(name)]["json"]))
            return to_layers(self.records.array_records[name]), notes
        path = self._path(self.folder, name)
        if not path.exists():
            return None
        try:
            with safe_open(path, "numpy") as file:
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
                return arrays, json.loads(file.metadata()["notes"])
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            log(WARNING, "The client's state '%s' is damaged (%s): it is made again", path, error)
            return None

    def save(self, name: str, layers: Layers, notes: Mapping[str, Any]) -> None:
        """Keep arrays and notes under a name.

        Raises
        ------
        RunError
            If the file cannot be written.
        """
        text = json.dumps(dict(notes))
        if self.folder is None:
            self.records[name] = to_record(layers)
            self.records[_notes(name)] = ConfigRecord({"json": text})
            return
        path = self._path(self.folder, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, save(dict(layers), {"notes": text}))
        except OSError as error:
            raise RunError(f"the client's state '{path}' cannot be written ({error}): make room") from error

    @staticmethod
    def _path(folder: Path, name: str) -> Path:
        return folder / f"{name}.safetensors"


def _notes(name: str) -> str:
    return f"{name}.notes"
