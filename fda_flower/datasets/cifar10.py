"""CIFAR-10: 50,000 colour images of 32x32 for training, 10,000 for testing; or a subset of them."""

import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fda_flower.datasets.domains import Split
from fda_flower.datasets.samples import Samples
from fda_flower.datasets.torchvision_files import CACHE, check_file, read_parts
from fda_flower.errors import ConfigError

CLASSES = 10
SHAPE = (32, 32, 3)


def load(data_dir: Path | None, seed: int, subset: Literal["full", "exact", "jpeg"] = "full") -> Split:
    """Return the data set with its own split into training and test samples.

    Parameters
    ----------
    data_dir : Path, optional
        A folder that holds ``cifar-10-batches-py/`` or ``cifar-10-python.tar.gz``, or for a subset
        ``cifar10/cifar10_exact_subset.npz`` or ``cifar10/cifar10_jpeg_subset.npz``; it is only read.
        Default: ``~/.cache/fda-flower``, to which the full data set is downloaded.
    seed : int
        Not used: the split is the data set's own.
    subset : {"full", "exact", "jpeg"}
        The full data set, or a subset with the original pixels (``"exact"``) or compressed copies
        (``"jpeg"``). A subset's file has ``x_train`` and ``x_test``, uint8, ``(n, 32, 32, 3)``, and
        ``y_train`` and ``y_test``.

    Raises
    ------
    ConfigError
        If files are missing and cannot be downloaded, or are damaged; the message names them.

    References
    ----------
    Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """
    if subset != "full":
        return _read_part(data_dir, f"cifar10_{subset}_subset.npz")
    from torchvision.datasets import CIFAR10
    from torchvision.datasets.utils import extract_archive

    if data_dir is None:
        return _read_whole(CACHE.expanduser(), download=True)
    root = data_dir.expanduser()
    if (root / CIFAR10.base_folder).is_dir():
        return _read_whole(root)
    archive = root / CIFAR10.filename
    check_file(archive, CIFAR10.tgz_md5)
    with tempfile.TemporaryDirectory() as scratch:
        # The user's folder may be read-only or shared: nothing is written to it.
        extract_archive(str(archive), scratch)
        return _read_whole(Path(scratch))


def _read_whole(root: Path, download: bool = False) -> Split:
    from torchvision.datasets import CIFAR10

    parts = read_parts(CIFAR10, root, download)
    train, test = (_samples(part.data, np.array(part.targets)) for part in parts)
    return Split(train, test, CLASSES)


def _read_part(data_dir: Path | None, name: str) -> Split:
    if data_dir is None:
        raise ConfigError(
            f"'{name}' cannot be downloaded: give the folder that holds 'cifar10/{name}' with --data-dir "
            "(FDA_DATA_DIR), or leave out the option 'subset'"
        )
    path = data_dir.expanduser() / "cifar10" / name
    if not path.exists():
        raise ConfigError(
            f"the data file '{path}' is missing: put it there, or leave out the option 'subset'"
        )
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            train, test = (_samples(arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in ("train", "test"))
    except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ConfigError(f"the data file '{path}' is damaged ({error}): get it again") from error
    return Split(train, test, CLASSES)


def _samples(images: NDArray[np.uint8], labels: NDArray[np.int_]) -> Samples:
    if images.dtype != np.uint8 or images.shape[1:] != SHAPE:
        raise ValueError(f"images are {images.dtype} of shape {images.shape}, not uint8 of (n, 32, 32, 3)")
    if labels.shape != images.shape[:1] or not np.isin(labels, range(CLASSES)).all():
        raise ValueError("labels are not a class from 0 to 9 for each image")
    x = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous().float() / 255
    return Samples(x, torch.from_numpy(labels.astype(np.int64)))
