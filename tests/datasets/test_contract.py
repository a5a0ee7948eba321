"""What holds for every data set and every shift: one test for all of them.

A case is a data set with a shift, or without one where its domains are its own. With the data sets of the
registry goes a spy, whose images tell which sample they are.
"""

import os
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets.arrow_dataset import Dataset as HubDataset
from datasets.features import ClassLabel, Features, Value
from datasets.features import Image as Picture
from PIL import Image
from sites import write_images, write_sites, write_table

from fda_flower.datasets import (
    DATASETS,
    SHIFTS,
    Dataset,
    DataSpec,
    Samples,
    Split,
    load_domain,
    load_federation,
)
from fda_flower.datasets.federation import forget
from fda_flower.datasets.shifts import summary
from fda_flower.own_data import images as image_folders
from fda_flower.own_data.hugging_face import HuggingFace
from fda_flower.own_data.table import OwnTables

DATA_DIR = os.environ.get("FDA_DATA_DIR", "no data")
TARGET_SAMPLES = 24
SPY, SPY_TRAIN, SPY_TEST = "spy", 1000, 400
SPY_SCALE = SPY_TRAIN + SPY_TEST + 1
PLAIN = {"rotate": (("invert", False),)}
"""Options under which the spy's images can be read after the shift."""

FILES = {
    "fashion-mnist": "FashionMNIST/raw",
    "mnist": "MNIST/raw",
    "colored-mnist": "MNIST/raw",
    "cifar-10": "cifar-10-batches-py",
    "heart": "heart_disease",
}
"""Where the files of data sets that are not bundled lie, in the folder of data."""

FEW = {"rbf": {"samples": 600}}
"""Options of data sets that are generated, which need not be as many as by default."""

CLASSES, COUNT, SIZE = ("ant", "bee", "cat"), 14, 8
"""Image folders are made: so many images of each class."""

OWN = ("north", "south", "west")
"""The domains of a consortium's own data, which are made."""


def there(name):
    return name not in FILES or Path(DATA_DIR, FILES[name]).is_dir()


def case(dataset, *shift):
    """A data set and perhaps a shift as parameters, skipped where the files are not."""
    reason = f"the files of {dataset} are not in FDA_DATA_DIR ({DATA_DIR})"
    return pytest.param(dataset, *shift, marks=pytest.mark.skipif(not there(dataset), reason=reason))


SHIFTED = [name for name, dataset in DATASETS.items() if dataset.domains == ()]
UNSHIFTED = [case(name, None) for name, dataset in DATASETS.items() if dataset.domains != ()]
SPY_CASES = [case(SPY, shift) for shift in SHIFTS]

every_case = pytest.mark.parametrize(
    ("dataset", "shift"),
    [*(case(*names) for names in product(SHIFTED, SHIFTS)), *SPY_CASES, *UNSHIFTED],
    scope="module",  # all tests of a case follow each other, and find its data in the cache
)
every_shift = pytest.mark.parametrize("shift", list(SHIFTS))


def spy_split():
    """Ten classes in turn; an image is of one grey, which is the sample's number."""
    number = np.arange(SPY_TRAIN + SPY_TEST)
    grey = ((number + 1) / SPY_SCALE).astype(np.float32)
    samples = Samples(np.tile(grey[:, None, None, None], (1, 1, 5, 5)), number % 10)
    return Split(samples.take(number[:SPY_TRAIN]), samples.take(number[SPY_TRAIN:]), 10)


def numbers(samples):
    """The numbers of the spy's samples, read from the centres of their images.

    The centre stays in place under a rotation, and colours are channels that sum to the grey.
    """
    grey = samples.x[:, :, 2, 2].sum(axis=1)
    return (grey * SPY_SCALE - 1).round().astype(int).tolist()


def part_of(dataset):
    """A loader of the first images of a large data set, which reads them once."""
    kept = []

    def load_part(data_dir, seed):
        if not kept:
            data, first = dataset.loader(data_dir, seed), np.arange(2000)
            kept.append(Split(data.train.take(first), data.test.take(first[:800]), data.classes))
        return kept[0]

    return load_part


def write_domains(root, domains):
    write_sites(write_images, root, domains, CLASSES, COUNT)


def made_folders(name, root):
    """A loader of image folders that are made."""
    load, (folder, domains, _) = DATASETS[name].loader, DATASETS[name].arguments
    write_domains(root / folder, domains)
    return lambda data_dir, seed: load(root, seed, image_size=SIZE)


def own_images(root):
    write_domains(root, OWN)
    return lambda data_dir, seed: image_folders.load_own(root, seed, ",".join(OWN), SIZE)


