"""What every framework does: the data, the network, the training and the evaluation."""

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fda_flower.files import derive_seed
from fda_flower.models import build_model

BATCH_SIZE, EPOCHS, LEARNING_RATE = 20, 1, 0.05
"""Of each client in a round, with plain SGD; 20 divides both clients' amounts of samples."""

TEST_BATCH_SIZE = 256
SHAPE, CLASSES = (1, 28, 28), 10
WORKERS = 2
"""Processes of those that use several, each with one thread."""

Labelled = tuple[Tensor, Tensor]
"""Images in [0, 1], float32, shape ``(n, 1, 28, 28)``, and their classes, int64."""


@dataclass(frozen=True)
class Task:
    """FedAvg over clients of equal size, which all take part in each round.

    Attributes
    ----------
    network : str
        A name of `fda_flower.models.MODELS`.
    clients, samples : int
        How many clients, and training images of each.
    data_dir : str
        The folder with ``FashionMNIST/raw/``.
    warm_up, rounds : int
        Rounds that are not timed, and those that are.
    device : str
        Of the network and the samples; all frameworks but `bare` and `fda` are for the CPU.
    """

    network: str
    clients: int
    samples: int
    data_dir: str
    warm_up: int
    rounds: int
    device: str = "cpu"

    @property
    def all_rounds(self) -> int:
        """The rounds of a run."""
        return self.warm_up + self.rounds

    def model(self) -> nn.Module:
        """Build the network with the weights of fda's run: how long max-pooling takes depends on them."""
        return build_model(self.network, SHAPE, CLASSES, derive_seed(0, "model"))

    def client_data(self) -> list[Labelled]:
        """Deal the training images at random."""
        images, labels = read(Path(self.data_dir), "train")
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).numpy()
        parts = (order[i * self.samples : (i + 1) * self.samples] for i in range(self.clients))
        return [as_tensors(images[part], labels[part]) for part in parts]

    def test_data(self) -> Labelled:
        """Return all test images."""
        return as_tensors(*read(Path(self.data_dir), "t10k"))


def read(data_dir: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read images and labels of Fashion-MNIST, whose files have a header of 16 and of 8 bytes."""
    images, labels = (
        np.frombuffer(
            unpacked(data_dir / "FashionMNIST" / "raw" / f"{part}-{name}-ubyte"), np.uint8, -1, skip
        )
        for name, skip in (("images-idx3", 16), ("labels-idx1", 8))
    )
    return images.reshape(-1, *SHAPE), labels


def unpacked(path: Path) -> bytes:
    """Return the contents of a file that is there as it is or with ``.gz``."""
    if path.exists():
        return path.read_bytes()
    with gzip.open(f"{path}.gz") as file:
        return file.read()


def as_tensors(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Labelled:
    """Convert to what networks take."""
    return torch.from_numpy(images / np.float32(255)), torch.from_numpy(labels.astype(np.int64))
