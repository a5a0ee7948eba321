"""Files of weights: where they are published, this account's folder of them by digest, and safe reading."""

import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fda_flower.errors import ConfigError, invalid
from fda_flower.files import cache_folder, file_hash, make_private

PINNED = "sha256:"
"""Begins the option ``weights`` that names a file by its digest, as this account's folder has it."""

ON_HUB = "https://huggingface.co/{}/resolve/main/{}"
"""The address of a file in a repository of the Hugging Face hub."""

FILE_ON_HUB = "model.safetensors"
"""The file that timm reads from such a repository."""


@dataclass(frozen=True)
class WeightsFile:
    """A file of weights, as `stored` has it or where it lies.

    Attributes
    ----------
    path : Path
        Where it is.
    digest : str
        Its SHA-256, ``sha256:`` and 64 hexadecimal digits, which pins it as the option ``weights``.
    state : mapping of str to Tensor
        What it holds.
    """

    path: Path
    digest: str
    state: Mapping[str, Tensor]

    @classmethod
    def read(cls, path: Path) -> "WeightsFile":
        """Read a file; raise a `ConfigError` if it is no state dictionary."""
        state = read_state(path)
        return cls(path, digest_of(path), state)

    @property
    def numbers(self) -> int:
        """How many numbers it has in all its arrays."""
        return sum(value.numel() for value in self.state.values())

    def stored(self) -> Path:
        """Put the file into this account's folder, as a hard link or a copy, and return where it is."""
        folder = weights_folder()
        place = folder / _name_of(self.digest)
        with _writing(folder):
            if not (place.exists() and digest_of(place) == self.digest):
                _link(self.path, place)
        return place


def weights_folder() -> Path:
    """Return the folder of this account's pinned files of weights, each named by its SHA-256."""
    return cache_folder() / "weights"


def digest_of(path: Path) -> str:
    """Return the digest of a file, as the option ``weights`` pins it."""
    return f"{PINNED}{file_hash(path)}"


def state_of(weights: str) -> Mapping[str, Tensor]:
    """Return what a file of weights holds, by its path or its digest.

    Raises
    ------
    ConfigError
        If the file cannot be read, or this machine has none of this digest.
    """
    if weights.startswith(PINNED):
        return read_state(_pinned(weights))
    return read_state(Path(weights).expanduser())


def _pinned(digest: str) -> Path:
    """Return the file of a digest; raise a `ConfigError` if it is not there, or has another digest."""
    if not re.fullmatch("[0-9a-f]{64}", _name_of(digest)):
        remedy = "give sha256: and 64 hexadecimal digits in lower case, as `fda weights` prints them"
        raise invalid("weights", digest, remedy)
    path = weights_folder() / _name_of(digest)
    try:
        other = digest_of(path)
    except OSError as error:
        what = f"this machine has no file of weights with the digest {digest} ({error.strerror})"
        remedy = "run `fda weights FILE` on it, by the account that reads it"
        missing = ConfigError(what, thing="weights", value=digest, remedy=remedy)
        missing.may_leave = True  # it follows from the run's settings, and names no file
        raise missing from error
    if other != digest:
        what = f"has the digest {other}, and the run pins {digest}"
        raise _unusable(path, what, "run `fda weights FILE` with the right file")
    return path


def _name_of(digest: str) -> str:
    return digest.removeprefix(PINNED)


def read_state(path: Path) -> Mapping[str, Tensor]:
    """Return the arrays in a ``.safetensors`` file or one of ``torch.save``, whose code never runs.

    Raise a `ConfigError` if the file is neither, or holds more than an array for each name.
    """
    try:
        if path.suffix == ".safetensors" or _begins_as_safetensors(path):
            return load_file(path)
        with warnings.catch_warnings(action="ignore"):  # torch advises another way to load a program
            state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        what = f"cannot be read ({_reason(error)})"
        remedy = "give a state dictionary as torch.save writes it, or a .safetensors file"
        raise _unusable(path, what, remedy) from error
    if not isinstance(state, Mapping) or not all(
        isinstance(entry, str) and isinstance(value, Tensor) for entry, value in state.items()
    ):
        what = "are not a state dictionary, which has a tensor for each name"
        raise _unusable(path, what, "save only the network's state_dict()")
    return state


