"""MNIST, Fashion-MNIST and CIFAR-10: on made files of their formats, and on the real ones where they are."""

import gzip
import hashlib
import os
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from naming import names
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torchvision import datasets
from torchvision.datasets import CIFAR10

from fda_flower.datasets.torchvision_sets import (
    IDX,
    load_cifar10,
    load_digits_set,
    load_fashion_mnist,
    load_mnist,
)
from fda_flower.errors import ConfigError

DATA_DIR = Path(os.environ.get("FDA_DATA_DIR", "no data"))
NOWHERE = "http://127.0.0.1:9/"


def where(path):
    return pytest.mark.skipif(not (DATA_DIR / path).exists(), reason=f"{path} is not in FDA_DATA_DIR")


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


def images(count, seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


# MNIST


@pytest.fixture
def archives(tmp_path, monkeypatch):
    """Four small archives in the data set's format, whose md5 torchvision is told."""
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    resources: dict[str, str] = {}
    for part, count in (("train", 30), ("t10k", 20)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        pixels = images(count, count, 28, 28)
        for kind, data in (
            ("images-idx3", struct.pack(">4i", 2051, count, 28, 28) + pixels.tobytes()),
            ("labels-idx1", struct.pack(">2i", 2049, count) + labels.tobytes()),
        ):
            path = raw / f"{part}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(data))
            resources[path.name] = md5(path)
    monkeypatch.setitem(IDX, "MNIST", resources)
    monkeypatch.setattr(datasets.MNIST, "mirrors", [NOWHERE])
    return raw


def test_archives_are_read_and_left_as_they_are(archives, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    split = load_mnist(tmp_path, 0)
    assert np.array_equal(split.train.x, images(30, 30, 28, 28)[:, None])
    assert split.test.x.shape == (20, 1, 28, 28)
    assert split.train.y.tolist() == [i % 10 for i in range(30)]
    assert (split.train.y.dtype, split.classes) == (np.dtype(np.int64), 10)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture
def unpacked(archives):
    for path in archives.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    return archives


@pytest.mark.parametrize("in_folder", [True, False])
def test_unpacked_files_are_read_as_torchvision_reads_them(unpacked, tmp_path, in_folder, monkeypatch):
    monkeypatch.setenv("FDA_CACHE_DIR", str(tmp_path))
    split = load_mnist(tmp_path if in_folder else None, 0)
    for part, train in ((split.train, True), (split.test, False)):
        theirs = datasets.MNIST(tmp_path, train=train)
        assert np.array_equal(part.x, theirs.data[:, None].numpy())
        assert np.array_equal(part.y, theirs.targets.numpy())


@pytest.mark.parametrize(
    "damage", [lambda old: old[:-5], lambda old: b"\0\0\x09" + old[3:], lambda old: old[:3]]
)
def test_a_damaged_unpacked_file_is_named(unpacked, tmp_path, damage):
    path = unpacked / "train-images-idx3-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigError, check=names("data file", path, "get it again")):
        load_mnist(tmp_path, 0)


def test_a_missing_or_damaged_archive_is_named(archives, tmp_path):
    path = archives / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ConfigError, check=names("data file", path, "get it again")):
        load_mnist(tmp_path, 0)
    path.unlink()
    with pytest.raises(ConfigError, check=names("data file", path, "put it there")):
        load_mnist(tmp_path, 0)


@where("FashionMNIST/raw")
def test_the_real_fashion_mnist():
    split = load_fashion_mnist(DATA_DIR, 0)
    assert (len(split.train), len(split.test), split.classes) == (60_000, 10_000, 10)
    assert np.bincount(split.train.y).tolist() == [6000] * 10
    # The data set's published mean and deviation.
    assert float(split.train.scaled().x.mean()) == pytest.approx(0.2860, abs=1e-3)
    assert float(split.train.scaled().x.std()) == pytest.approx(0.3530, abs=1e-3)


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST"])
def test_the_archives_are_those_of_torchvision(name):
    assert list(IDX[name].items()) == getattr(datasets, name).resources


# Digits


@pytest.mark.parametrize("seed", [0, 1, 2**40 + 7])
def test_the_digits_and_their_split_are_those_of_scikit_learn(seed):
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images, labels, test_size=0.25, stratify=labels, random_state=seed % 2**32)
    split = load_digits_set(None, seed)
    for samples, x, y in ((split.train, parts[0], parts[2]), (split.test, parts[1], parts[3])):
        assert np.array_equal(samples.x, (x / 16).astype(np.float32).reshape(-1, 1, 8, 8))
        assert np.array_equal(samples.y, y)


# CIFAR-10


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """The archive in the data set's format, with few images, whose md5s torchvision is told."""
    folder = tmp_path / "made" / CIFAR10.base_folder
    folder.mkdir(parents=True)
    lists: dict[str, list[list[str]]] = {"train_list": [], "test_list": []}
    for number, (name, _) in enumerate([*CIFAR10.train_list, *CIFAR10.test_list]):
        rows = images(20, number, 32, 32, 3).transpose(0, 3, 1, 2).reshape(20, -1)
        (folder / name).write_bytes(pickle.dumps({"data": rows, "labels": [i % 10 for i in range(20)]}))
        kind = "test_list" if name == "test_batch" else "train_list"
        lists[kind].append([name, md5(folder / name)])
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    for kind, entries in lists.items():
        monkeypatch.setattr(CIFAR10, kind, entries)
    monkeypatch.setitem(CIFAR10.meta, "md5", md5(folder / "batches.meta"))
    path = tmp_path / "data" / CIFAR10.filename
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, CIFAR10.base_folder)
    monkeypatch.setattr(CIFAR10, "tgz_md5", md5(path))
    monkeypatch.setattr(CIFAR10, "url", NOWHERE + CIFAR10.filename)
    return path


def test_the_archive_is_read_and_left_as_it_is(archive):
    split = load_cifar10(archive.parent, 0)
    assert (split.train.x.shape, split.test.x.shape) == ((100, 3, 32, 32), (20, 3, 32, 32))
    assert split.train.x.flags.c_contiguous
    expected = images(20, 0, 32, 32, 3).transpose(0, 3, 1, 2)
    assert np.array_equal(split.train.x[:20], expected)
    assert split.train.y[:20].tolist() == [i % 10 for i in range(20)]
    assert (split.train.y.dtype, split.classes) == (np.dtype(np.int64), 10)
    assert list(archive.parent.iterdir()) == [archive]


def test_a_folder_of_the_archive_is_read_too_and_a_damaged_file_names_it(archive, tmp_path):
    made = tmp_path / "made"
    assert np.array_equal(load_cifar10(made, 0).test.x, load_cifar10(archive.parent, 0).test.x)
    path = made / CIFAR10.base_folder / "data_batch_2"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ConfigError, check=names("CIFAR10", made, "get its files again")):
        load_cifar10(made, 0)


def test_a_damaged_cifar_archive_is_named(archive):
    archive.write_bytes(archive.read_bytes()[:-7])
    with pytest.raises(ConfigError, check=names("data file", archive, "get it again")):
        load_cifar10(archive.parent, 0)


@pytest.mark.parametrize(("load", "name"), [(load_mnist, "MNIST"), (load_cifar10, "CIFAR10")])
def test_without_a_folder_it_is_downloaded_or_the_error_says_why_not(
    archives, archive, tmp_path, monkeypatch, load, name
):
    monkeypatch.setenv("FDA_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(ConfigError, check=names(name, remedy="--data-dir")):
        load(None, 0)
