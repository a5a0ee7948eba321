"""The model and the data."""

import numpy as np
from flwr.app import Array, ArrayRecord
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

CLASSES = np.arange(10)
BATCH = 5
RATE = 0.01


def zeros() -> ArrayRecord:
    """Return the initial model: a logistic regression's ``coef`` and ``intercept``."""
    return to_record(np.zeros((10, 64)), np.zeros(10))


def to_record(coef, intercept) -> ArrayRecord:
    """Return the model's arrays as Flower's record."""
    return ArrayRecord({"coef": Array(coef), "intercept": Array(intercept)})


def make_model(record: ArrayRecord) -> SGDClassifier:
    """Return a model with these arrays."""
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=RATE, alpha=0)
    model.classes_ = CLASSES
    model.coef_, model.intercept_ = record["coef"].numpy().copy(), record["intercept"].numpy().copy()
    return model


def load_data(partition_id: int, num_partitions: int):
    """Load a partition of scikit-learn's digits; the last one has few, shifted right by one pixel."""
    digits = load_digits()
    mine = np.random.default_rng(0).permutation(len(digits.target))[partition_id::num_partitions]
    images, y = digits.images[mine] / 16, digits.target[mine]
    train_size = len(mine) - 100
    if partition_id == num_partitions - 1:
        images, train_size = np.roll(images, 1, axis=2), 50
    x = images.reshape(len(mine), 64)
    return (x[:train_size], y[:train_size]), (x[-100:], y[-100:])
