"""A run's folder: its configuration, records and checkpoints."""

import hashlib
import json
import logging
import os
import sys
from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from fda_flower.aggregation import Layers
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import (
    BODY,
    DESCRIPTION,
    LOCK,
    MODEL,
    as_safetensors,
    check_same_network,
    check_writable,
    checksum,
    file_hash,
    json_safe,
    only_writer,
    output_error,
    read_json,
    write_atomically,
)
from fda_flower.records.chain import CHAIN, hash_of, linked, read_links, without_link
from fda_flower.records.parts import EARLIER, earlier_parts
from fda_flower.records.record import CONFUSION, FOLLOWED, LABELS, MEAN_OF_LABELS, Record

if TYPE_CHECKING:
    from flwr.app import ArrayRecord


class StoredSources(Mapping[str, Record]):
    """The sources in a line of ``rounds.jsonl``, which is read when they are asked for.

    Thus the memory of a report does not grow with the sources of each round. Raises a `RunError` if the file
    changes, other than by new rounds, before they are read.
    """

    def __init__(self, path: Path, start: int, count: int) -> None:
        self._path, self._start, self._count = path, start, count

    def _read(self) -> dict[str, Record]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._start)
                sources: dict[str, Record] = json.loads(_decoded(file.readline()))["sources"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = "has changed while its records were read"
            raise RunError(f"'{self._path}' {why}", thing=str(self._path), remedy="try again") from error
        return sources

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __getitem__(self, name: str) -> Record:
        """Return the entry of a source."""
        return self._read()[name]

    def items(self) -> ItemsView[str, Record]:
        """Return all entries by name, read once."""
        return self._read().items()

    def values(self) -> ValuesView[Record]:
        """Return all entries, read once."""
        return self._read().values()


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", errors="replace").removesuffix("\n")


def _with_shared_names(value: Any) -> Any:
    """Return a JSON value whose names are the same objects in every record: a line is read with its own."""
    if isinstance(value, dict):
        return {sys.intern(name): _with_shared_names(each) for name, each in value.items()}
    return [*map(_with_shared_names, value)] if isinstance(value, list) else value


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file as stored; none if there is no file."""
    if path.exists():
        with path.open("rb") as file:
            yield from file


SAMPLES, ANSWERS = "samples", "answers"
"""Notes with a digest of each domain's own samples, by name, and with the numbers of the run's network; see
`fda_flower.models.probe`."""


CONFIG, ROUNDS, CHECKPOINT = "config.json", "rounds.jsonl", "checkpoint"


NEXT_CONFIG = ".config.json.next"
"""The configuration of a run that goes on, until the line that vouches for it is written."""


SUBMITTED = "submitted.json"
"""File in the folder of a run on a server: the run's id on the SuperLink, and its folder there."""


CHOSEN = "checkpoint-selected"
"""Checkpoint of the round that validation has chosen so far."""


CHOSEN_MODEL = "selected"
"""Folder with the target's model of that round."""


@dataclass(frozen=True)
class Checkpoint:
    """The state from which a run resumes.

    It holds the last finished round, 0 before the first; the global model; further models of the method, by
    any name, such as a domain's; the number of consecutive held rounds; and the models of the run's average.
    """

    round: int
    model: Layers
    state: Mapping[str, Layers] = field(default_factory=dict)
    held_rounds: int = 0
    averaged: Sequence[Layers] = ()


class RunFolder:
    """The folder of one run.

    ======================= =======================================================================
    ``config.json``         everything that defines the run
    ``rounds.jsonl``        one line a round, written when the round ends and never changed, with a `Link`
                            to the previous line that reveals changes of the files
    ``checkpoint``          the models (safetensors), the round and a checksum over everything, in one file
    ``checkpoint-selected`` the same for the round that validation has chosen so far, if any
    ``selected/``           the model's files after that round, if its target writes them here
    ======================= =======================================================================

    Parameters
    ----------
    path : str or Path
        Created if it does not exist.
    config : Mapping, optional
        Everything that defines the run. A folder is resumed only with the same configuration.
    notes : Mapping, optional
        Also written into ``config.json``; may differ on resume (versions, machine, rounds).
    resume : bool
        Continue from the checkpoint, if there is one. If False, a folder that holds a run is refused.
    mirror : bool
        Whether the folder mirrors the records of a run on a server, which keeps the checkpoint.

    Attributes
    ----------
    continues : bool
        Whether a strategy continues the run that it has written, as if it resumed it.
    """

    def __init__(
        self,
        path: str | Path,
        config: Mapping[str, Any] | None = None,
        notes: Mapping[str, Any] | None = None,
        resume: bool = False,
        mirror: bool = False,
    ) -> None:
        self.path = Path(path)
        self.config: Record = dict(config or {})
        self._notes = dict(notes or {})
        self._resume = resume
        self.continues = False
        self._mirror = mirror
        self._last = self._body_hash = ""
        self._config_text = b""
        self._config_is_new = True
        self._writing = ExitStack()

    def note(self, name: str, value: Any) -> None:
        """Add a note; `begin` writes the notes into ``config.json``."""
        self._notes[name] = value

    def check(self) -> None:
        """Raise the `ConfigError` of `open` early if the configuration or another writer is the reason."""
        check_writable(self.path)
        if (self.path / LOCK).exists():
            with only_writer(self.path):
                pass
        description = self._read_description()
        if description is not None:
            config = description["run"]
            known = {name: config[name] for name in ("strategy",) if name in config}
            self._check_same(config, json.loads(json.dumps(self.config)) | known)

    def open(self, strategy: Mapping[str, Any]) -> Checkpoint | None:
        """Lock the folder, and check that it is free or holds this run. Nothing is written yet.

        The strategy's settings are part of the run's definition. Returns the checkpoint to resume from, if
        there is one.

        Raises
        ------
        ConfigError
            If the folder holds another run or one that is not to be resumed, is locked by another process, or
            cannot be written.
        RunError
            If its checkpoint or records are missing or damaged.
        """
        self.config = json.loads(json.dumps({**self.config, "strategy": dict(strategy)}))
        with ExitStack() as stack:
            stack.enter_context(only_writer(self.path))
            checkpoint = self._checkpoint()
            self._writing = stack.pop_all()
        return checkpoint

    def close(self) -> None:
        """Unlock the folder."""
        self._writing.close()

    def _checkpoint(self) -> Checkpoint | None:
        description = self._read_description()
        if description is not None:
            self._check_same(description["run"], self.config)
            check_same_data(self.path, description.get(SAMPLES), self._notes.get(SAMPLES))
            check_answers(self.config, description.get(ANSWERS, ()), self._notes.get(ANSWERS, ()))
        there = (self.path / CHECKPOINT).exists()
        if there and self._mirror:
            raise _not_here(self.path, "holds a run of this machine, not one on a server")
        if not there:
            if not self._mirror and (rounds := len(self.read_rounds(light=True))):
                raise _damaged(
                    self.path, f"holds {rounds} rounds, but not their checkpoint", f"the file '{CHECKPOINT}'"
                )
            return None
        checkpoint = self.load_checkpoint()
        self._check_rounds(checkpoint.round)
        from fda_flower.records.verification import resume_problems  # which reads folders

        if problems := resume_problems(self, checkpoint.round):
            raise _damaged(self.path, f"is not as the run has left it ({problems[0]}; see `fda verify`)")
        earlier, sentence = earlier_parts(description or {}, self._notes, checkpoint.round)
        self._notes |= {EARLIER: earlier} if earlier else {}
        if sentence:
            logging.getLogger("fda_flower").warning("%s", sentence)
        return checkpoint

    def begin(self, done: int, model: Layers | None = None) -> None:
        """Write the configuration, and drop the lines of rounds after the first `done`, which run again.

        If rounds are done, the next one writes the configuration, and its line records the hash. A new run
        also gets a checkpoint of its initial `model`. Raises a `ConfigError` if the folder cannot be written.
        """
        self._config_is_new = True
        self._config_text = (json.dumps({"run": self.config, **self._notes}, indent=2) + "\n").encode()
        self._check_rounds(done)
        lines = [*islice(self.read_lines(), done)]
        links, _ = read_links(lines, self.config)
        self._last = links[-1].hash if links else hash_of(self.config)
        text = "".join(f"{line}\n" for line in lines).encode()
        rounds = self.path / ROUNDS
        try:
            if done == 0:
                self._write_config()
                if model is not None:
                    write_atomically(self.path / CHECKPOINT, self._pack(Checkpoint(0, model))[0])
            next_config = self.path / NEXT_CONFIG
            if links and next_config.exists() and file_hash(next_config) == links[-1].files.get(CONFIG):
                next_config.replace(self.path / CONFIG)
            if not rounds.exists() or rounds.read_bytes() != text:
                write_atomically(rounds, text)
        except OSError as error:
            raise output_error("cannot write", self.path, str(error)) from error

    def save_round(self, record: Record, checkpoint: Checkpoint, chosen: bool = False) -> None:
        """Append a round's record, then replace the checkpoint and, if `chosen`, that of the chosen round.

        Raises a `RunError` if they cannot be written, as on a full disk; earlier rounds stay valid.
        """
        data, digest = self._pack(checkpoint)
        files = {CONFIG: hashlib.sha256(self._config_text).hexdigest(), CHECKPOINT: digest}
        try:
            files |= {name: self._hash_of(path) for name, path in self._model_files(record["round"]).items()}
            line = linked(json_safe(record), self._last, files)
            if self._config_is_new:
                write_atomically(self.path / NEXT_CONFIG, self._config_text)
            with (self.path / ROUNDS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
            self._last = line[CHAIN]["hash"]
            if self._config_is_new:
                (self.path / NEXT_CONFIG).replace(self.path / CONFIG)
                self._config_is_new = False
            if chosen:
                write_atomically(self.path / CHOSEN, data)
                self._keep_model(record["round"])
            write_atomically(self.path / CHECKPOINT, data)
        except OSError as error:
            what = f"round {record['round']} cannot be written to '{self.path}' ({error})"
            remedy = "make room, and resume"
            raise RunError(what, thing="output folder", value=self.path, remedy=remedy) from error

    def _write_config(self) -> None:
        write_atomically(self.path / CONFIG, self._config_text)
        self._config_is_new = False

    def load_checkpoint(self, name: str = CHECKPOINT) -> Checkpoint:
        """Return the checkpoint of the last finished round, or `CHOSEN`.

        Raises a `ConfigError` if it belongs to another configuration, and a `RunError` if it is damaged:
        truncated, changed by a single bit, or not a checkpoint.
        """
        path = self.path / name
        try:
            with safe_open(path, framework="numpy") as file:
                text = (file.metadata() or {})["fda-flower"]
                header = json.loads(text)
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if checksum(header, arrays) != header["sha256"]:
                raise ValueError("its checksum does not match")
            model, *others = (
                {name: arrays[_place(i, name)] for name in names} for i, names in enumerate(header["models"])
            )
            state = dict(zip(header["state"], others, strict=False))
            number, held_rounds = int(header["round"]), int(header["held-rounds"])
            checkpoint = Checkpoint(number, model, state, held_rounds, others[len(state) :])
            run = header["run"]
        except (SafetensorError, KeyError, ValueError, TypeError, AttributeError, OSError) as error:
            remedy = "restore it from a copy, or start again in another --output"
            message = f"the checkpoint '{path}' is damaged ({error})"
            raise RunError(message, thing="checkpoint", value=path, remedy=remedy) from error
        if self.config and run != self.config:
            raise _other_run(path, run, self.config)
        return checkpoint

    def read_rounds(self, light: bool = False) -> list[Record]:
        """Return the records so far, without their links and a truncated last line.

        Fields that only a final round keeps are removed from all records: the run continues after them. In
        `light` records the sources are `StoredSources`.
        """
        path, start = self.path / ROUNDS, 0
        records: list[Record] = []
        for line in _lines(path):
            try:
                record = without_link(json.loads(_decoded(line)))
            except (ValueError, AttributeError, RecursionError):
                break
            if light and isinstance(sources := record.get("sources"), dict):
                record = _with_shared_names({**record, "sources": None})
                record["sources"] = StoredSources(path, start, len(sources))
            records.append(record)
            start += len(line)
        return [*map(of_a_round_before, records[:-1]), *records[-1:]]

    def read_lines(self) -> Iterator[str]:
        """Yield the lines of the records as stored."""
        for line in _lines(self.path / ROUNDS):
            yield _decoded(line)

    def _pack(self, checkpoint: Checkpoint) -> tuple[bytes, str]:
        """Return the content of the checkpoint's file, and the checksum in it."""
        # A safetensors file sorts its arrays, so the models' own order is stored as metadata.
        models = [checkpoint.model, *checkpoint.state.values(), *checkpoint.averaged]
        header: Record = {
            "round": checkpoint.round,
            "held-rounds": checkpoint.held_rounds,
            "run": self.config,
            "models": [list(layers) for layers in models],
            "state": list(checkpoint.state),
        }
        arrays = {_place(i, name): array for i, layers in enumerate(models) for name, array in layers.items()}
        header["sha256"] = checksum(header, arrays)
        return as_safetensors(arrays, {"fda-flower": json.dumps(header)}), str(header["sha256"])

    def _model_files(self, number: int) -> dict[str, Path]:
        """Return the files of a round's model by name, if the target wrote them in that round."""
        description = self.path / DESCRIPTION
        if not description.exists() or json.loads(description.read_text())["round"] != number:
            return {}
        names = (MODEL, BODY, DESCRIPTION) if (self.path / BODY).exists() else (MODEL, DESCRIPTION)
        return {name: self.path / name for name in names}

    def _hash_of(self, path: Path) -> str:
        if path.name != BODY:
            return file_hash(path)
        self._body_hash = self._body_hash or file_hash(path)  # the body never changes
        return self._body_hash

    def _keep_model(self, number: int) -> None:
        chosen = self.path / CHOSEN_MODEL
        for name, path in self._model_files(number).items():
            chosen.mkdir(exist_ok=True)
            if name != BODY or not (chosen / name).exists():  # the body never changes
                write_atomically(chosen / name, path.read_bytes())

    def _read_description(self) -> Record | None:
        path = self.path / CONFIG
        if not path.exists():
            if any((self.path / name).exists() for name in (CHECKPOINT, ROUNDS)):
                raise _not_here(self.path, "holds a run without its config.json")
            return None
        return read_json(path, "choose another --output", run=dict, samples=dict | None)

    def _check_same(self, config: Record, wanted: Record) -> None:
        if config != wanted:
            raise _other_run(self.path, config, wanted)
        if not (self._resume or self.continues):
            raise ConfigError(
                f"the output folder '{self.path}' already holds this run: go on with --resume "
                "(resume=True), or choose another --output",
                thing="output folder",
                value=self.path,
            )

    def _check_rounds(self, last: int) -> None:
        numbers = [record.get("round") for record in self.read_rounds(light=True)[:last]]
        if numbers != list(range(1, last + 1)):
            why = f"does not hold the rounds 1 to {last} of the checkpoint, a line is missing or damaged"
            raise _damaged(self.path / ROUNDS, why)


ONLY_LAST = (CONFUSION, LABELS, FOLLOWED, MEAN_OF_LABELS)
"""Fields that only a run's final round keeps."""


def of_a_round_before(record: Record) -> Record:
    """Return a record without the fields that only a run's final round keeps."""
    rest = {name: value for name, value in record.items() if name not in ONLY_LAST}
    return rest | ({"target": of_a_round_before(rest["target"])} if rest.get("target") else {})


def check_same_data(path: Path, before: Mapping[str, str] | None, now: Mapping[str, str] | None) -> None:
    """Raise a `ConfigError` if a domain's samples are not those that the run in a folder began with.

    Digests are not compared if there are none: of an earlier version's run, or of another machine's data.
    """
    if before and now and before != now:
        changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        names, remedy = ", ".join(changed), "restore them, or choose another --output"
        message = f"the data of {names} have changed since the run in '{path}' began"
        raise ConfigError(message, thing="data", value=names, remedy=remedy)


def check_answers(run: Mapping[str, Any], before: Sequence[float], now: Sequence[float]) -> None:
    """Raise a `ConfigError` if a run's network no longer computes what it did; see `ANSWERS`."""
    remedy = "restore its code, or its package's version, or choose another --output"
    check_same_network(str(run.get("model")), before, now, "the run began", remedy)


def check_same_model(arrays: "ArrayRecord", initial: "ArrayRecord") -> None:
    """Raise a `ConfigError` unless a checkpoint's arrays match the initial model's."""
    for name in {*arrays, *initial}:
        ours, other = arrays.get(name), initial.get(name)
        if ours is None or other is None or (ours.shape, ours.dtype) != (other.shape, other.dtype):
            raise ConfigError(
                f"the checkpoint is from another model: '{name}' differs; choose another --output",
                thing="array",
                value=name,
            )


def _place(model: int, name: str) -> str:
    return f"{model}|{name}"


def _other_run(path: Path, config: Record, wanted: Record) -> ConfigError:
    keys = sorted(k for k in {*config, *wanted} if config.get(k) != wanted.get(k))
    # The strategy's description follows from the other settings.
    keys = [key for key in keys if key != "strategy"] or keys
    differences = ", ".join(f"{k}: {config.get(k)!r} there, {wanted.get(k)!r} asked for" for k in keys)
    return _not_here(path, f"is of another run ({differences})", differences)


def _not_here(path: Path, why: str, value: object = None) -> ConfigError:
    return ConfigError(f"'{path}' {why}", thing=str(path), value=value, remedy="choose another --output")


def _damaged(path: Path, why: str, part: str = "it") -> RunError:
    remedy = f"restore {part} from a copy, or start again in another --output"
    return RunError(f"'{path}' {why}", thing=str(path), remedy=remedy)
