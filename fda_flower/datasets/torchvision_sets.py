"""MNIST, Fashion-MNIST, CIFAR-10 and scikit-learn's digits."""

import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fda_flower.datasets.domains import Split
from fda_flower.datasets.own_data import unusable
from fda_flower.datasets.samples import Samples
from fda_flower.errors import ConfigError
from fda_flower.files import cache_folder

CLASSES = 10
PIXELS = (32, 32, 3)
"""The shape of CIFAR-10's images."""


def read_parts(dataset: Any, root: Path, download: bool = False) -> Split:
    """Read a data set of torchvision; a `ConfigError` names the folder if that or the download fails."""
    try:
        parts = [dataset(root, train=train, download=download) for train in (True, False)]
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{dataset.__name__} cannot be read from '{root}' ({reason}): get its files again, or give a "
            "folder that has them with --data-dir (FDA_DATA_DIR)",
            thing=dataset.__name__,
            value=root,
        ) from error
    train, test = (_samples(np.asarray(part.data), np.asarray(part.targets)) for part in parts)
    return Split(train, test, CLASSES)


def _read_archives(dataset: Any, archives: Mapping[Path, str], inside: str = "") -> Split:
    """Check archives against their md5, by path, and read the data set that is unpacked from them."""
    from torchvision.datasets.utils import check_integrity, extract_archive

    with tempfile.TemporaryDirectory() as scratch:
        # The user's folder may be read-only or shared: nothing is written to it.
        folder = Path(scratch, inside)
        folder.mkdir(parents=True, exist_ok=True)
        for archive, md5 in archives.items():
            if not archive.exists():
                remedy = "put it there, or leave out --data-dir (FDA_DATA_DIR) to download the data set"
                raise unusable("data file", archive, "is missing", remedy)
            if not check_integrity(str(archive), md5):
                raise unusable("data file", archive, f"is damaged (its md5 is not {md5})", "get it again")
            extract_archive(str(archive), str(folder))
        return read_parts(dataset, Path(scratch))


def load_mnist_like(name: str, data_dir: Path | None, seed: int) -> Split:
    """Return MNIST or FashionMNIST with its own split into training and test samples; `seed` is not used.

    `data_dir` holds ``NAME/raw/`` with the four files, unpacked or as ``.gz``, and is only read. Default:
    ``~/.cache/fda-flower``, to which they are downloaded. A `ConfigError` names files that are missing or
    damaged.
    """
    from torchvision import datasets

    dataset: Any = getattr(datasets, name)
    if data_dir is None:
        return read_parts(dataset, cache_folder(), download=True)
    root, inside = data_dir.expanduser(), f"{name}/raw"
    archives = {root / inside / file: md5 for file, md5 in dataset.resources}
    if all(archive.with_suffix("").exists() for archive in archives):
        return read_parts(dataset, root)
    return _read_archives(dataset, archives, inside)


load_mnist = partial(load_mnist_like, "MNIST")
load_fashion_mnist = partial(load_mnist_like, "FashionMNIST")


def load_cifar10(
    data_dir: Path | None, seed: int, subset: Literal["full", "exact", "jpeg"] = "full"
) -> Split:
    """Return CIFAR-10 with its own split into training and test samples; `seed` is not used.

    `data_dir` is only read; it holds ``cifar-10-batches-py/`` or ``cifar-10-python.tar.gz``. Default:
    ``~/.cache/fda-flower``, to which the data set is downloaded. A `subset` has the original pixels
    (``"exact"``) or compressed copies (``"jpeg"``); it is a file ``cifar10/cifar10_SUBSET_subset.npz`` in
    `data_dir`, with ``x_train`` and ``x_test``, uint8, ``(n, 32, 32, 3)``, and ``y_train`` and ``y_test``. A
    `ConfigError` names files that are missing or damaged.

    References
    ----------
    Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """
    if subset != "full":
        return _read_subset(data_dir, f"cifar10_{subset}_subset.npz")
    from torchvision.datasets import CIFAR10

    if data_dir is None:
        return read_parts(CIFAR10, cache_folder(), download=True)
    root = data_dir.expanduser()
    if (root / CIFAR10.base_folder).is_dir():
        return read_parts(CIFAR10, root)
    return _read_archives(CIFAR10, {root / CIFAR10.filename: CIFAR10.tgz_md5})


def _read_subset(data_dir: Path | None, name: str) -> Split:
    if data_dir is None:
        raise ConfigError(
            f"'{name}' cannot be downloaded: give the folder that holds 'cifar10/{name}' with --data-dir "
            "(FDA_DATA_DIR), or leave out the option 'subset'",
            thing=name,
        )
    path = data_dir.expanduser() / "cifar10" / name
    if not path.exists():
        raise unusable("data file", path, "is missing", "put it there, or leave out the option 'subset'")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            parts = [(arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in ("train", "test")]
        for images, labels in parts:
            if images.dtype != np.uint8 or images.shape[1:] != PIXELS:
                raise ValueError(
                    f"images are {images.dtype} of shape {images.shape}, not uint8 of (n, 32, 32, 3)"
                )
            if labels.shape != images.shape[:1] or not np.isin(labels, range(CLASSES)).all():
                raise ValueError("labels are not a class from 0 to 9 for each image")
    except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise unusable("data file", path, f"is damaged ({error})", "get it again") from error
    train, test = (_samples(*part) for part in parts)
    return Split(train, test, CLASSES)


def _samples(images: NDArray[np.uint8], labels: NDArray[np.int_]) -> Samples:
    """Return images of shape ``(n, height, width)`` or ``(n, height, width, channels)``, in [0, 1]."""
    x = torch.from_numpy(images)
    x = x[:, None] if x.ndim == 3 else x.permute(0, 3, 1, 2).contiguous()
    return Samples(x.float() / 255, torch.from_numpy(labels.astype(np.int64)))


TEST_SHARE = 0.25


def load_digits_set(data_dir: Path | None, seed: int) -> Split:
    """Return the digits, three quarters for training and a quarter for testing, balanced by class.

    References
    ----------
    Alpaydin, Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning Repository, 1998.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images.reshape(-1, 1, 8, 8) / 16, dtype=torch.float32)
    samples = Samples(x, torch.tensor(labels, dtype=torch.int64))
    how = {"test_size": TEST_SHARE, "stratify": labels, "random_state": seed % 2**32}
    train, test = map(torch.from_numpy, train_test_split(np.arange(len(samples)), **how))
    return Split(samples.take(train), samples.take(test), CLASSES)
