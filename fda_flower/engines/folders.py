"""The files of clients on machines without the run's folder: they travel with each message and its reply."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_IMODE
from tempfile import TemporaryDirectory

from fda_flower.files import make_private, write_atomically

PREFIX = "fda-client-"
"""How the names of the temporary folders begin."""

Contents = dict[Path, tuple[int, bytes]]
"""Files with their permissions and bytes, by their paths in the run's folder."""


@dataclass(frozen=True)
class Parcel:
    """What travels of a run's folder.

    Attributes
    ----------
    files : Contents
        With a message the private files of its client; with a reply the files that it has written.
    names : sequence of Path
        With a message the other files in the run's folder, of which clients see the names only; with a reply
        the files that the client has removed.
    """

    files: Contents = field(default_factory=dict)
    names: Sequence[Path] = ()


@dataclass(frozen=True)
class Folders:
    """The folder of a run and, relative to it, the private folder of each client, in the clients' order."""

    run: Path
    clients: Sequence[Path]

    def outgoing(self, number: int) -> Parcel:
        """Return what a client needs to see; clients are counted from 0."""
        files = {path: _read(self.run / path) for path in _files_in(self.run, self.clients[number])}
        others = [Path(path.name) for path in self.run.glob("*") if path.is_file()]
        return Parcel(files, others)

    def take(self, parcel: Parcel) -> None:
        """Write the files that a client has written, and remove those that it has removed.

        Raises
        ------
        OSError
            If a file cannot be written.
        """
        for path, (mode, data) in parcel.files.items():
            make_private((self.run / path).parent)
            write_atomically(self.run / path, data, mode)
        for path in parcel.names:
            (self.run / path).unlink(missing_ok=True)


class FolderCopy:
    """A run's folder at a client's machine, with the files of a parcel."""

    def __init__(self, path: Path, parcel: Parcel) -> None:
        self.path = path
        for name in parcel.names:
            (path / name).touch()
        for name, (mode, data) in parcel.files.items():
            make_private((path / name).parent)
            (path / name).write_bytes(data)
            (path / name).chmod(mode)
        self._before = {name: self._mark(name, set_time=True) for name in _files_in(path)}

    def changes(self) -> Parcel:
        """Return what has been written and removed since."""
        after = {name: self._mark(name) for name in _files_in(self.path)}
        written = (name for name, mark in after.items() if self._before.get(name) != mark)
        gone = self._before.keys() - after.keys()
        return Parcel({name: _read(self.path / name) for name in written}, sorted(gone))

    def _mark(self, name: Path, set_time: bool = False) -> tuple[int, int]:
        """Return what differs once a file is written or replaced; at first its time is long ago."""
        if set_time:
            os.utime(self.path / name, (0, 0))
        state = (self.path / name).stat()
        return state.st_ino, state.st_mtime_ns


@contextmanager
def copied_here(parcel: Parcel, inside: str | None = None) -> Iterator[FolderCopy]:
    """Yield a temporary copy of a run's folder; `inside` holds it, by default the system's own place."""
    with TemporaryDirectory(prefix=PREFIX, dir=inside) as name:
        yield FolderCopy(Path(name), parcel)


def _files_in(folder: Path, below: Path = Path()) -> Iterator[Path]:
    """Yield the paths, relative to a folder, of all files below one of its folders."""
    for path in sorted((folder / below).rglob("*")):
        if path.is_file():
            yield path.relative_to(folder)


def _read(path: Path) -> tuple[int, bytes]:
    return S_IMODE(path.stat().st_mode), path.read_bytes()
