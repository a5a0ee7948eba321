"""Samples as tensors: batches that cover each one once."""

import numpy as np
import pytest
import torch
from naming import names

from fda_flower.datasets import Samples
from fda_flower.errors import ConfigError
from fda_flower.prediction.batches import batches

COUNT = 10


def make(noise=0.0):
    """Samples whose image is their number and whose class is ten times it."""
    y = np.arange(COUNT)
    return Samples(np.tile(y.astype(np.float32)[:, None, None, None], (1, 1, 2, 2)), 10 * y, noise)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def order(samples, size, seed, shuffle=True):
    return [int(y) for _, part in batches(samples, size, generator(seed), shuffle) for y in part]


@pytest.mark.parametrize("size", [1, 3, COUNT, COUNT + 1])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_hold_each_sample_once_with_its_own_label(size, shuffle):
    samples = make()
    drawn = list(batches(samples, size, generator(), shuffle))
    x, y = torch.cat([x for x, _ in drawn]), torch.cat([y for _, y in drawn])
    assert sorted(y.tolist()) == samples.y.tolist()
    assert (y.tolist() == samples.y.tolist()) != shuffle
    assert torch.equal(10 * x[:, 0, 0, 0], y.float())
    assert x.shape == samples.x.shape


@pytest.mark.parametrize(
    ("cut", "size", "lengths"),
    [
        ("even", 3, [3, 3, 2, 2]),
        ("even", 9, [5, 5]),
        ("even", 20, [10]),
        ("even", 1, [1] * 10),
        ("keep-last", 4, [4, 4, 2]),
        ("keep-last", 5, [5, 5]),
        ("keep-last", 20, [10]),
        ("drop-last", 4, [4, 4]),
        ("drop-last", 5, [5, 5]),
        ("drop-last", 9, [9]),
        ("drop-last", 20, [10]),
    ],
)
def test_batches_are_even_or_full_with_or_without_the_rest(cut, size, lengths):
    drawn = list(batches(make(), size, generator(), shuffle=True, cut=cut))
    assert [len(y) for _, y in drawn] == lengths
    labels = [int(y) for _, part in drawn for y in part]
    assert labels == order(make(), COUNT, seed=0)[: sum(lengths)]


@pytest.mark.parametrize("cut", ["even", "keep-last", "drop-last"])
def test_a_client_without_samples_is_named(cut):
    with pytest.raises(ConfigError, check=names("samples", 0)):
        next(batches(make().take(np.arange(0)), 4, generator(), cut=cut))


def test_the_order_is_the_generators_and_another_in_a_second_pass():
    assert order(make(), 3, seed=1) == order(make(), 4, seed=1)
    assert order(make(), 3, seed=1) != order(make(), 3, seed=2)
    one = generator()
    first, second = (torch.cat([y for _, y in batches(make(), 3, one, shuffle=True)]) for _ in range(2))
    assert not torch.equal(first, second)


def test_batches_leave_the_samples_and_the_global_random_state():
    before, samples = torch.get_rng_state(), make(noise=1.0)
    for shuffle in (False, True):
        for x, _ in batches(samples, 3, generator(), shuffle):
            x.zero_()
    assert np.array_equal(samples.x, make().x)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("cut", ["even", "keep-last"])
def test_batches_in_order_are_no_copies(cut):
    samples = make()
    drawn = list(batches(samples, 3, generator(), cut=cut))
    assert torch.equal(torch.cat([x for x, _ in drawn]), torch.from_numpy(samples.x))
    assert drawn[0][0].data_ptr() == samples.x.ctypes.data
