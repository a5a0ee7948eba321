"""Verification of a run's files against the hash chain of its rounds."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from fda_flower.errors import FdaError
from fda_flower.files import BODY, DESCRIPTION, MODEL, checksum, file_hash, read_json
from fda_flower.records.chain import Link, hash_of, read_links
from fda_flower.records.folder import (
    CHECKPOINT,
    CHOSEN,
    CHOSEN_MODEL,
    CONFIG,
    NEXT_CONFIG,
    SUBMITTED,
    Checkpoint,
    RunFolder,
)


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
    found = [*_file_problems(folder, links)] if links else []
    if (path / SUBMITTED).exists() and not (path / CHECKPOINT).exists():
        problems += [problem for problem in found if problem == OTHER_CONFIG]
        notes.append(f"the models are on the server: verify the run's folder there, which {SUBMITTED} names")
    else:
        problems += found
        for name in (CHECKPOINT, CHOSEN):
            problems += _checkpoint_problems(folder, links, name)
    if expect is not None and expect != last:
        known = {link.hash: link.round for link in links}
        if expect in known:
            notes.append(f"the expected hash is of round {known[expect]}, the run has gone on after it")
        else:
            problems.append(f"the chain does not hold the expected hash {expect}: it is another, or cut off")
    return Verified(len(links), last, tuple(problems), tuple(notes))


def _checkpoint_problems(folder: RunFolder, links: Sequence[Link], name: str) -> Iterator[str]:
    if not (folder.path / name).exists():
        if name == CHECKPOINT or _chosen(links) is not None:
            yield f"there is no {name}"
        return
    try:
        number = folder.load_checkpoint(name).round
    except FdaError as error:
        yield str(error)
        return
    if name == CHOSEN and number != _chosen(links):
        yield f"the {name} is of round {number}, which the records do not name as the chosen one"
    elif name == CHECKPOINT and number != len(links):
        yield f"the {name} is of round {number}, the records end with round {len(links)}"
    elif number and not _vouches(links, folder.path / name, number):
        yield f"the model in '{name}' is not that of round {number}"


def _chosen(links: Sequence[Link]) -> int | None:
    """Return the round that validation has chosen; see `chosen_round`."""
    return next((link.chosen for link in reversed(links) if link.chosen is not None), None)


def _vouches(links: Sequence[Link], path: Path, number: int) -> bool:
    """Return whether the line of a round contains the hash of this intact checkpoint."""
    digest = _digest_in(path)
    return any(link.round == number and link.files.get(CHECKPOINT) == digest for link in links)


def _digest_in(path: Path) -> str | None:
    """Return the checksum that a checkpoint has of itself; None without one."""
    try:
        with safe_open(path, framework="numpy") as file:
            return str(json.loads(file.metadata()["fda-flower"])["sha256"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return None


def resume_problems(folder: RunFolder, done: int) -> list[str]:
    """Return why a run may not go on after `done` rounds: what `verify` would find, but for its next round.

    Where a run was stopped, files may be of the round that it then does again: those for which the line of
    that round vouches, and a model that is whole and of that round.
    """
    lines = [*islice(folder.read_lines(), done + 1)]
    links, problems = read_links(lines[:done], folder.config)
    if problems or not links:
        return problems
    if not _vouches(links, folder.path / CHECKPOINT, done):
        problems.append(f"the model in '{CHECKPOINT}' is not that of round {done}")
    if (folder.path / CHOSEN).exists():
        try:
            folder.load_checkpoint(CHOSEN)
        except FdaError as error:
            problems.append(str(error))
    return [*problems, *_file_problems(folder, links, read_links(lines, folder.config)[0])]


OTHER_CONFIG = f"{CONFIG} has changed, or the run was stopped as it went on"


def _file_problems(folder: RunFolder, links: Sequence[Link], later: Sequence[Link] = ()) -> Iterator[str]:
    """Compare files with the hashes in a run's lines, in `later` ones of a run that was stopped, too."""
    resumes = bool(later)
    views = [_digests(each, resumes) for each in ((links, later) if resumes else (links,))]
    for name, (_, number) in {**views[-1], **views[0]}.items():
        wanted = {view.get(name, (None, 0))[0] for view in views}
        if not wanted.isdisjoint(_found(folder.path, name)):
            continue
        if resumes and name in (MODEL, DESCRIPTION) and _is_of_next(folder.path, name, len(links)):
            continue
        if name == CONFIG:
            yield OTHER_CONFIG
        elif not (folder.path / name).exists():
            yield f"there is no {name}"
        else:
            yield f"'{name}' is not that of round {number}, or the run was stopped in the next one"
    for place, checkpoint in ((folder.path, CHECKPOINT), (folder.path / CHOSEN_MODEL, CHOSEN)):
        name = str((place / MODEL).relative_to(folder.path))
        if any(name in view for view in views) or not (place / MODEL).exists():
            continue
        if not (resumes and _is_of_next(place, MODEL, len(links))):
            yield from _server_model_problems(folder, place, checkpoint, resumes)