def own_tables(root):
    write_sites(write_table, root, OWN, rows=60)
    return lambda data_dir, seed: OwnTables(root, seed, ",".join(OWN))


def own_hugging_face(root):
    sites = [name for name in OWN for _ in range(COUNT * len(CLASSES))]
    pixels = np.random.default_rng(0).integers(256, size=(len(sites), 9, 7, 3), dtype=np.uint8)
    labels = [i % len(CLASSES) for i in range(len(sites))]
    made = {"image": list(map(Image.fromarray, pixels)), "label": labels, "site": sites}
    kinds = Features(image=Picture(), label=ClassLabel(names=list(CLASSES)), site=Value("string"))
    HubDataset.from_dict(made, features=kinds).save_to_disk(str(root))
    return lambda data_dir, seed: HuggingFace(root, seed, ",".join(OWN), domain="site")


@pytest.fixture(scope="module", autouse=True)
def _parts(tmp_path_factory):
    root = tmp_path_factory.mktemp("folders")
    forget()
    made = {"images": own_images, "table": own_tables, "hf": own_hugging_face}
    with pytest.MonkeyPatch.context() as patch:
        for name, dataset in list(DATASETS.items()):
            if name in FILES and name in SHIFTED:
                loader = {"load": part_of(dataset)}
            elif getattr(dataset.loader, "func", None) is image_folders.load:
                loader = {"load": made_folders(name, root), "arguments": ()}
            elif name in made:
                loader = {"load": made[name](root / f"own-{name}"), "domains": OWN, "complete": None}
            else:
                continue
            patch.setitem(DATASETS, name, replace(dataset, **loader))
        patch.setitem(DATASETS, SPY, Dataset("made for a test", lambda data_dir, seed: spy_split()))
        yield
    forget()


def spec_of(dataset, shift, **settings):
    cut = {"target_samples": TARGET_SAMPLES, "data_dir": DATA_DIR, "dataset_options": FEW.get(dataset, ())}
    return DataSpec(dataset, shift, **{**cut, **settings})


def load_spy(shift, **settings):
    return load_federation(spec_of(SPY, shift, shift_options=PLAIN.get(shift, ()), **settings))


def sets_of(federation):
    return {
        f"{name}/{part}": samples
        for name, domain in federation.in_memory().domains.items()
        for part, samples in (("train", domain.train), ("test", domain.test))
    }


def differing(first, second):
    """The names of the sets of two federations that have other bits."""
    ours, others = sets_of(first), sets_of(second)
    assert list(ours) == list(others)
    same = {
        n for n in ours if np.array_equal(ours[n].x, others[n].x) and np.array_equal(ours[n].y, others[n].y)
    }
    return ours.keys() - same


def load_unshifted(dataset, seed=0):
    """The data set's one division, or the division of each of its domains."""
    data = DATASETS[dataset].loader(Path(DATA_DIR), seed)
    splits = [data] if isinstance(data, Split) else data.values()
    return [replace(each, train=each.train.in_memory(), test=each.test.in_memory()) for each in splits]


@every_case
def test_domains_are_those_of_the_spec_with_finite_samples_of_one_shape(dataset, shift):
    spec = spec_of(dataset, shift)
    federation = load_federation(spec)
    assert [domain.name for domain in federation.domains.values()] == list(federation.domains)
    assert list(federation.domains) == spec.domain_names
    own = DATASETS[dataset].domains or ()
    assert federation.target == spec.target_name == (SHIFTS[shift].default_target if shift else own[-1])
    assert spec.source_names == sorted({*spec.domain_names} - {federation.target})
    assert len(spec.source_names) == (SHIFTS[shift].default_sources if shift else len(own) - 1)
    image, regression = len(federation.shape) == 3, DATASETS[dataset].regression
    assert image or (len(federation.shape) == 1 and not shift)
    for name, samples in sets_of(federation).items():
        x, y = samples.x, samples.y
        assert x.dtype == np.float32 or (x.dtype == np.uint8 and image and not shift), name
        assert (x.shape, len(y) > 0) == ((len(y), *federation.shape), True), name
        if image and x.dtype == np.float32:
            assert 0 <= float(x.min()) <= float(x.max()) <= 1, name
        assert y.dtype == (np.float32 if regression else np.int64), name
        assert y.shape[1:] == ((federation.classes,) if regression else ()), name
        assert np.isfinite(x).all(), name
        assert np.isfinite(y).all(), name
    if not regression:
        seen = np.unique(np.concatenate([samples.y for samples in sets_of(federation).values()]))
        assert seen.tolist() == list(range(federation.classes))


