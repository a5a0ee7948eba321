"""Files that are written whole or not at all, and folders with one writer."""

import errno
import os
import stat

import pytest

from fda_flower.errors import ConfigError
from fda_flower.files import LOCK, locked, only_writer, write_atomically


def test_a_full_disk_leaves_the_file_that_was_there_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    write_atomically(path, b"before")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"after")
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint"]
    assert path.read_bytes() == b"before"


def test_a_file_has_its_mode_before_it_holds_anything(tmp_path, monkeypatch):
    seen = []
    set_mode = os.fchmod

    def looking(handle, mode):
        set_mode(handle, mode)
        seen.append((os.fstat(handle).st_size, stat.S_IMODE(os.fstat(handle).st_mode)))

    monkeypatch.setattr(os, "fchmod", looking)
    write_atomically(tmp_path / "key", b"secret", 0o600)
    assert seen == [(0, 0o600)]
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_a_folder_has_one_writer_at_a_time(tmp_path):
    folder = tmp_path / "deep" / "run"
    with only_writer(folder):
        with pytest.raises(ConfigError, match=f"'{folder}'"), only_writer(folder):
            pass
        with pytest.raises(BlockingIOError), locked(folder / LOCK, wait=False):
            pass
        with only_writer(tmp_path / "other"):
            pass
    with only_writer(folder):
        pass