def _digests(links: Sequence[Link], chosen_too: bool) -> dict[str, tuple[str | None, int]]:
    """Return the hash of each file after the last of some lines, and the round that wrote it."""
    chosen = _chosen(links)
    digests: dict[str, tuple[str | None, int]] = {CONFIG: (links[-1].files.get(CONFIG), len(links))}
    for place, rounds in (("", range(1, len(links) + 1)), (f"{CHOSEN_MODEL}/", [chosen])):
        with_model = [link for link in links if MODEL in link.files and link.round in rounds]
        for name in (MODEL, BODY, DESCRIPTION) if with_model else ():
            if name != BODY or BODY in with_model[-1].files:
                digests[place + name] = with_model[-1].files.get(name), with_model[-1].round
    for link in links if chosen_too else ():
        if link.round == chosen:
            digests[CHOSEN] = link.files.get(CHECKPOINT), link.round
    return digests


def _found(place: Path, name: str) -> set[str | None]:
    """Return the hashes of a file and, if the run was stopped as it went on, of its next configuration."""
    if name == CHOSEN and (place / name).exists():
        return {_digest_in(place / name)}
    found = {file_hash(place / name) if (place / name).exists() else None}
    if name == CONFIG and (place / NEXT_CONFIG).exists():
        found.add(file_hash(place / NEXT_CONFIG))
    return found


def _is_of_next(place: Path, name: str, done: int) -> bool:
    """Return whether a model's file is whole and of the round after the first `done`, to be done again."""
    try:
        description = _description_in(place / MODEL)
        is_next = done + 1 == description["round"] <= description["rounds"]
        return is_next and (name == MODEL or json.loads((place / name).read_text("utf-8")) == description)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return False


def _description_in(model: Path) -> Any:
    """Return the description in a model's file; raise a `ValueError` if its checksum does not match."""
    with safe_open(model, framework="numpy") as file:
        description = json.loads((file.metadata() or {})["fda-flower"])
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    if checksum(description, arrays) != description["sha256"]:
        raise ValueError("its checksum does not match")
    return description


def _server_model_problems(folder: RunFolder, place: Path, checkpoint: str, earlier: bool) -> Iterator[str]:
    """Compare a model without a hash in any line with the checkpoint that the server made it from.

    A run that goes on leaves the model of an `earlier` end until it ends again.
    """
    name = (place / MODEL).relative_to(folder.path)
    try:
        description = json.loads((place / DESCRIPTION).read_text(encoding="utf-8"))
        number = int(description["round"])
        ours = folder.load_checkpoint(checkpoint)
        good = description["holder"] == "server" and (
            (earlier and number < ours.round) or _is_of(place / MODEL, ours, number)
        )
        good = good and description == _description_in(place / MODEL)
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
