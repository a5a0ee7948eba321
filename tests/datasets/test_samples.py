"""Samples: batches that cover each one once."""

import pytest
import torch

from fda_flower.datasets import Samples

COUNT = 10


def make(noise: float = 0.0) -> Samples:
    """Samples whose image is their number and whose class is ten times it."""
    y = torch.arange(COUNT)
    return Samples(y.float()[:, None, None, None].expand(-1, 1, 2, 2).clone(), 10 * y, noise)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def order(samples: Samples, size: int, seed: int, shuffle: bool = True) -> list[int]:
    return [int(y) for _, part in samples.batches(size, generator(seed), shuffle) for y in part]


@pytest.mark.parametrize("size", [1, 3, 5, COUNT, COUNT + 1])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_hold_each_sample_once_with_its_own_label(size: int, shuffle: bool) -> None:
    samples = make()
    batches = list(samples.batches(size, generator(), shuffle))
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    assert sorted(y.tolist()) == samples.y.tolist()
    assert torch.equal(10 * x[:, 0, 0, 0], y.float())
    assert x.shape == samples.x.shape


@pytest.mark.parametrize(("size", "lengths"), [(3, [3, 3, 2, 2]), (9, [5, 5]), (20, [10]), (1, [1] * 10)])
def test_batches_are_as_few_and_as_even_as_can_be(size: int, lengths: list[int]) -> None:
    assert [len(y) for _, y in make().batches(size, generator(), shuffle=True)] == lengths


@pytest.mark.parametrize(
    ("cut", "size", "lengths"),
    [
        ("keep-last", 4, [4, 4, 2]),
        ("keep-last", 5, [5, 5]),
        ("keep-last", 20, [10]),
        ("drop-last", 4, [4, 4]),
        ("drop-last", 5, [5, 5]),
        ("drop-last", 9, [9]),
        ("drop-last", 20, [10]),
    ],
)
def test_full_batches_and_the_rest(cut: str, size: int, lengths: list[int]) -> None:
    samples = make()
    batches = list(samples.batches(size, generator(), shuffle=True, cut=cut))
    assert [len(y) for _, y in batches] == lengths
    shown = [int(y) for _, part in batches for y in part]
    assert shown == order(samples, COUNT, seed=0)[: sum(lengths)]


def test_batches_come_in_order_unless_shuffled() -> None:
    assert order(make(), 3, seed=0, shuffle=False) == make().y.tolist()
    assert order(make(), 3, seed=0) != make().y.tolist()


def test_the_order_is_the_generators() -> None:
    assert order(make(), 3, seed=1) == order(make(), 3, seed=1)
    assert order(make(), 3, seed=1) == order(make(), 4, seed=1)
    assert order(make(), 3, seed=1) != order(make(), 3, seed=2)


def test_a_second_pass_has_another_order() -> None:
    samples, one = make(), generator()
    first, second = (
        torch.cat([y for _, y in samples.batches(3, one, shuffle=True)]).tolist() for _ in range(2)
    )
    assert first != second


def test_batches_leave_the_global_random_state() -> None:
    before = torch.get_rng_state()
    list(make(noise=1.0).batches(3, generator(), shuffle=True))
    assert torch.equal(torch.get_rng_state(), before)


def test_batches_leave_the_samples() -> None:
    samples = make(noise=1.0)
    for x, _ in samples.batches(3, generator()):
        x.zero_()
    assert torch.equal(samples.x, make().x)


@pytest.mark.parametrize("cut", ["even", "keep-last"])
def test_batches_in_order_are_no_copies(cut: str) -> None:
    samples = make()
    batches = list(samples.batches(3, generator(), cut=cut))
    assert torch.equal(torch.cat([x for x, _ in batches]), samples.x)
    assert batches[0][0].data_ptr() == samples.x.data_ptr()


def test_take_keeps_the_order_asked_for_and_the_noise() -> None:
    taken = make(noise=0.5).take(torch.tensor([7, 2, 2]))
    assert taken.y.tolist() == [70, 20, 20]
    assert taken.x[:, 0, 0, 0].tolist() == [7, 2, 2]
    assert taken.noise == 0.5
    assert len(taken) == 3


def test_joined_samples_come_one_after_the_other_with_the_first_ones_noise() -> None:
    first, second = (
        make(noise=0.5).take(torch.tensor([3, 4])),
        make().take(torch.tensor([1])).without_labels(),
    )
    whole = first.joined(second)
    assert whole.y.tolist() == [30, 40, -1]
    assert whole.x[:, 0, 0, 0].tolist() == [3, 4, 1]
    assert whole.noise == 0.5


def test_to_a_device_keeps_everything() -> None:
    samples = make(noise=0.5).to(torch.device("cpu"))
    assert torch.equal(samples.x, make().x)
    assert torch.equal(samples.y, make().y)
    assert samples.noise == 0.5
    assert samples.x.device.type == samples.y.device.type == "cpu"


def test_to_a_device_moves_images_and_labels() -> None:
    samples = make(noise=0.5).to(torch.device("meta"))
    assert samples.x.device.type == samples.y.device.type == "meta"
    assert (samples.x.shape, samples.y.shape, samples.noise) == (make().x.shape, make().y.shape, 0.5)


def test_groups_go_where_their_samples_go():
    whole = Samples(torch.zeros(4, 1), torch.arange(4), groups=torch.tensor([7, 7, 8, 9]))
    part = whole.take(torch.tensor([3, 0])).to(torch.device("cpu"))
    assert part.groups.tolist() == [9, 7]
    assert part.joined(whole).groups.tolist() == [9, 7, 7, 7, 8, 9]
    assert part.joined(Samples(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64))).groups is None
