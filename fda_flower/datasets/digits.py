"""scikit-learn's handwritten digits: 1,797 images of 8x8; no download is needed."""

from pathlib import Path

import torch

from fda_flower.datasets.domains import Split
from fda_flower.datasets.samples import Samples

TEST_SHARE = 0.25


def load(data_dir: Path | None, seed: int) -> Split:
    """Return the digits, three quarters for training and a quarter for testing, balanced by class.

    References
    ----------
    Alpaydin, Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning Repository, 1998.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images.reshape(-1, 1, 8, 8) / 16, dtype=torch.float32)
    y = torch.tensor(labels, dtype=torch.int64)
    train, test = train_test_split(
        range(len(y)), test_size=TEST_SHARE, stratify=labels, random_state=seed % 2**32
    )
    samples = Samples(x, y)
    return Split(samples.take(torch.tensor(train)), samples.take(torch.tensor(test)), 10)
