"""A data set of three domains, whose loads are counted."""

import numpy as np
import pytest

from fda_flower.datasets import DATASETS, Dataset, Samples, Split
from fda_flower.datasets.federation import forget

SIZES = {"brick": 20, "glass": 30, "wood": 40}
"""Training images of each domain; it tests on half as many."""


def materials(size, empty=""):
    """Images of two classes in three domains; each is of the domain's grey."""

    def samples(grey, number):
        return Samples(np.full((number, 1, size, size), grey, np.float32), np.arange(number) % 2)

    return {
        name: Split(samples(i / 4, number), samples(i / 4, 0 if name == empty else number // 2), 2)
        for i, (name, number) in enumerate(SIZES.items())
    }


@pytest.fixture
def loads(monkeypatch):
    """The data sets "materials", and "incomplete", whose glass has no test images; what was loaded."""
    seen = []

    def load(data_dir, seed, image_size: int = 4):
        seen.append((data_dir, image_size))
        return materials(image_size)

    def load_incomplete(data_dir, seed):
        return materials(4, empty="glass")

    monkeypatch.setitem(DATASETS, "materials", Dataset("made for a test", load, tuple(SIZES)))
    monkeypatch.setitem(DATASETS, "incomplete", Dataset("made for a test", load_incomplete, tuple(SIZES)))
    forget()
    yield seen
    forget()