@pytest.mark.parametrize(("dataset", "shift"), [*SPY_CASES, *UNSHIFTED])
def test_any_domain_can_be_the_target(dataset, shift):
    for target in spec_of(dataset, shift).domain_names:
        federation = load_federation(spec_of(dataset, shift, target=target))
        assert federation.target == target
        sizes = {name: len(domain.train) for name, domain in federation.domains.items()}
        assert [name for name, size in sizes.items() if size == TARGET_SAMPLES] == [target]
        assert min(sizes.values()) == TARGET_SAMPLES


@every_case
def test_the_number_of_target_samples_is_exact_and_changes_nothing_else(dataset, shift):
    whole = load_federation(spec_of(dataset, shift, target_samples=None))
    every = len(whole.domains[whole.target].train)
    for count in (1, every):
        federation = load_federation(spec_of(dataset, shift, target_samples=count))
        assert len(federation.domains[federation.target].train) == count
        assert differing(federation, whole) <= {f"{whole.target}/train"}


@every_case
def test_the_same_spec_gives_the_same_bits_and_leaves_the_global_random_state(dataset, shift):
    first = load_federation(spec_of(dataset, shift))
    assert load_federation(spec_of(dataset, shift)) is first
    forget()
    with torch.random.fork_rng():
        torch.manual_seed(1234)
        before = torch.get_rng_state()
        second = load_federation(spec_of(dataset, shift))
        assert torch.equal(torch.get_rng_state(), before)
    assert second is not first
    assert not differing(first, second)


@every_case
def test_a_site_alone_has_the_same_bits(dataset, shift):
    spec = spec_of(dataset, shift, source_samples="50%")
    whole = load_federation(spec)
    for name in whole.domains:
        forget()
        site = load_domain(spec, name)
        assert list(site.domains) == [name]
        assert vars(site) | {"domains": {}} == vars(whole) | {"domains": {}}
        assert not differing(site, replace(whole, domains={name: whole.domains[name]}))


@every_case
def test_another_seed_deals_other_samples_to_every_domain(dataset, shift):
    first, second = (load_federation(spec_of(dataset, shift, seed=seed)) for seed in (0, 1))
    assert differing(first, second) >= {f"{name}/train" for name in first.domains}


@pytest.mark.parametrize(("dataset", "shift"), UNSHIFTED)
def test_another_seed_divides_all_of_an_own_domain_otherwise(dataset, shift):
    first, second = (load_unshifted(dataset, seed) for seed in (0, 1))
    for ours, others in zip(first, second, strict=True):
        assert not np.array_equal(ours.test.x, others.test.x)
        assert (len(ours.train), len(ours.test)) == (len(others.train), len(others.test))


@pytest.mark.parametrize("dataset", [case(name) for name in DATASETS])
def test_a_data_set_has_all_classes_on_both_sides_no_image_twice_and_a_summary_of_one_line(dataset):
    splits = load_unshifted(dataset)
    for part in ("train", "test"):
        y = np.concatenate([getattr(split, part).y for split in splits])
        assert DATASETS[dataset].regression or np.unique(y).tolist() == list(range(splits[0].classes))
    assert len(DATASETS[dataset].summary.splitlines()) == 1
    # Real data with domains of their own may hold the same image twice.
    for split in splits if dataset in SHIFTED or dataset not in FILES else ():
        train, test = (len(np.unique(samples.x, axis=0)) for samples in (split.train, split.test))
        assert len(np.unique(np.concatenate([split.train.x, split.test.x]), axis=0)) == train + test


@every_shift
@pytest.mark.parametrize("target_samples", [None, TARGET_SAMPLES])
def test_a_sample_is_trained_on_once_by_one_domain_or_tested_on(shift, target_samples):
    domains = load_spy(shift, target_samples=target_samples).domains
    trained = {name: numbers(domain.train) for name, domain in domains.items()}
    for name, samples in trained.items():
        assert len(set(samples)) == len(samples), name
    for (one, ours), (other, others) in combinations(trained.items(), 2):
        assert not set(ours) & set(others), (one, other)
    dealt = sorted(number for samples in trained.values() for number in samples)
    assert set(dealt) <= set(range(SPY_TRAIN))
    assert target_samples or dealt == list(range(SPY_TRAIN))
    tested = {number for domain in domains.values() for number in numbers(domain.test)}
    assert tested <= set(range(SPY_TRAIN, SPY_TRAIN + SPY_TEST))


@every_shift
def test_sources_have_even_parts_and_the_target_some_of_all_it_has(shift):
    few, every = load_spy(shift), load_spy(shift, target_samples=None)
    sizes = [len(domain.train) for name, domain in few.domains.items() if name != few.target]
    assert max(sizes) - min(sizes) <= 1
    assert set(numbers(few.domains[few.target].train)) < set(numbers(every.domains[every.target].train))
    assert len(summary(SHIFTS[shift]).splitlines()) == 1
