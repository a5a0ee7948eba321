"""The files of clients that travel: what a client has written, replaced and removed, and nothing else."""

import os
from pathlib import Path
from stat import S_IMODE

import pytest

from fda_flower.engines import Folders
from fda_flower.engines.folders import copied_here
from fda_flower.files import PRIVATE

A, B = Path("clients/a"), Path("clients/b")


@pytest.fixture
def folders(tmp_path):
    """A run in which two clients have been at work."""
    for name in ("config.json", "clients/a/own", "clients/a/before", "clients/b/own"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(PRIVATE)
    return Folders(tmp_path, [A, B])


def test_a_client_sees_its_own_files_and_the_names_of_the_runs(folders):
    with copied_here(folders.outgoing(0)) as copy:
        assert (copy.path / A / "own").read_text() == "clients/a/own"
        assert S_IMODE((copy.path / A / "own").stat().st_mode) == PRIVATE
        assert (copy.path / "config.json").read_text() == ""
        assert not (copy.path / B).exists()
        parcel = copy.changes()
    assert (parcel.files, parcel.names) == ({}, [])
    assert not copy.path.exists()


@pytest.mark.parametrize("number", [0, 1])
def test_what_it_changes_is_in_the_runs_folder(folders, number):
    def write(folder):
        own = folder / folders.clients[number]
        (own / "own").write_text("CLIENTS/A/OWN"), (own / "deep").mkdir()  # of the same size
        (own / "deep" / "new").write_bytes(b"new")
        (folder / "model").write_text("a model")
        (folder / "model").chmod(0o640)

    with copied_here(folders.outgoing(number)) as copy:
        write(copy.path)
        folders.take(copy.changes())
    own = folders.run / folders.clients[number]
    assert (own / "own").read_text() == "CLIENTS/A/OWN"
    assert (own / "deep" / "new").read_bytes() == b"new"
    assert S_IMODE((own / "deep").stat().st_mode) == 0o700
    assert S_IMODE((folders.run / "model").stat().st_mode) == 0o640
    assert (folders.run / "config.json").read_text() == "config.json"


def test_files_that_it_renames_and_removes_are_renamed_and_removed(folders):
    with copied_here(folders.outgoing(0)) as copy:
        os.replace(copy.path / A / "own", copy.path / A / "before")
        parcel = copy.changes()
    assert (list(parcel.files), parcel.names) == ([A / "before"], [A / "own"])
    folders.take(parcel)
    assert [path.name for path in (folders.run / A).iterdir()] == ["before"]
    assert (folders.run / A / "before").read_text() == "clients/a/own"


def test_a_run_that_has_written_nothing_has_nothing(tmp_path):
    parcel = Folders(tmp_path / "new", [A]).outgoing(0)
    assert (parcel.files, parcel.names) == ({}, [])
