"""Every partition deals each sample at most once, by its generator; and each deals as its name says."""

from collections.abc import Iterator
from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fda_flower.datasets import DataSpec, load_federation
from fda_flower.datasets.samples import Samples
from fda_flower.datasets.shifts import PARTITIONS, Dirichlet, Even, Labels, Partition
from fda_flower.errors import ConfigError

every_partition = pytest.mark.parametrize("name", list(PARTITIONS))
COVERING = ["even", "dirichlet"]
"""Those that deal every sample; with labels, a class that no source has is left out."""


@pytest.fixture(autouse=True)
def _no_cache() -> Iterator[None]:
    yield
    load_federation.cache_clear()


def numbered(*per_class: int) -> Samples:
    """So many samples of each class; each holds its number, by which it is recognised."""
    y = torch.repeat_interleave(torch.arange(len(per_class)), torch.tensor(per_class))
    return Samples(torch.arange(len(y), dtype=torch.float32)[:, None], y)


def numbers(samples: Samples) -> list[int]:
    return samples.x.flatten().long().tolist()


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def dealt(
    partition: Partition, samples: Samples, sources: int, seed: int = 0, target: bool = False
) -> list[list[int]]:
    """The numbers of the samples of each client, the target's last."""
    if not target:
        return [numbers(part) for part in partition.deal(samples, sources, seeded(seed))]
    parts, mine = partition.deal_with_target(samples, sources, seeded(seed))
    return [numbers(part) for part in [*parts, mine]]


def classes_of(samples: Samples) -> set[int]:
    return set(samples.y.tolist())


def unevenness(parts: list[Samples], classes: int) -> float:
    """The mean over clients of the largest share that a class has of a client's samples."""
    shares = [float(torch.bincount(part.y, minlength=classes).max()) / len(part) for part in parts]
    return sum(shares) / len(shares)


# What holds for all partitions


@every_partition
@pytest.mark.parametrize("target", [False, True])
@pytest.mark.parametrize("sources", [1, 3, 7])
def test_no_sample_is_given_twice_and_labels_stay_with_their_samples(
    name: str, target: bool, sources: int
) -> None:
    samples = numbered(40, 60, 50, 30)
    everybody = dealt(PARTITIONS[name](), samples, sources, target=target)
    assert len(everybody) == sources + target
    assert all(everybody), "nobody is without samples"
    given_out = [*chain(*everybody)]
    assert len(set(given_out)) == len(given_out)
    for part in PARTITIONS[name]().deal(samples, sources, seeded()):
        assert torch.equal(part.y, samples.y[part.x.flatten().long()])


@pytest.mark.parametrize("name", COVERING)
@pytest.mark.parametrize("target", [False, True])
def test_every_sample_is_dealt(name: str, target: bool) -> None:
    everybody = dealt(PARTITIONS[name](), numbered(40, 61, 50, 33), 5, target=target)
    assert sorted(chain(*everybody)) == list(range(184))


@every_partition
@pytest.mark.parametrize("target", [False, True])
def test_the_generator_decides_who_gets_what(name: str, target: bool) -> None:
    samples = numbered(40, 60, 50, 30)
    first = dealt(PARTITIONS[name](), samples, 3, seed=5, target=target)
    assert dealt(PARTITIONS[name](), samples, 3, seed=5, target=target) == first
    other = dealt(PARTITIONS[name](), samples, 3, seed=6, target=target)
    assert all(ours != theirs for ours, theirs in zip(first, other, strict=True))


@every_partition
def test_dealing_leaves_the_global_random_state(name: str) -> None:
    before = torch.get_rng_state()
    PARTITIONS[name]().deal_with_target(numbered(40, 60, 50, 30), 3, seeded())
    assert torch.equal(torch.get_rng_state(), before)


@every_partition
@pytest.mark.parametrize("target", [False, True])
def test_too_few_samples_are_an_error_that_says_what_to_do(name: str, target: bool) -> None:
    with pytest.raises(ConfigError, match="use fewer sources"):
        dealt(PARTITIONS[name](), numbered(1, 1, 1), 4, target=target)


# Even


def test_even_parts_are_even_and_random() -> None:
    parts = dealt(Even(), numbered(5, 6), 4)
    assert sorted(map(len, parts), reverse=True) == [3, 3, 3, 2]
    assert parts != [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]


def test_even_with_a_target_is_even_parts_for_one_more_and_the_last_for_the_target() -> None:
    samples = numbered(20, 20)
    assert dealt(Even(), samples, 3, target=True) == dealt(Even(), samples, 4)


# Dirichlet


def test_a_small_alpha_is_more_uneven_than_a_large_one() -> None:
    samples = numbered(*[200] * 5)
    small, middle, large = (
        unevenness(Dirichlet(alpha).deal(samples, 4, seeded()), 5) for alpha in (0.1, 1.0, 1000.0)
    )
    assert small > middle > large
    assert large == pytest.approx(0.2, abs=0.03), "nearly an even share of each class"


def test_a_huge_alpha_deals_every_class_evenly() -> None:
    for part in Dirichlet(1e9).deal(numbered(100, 200), 4, seeded()):
        assert torch.bincount(part.y).tolist() == [25, 50]


