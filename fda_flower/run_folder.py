"""The files of a run: its configuration, a line a round, and a checkpoint, so that it can be resumed."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fda_flower.aggregation import Layers
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import json_safe, write_atomically
from fda_flower.records import Record

Checkpoint = tuple[dict[str, NDArray[Any]], int, Record]


class RunFolder:
    """The folder of one run.

    ======================= =======================================================================
    ``config.json``         everything that defines the run
    ``rounds.jsonl``        one line a round, written when the round ends
    ``checkpoint``          the models (safetensors), the round and the strategy's state, one file
    ======================= =======================================================================

    Parameters
    ----------
    path : str or Path
        Made if it does not exist.
    config : Mapping, optional
        What defines the run. A folder is only ever resumed with the same.
    notes : Mapping, optional
        Written into ``config.json`` beside it, free to differ on resume (versions, machine, rounds).
    resume : bool
        Go on from the checkpoint, if there is one. Without it a folder that holds a run is refused.
    """

    def __init__(
        self,
        path: str | Path,
        config: Mapping[str, Any] | None = None,
        notes: Mapping[str, Any] | None = None,
        resume: bool = False,
    ) -> None:
        self.path = Path(path)
        self.config: Record = dict(config or {})
        self._notes = dict(notes or {})
        self._resume = resume

    def open(self, strategy: Mapping[str, Any]) -> Checkpoint | None:
        """Check that the folder is free for this run, or holds it; nothing is written yet.

        Parameters
        ----------
        strategy : Mapping
            The strategy's own settings; they define the run too.

        Returns
        -------
        tuple or None
            Model, round and strategy state of the checkpoint to go on from.

        Raises
        ------
        ConfigError
            If the folder holds another run, or a run that is not to be resumed, or cannot be written.
        RunError
            If its checkpoint or its records are damaged.
        """
        self.config = json.loads(json.dumps({**self.config, "strategy": dict(strategy)}))
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write to the output folder '{self.path}': {error}") from error
        found = self._read_config()
        if found is not None:
            self._check_same(found)
        if not (self.path / "checkpoint").exists():
            return None
        checkpoint = self.load_checkpoint()
        self._rounds_up_to(checkpoint[1])
        return checkpoint

    def begin(self, done: int) -> None:
        """Write the configuration, and drop the lines of rounds after the `done` ones: they run again.

        Raises
        ------
        ConfigError
            If the folder cannot be written.
        """
        config = json.dumps({"run": self.config, **self._notes}, indent=2) + "\n"
        text = "".join(json.dumps(record) + "\n" for record in self._rounds_up_to(done))
        try:
            write_atomically(self.path / "config.json", config.encode())
            write_atomically(self.path / "rounds.jsonl", text.encode())
        except OSError as error:
            raise ConfigError(f"cannot write to the output folder '{self.path}': {error}") from error

    def save_round(
        self, record: Record, model: Layers, state: Record, kept: Mapping[str, Layers] | None = None
    ) -> None:
        """Append a round's record, then replace the checkpoint.

        Parameters
        ----------
        record : dict
            The round's.
        model : Layers
            The global model.
        state : dict
            What else the strategy needs to go on, as JSON.
        kept : Mapping[str, Layers], optional
            Models that the method keeps beside the global one, by names of its own.

        Raises
        ------
        RunError
            If they cannot be written, since the disk is full for one; what was written before stays valid.
        """
        kept = kept or {}
        header = {
            "round": record["round"],
            "state": state,
            "run": self.config,
            # A safetensors file sorts its arrays: the model's own order is kept beside them.
            "names": list(model),
            "kept": {key: list(layers) for key, layers in kept.items()},
        }
        own = {_kept(key, name): array for key, layers in kept.items() for name, array in layers.items()}
        arrays = {name: np.asarray(array, order="C") for name, array in {**model, **own}.items()}
        data = save(arrays, metadata={"fda-flower": json.dumps(header)})
        try:
            with (self.path / "rounds.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(json_safe(record)) + "\n")
                file.flush()
                os.fsync(file.fileno())
            write_atomically(self.path / "checkpoint", data)
        except OSError as error:
            raise RunError(
                f"round {record['round']} cannot be written to '{self.path}' ({error}): make room, and resume"
            ) from error

    def load_checkpoint(self) -> Checkpoint:
        """Model, round and strategy state of the last round that was finished.

        Raises
        ------
        ConfigError
            If the checkpoint is of another configuration.
        RunError
            If it is truncated or not a checkpoint.
        """
        with self._checkpoint() as (file, header):
            arrays = {name: file.get_tensor(name) for name in header["names"]}
            run, done, state = header["run"], int(header["round"]), header["state"]
        if self.config and run != self.config:
            raise _other_run(self.path / "checkpoint", run, self.config)
        return arrays, done, state

    def load_kept(self) -> dict[str, dict[str, NDArray[Any]]]:
        """The models that the method keeps beside the global one; a `RunError` as of `load_checkpoint`."""
        with self._checkpoint() as (file, header):
            return {
                key: {name: file.get_tensor(_kept(key, name)) for name in names}
                for key, names in header["kept"].items()
            }

    @contextmanager
    def _checkpoint(self) -> Iterator[tuple[Any, Record]]:
        path = self.path / "checkpoint"
        try:
            with safe_open(path, framework="numpy") as file:
                yield file, json.loads((file.metadata() or {})["fda-flower"])
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise RunError(
                f"the checkpoint '{path}' is damaged ({error}): delete it to start the run again, or "
                "restore it from a copy"
            ) from error

    def read_rounds(self) -> list[Record]:
        """The records written so far; a last line that was cut off is left out."""
        path = self.path / "rounds.jsonl"
        records: list[Record] = []
        for line in path.read_bytes().splitlines() if path.exists() else []:
            try:
                records.append(json.loads(line))
            except ValueError:
                break
        return records

    def _read_config(self) -> Record | None:
        path = self.path / "config.json"
        if not path.exists():
            if any((self.path / name).exists() for name in ("checkpoint", "rounds.jsonl")):
                raise ConfigError(
                    f"'{self.path}' holds a run without its config.json: choose another --output"
                )
            return None
        try:
            config: Record = json.loads(path.read_text(encoding="utf-8"))["run"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"'{path}' is not the configuration of a run ({error}): choose another --output"
            ) from error
        return config

    def _check_same(self, found: Record) -> None:
        if found != self.config:
            raise _other_run(self.path, found, self.config)
        if not self._resume:
            raise ConfigError(
                f"the output folder '{self.path}' already holds this run: go on with --resume "
                "(resume=True), or choose another --output"
            )

    def _rounds_up_to(self, last: int) -> list[Record]:
        records = self.read_rounds()[:last]
        if [record.get("round") for record in records] != list(range(1, last + 1)):
            raise RunError(
                f"'{self.path / 'rounds.jsonl'}' does not hold the rounds 1 to {last} of the checkpoint, a "
                "line is missing or damaged: restore it from a copy, or start again in another --output"
            )
        return records


def _kept(key: str, name: str) -> str:
    return f"kept/{key}/{name}"


def check_same_model(arrays: ArrayRecord, initial: ArrayRecord) -> None:
    """Raise a `ConfigError` unless a checkpoint's arrays are like those of the model to go on with."""
    for name in {*arrays, *initial}:
        ours, other = arrays.get(name), initial.get(name)
        if ours is None or other is None or (ours.shape, ours.dtype) != (other.shape, other.dtype):
            raise ConfigError(
                f"the checkpoint is of another model: '{name}' differs; choose another --output"
            )


def _other_run(path: Path, found: Record, wanted: Record) -> ConfigError:
    keys = sorted(k for k in {*found, *wanted} if found.get(k) != wanted.get(k))
    differences = ", ".join(f"{k}: {found.get(k)!r} there, {wanted.get(k)!r} asked for" for k in keys)
    return ConfigError(f"'{path}' is of another run ({differences}): choose another --output")
