"""The loader of CIFAR-10: on made files of its formats, and on the real parts where they are."""

import hashlib
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10

from fda_flower.datasets import DataSpec, load_federation
from fda_flower.datasets.torchvision_sets import load_cifar10 as load
from fda_flower.errors import ConfigError

DATA_DIR = os.environ.get("FDA_DATA_DIR")
EXACT = "cifar10/cifar10_exact_subset.npz"


def images(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive in the data set's format, with few images, whose md5s torchvision is told."""
    folder = tmp_path / "made" / CIFAR10.base_folder
    folder.mkdir(parents=True)
    lists: dict[str, list[list[str]]] = {"train_list": [], "test_list": []}
    for number, (name, _) in enumerate([*CIFAR10.train_list, *CIFAR10.test_list]):
        batch = {
            "data": images(20, number).transpose(0, 3, 1, 2).reshape(20, -1),
            "labels": [i % 10 for i in range(20)],
        }
        (folder / name).write_bytes(pickle.dumps(batch))
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
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    return path


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def write_part(data_dir: Path, **arrays: np.ndarray | None) -> Path:
    path = data_dir / EXACT
    path.parent.mkdir(exist_ok=True)
    labels = np.arange(20, dtype=np.uint8) % 10
    right = {"x_train": images(20, 0), "y_train": labels, "x_test": images(10, 1), "y_test": labels[:10]}
    kept: dict[str, Any] = {name: array for name, array in (right | arrays).items() if array is not None}
    np.savez(path, **kept)
    return path


def test_the_archive_is_read_and_left_as_it_is(archive: Path) -> None:
    split = load(archive.parent, 0)
    assert split.train.x.shape == (100, 3, 32, 32)
    assert split.test.x.shape == (20, 3, 32, 32)
    assert split.train.x.dtype == torch.float32
    assert split.train.x.is_contiguous()
    expected = torch.from_numpy(images(20, 0)).permute(0, 3, 1, 2) / 255
    assert torch.equal(split.train.x[:20], expected)
    assert split.train.y[:20].tolist() == [i % 10 for i in range(20)]
    assert (split.train.y.dtype, split.classes) == (torch.int64, 10)
    assert list(archive.parent.iterdir()) == [archive]


def test_unpacked_files_are_read_too(archive: Path, tmp_path: Path) -> None:
    assert torch.equal(load(tmp_path / "made", 0).test.x, load(archive.parent, 0).test.x)


def test_a_missing_archive_is_named_with_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cifar-10-python\.tar\.gz' is missing: put it there"):
        load(tmp_path, 0)


def test_a_damaged_archive_is_named(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-7])
    with pytest.raises(ConfigError, match=r"cifar-10-python\.tar\.gz' is damaged"):
        load(archive.parent, 0)


def test_a_damaged_unpacked_file_is_an_error_that_names_the_folder(archive: Path, tmp_path: Path) -> None:
    path = tmp_path / "made" / CIFAR10.base_folder / "data_batch_2"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ConfigError, match=f"CIFAR10 cannot be read from '{tmp_path / 'made'}'"):
        load(tmp_path / "made", 0)


def test_without_a_folder_it_is_downloaded_or_the_error_says_why_not(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fda_flower.datasets.torchvision_sets.CACHE", tmp_path / "cache")
    with pytest.raises(ConfigError, match=r"CIFAR10 cannot be read.*--data-dir"):
        load(None, 0)


def test_a_part_is_read(tmp_path: Path) -> None:
    write_part(tmp_path)
    split = load(tmp_path, 0, subset="exact")
    assert torch.equal(split.train.x, torch.from_numpy(images(20, 0)).permute(0, 3, 1, 2) / 255)
    assert split.test.y.tolist() == list(range(10))
    assert split.test.y.dtype == torch.int64


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cifar10/cifar10_jpeg_subset\.npz' is missing: put it there"):
        load(tmp_path, 0, subset="jpeg")
    with pytest.raises(ConfigError, match=r"'cifar10_exact_subset\.npz' cannot be downloaded.*--data-dir"):
        load(None, 0, subset="exact")


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"x_test": None}, "x_test is not a file"),
        ({"y_train": None}, "y_train is not a file"),
        ({"x_train": images(20, 0) / 255}, "images are float64"),
        ({"x_train": images(20, 0)[:, 1:]}, r"shape \(20, 31, 32, 3\)"),
        ({"y_train": np.arange(20)}, "labels are not a class from 0 to 9"),
        ({"y_train": np.zeros(19, dtype=np.uint8)}, "labels are not a class"),
        ({"y_test": np.array([{}] * 10)}, "allow_pickle=False"),
    ],
)
def test_a_part_with_other_arrays_is_damaged(
    tmp_path: Path, arrays: dict[str, np.ndarray | None], reason: str
) -> None:
    write_part(tmp_path, **arrays)
    with pytest.raises(ConfigError, match=rf"exact_subset\.npz' is damaged \(.*{reason}.*\): get it again"):
        load(tmp_path, 0, subset="exact")


@pytest.mark.parametrize("content", ["cut", "text", "empty", "array", "flipped"])
def test_a_damaged_part_is_named(tmp_path: Path, content: str) -> None:
    path = write_part(tmp_path)
    data = path.read_bytes()
    if content == "array":
        with path.open("wb") as file:
            np.save(file, images(2, 0))
    else:
        flipped = data[:5000] + b"damaged" + data[5007:]
        damaged = {"cut": data[:-500], "text": b"not an archive", "empty": b"", "flipped": flipped}
        path.write_bytes(damaged[content])
    with pytest.raises(ConfigError, match=r"exact_subset\.npz' is damaged"):
        load(tmp_path, 0, subset="exact")


def test_the_subset_is_one_of_three() -> None:
    with pytest.raises(
        ConfigError, match=r"'subset' of data set 'cifar-10'.*choose one of full, exact, jpeg"
    ):
        DataSpec("cifar-10", dataset_options=(("subset", "half"),))


@pytest.mark.parametrize(("subset", "sizes"), [("exact", (5085, 1017)), ("jpeg", (10_000, 4000))])
def test_the_real_parts(subset: Literal["exact", "jpeg"], sizes: tuple[int, int]) -> None:
    if DATA_DIR is None or not (Path(DATA_DIR) / EXACT).exists():
        pytest.skip(f"CIFAR-10's parts are not in FDA_DATA_DIR ({DATA_DIR})")
    split = load(Path(DATA_DIR), 0, subset=subset)
    assert (len(split.train), len(split.test)) == sizes
    # The mean of each channel of the whole, as it is commonly used to normalise.
    means = split.train.x.mean(dim=(0, 2, 3))
    assert means.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=0.01)


def test_the_shift_is_noise_unless_named(tmp_path: Path) -> None:
    write_part(tmp_path)
    spec = DataSpec("cifar-10", dataset_options=(("subset", "exact"),), data_dir=str(tmp_path))
    federation = load_federation(spec)
    assert spec.shift == "noise"
    assert federation.shape == (3, 32, 32)
    assert federation.domains["target"].train.noise > 0
    load_federation.cache_clear()
