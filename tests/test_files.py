"""Files that are written whole or not at all, folders with one writer, seeds."""

import errno
import os
import stat
from itertools import product
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from naming import names
from safetensors.numpy import load

from fda_flower.errors import ConfigError
from fda_flower.files import (
    LOCK,
    as_safetensors,
    check_writable,
    derive_seed,
    locked,
    only_writer,
    usable_cores,
    write_atomically,
)


def test_a_full_disk_leaves_the_file_that_was_there_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    write_atomically(path, b"before")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
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
    with only_writer(folder), only_writer(tmp_path / "other"):
        with pytest.raises(ConfigError, check=names("output folder", folder)), only_writer(folder):
            pass
        with pytest.raises(BlockingIOError), locked(folder / LOCK, wait=False):
            pass
    with only_writer(folder):
        pass


def test_a_folder_that_cannot_be_made_is_refused_and_the_trial_leaves_nothing(tmp_path):
    check_writable(tmp_path / "deep" / "run")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, check=names("output folder", tmp_path / "file" / "run", "--output")):
        check_writable(tmp_path / "file" / "run")
    with pytest.raises(ConfigError, check=names("output folder", tmp_path / "file" / "run")):
        only_writer(tmp_path / "file" / "run").__enter__()


def test_a_seed_is_the_same_everywhere_and_fits_63_bits():
    assert derive_seed(0, "split") == 8764376260289002719
    assert derive_seed(0, "train", 1, "target") == 1772028768404566843
    seeds = [derive_seed(i) for i in range(-1, 2000)]
    assert min(seeds) >= 0
    assert 2**62 < max(seeds) < 2**63
    assert sum(seed % 2 for seed in seeds) / 2000 > 0.45


def test_neither_purpose_nor_order_nor_grouping_nor_type_of_the_parts_of_a_seed_is_lost():
    parts: list[tuple[object, ...]] = [*product(range(20), ("train", "test"), ("source-1", "target"))]
    parts += [(1, 2), (2, 1), (12,), ("1", "2"), ("1, 2",), ("12",), (1, "2"), (1, 2, None), (1, (2,)), ()]
    assert len({derive_seed(*each) for each in parts}) == len(parts)


def test_a_file_holds_arrays_whatever_the_order_of_their_numbers_in_memory():
    images = torch.arange(120.0).reshape(2, 3, 4, 5)
    last = images.contiguous(memory_format=torch.channels_last).numpy()
    arrays = {
        "last": last,
        "turned": np.arange(6).reshape(2, 3).T,
        "some": np.arange(9)[::2],
        "one": np.array(1.0),
    }
    stored = load(as_safetensors(arrays))
    assert stored.keys() == arrays.keys()
    for name, array in arrays.items():
        assert np.array_equal(stored[name], array), name


def test_the_cores_are_the_ones_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert usable_cores() == 2
    monkeypatch.delattr("os.sched_getaffinity")  # macOS
    assert usable_cores() == 64
