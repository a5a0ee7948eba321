"""Whether a run's files are as the run has left them, by the chain of its rounds."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from fda_flower.chain import Chain
from fda_flower.errors import ConfigError, FdaError
from fda_flower.files import DESCRIPTION, MODEL, file_hash
from fda_flower.run_folder import CHAIN, CHECKPOINT, CHOSEN, CHOSEN_MODEL, CONFIG, Checkpoint, RunFolder
from fda_flower.selection import chosen_round


@dataclass(frozen=True)
class Verified:
    """What `verify` has found.

    Attributes
    ----------
    rounds : int
        How many rounds the chain has.
    last : str
        The hash of its last link.
    problems : tuple of str
        What is not as the run has left it; none if all is.
    notes : tuple of str
        What the chain does not vouch for, and what is worth knowing.
    """

    rounds: int
    last: str
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


def verify(path: Path, expect: str | None = None) -> Verified:
    """Compare a run's records, models and configuration with the chain of its rounds.

    Parameters
    ----------
    path : Path
        The run's folder.
    expect : str, optional
        The hash of the chain's last link, as somebody has noted it elsewhere. Without it, a chain that
        somebody has made anew, with all that it covers, is not told from the run's own.

    Raises
    ------
    ConfigError
        If the folder holds no run.
    """
    try:
        run = json.loads((path / CONFIG).read_text(encoding="utf-8"))["run"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"'{path}' holds no run ({CONFIG}: {error}): give the folder of a run") from error
    folder = RunFolder(path, run)
    found = folder.read_chain()
    if found is None:
        return Verified(0, "", (f"there is no {CHAIN}: an older version made the run, or it was removed",))
    chain, problems = found
    notes = []
    if not problems:
        problems = [
            *chain.problems(folder.read_lines()),
            *_config_problems(path, chain),
            *_checkpoint_problems(folder, chain, CHECKPOINT),
            *_checkpoint_problems(folder, chain, CHOSEN),
            *_model_problems(folder, chain, CHECKPOINT),
            *_model_problems(folder, chain, CHOSEN),
        ]
    if chain.links and CONFIG not in chain.links[-1].files:
        notes.append(f"an older version did the last round: of {CONFIG}, it vouches for 'run' alone")
    if late := [link.round for link in chain.links if link.note == "late"]:
        notes.append(
            f"an older version did the rounds up to {max(late)}: nothing vouches for their models, nor for "
            "their records before this version went on"
        )
    if expect is not None and expect != chain.last:
        known = {link.hash: link.round for link in chain.links}
        if expect in known:
            notes.append(f"the expected hash is of round {known[expect]}, the run has gone on after it")
        else:
            problems.append(f"the chain does not hold the expected hash {expect}: it is another, or cut off")
    return Verified(chain.rounds, chain.last, tuple(problems), tuple(notes))


def _config_problems(path: Path, chain: Chain) -> Iterator[str]:
    told = chain.links[-1].files.get(CONFIG) if chain.links else None
    if told not in (None, file_hash(path / CONFIG)):
        yield f"{CONFIG} has changed, or the run was stopped as it went on"


def _checkpoint_problems(folder: RunFolder, chain: Chain, name: str) -> Iterator[str]:
    if not (folder.path / name).exists():
        if name == CHECKPOINT or chosen_round(folder.read_rounds()) is not None:
            yield f"there is no {name}: if it was too large to be sent, verify the run's folder on the server"
        return
    try:
        number = folder.load_checkpoint(name).round
    except FdaError as error:
        yield str(error)
        return
    if name == CHOSEN and number != chosen_round(folder.read_rounds()):
        yield f"the {name} is of round {number}, which the records do not name as the chosen one"
    elif name == CHECKPOINT and number != chain.rounds:
        yield f"the {name} is of round {number}, the chain ends with round {chain.rounds}"
    elif not _vouches(chain, folder.path / name, number):
        yield f"the model in '{name}' is not that of round {number}"


def _vouches(chain: Chain, path: Path, number: int) -> bool:
    """Whether a checkpoint, which is whole, is the one of its round; unknown is good."""
    link = chain.link_of(number)
    with safe_open(path, framework="numpy") as file:
        told = json.loads(file.metadata()["fda-flower"])["sha256"]
    return number == 0 or (link is not None and link.model in (None, told))


def _model_problems(folder: RunFolder, chain: Chain, checkpoint: str) -> Iterator[str]:
    """Compare the files of a model in use with the last link that has them."""
    place = folder.path if checkpoint == CHECKPOINT else folder.path / CHOSEN_MODEL
    links = [link for link in chain.links if MODEL in link.files]
    if checkpoint == CHOSEN:
        chosen = chosen_round(folder.read_rounds())
        links = [link for link in links if link.round == chosen]
    if not links:
        if (place / MODEL).exists():
            yield from _server_model_problems(folder, chain, place, checkpoint)
        return
    for name in (MODEL, DESCRIPTION):
        shown = (place / name).relative_to(folder.path)
        if not (place / name).exists():
            yield f"there is no {shown}"
        elif file_hash(place / name) != links[-1].files[name]:
            yield f"'{shown}' is not that of round {links[-1].round}, or the run was stopped in the next one"


def _server_model_problems(folder: RunFolder, chain: Chain, place: Path, checkpoint: str) -> Iterator[str]:
    """Compare a model that no link has with its checkpoint, which the server has made it of."""
    name = (place / MODEL).relative_to(folder.path)
    try:
        description = json.loads((place / DESCRIPTION).read_text(encoding="utf-8"))
        number = int(description["round"])
        if description["holder"] == "server":
            good = _is_of(place / MODEL, folder.load_checkpoint(checkpoint), number)
        else:
            link = chain.link_of(number)
            good = link is not None and link.note == "late"
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
