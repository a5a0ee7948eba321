"""The loader of MNIST and Fashion-MNIST, on real archives where they are, on made ones elsewhere."""

import gzip
import hashlib
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from naming import names
from torchvision import datasets

from fda_flower import run
from fda_flower.datasets import DATASETS, Split
from fda_flower.datasets.torchvision_sets import load_fashion_mnist, load_mnist
from fda_flower.errors import ConfigError

DATA_DIR = os.environ.get("FDA_DATA_DIR")
real = pytest.mark.skipif(
    DATA_DIR is None or not (Path(DATA_DIR) / "FashionMNIST/raw").is_dir(),
    reason=f"Fashion-MNIST is not in FDA_DATA_DIR ({DATA_DIR})",
)


@pytest.fixture
def archives(tmp_path, monkeypatch):
    """Four small archives in the data set's format, whose md5 torchvision is told."""
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    rng, resources = np.random.default_rng(0), []
    for part, count in (("train", 30), ("t10k", 20)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for kind, data in (
            ("images-idx3", struct.pack(">4i", 2051, count, 28, 28) + images.tobytes()),
            ("labels-idx1", struct.pack(">2i", 2049, count) + labels.tobytes()),
        ):
            path = raw / f"{part}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(data))
            resources.append((path.name, hashlib.md5(path.read_bytes()).hexdigest()))
    monkeypatch.setattr(datasets.MNIST, "resources", resources)
    monkeypatch.setattr(datasets.MNIST, "mirrors", ["http://127.0.0.1:9/"])
    return raw


def test_archives_are_read_and_left_as_they_are(archives, tmp_path):
    before = sorted(path.name for path in tmp_path.rglob("*"))
    split = load_mnist(tmp_path, 0)
    assert split.train.x.shape == (30, 1, 28, 28)
    assert split.test.x.shape == (20, 1, 28, 28)
    assert split.train.x.dtype == torch.float32
    assert 0 <= float(split.train.x.min()) <= float(split.train.x.max()) <= 1
    assert split.train.y.tolist() == [i % 10 for i in range(30)]
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_unpacked_files_are_read_too(archives, tmp_path):
    from_archives = load_mnist(tmp_path, 0)
    for path in archives.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert torch.equal(load_mnist(tmp_path, 0).train.x, from_archives.train.x)


def test_a_missing_file_is_named_with_where_to_put_it(archives, tmp_path):
    (archives / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(ConfigError, check=names("data file")):
        load_mnist(tmp_path, 0)


def test_a_damaged_archive_is_named(archives, tmp_path):
    path = archives / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ConfigError, check=names("data file")):
        load_mnist(tmp_path, 0)


def test_a_damaged_unpacked_file_is_an_error_that_names_the_folder(archives, tmp_path):
    for path in archives.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes())[:-5])
    with pytest.raises(ConfigError, match=f"MNIST cannot be read from '{tmp_path}'"):
        load_mnist(tmp_path, 0)


def test_without_a_folder_it_is_downloaded_or_the_error_says_why_not(archives, tmp_path, monkeypatch):
    monkeypatch.setattr("fda_flower.datasets.torchvision_sets.CACHE", tmp_path / "cache")
    with pytest.raises(ConfigError, match=r"MNIST cannot be read.*--data-dir"):
        load_mnist(None, 0)


@real
def test_the_real_data_set():
    split = load_fashion_mnist(Path(DATA_DIR or ""), 0)
    assert (len(split.train), len(split.test), split.classes) == (60_000, 10_000, 10)
    assert torch.bincount(split.train.y).tolist() == [6000] * 10
    # The data set's published mean and deviation.
    assert float(split.train.x.mean()) == pytest.approx(0.2860, abs=1e-3)
    assert float(split.train.x.std()) == pytest.approx(0.3530, abs=1e-3)


@real
def test_a_run_on_real_data_learns(monkeypatch):
    whole = DATASETS["fashion-mnist"]

    def part(data_dir, seed):
        split = whole.loader(data_dir, seed)
        first = torch.arange(4000)
        return Split(split.train.take(first), split.test.take(first[:1000]), split.classes)

    monkeypatch.setitem(DATASETS, "fashion-mnist", type(whole)("a part", part))
    result = run(
        dataset="fashion-mnist", shift="noise", shift_options={"std": 0.2}, method="fedgp-auto",
        model="lenet", rounds=4, target_samples=100, data_dir=DATA_DIR, seed=12345,
    )  # fmt: skip
    assert result.accuracies[-1] > 30
