"""What every data set and every shift keep to: one test for all of them.

Beside the data sets of the registry there is a spy, whose images tell which sample they are.
"""

import os
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from fda_flower.datasets import (
    DATASETS,
    SHIFTS,
    Dataset,
    DataSpec,
    Domain,
    Federation,
    Samples,
    Split,
    load_federation,
)
from fda_flower.datasets.shifts import summary

DATA_DIR = os.environ.get("FDA_DATA_DIR")
TARGET_SAMPLES = 24
SPY, SPY_TRAIN, SPY_TEST = "spy", 1000, 400
SPY_SCALE = SPY_TRAIN + SPY_TEST + 1
PLAIN = {"rotate": (("invert", False),)}
"""Options with which the spy's images can be read after the shift."""

FILES = {"fashion-mnist": "FashionMNIST/raw", "mnist": "MNIST/raw"}
"""Where the files of data sets that are not bundled lie, in the folder of data."""


def with_files(name: str) -> Any:
    """The data set as a parameter, skipped where its files are not."""
    there = name not in FILES or (DATA_DIR is not None and (Path(DATA_DIR) / FILES[name]).is_dir())
    reason = f"the files of {name} are not in FDA_DATA_DIR ({DATA_DIR})"
    return pytest.param(name, marks=pytest.mark.skipif(not there, reason=reason))


every_dataset = pytest.mark.parametrize("dataset", [*map(with_files, DATASETS), SPY])
every_shift = pytest.mark.parametrize("shift", list(SHIFTS))


def spy_split() -> Split:
    """Ten classes in turn; an image is of one grey, which is the sample's number."""
    number = torch.arange(SPY_TRAIN + SPY_TEST)
    grey = (number + 1) / SPY_SCALE
    samples = Samples(grey[:, None, None, None].expand(-1, 1, 5, 5).clone(), number % 10)
    return Split(samples.take(number[:SPY_TRAIN]), samples.take(number[SPY_TRAIN:]), 10)


def numbers(samples: Samples) -> list[int]:
    """The numbers of the spy's samples, read from the centres of their images.

    The centre stays in place under a rotation, and colours are channels that sum to the grey.
    """
    grey = samples.x[:, :, 2, 2].sum(dim=1)
    return (grey * SPY_SCALE - 1).round().long().tolist()


def part_of(name: str) -> Callable[[Path | None, int], Split]:
    """The first images of a large data set, read once."""
    load, kept = DATASETS[name].load, []

    def load_part(data_dir: Path | None, seed: int) -> Split:
        if not kept:
            whole = load(data_dir, seed)
            first = torch.arange(2000)
            kept.append(Split(whole.train.take(first), whole.test.take(first[:800]), whole.classes))
        return kept[0]

    return load_part


@pytest.fixture(scope="module", autouse=True)
def _spy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATASETS, SPY, Dataset("made for a test", lambda data_dir, seed: spy_split()))
        for name in FILES:
            patch.setitem(DATASETS, name, Dataset("a part of it", part_of(name)))
        yield
    load_federation.cache_clear()


def spec_of(dataset: str, shift: str, **settings: Any) -> DataSpec:
    return DataSpec(dataset, shift, **{"target_samples": TARGET_SAMPLES, "data_dir": DATA_DIR, **settings})


def load_spy(shift: str, **settings: Any) -> Federation:
    return load_federation(spec_of(SPY, shift, shift_options=PLAIN.get(shift, ()), **settings))


def sets_of(federation: Federation) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    return [
        (f"{name}/{part}", samples.x, samples.y)
        for name, domain in federation.domains.items()
        for part, samples in (("train", domain.train), ("test", domain.test))
    ]


def sources_of(federation: Federation) -> list[Domain]:
    return [domain for name, domain in federation.domains.items() if name != federation.target]


@every_dataset
@every_shift
def test_domains_are_named_as_the_spec_says_and_in_its_order(dataset: str, shift: str) -> None:
    spec = spec_of(dataset, shift)
    federation = load_federation(spec)
    assert list(federation.domains) == spec.domain_names
    assert [domain.name for domain in federation.domains.values()] == spec.domain_names
    assert len(set(spec.domain_names)) == len(spec.domain_names)


@every_dataset
@every_shift
def test_the_target_is_one_of_the_domains_and_the_others_are_the_sources(dataset: str, shift: str) -> None:
    spec = spec_of(dataset, shift)
    federation = load_federation(spec)
    assert federation.target == spec.target_name == SHIFTS[shift].default_target
    assert federation.target in federation.domains
    assert spec.source_names == sorted(set(federation.domains) - {federation.target})
    assert len(spec.source_names) == SHIFTS[shift].default_sources


@every_shift
def test_any_domain_can_be_the_target(shift: str) -> None:
    for name in spec_of(SPY, shift).domain_names:
        federation = load_spy(shift, target=name)
        assert federation.target == name
        assert len(federation.domains[name].train) == TARGET_SAMPLES
        assert all(len(source.train) > TARGET_SAMPLES for source in sources_of(federation))


@every_dataset
@every_shift
def test_images_are_float32_of_one_shape_within_0_and_1(dataset: str, shift: str) -> None:
    federation = load_federation(spec_of(dataset, shift))
    assert len(federation.shape) == 3
    for name, x, _ in sets_of(federation):
        assert x.dtype == torch.float32, name
        assert tuple(x.shape[1:]) == federation.shape, name
        assert 0 <= float(x.min()) <= float(x.max()) <= 1, name


