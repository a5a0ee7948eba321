"""Verification of a run's files against the hash chain of its rounds."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from fda_flower.errors import FdaError
from fda_flower.files import BODY, DESCRIPTION, MODEL, file_hash, read_json
from fda_flower.records.folder import (
    CHECKPOINT,
    CHOSEN,
    CHOSEN_MODEL,
    CONFIG,
    SUBMITTED,
    Checkpoint,
    Link,
    RunFolder,
    hash_of,
    read_links,
)
from fda_flower.records.record import chosen_round


@dataclass(frozen=True)
class Verified:
    """The result of `verify`: the rounds in the records, the hash of the last one, problems and notes.

    A problem is a difference from what the run wrote; a note is a file that cannot be compared, or a hint.
    """

    rounds: int
    last: str
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


def verify(path: Path, expect: str | None = None) -> Verified:
    """Check a run's records, models and configuration against the hash chain of its rounds.

    `path` is the run's folder (a `ConfigError` if it holds no run), and `expect` the hash of the last record,
    noted elsewhere. Without it, a chain that was recomputed after a change is not detected.
    """
    run = read_json(path / CONFIG, "give the folder of a run", run=dict)["run"]
    folder = RunFolder(path, run)
    links, problems = read_links(folder.read_lines(), run)
    last = links[-1].hash if links else hash_of(run)
    notes = []
    if links and links[-1].files.get(CONFIG) != file_hash(path / CONFIG):
        problems.append(f"{CONFIG} has changed, or the run was stopped as it went on")
    if (path / SUBMITTED).exists() and not (path / CHECKPOINT).exists():
        notes.append(f"the models are on the server: verify the run's folder there, which {SUBMITTED} names")
    else:
        for name in (CHECKPOINT, CHOSEN):
            problems += _checkpoint_problems(folder, links, name)
            problems += _model_problems(folder, links, name)
    if expect is not None and expect != last:
        known = {link.hash: link.round for link in links}
        if expect in known:
            notes.append(f"the expected hash is of round {known[expect]}, the run has gone on after it")
        else:
            problems.append(f"the chain does not hold the expected hash {expect}: it is another, or cut off")
    return Verified(len(links), last, tuple(problems), tuple(notes))


def _checkpoint_problems(folder: RunFolder, links: Sequence[Link], name: str) -> Iterator[str]:
    if not (folder.path / name).exists():
        if name == CHECKPOINT or chosen_round(folder.read_rounds(light=True)) is not None:
            yield f"there is no {name}"
        return
    try:
        number = folder.load_checkpoint(name).round
    except FdaError as error:
        yield str(error)
        return
    if name == CHOSEN and number != chosen_round(folder.read_rounds(light=True)):
        yield f"the {name} is of round {number}, which the records do not name as the chosen one"
    elif name == CHECKPOINT and number != len(links):
        yield f"the {name} is of round {number}, the records end with round {len(links)}"
    elif number and not _vouches(links, folder.path / name, number):
        yield f"the model in '{name}' is not that of round {number}"


def _vouches(links: Sequence[Link], path: Path, number: int) -> bool:
    """Return whether the line of a round contains the hash of this intact checkpoint."""
    with safe_open(path, framework="numpy") as file:
        digest = json.loads(file.metadata()["fda-flower"])["sha256"]
    return any(link.round == number and link.files.get(CHECKPOINT) == digest for link in links)


def _model_problems(folder: RunFolder, links: Sequence[Link], checkpoint: str) -> Iterator[str]:
    """Compare the files of a model in use with the last line that has their hashes."""
    place = folder.path if checkpoint == CHECKPOINT else folder.path / CHOSEN_MODEL
    links = [link for link in links if MODEL in link.files]
    if checkpoint == CHOSEN:
        chosen = chosen_round(folder.read_rounds(light=True))
        links = [link for link in links if link.round == chosen]
    if not links:
        if (place / MODEL).exists():
            yield from _server_model_problems(folder, place, checkpoint)
        return
    for name in (name for name in (MODEL, BODY, DESCRIPTION) if name != BODY or BODY in links[-1].files):
        path = (place / name).relative_to(folder.path)
        if not (place / name).exists():
            yield f"there is no {path}"
        elif file_hash(place / name) != links[-1].files.get(name):
            yield f"'{path}' is not that of round {links[-1].round}, or the run was stopped in the next one"


def _server_model_problems(folder: RunFolder, place: Path, checkpoint: str) -> Iterator[str]:
    """Compare a model without a hash in any line with the checkpoint that the server made it from."""
    name = (place / MODEL).relative_to(folder.path)
    try:
        description = json.loads((place / DESCRIPTION).read_text(encoding="utf-8"))
        number = int(description["round"])
        good = description["holder"] == "server" and _is_of(
            place / MODEL, folder.load_checkpoint(checkpoint), number
        )
    except (FdaError, OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        yield f"'{name}' cannot be read ({error})"
        return
    if not good:
        yield f"'{name}' is not the model of round {number}, or the run was stopped before its end"


def _is_of(model: Path, checkpoint: Checkpoint, number: int) -> bool:
    with safe_open(model, framework="numpy") as file:
        arrays = {key.partition("|")[2]: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    ours = checkpoint.model
    if number != checkpoint.round or arrays.keys() != ours.keys():
        return False
    return all(
        (arrays[key].dtype, arrays[key].shape, arrays[key].tobytes())
        == (ours[key].dtype, ours[key].shape, ours[key].tobytes())
        for key in ours
    )