@given(
    per_class=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    parts=st.integers(1, 5),
    alpha=st.sampled_from([0.01, 0.3, 1.0, 50.0]),
    seed=st.integers(0, 2**16),
)
def test_dirichlet_deals_all_samples_once_and_leaves_no_client_without(
    per_class: list[int], parts: int, alpha: float, seed: int
) -> None:
    try:
        everybody = dealt(Dirichlet(alpha), numbered(*per_class), parts, seed)
    except ConfigError:
        return
    assert len(everybody) == parts
    assert all(everybody)
    assert sorted(chain(*everybody)) == list(range(sum(per_class)))


def test_an_alpha_so_small_that_a_client_has_nothing_is_an_error_that_says_so() -> None:
    with pytest.raises(ConfigError, match="partition 'dirichlet' leaves a client without samples: use fewer"):
        Dirichlet(0.01).deal(numbered(50, 50), 4, seeded())


@pytest.mark.parametrize("partition", [Dirichlet(0.1), Labels(2)], ids=str)
def test_the_target_has_an_even_share_of_all_whatever_the_sources_have(partition: Partition) -> None:
    samples = numbered(*[100] * 4)
    _, target = partition.deal_with_target(samples, 4, seeded())
    assert len(target) == 80
    assert classes_of(target) == {0, 1, 2, 3}


# Labels


@given(k=st.integers(1, 6), sources=st.integers(1, 9), seed=st.integers(0, 2**16))
def test_each_source_has_exactly_k_classes(k: int, sources: int, seed: int) -> None:
    parts = Labels(k).deal(numbered(*[30] * 6), sources, seeded(seed))
    assert [len(classes_of(part)) for part in parts] == [k] * sources
    for client, part in enumerate(parts):
        assert client % 6 in classes_of(part), "the classes in turn, so that six clients hold all"


def test_a_class_is_shared_evenly_by_those_who_hold_it() -> None:
    parts = Labels(2).deal(numbered(60, 60), 3, seeded())
    assert [torch.bincount(part.y).tolist() for part in parts] == [[20, 20]] * 3


def test_one_class_each_is_all_of_it() -> None:
    parts = Labels(1).deal(numbered(3, 4, 5), 3, seeded())
    assert [sorted(numbers(part)) for part in parts] == [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10, 11]]


def test_a_class_that_no_client_holds_is_left_out() -> None:
    (part,) = Labels(1).deal(numbered(3, 4), 1, seeded())
    assert sorted(numbers(part)) == [0, 1, 2]


def test_with_target_the_target_is_one_more_client_of_k_classes() -> None:
    samples = numbered(*[60] * 5)
    parts, target = Labels(2, target=True).deal_with_target(samples, 3, seeded())
    assert [len(classes_of(part)) for part in [*parts, target]] == [2] * 4
    assert 3 in classes_of(target)
    assert dealt(Labels(2, target=True), samples, 3, target=True) == dealt(Labels(2), samples, 4)


def test_more_classes_than_there_are_is_refused() -> None:
    assert len(Labels(3).deal(numbered(9, 9, 9), 2, seeded())) == 2
    with pytest.raises(ConfigError, match="option 'k' of partition 'labels' is 4, but there are 3 classes"):
        Labels(4).deal(numbered(9, 9, 9), 2, seeded())


# In a federation


def load(**settings: object) -> dict[str, tuple[set[int], set[int]]]:
    """The classes that each domain of the digits trains and is tested on."""
    spec = DataSpec("digits", "noise", (("std", 0.3),), **settings)  # type: ignore[arg-type]
    domains = load_federation(spec).domains.values()
    return {domain.name: (classes_of(domain.train), classes_of(domain.test)) for domain in domains}


def test_a_target_of_few_classes_is_tested_on_these_alone() -> None:
    classes = load(partition="labels", partition_options=(("k", 3), ("target", True)), num_sources=4)
    train, test = classes.pop("target")
    assert len(train) == 3
    assert test == train
    for train, test in classes.values():
        assert len(train) == 3
        assert test == set(range(10))


def test_without_the_option_the_target_keeps_all_classes() -> None:
    classes = load(partition="labels", partition_options=(("k", 3),), num_sources=4)
    assert classes.pop("target") == (set(range(10)), set(range(10)))
    assert [len(train) for train, _ in classes.values()] == [3] * 4


def test_the_targets_few_classes_are_all_that_its_test_set_leaves_out() -> None:
    options = (("k", 3), ("target", True))
    spec = DataSpec("digits", "noise", partition="labels", partition_options=options)
    domains = load_federation(spec).domains
    everything, ours = domains["source-1"].test.y, domains["target"].test.y
    expected = sum(int((everything == label).sum()) for label in classes_of(domains["target"].train))
    assert len(ours) == expected


def test_the_label_shift_deals_the_sources_share_by_the_partition() -> None:
    spec = DataSpec(
        "digits", "label", (("eta", 0.5),), num_sources=5, partition="labels", partition_options=(("k", 2),)
    )
    federation = load_federation(spec)
    for name, domain in federation.domains.items():
        assert len(classes_of(domain.train)) == (10 if name == "target" else 2), name
