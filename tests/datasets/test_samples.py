"""Samples: batches that cover each one once."""

from dataclasses import replace

import pytest
import torch
from naming import names

from fda_flower.datasets import Samples
from fda_flower.errors import ConfigError

COUNT = 10


def make(noise=0.0):
    """Samples whose image is their number and whose class is ten times it."""
    y = torch.arange(COUNT)
    return Samples(y.float()[:, None, None, None].expand(-1, 1, 2, 2).clone(), 10 * y, noise)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def order(samples, size, seed, shuffle=True):
    return [int(y) for _, part in samples.batches(size, generator(seed), shuffle) for y in part]


@pytest.mark.parametrize("size", [1, 3, COUNT, COUNT + 1])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_hold_each_sample_once_with_its_own_label(size, shuffle):
    samples = make()
    batches = list(samples.batches(size, generator(), shuffle))
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
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
    batches = list(make().batches(size, generator(), shuffle=True, cut=cut))
    assert [len(y) for _, y in batches] == lengths
    shown = [int(y) for _, part in batches for y in part]
    assert shown == order(make(), COUNT, seed=0)[: sum(lengths)]


@pytest.mark.parametrize("cut", ["even", "keep-last", "drop-last"])
def test_a_client_without_samples_is_named(cut):
    with pytest.raises(ConfigError, check=names("samples", 0)):
        next(make().take(torch.arange(0)).batches(4, generator(), cut=cut))


def test_the_order_is_the_generators_and_another_in_a_second_pass():
    assert order(make(), 3, seed=1) == order(make(), 4, seed=1)
    assert order(make(), 3, seed=1) != order(make(), 3, seed=2)
    one = generator()
    first, second = (torch.cat([y for _, y in make().batches(3, one, shuffle=True)]) for _ in range(2))
    assert not torch.equal(first, second)


def test_batches_leave_the_samples_and_the_global_random_state():
    before, samples = torch.get_rng_state(), make(noise=1.0)
    for shuffle in (False, True):
        for x, _ in samples.batches(3, generator(), shuffle):
            x.zero_()
    assert torch.equal(samples.x, make().x)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("cut", ["even", "keep-last"])
def test_batches_in_order_are_no_copies(cut):
    samples = make()
    batches = list(samples.batches(3, generator(), cut=cut))
    assert torch.equal(torch.cat([x for x, _ in batches]), samples.x)
    assert batches[0][0].data_ptr() == samples.x.data_ptr()


def test_samples_are_taken_in_the_order_asked_for_and_joined_with_the_first_ones_noise():
    taken = make(noise=0.5).take(torch.tensor([7, 2]), torch.tensor([2]))
    assert (len(taken), taken.y.tolist(), taken.noise) == (3, [70, 20, 20], 0.5)
    assert taken.x[:, 0, 0, 0].tolist() == [7, 2, 2]
    whole = taken.joined(make().take(torch.tensor([1])).without_labels())
    assert (whole.y.tolist(), whole.noise) == ([70, 20, 20, -1], 0.5)
    assert whole.x[:, 0, 0, 0].tolist() == [7, 2, 2, 1]


def test_groups_go_where_their_samples_go_and_all_to_a_device():
    whole = Samples(torch.zeros(4, 1), torch.arange(4), 0.5, torch.tensor([7, 7, 8, 9]))
    part = whole.take(torch.tensor([3, 0]))
    assert part.groups.tolist() == [9, 7]
    assert part.joined(whole).groups.tolist() == [9, 7, 7, 7, 8, 9]
    assert part.digest() != replace(part, groups=torch.tensor([9, 9])).digest()
    moved = whole.to(torch.device("meta"))
    assert {each.device.type for each in (moved.x, moved.y, moved.groups)} == {"meta"}
    assert (moved.x.shape, moved.y.shape, moved.noise) == ((4, 1), (4,), 0.5)


def test_samples_of_known_and_of_unknown_groups_are_not_joined():
    alone = Samples(torch.zeros(2, 1), torch.arange(2))
    known = replace(alone, groups=torch.arange(2))
    for first, second in ((alone, known), (known, alone)):
        with pytest.raises(ConfigError, match="the others have none", check=names("groups")):
            first.joined(second)


def test_units_are_the_groups_or_else_the_samples():
    samples = make()
    assert samples.units == COUNT
    assert replace(samples, groups=torch.arange(COUNT) // 4).units == 3