@every_dataset
@every_shift
def test_labels_are_int64_classes_and_as_many_as_images(dataset: str, shift: str) -> None:
    federation = load_federation(spec_of(dataset, shift))
    seen: set[int] = set()
    for name, x, y in sets_of(federation):
        assert y.dtype == torch.int64, name
        assert y.shape == (len(x),), name
        seen |= set(y.tolist())
    assert seen == set(range(federation.classes))


@every_dataset
@every_shift
def test_no_domain_is_empty(dataset: str, shift: str) -> None:
    for name, _, y in sets_of(load_federation(spec_of(dataset, shift))):
        assert len(y) > 0, name


@every_dataset
@every_shift
def test_the_target_has_exactly_the_labelled_samples_asked_for(dataset: str, shift: str) -> None:
    whole = load_federation(spec_of(dataset, shift, target_samples=None))
    every = len(whole.domains[whole.target].train)
    for count in (1, TARGET_SAMPLES, every):
        federation = load_federation(spec_of(dataset, shift, target_samples=count))
        assert len(federation.domains[federation.target].train) == count


@every_dataset
@every_shift
def test_how_many_samples_the_target_has_changes_nothing_else(dataset: str, shift: str) -> None:
    few = load_federation(spec_of(dataset, shift, target_samples=1))
    many = load_federation(spec_of(dataset, shift, target_samples=None))
    for (name, *ours), (_, *others) in zip(sets_of(few), sets_of(many), strict=True):
        if name != f"{few.target}/train":
            assert all(map(torch.equal, ours, others)), name


@every_dataset
@every_shift
def test_the_same_spec_gives_the_same_bits_when_loaded_afresh(dataset: str, shift: str) -> None:
    first = load_federation(spec_of(dataset, shift))
    assert load_federation(spec_of(dataset, shift)) is first
    load_federation.cache_clear()
    with torch.random.fork_rng():
        torch.manual_seed(1234)
        second = load_federation(spec_of(dataset, shift))
    assert second is not first
    for (name, *ours), (_, *others) in zip(sets_of(first), sets_of(second), strict=True):
        assert all(map(torch.equal, ours, others)), name


@every_dataset
@every_shift
def test_loading_leaves_the_global_random_state(dataset: str, shift: str) -> None:
    load_federation.cache_clear()
    before = torch.get_rng_state()
    load_federation(spec_of(dataset, shift))
    assert torch.equal(torch.get_rng_state(), before)


@every_dataset
@every_shift
def test_another_seed_deals_other_samples_to_every_domain(dataset: str, shift: str) -> None:
    first, second = (load_federation(spec_of(dataset, shift, seed=seed)) for seed in (0, 1))
    for name in first.domains:
        ours, others = first.domains[name].train.x, second.domains[name].train.x
        assert ours.shape != others.shape or not torch.equal(ours, others), name


def load_unshifted(dataset: str) -> Split:
    return DATASETS[dataset].load(Path(DATA_DIR) if DATA_DIR else None, 0)


@pytest.mark.parametrize("dataset", [*map(with_files, DATASETS)])
def test_no_test_image_of_a_data_set_is_a_training_image(dataset: str) -> None:
    split = load_unshifted(dataset)
    train, test = (len(torch.unique(samples.x, dim=0)) for samples in (split.train, split.test))
    both = len(torch.unique(torch.cat([split.train.x, split.test.x]), dim=0))
    assert both == train + test


@pytest.mark.parametrize("dataset", [*map(with_files, DATASETS)])
def test_a_data_set_has_all_classes_on_both_sides_and_a_summary(dataset: str) -> None:
    split = load_unshifted(dataset)
    for samples in (split.train, split.test):
        assert sorted(torch.unique(samples.y).tolist()) == list(range(split.classes))
    assert DATASETS[dataset].summary
    assert "\n" not in DATASETS[dataset].summary


@every_shift
def test_no_sample_is_both_trained_and_tested_on(shift: str) -> None:
    domains = load_spy(shift, target_samples=None).domains.values()
    trained = {number for domain in domains for number in numbers(domain.train)}
    tested = {number for domain in domains for number in numbers(domain.test)}
    assert trained <= set(range(SPY_TRAIN))
    assert tested <= set(range(SPY_TRAIN, SPY_TRAIN + SPY_TEST))


@every_shift
@pytest.mark.parametrize("target_samples", [None, TARGET_SAMPLES])
def test_no_two_domains_train_on_the_same_sample(shift: str, target_samples: int | None) -> None:
    federation = load_spy(shift, target_samples=target_samples)
    trained = {name: numbers(domain.train) for name, domain in federation.domains.items()}
    for name, samples in trained.items():
        assert len(set(samples)) == len(samples), name
    for (one, ours), (other, others) in combinations(trained.items(), 2):
        assert not set(ours) & set(others), (one, other)


@every_shift
def test_every_training_sample_is_dealt_to_some_domain(shift: str) -> None:
    federation = load_spy(shift, target_samples=None)
    dealt = [number for domain in federation.domains.values() for number in numbers(domain.train)]
    assert sorted(dealt) == list(range(SPY_TRAIN))


@every_shift
def test_sources_have_even_parts(shift: str) -> None:
    sizes = [len(source.train) for source in sources_of(load_spy(shift))]
    assert max(sizes) - min(sizes) <= 1


@every_shift
def test_labelled_target_samples_are_some_of_all_it_has(shift: str) -> None:
    few, every = load_spy(shift), load_spy(shift, target_samples=None)
    assert set(numbers(few.domains[few.target].train)) < set(numbers(every.domains[every.target].train))


@every_shift
def test_a_shift_has_a_summary_of_one_line(shift: str) -> None:
    assert summary(SHIFTS[shift])
    assert "\n" not in summary(SHIFTS[shift])
