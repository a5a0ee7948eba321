"""MNIST and Fashion-MNIST, read by torchvision: 60,000 training and 10,000 test images of 28x28."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from fda_flower.datasets.domains import Split
from fda_flower.datasets.samples import Samples
from fda_flower.datasets.torchvision_files import CACHE, check_file, read_parts


def load(name: str, data_dir: Path | None, seed: int) -> Split:
    """Return the data set with its own split into training and test samples.

    Parameters
    ----------
    name : {"MNIST", "FashionMNIST"}
        torchvision's name for the data set and its folder.
    data_dir : Path, optional
        A folder that holds ``NAME/raw/`` with the four files, unpacked or as ``.gz``; it is only read.
        Default: ``~/.cache/fda-flower``, to which they are downloaded.
    seed : int
        Not used: the split is the data set's own.

    Raises
    ------
    ConfigError
        If files are missing and cannot be downloaded, or are damaged; the message names them.
    """
    from torchvision import datasets

    dataset: Any = getattr(datasets, name)
    if data_dir is None:
        return _read(dataset, CACHE.expanduser(), download=True)
    raw = data_dir.expanduser() / name / "raw"
    if all((raw / file.removesuffix(".gz")).exists() for file, _ in dataset.resources):
        return _read(dataset, raw.parent.parent)
    with tempfile.TemporaryDirectory() as scratch:
        # The user's folder may be read-only or shared: nothing is written to it.
        unpacked = Path(scratch) / name / "raw"
        unpacked.mkdir(parents=True)
        for file, md5 in dataset.resources:
            check_file(raw / file, md5)
            datasets.utils.extract_archive(str(raw / file), str(unpacked))
        return _read(dataset, Path(scratch))


load_mnist = partial(load, "MNIST")
load_fashion_mnist = partial(load, "FashionMNIST")


def _read(dataset: Any, root: Path, download: bool = False) -> Split:
    parts = read_parts(dataset, root, download)
    train, test = (Samples(part.data[:, None].float() / 255, part.targets.long()) for part in parts)
    return Split(train, test, 10)