def _begins_as_safetensors(path: Path) -> bool:
    """Return whether a file, under whatever name, begins with the length of a header and its JSON."""
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


def _unusable(path: Path, what: str, remedy: str) -> ConfigError:
    return ConfigError(f"the weights '{path}' {what}", thing="weights", value=path, remedy=remedy)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError | SafetensorError):
        return first_line(error)
    return "it is damaged, or holds more than arrays"  # torch's message advises to run its code


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, else its name."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def addresses(name: str) -> list[str]:
    """Return the addresses of the weights that a network's library publishes, the best first.

    `name` is ``timm:NAME`` or ``torchvision:NAME``; timm's may end in a tag, as ``timm:resnet50.a1_in1k``.
    """
    library, _, network = name.partition(":")
    published = _of_timm(network) if library == "timm" else _of_torchvision(network)
    if not published:
        remedy = "choose another network, or give a file"
        raise invalid("model", name, remedy, f"but {library} publishes no weights for it")
    return published


def _of_torchvision(name: str) -> list[str]:
    from torchvision import models

    return [str(models.get_model_weights(name).DEFAULT.url)]


def _of_timm(name: str) -> list[str]:
    import timm

    entry: Any = timm.get_pretrained_cfg(name)
    if entry is None:
        return []
    on_hub = entry.hf_hub_id and ON_HUB.format(entry.hf_hub_id, entry.hf_hub_filename or FILE_ON_HUB)
    elsewhere = "" if entry.custom_load else entry.url
    return [address for address in (on_hub, elsewhere) if address]


def download(name: str) -> WeightsFile:
    """Download a library's own weights for a network into this account's folder.

    Raises
    ------
    ConfigError
        If none of the `addresses` can be reached. It says what to do on a machine without internet.
    """
    places, reasons = addresses(name), list[str]()
    folder = weights_folder()
    part = folder / f".{uuid4().hex}.part"
    with _writing(folder):
        try:
            for address in places:
                try:
                    _fetch(address, part)
                except (OSError, RuntimeError) as error:
                    reasons.append(first_line(error))
                    continue
                file = WeightsFile.read(part)
                place = part.replace(folder / _name_of(file.digest))
                return WeightsFile(place, file.digest, file.state)
        finally:
            part.unlink(missing_ok=True)
    raise ConfigError(
        f"the weights of '{name}' cannot be downloaded ({reasons[0]})",
        thing="model",
        value=name,
        remedy=f"get {' or '.join(places)} on a machine with internet, bring the file here, and run "
        f"`fda weights FILE --model {name}`",
    )


def _fetch(address: str, place: Path) -> None:
    """Download a file; an address that ends in a part of its SHA-256, as torchvision's, checks it."""
    name = address.rpartition("/")[2]
    digest = torch.hub.HASH_REGEX.search(name)
    torch.hub.download_url_to_file(address, str(place), digest and digest.group(1), progress=False)


def _link(path: Path, place: Path) -> None:
    """Put a file at a place whole or not at all, as a hard link, or as a copy on another disk."""
    part = place.with_name(f".{place.name}.part")
    part.unlink(missing_ok=True)
    try:
        try:
            os.link(path.resolve(), part)
        except OSError:
            shutil.copyfile(path, part)
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        make_private(folder)
        yield
    except OSError as error:
        message = f"the folder of weights '{folder}' cannot be written ({first_line(error)})"
        remedy = "set FDA_CACHE_DIR to a folder of this account"
        raise ConfigError(message, thing="folder of weights", value=folder, remedy=remedy) from error
