"""MNIST, Fashion-MNIST, CIFAR-10 and scikit-learn's digits.

Only CIFAR-10 and downloads import torchvision, and nothing scikit-learn: each takes a second.
"""

import gzip
import hashlib
import math
import tempfile
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.datasets.domains import Split
from fda_flower.datasets.folders import unusable
from fda_flower.datasets.samples import Samples
from fda_flower.datasets.splitting import stratified
from fda_flower.errors import ConfigError
from fda_flower.files import cache_folder
from fda_flower.names.packages import require

CLASSES = 10


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


IDX = {
    "MNIST": {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    "FashionMNIST": {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
}
"""The archives of MNIST's format, training samples first, with their published md5."""


def load_mnist_like(name: str, data_dir: Path | None, seed: int) -> Split:
    """Return MNIST or FashionMNIST with its own split into training and test samples; `seed` is not used.

    `data_dir` holds ``NAME/raw/`` with the four files, unpacked or as ``.gz``, and is only read. Default:
    ``~/.cache/fda-flower``, to which they are downloaded. A `ConfigError` names files that are missing or
    damaged.

    References
    ----------
    LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", 1998, and the
    format on their page of MNIST. Xiao, Rasul, Vollgraf, "Fashion-MNIST", 2017.
    """
    raw = (data_dir.expanduser() if data_dir else cache_folder()) / name / "raw"
    archives = [raw / file for file in IDX[name]]
    unpacked = all(path.with_suffix("").exists() for path in archives)
    if data_dir is None and not unpacked:
        from torchvision import datasets

        return read_parts(getattr(datasets, name), cache_folder(), download=True)
    if unpacked:
        arrays = [read_idx(path.with_suffix("")) for path in archives]
    else:
        arrays = [read_idx(path, md5) for path, md5 in zip(archives, IDX[name].values(), strict=True)]
    return Split(_samples(*arrays[:2]), _samples(*arrays[2:]), CLASSES)


def read_idx(path: Path, md5: str | None = None) -> NDArray[np.uint8]:
    """Return the bytes of a file of MNIST's format as an array, of an archive if there is an `md5`.

    Two zero bytes, 8 for bytes, the number of axes, the length of each as 4 bytes, the highest first, and
    the values. A `ConfigError` names the file if it is missing or damaged.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        remedy = "put it there, or leave out --data-dir (FDA_DATA_DIR) to download the data set"
        raise unusable("data file", path, "is missing", remedy) from error
    if md5 is not None:
        if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
            raise unusable("data file", path, f"is damaged (its md5 is not {md5})", "get it again")
        content = gzip.decompress(content)
    axes = content[3] if content[:3] == b"\0\0\x08" and len(content) > 3 else 0
    begin = 4 * (1 + axes)
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, begin, 4)]
    if not axes or len(content) != begin + math.prod(shape):
        raise unusable("data file", path, "is damaged (not of MNIST's format)", "get it again")
    return np.frombuffer(bytearray(content), np.uint8, offset=begin).reshape(shape)


load_mnist = partial(load_mnist_like, "MNIST")
load_fashion_mnist = partial(load_mnist_like, "FashionMNIST")


def load_cifar10(data_dir: Path | None, seed: int) -> Split:
    """Return CIFAR-10 with its own split into training and test samples; `seed` is not used.

    `data_dir` is only read; it holds ``cifar-10-batches-py/`` or ``cifar-10-python.tar.gz``. Default:
    ``~/.cache/fda-flower``, to which the data set is downloaded. A `ConfigError` names files that are
    missing or damaged.

    References
    ----------
    Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """
    from torchvision.datasets import CIFAR10

    if data_dir is None:
        return read_parts(CIFAR10, cache_folder(), download=True)
    root = data_dir.expanduser()
    if (root / CIFAR10.base_folder).is_dir():
        return read_parts(CIFAR10, root)
    return _read_archives(CIFAR10, {root / CIFAR10.filename: CIFAR10.tgz_md5})


def _samples(images: NDArray[np.uint8], labels: NDArray[np.integer[Any]]) -> Samples:
    """Return images of shape ``(n, height, width)`` or ``(n, height, width, channels)``, in [0, 255]."""
    x = images[:, None] if images.ndim == 3 else np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return Samples(x, labels.astype(np.int64))


TEST_SHARE = 0.25


def load_digits_set(data_dir: Path | None, seed: int) -> Split:
    """Return the digits, three quarters for training and a quarter for testing, balanced by class.

    They equal scikit-learn's `load_digits` and `train_test_split` to the bit, without importing it.

    References
    ----------
    Alpaydin, Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning Repository, 1998.
    """
    require("sklearn")
    (package,) = find_spec("sklearn").submodule_search_locations  # type: ignore[union-attr, misc]
    rows = gzip.decompress(Path(package, "datasets/data/digits.csv.gz").read_bytes()).split()
    table = np.fromstring(b",".join(rows), sep=",").reshape(len(rows), 65)
    x = (table[:, :-1].reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    labels = table[:, -1].astype(np.int64)
    samples = Samples(x, labels)
    train, test = stratified(labels, math.ceil(TEST_SHARE * len(labels)), seed % 2**32)
    return Split(samples.take(train), samples.take(test), CLASSES)
