"""Atomic writes, locks and checksums of files; the seeds and versions that runs record."""

import ctypes
import fcntl
import hashlib
import json
import math
import os
import platform
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from fda_flower.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOCK = ".lock"
"""The file in an output folder that its writer locks."""
MODEL, BODY, DESCRIPTION = "model.safetensors", "body.safetensors", "model.json"
"""The files of a run's model; see `fda_flower.prediction.files`."""
PRIVATE = 0o600
"""Permissions of a file that only this account can read and write."""


def cache_folder() -> Path:
    """Return the folder of downloads and features: ``FDA_CACHE_DIR``, by default ``~/.cache/fda-flower``."""
    return Path(os.environ.get("FDA_CACHE_DIR") or "~/.cache/fda-flower").expanduser()


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use, such as a job's share of a machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_private(folder: Path) -> None:
    """Make a folder, and its missing parents, that only this account can enter."""
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)


def write_atomically(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write a file whole or not at all; an `OSError` leaves an existing file unchanged.

    The permissions `mode` are set before the file has any content.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file of this account alone; raise an `OSError` unless it is written whole."""
    make_private(path.parent)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, PRIVATE)
    try:
        size = os.fstat(file).st_size
        # A power failure may have left half a line.
        if size and os.pread(file, 1, size - 1) != b"\n":
            line = b"\n" + line
        if os.write(file, line) != len(line):
            raise OSError("only part of the line was written")
        os.fsync(file)
    finally:
        os.close(file)


def read_json(path: Path, remedy: str, **kinds: Any) -> dict[str, Any]:
    """Return the JSON object in a file; raise a `ConfigError` unless it has keys of these types."""
    try:
        content: dict[str, Any] = dict(json.loads(path.read_text(encoding="utf-8")))
        if wrong := [key for key, kind in kinds.items() if not isinstance(content.get(key), kind)]:
            raise ValueError(f"it has no valid '{wrong[0]}'")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        message = f"'{path}' cannot be read ({error})"
        raise ConfigError(message, thing=str(path), remedy=remedy) from error
    return content


def read_toml(what: str, path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a TOML file, and its tables; raise a `ConfigError` on `what` if it is none."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        return text, tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"the {what} '{path}' cannot be read: {error}", thing=what, value=path) from error


@contextmanager
def writing(what: str, path: Path) -> Iterator[None]:
    """Make a file's folder; inside, an `OSError` becomes a `ConfigError` on `what`, such as a report."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        message = f"the {what} '{path}' cannot be written ({error})"
        raise ConfigError(message, thing=what, value=path, remedy="choose another --output") from error


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold a lock against other processes and threads; it ends at the latest with this process.

    The file `path` is created if missing and never removed. Unless told to `wait` for a lock that is taken,
    raise a `BlockingIOError`.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, PRIVATE), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Lock an output folder for writing, and create it, for this account only, if it is missing.

    A `ConfigError` says that another run holds the lock, or that the folder cannot be written.
    """
    with ExitStack() as stack:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            stack.enter_context(locked(folder / LOCK, wait=False))
        except BlockingIOError as error:
            why, remedy = "another run writes", "wait until it has ended, or choose another --output"
            raise output_error(why, folder, remedy) from error
        except OSError as error:
            raise output_error("cannot write", folder, str(error)) from error
        yield


def output_error(why: str, folder: Path, remedy: str) -> ConfigError:
    """Return the error for an output folder that a run cannot write to."""
    message = f"{why} to the output folder '{folder}'"
    return ConfigError(message, thing="output folder", value=folder, remedy=remedy)


def check_writable(folder: Path) -> None:
    """Raise a `ConfigError` unless an output folder can be written; leave nothing behind."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise output_error("cannot write", folder, f"{error}: choose another --output") from error
    finally:
        for path in missing:
            with suppress(OSError):
                path.rmdir()


def release_memory() -> None:
    """Give memory that Python has freed back to the system; glibc may keep hundreds of megabytes."""
    if os.name == "posix" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


def as_file_name(name: str) -> str:
    """Return a name, such as a domain's, as that of one file or folder; other names get another one.

    Examples
    --------
    >>> as_file_name("New York"), as_file_name("average/0"), as_file_name("..")
    ('New York', 'average%2F0', '%2E%2E')
    """
    marks = "%/\\\0." if not name.strip(".") else "%/\\\0"
    return "".join(f"%{ord(char):02X}" if char in marks else char for char in name) or "%"


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def as_safetensors(arrays: "Mapping[str, NDArray[Any]]", metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the content of a safetensors file; the library itself ignores in what order numbers lie."""
    import numpy as np
    from safetensors.numpy import save

    ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(ordered, None if metadata is None else dict(metadata))


def checksum(header: Mapping[str, Any], arrays: "Mapping[str, NDArray[Any]]") -> str:
    """Return the SHA-256 of arrays, their names, types and shapes, and a header without its ``sha256``."""
    import numpy as np

    digest = hashlib.sha256()
    digest.update(json.dumps({k: v for k, v in header.items() if k != "sha256"}, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {arrays[name].shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def json_safe(value: Any) -> Any:
    """Return a JSON value with NaN and infinity replaced by null."""
    if isinstance(value, dict):
        return {key: json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def derive_seed(*parts: object) -> int:
    """Return a seed in ``[0, 2**63)`` for a purpose, such as ``derive_seed(seed, round, domain)``."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


OWN = "fda-flower"
PACKAGES = (OWN, "flwr", "torch", "numpy")


@cache
def version(package: str = OWN) -> str:
    """Return a package's version; this one's is in the app's folder where Flower has unpacked a bundle."""
    try:
        return installed_version(package)
    except PackageNotFoundError:
        project = Path(__file__).parents[1] / "pyproject.toml"
        if package != OWN or not project.is_file():
            raise
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])


def version_changes(then: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Return which versions differ, in words; what one of them lacks is not compared.

    Examples
    --------
    >>> version_changes({"python": "3.12.1", "torch": "2.6.0"}, {"python": "3.12.1", "torch": "2.9.1"})
    'torch 2.6.0 (here 2.9.1)'
    """
    changed = (name for name in then if then[name] != here.get(name, then[name]))
    return ", ".join(f"{name} {then[name]} (here {here[name]})" for name in changed)


TOLERANCE = 1e-3
"""The largest difference of a network's numbers, as a share of the largest: machines round differently."""


def check_same_network(
    name: str, before: Sequence[float], now: Sequence[float], since: str, remedy: str
) -> None:
    """Raise a `ConfigError` if what a network computes has changed `since` a time, in words.

    For the numbers see `fda_flower.models.probe`; nothing is compared where one side has none. What a file
    has in their place is another network's.
    """
    if isinstance(before, list | tuple) and all(type(each) in (int, float) for each in before):
        largest = max(map(abs, before), default=0.0)
        pairs = zip(before, now, strict=False)
        if not before or not now or all(abs(one - other) <= TOLERANCE * largest for one, other in pairs):
            return
    what = f"the network '{name}' has changed since {since}, and computes other numbers with the same weights"
    raise ConfigError(what, thing="model", value=name, remedy=remedy)


@cache
def processor() -> str:
    """Return the kind of this machine's CPU, on which a run's last bits depend."""
    about: dict[str, str] = {}
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        about = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    kind = about.get("model name") or platform.processor() or platform.machine()
    widest = [name for name in ("avx512f", "avx2", "avx") if name in about.get("flags", "").split()]
    return f"{kind}, {widest[0]}" if widest else kind


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that decide a run's numbers."""
    known = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):  # tables need no torch
            known[name] = version(name)
    return known
