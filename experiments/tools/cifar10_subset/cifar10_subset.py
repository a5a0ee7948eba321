"""The data set ``cifar-10-subset``: 14,000 images of CIFAR-10, decoded from JPEG.

The file ``DIR/cifar10/cifar10_jpeg_subset.npz`` has the arrays ``x_train`` and ``x_test``, uint8 of shape
``(n, 32, 32, 3)``, and ``y_train`` and ``y_test``.
"""

from pathlib import Path

import numpy as np

from fda_flower.datasets import Dataset, Samples, Split
from fda_flower.errors import ConfigError

FILE = "cifar10/cifar10_jpeg_subset.npz"


def load(data_dir: Path | None, seed: int) -> Split:
    """Return the images with their own split into training and test samples; `seed` is not used."""
    path = Path(data_dir or "", FILE).expanduser()
    if not path.exists():
        raise ConfigError(
            f"'{path}' is missing: give the folder that has it with --data-dir", thing=str(path)
        )
    with np.load(path) as arrays:
        train, test = (_samples(arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in ("train", "test"))
    return Split(train, test, 10)


def _samples(images: np.ndarray, labels: np.ndarray) -> Samples:
    return Samples(np.ascontiguousarray(images.transpose(0, 3, 1, 2)), labels.astype(np.int64))


SUBSET = Dataset("14,000 colour images of 10 classes, 32x32", load, shift="noise")
