"""What holds for every data set and every shift: one test for all of them.

A case is a data set with a shift, or without one where its domains are its own. Beside the data sets of the
registry there is a spy, whose images tell which sample they are.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from fda_flower.datasets import (
    DATASETS,
    SHIFTS,
    Dataset,
    DataSpec,
    Domain,
    FederatedDataset,
    Samples,
    Split,
    federation,
    hugging_face,
    images,
    load_domain,
    load_federation,
    table,
)
from fda_flower.datasets.shifts import summary

DATA_DIR = os.environ.get("FDA_DATA_DIR")
TARGET_SAMPLES = 24
SPY, SPY_TRAIN, SPY_TEST = "spy", 1000, 400
SPY_SCALE = SPY_TRAIN + SPY_TEST + 1
PLAIN = {"rotate": (("invert", False),)}
"""Options under which the spy's images can be read after the shift."""

FILES = {
    "fashion-mnist": "FashionMNIST/raw",
    "mnist": "MNIST/raw",
    "colored-mnist": "MNIST/raw",
    "cifar-10": "cifar10",
    "heart": "heart_disease",
    "pacs": "PACS",
    "office-caltech10": "office_caltech_10",
}
"""Where the files of data sets that are not bundled lie, in the folder of data."""

OPTIONS = {"cifar-10": {"subset": "exact"}}
FEW = {"rbf": {"samples": 600}}
"""Options of data sets that are generated, which need not be as many as by default."""

MADE_CLASSES, FOLDER_IMAGES, IMAGE_SIZE = ("ant", "bee", "cat"), 14, 8
"""Image folders are read in part, or made where nothing is in `FILES`: so many images of each class."""

MADE_DOMAINS, TABLE_ROWS = ("north", "south", "west"), 60
"""Of a consortium's own data, which are made."""


def there(name: str) -> bool:
    return name not in FILES or (DATA_DIR is not None and (Path(DATA_DIR) / FILES[name]).is_dir())


def case(dataset: str, *shift: str | None) -> Any:
    """A data set and perhaps a shift as parameters, skipped where the files are not."""
    reason = f"the files of {dataset} are not in FDA_DATA_DIR ({DATA_DIR})"
    return pytest.param(dataset, *shift, marks=pytest.mark.skipif(not there(dataset), reason=reason))


SHIFTED = [name for name, dataset in DATASETS.items() if dataset.domains == ()]
OWN = [case(name, None) for name, dataset in DATASETS.items() if dataset.domains != ()]
SPY_CASES = [case(SPY, shift) for shift in SHIFTS]

every_case = pytest.mark.parametrize(
    ("dataset", "shift"),
    [*(case(*names) for names in product(SHIFTED, SHIFTS)), *SPY_CASES, *OWN],
    scope="module",  # all tests of a case follow each other, and find its data in the cache
)
every_split_case = pytest.mark.parametrize(("dataset", "shift"), [*SPY_CASES, *OWN])
every_dataset = pytest.mark.parametrize("dataset", [case(name) for name in DATASETS])
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


def part_of(dataset: Dataset, **options: Any) -> Callable[[Path | None, int], Split]:
    """The first images of a large data set, read once."""
    kept: list[Split] = []

    def load_part(data_dir: Path | None, seed: int) -> Split:
        if not kept:
            whole = dataset.loader(data_dir, seed, **options)
            assert isinstance(whole, Split)
            first = torch.arange(2000)
            kept.append(Split(whole.train.take(first), whole.test.take(first[:800]), whole.classes))
        return kept[0]

    return load_part


def part_of_folders(name: str, root: Path) -> Callable[[Path | None, int], Any]:
    """The first images of each class of image folders, linked to or made in a folder of the test."""
    load = DATASETS[name].loader
    assert isinstance(load, partial)
    for domain in DATASETS[name].domains or ():
        real = Path(DATA_DIR or "") / FILES[name] / domain if name in FILES else None
        for label in sorted(path.name for path in real.iterdir()) if real else MADE_CLASSES:
            place = root / load.args[0] / domain / label
            place.mkdir(parents=True)
            for image in sorted((real / label).iterdir())[:FOLDER_IMAGES] if real else ():
                (place / image.name).symlink_to(image)
            if not real:
                make_images(place)
    return lambda data_dir, seed: load(root, seed, image_size=IMAGE_SIZE)


def make_images(place: Path) -> None:
    generator = torch.Generator().manual_seed(len(list(place.parents[1].rglob("*.png"))))
    for i in range(FOLDER_IMAGES):
        pixels = torch.randint(256, (9, 7, 3), generator=generator, dtype=torch.uint8)
        Image.fromarray(pixels.numpy()).save(place / f"{i}.png")


def own_images(root: Path) -> Callable[[Path | None, int], Any]:
    """A consortium's images, made."""
    for domain, label in product(MADE_DOMAINS, MADE_CLASSES):
        (root / domain / label).mkdir(parents=True)
        make_images(root / domain / label)
    domains = ",".join(MADE_DOMAINS)
    return lambda data_dir, seed: images.load_own(root, seed, domains, IMAGE_SIZE)


def own_tables(root: Path) -> Callable[[Path | None, int], Any]:
    """A consortium's tables, made."""
    root.mkdir()
    generator = torch.Generator().manual_seed(0)
    for domain in MADE_DOMAINS:
        x = torch.randn(TABLE_ROWS, 2, generator=generator)
        rows = [f"{a},{i % 3},{b}" for i, (a, b) in enumerate(x.tolist())]
        (root / f"{domain}.csv").write_text("\n".join(["age,ill,height", *rows]))
    return lambda data_dir, seed: table.OwnTables(root, seed, ",".join(MADE_DOMAINS), label="ill")


def own_hugging_face(root: Path) -> Callable[[Path | None, int], Any]:
    """A data set of images of the library `datasets`, made."""
    from datasets.arrow_dataset import Dataset
    from datasets.features import ClassLabel, Features, Value
    from datasets.features import Image as Picture

    generator, count = torch.Generator().manual_seed(0), FOLDER_IMAGES * len(MADE_CLASSES)
    names = [name for name in MADE_DOMAINS for _ in range(count)]
    pixels = torch.randint(256, (len(names), 9, 7, 3), generator=generator, dtype=torch.uint8)
    made = {
        "image": [Image.fromarray(each.numpy()) for each in pixels],
        "label": [i % len(MADE_CLASSES) for i in range(len(names))],
        "site": names,
    }
    kinds = Features(image=Picture(), label=ClassLabel(names=list(MADE_CLASSES)), site=Value("string"))
    Dataset.from_dict(made, features=kinds).save_to_disk(str(root))
    domains = ",".join(MADE_DOMAINS)
    return lambda data_dir, seed: hugging_face.HuggingFace(root, seed, domains, domain="site")


def forget() -> None:
    """Clear the caches, so that the next call loads again."""
    for cached in (load_federation, load_domain, federation._load):
        cached.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def _parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    root = tmp_path_factory.mktemp("folders")
    forget()
    with pytest.MonkeyPatch.context() as patch:
        for name, dataset in list(DATASETS.items()):
            if name in FILES and name in SHIFTED:
                load: Callable[..., Any] = part_of(dataset, **OPTIONS.get(name, {}))
                patch.setitem(DATASETS, name, replace(dataset, load=load))
            elif getattr(dataset.loader, "func", None) is images.load and there(name):
                patch.setitem(
                    DATASETS, name, replace(dataset, load=part_of_folders(name, root), arguments=())
                )
        for name, made in (
            ("images", own_images(root / "own")),
            ("table", own_tables(root / "tables")),
            ("hf", own_hugging_face(root / "hf")),
        ):
            patch.setitem(
                DATASETS, name, replace(DATASETS[name], load=made, domains=MADE_DOMAINS, complete=None)
            )
        patch.setitem(DATASETS, SPY, Dataset("made for a test", lambda data_dir, seed: spy_split()))
        yield
    forget()


def spec_of(dataset: str, shift: str | None, **settings: Any) -> DataSpec:
    cut = {"target_samples": TARGET_SAMPLES, "data_dir": DATA_DIR, "dataset_options": FEW.get(dataset, ())}
    return DataSpec(dataset, shift, **{**cut, **settings})


def load_spy(shift: str, **settings: Any) -> FederatedDataset:
    return load_federation(spec_of(SPY, shift, shift_options=PLAIN.get(shift, ()), **settings))


def sets_of(federation: FederatedDataset) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    return [
        (f"{name}/{part}", samples.x, samples.y)
        for name, domain in federation.domains.items()
        for part, samples in (("train", domain.train), ("test", domain.test))
    ]


def sources_of(federation: FederatedDataset) -> list[Domain]:
    return [domain for name, domain in federation.domains.items() if name != federation.target]


@every_case
def test_domains_are_named_as_the_spec_says_and_in_its_order(dataset: str, shift: str | None) -> None:
    spec = spec_of(dataset, shift)
    federation = load_federation(spec)
    assert list(federation.domains) == spec.domain_names
    assert [domain.name for domain in federation.domains.values()] == spec.domain_names
    assert len(set(spec.domain_names)) == len(spec.domain_names)


@every_case
def test_the_target_is_one_of_the_domains_and_the_others_are_the_sources(
    dataset: str, shift: str | None
) -> None:
    spec = spec_of(dataset, shift)
    federation = load_federation(spec)
    own = DATASETS[dataset].domains or ()
    assert federation.target == spec.target_name == (SHIFTS[shift].default_target if shift else own[-1])
    assert federation.target in federation.domains
    assert spec.source_names == sorted(set(federation.domains) - {federation.target})
    assert len(spec.source_names) == (SHIFTS[shift].default_sources if shift else len(own) - 1)


@every_split_case
def test_any_domain_can_be_the_target(dataset: str, shift: str | None) -> None:
    for name in spec_of(dataset, shift).domain_names:
        federation = load_federation(spec_of(dataset, shift, target=name))
        assert federation.target == name
        assert len(federation.domains[name].train) == TARGET_SAMPLES
        assert all(len(source.train) > TARGET_SAMPLES for source in sources_of(federation))


@every_case
def test_samples_are_of_one_shape_and_finite_and_images_within_0_and_1(
    dataset: str, shift: str | None
) -> None:
    federation = load_federation(spec_of(dataset, shift))
    image = len(federation.shape) == 3
    assert image or (len(federation.shape) == 1 and not shift)
    for name, x, _ in sets_of(federation):
        assert x.dtype == torch.float32 or (x.dtype == torch.uint8 and image and not shift), name
        assert tuple(x.shape[1:]) == federation.shape, name
        assert torch.isfinite(x).all(), name
        if image and x.dtype == torch.float32:
            assert 0 <= float(x.min()) <= float(x.max()) <= 1, name


@every_case
def test_labels_are_int64_classes_or_float32_outputs_and_as_many_as_samples(
    dataset: str, shift: str | None
) -> None:
    federation = load_federation(spec_of(dataset, shift))
    seen: set[int] = set()
    for name, x, y in sets_of(federation):
        assert y.is_floating_point() == DATASETS[dataset].regression, name
        if y.dtype == torch.float32:
            assert y.shape == (len(x), federation.classes), name
            assert torch.isfinite(y).all(), name
            seen = set(range(federation.classes))
        else:
            assert y.dtype == torch.int64, name
            assert y.shape == (len(x),), name
            seen |= set(y.tolist())
    assert seen == set(range(federation.classes))


@every_case
def test_no_domain_is_empty(dataset: str, shift: str | None) -> None:
    for name, _, y in sets_of(load_federation(spec_of(dataset, shift))):
        assert len(y) > 0, name


@every_case
def test_the_target_has_exactly_the_labelled_samples_asked_for(dataset: str, shift: str | None) -> None:
    whole = load_federation(spec_of(dataset, shift, target_samples=None))
    every = len(whole.domains[whole.target].train)
    for count in (1, TARGET_SAMPLES, every):
        federation = load_federation(spec_of(dataset, shift, target_samples=count))
        assert len(federation.domains[federation.target].train) == count


@every_case
def test_the_number_of_target_samples_changes_nothing_else(dataset: str, shift: str | None) -> None:
    few = load_federation(spec_of(dataset, shift, target_samples=1))
    many = load_federation(spec_of(dataset, shift, target_samples=None))
    for (name, *ours), (_, *others) in zip(sets_of(few), sets_of(many), strict=True):
        if name != f"{few.target}/train":
            assert all(map(torch.equal, ours, others)), name


@every_case
def test_the_same_spec_gives_the_same_bits_when_loaded_again(dataset: str, shift: str | None) -> None:
    first = load_federation(spec_of(dataset, shift))
    assert load_federation(spec_of(dataset, shift)) is first
    forget()
    with torch.random.fork_rng():
        torch.manual_seed(1234)
        second = load_federation(spec_of(dataset, shift))
    assert second is not first
    for (name, *ours), (_, *others) in zip(sets_of(first), sets_of(second), strict=True):
        assert all(map(torch.equal, ours, others)), name


@every_case
def test_a_site_alone_has_the_same_bits(dataset: str, shift: str | None) -> None:
    spec = spec_of(dataset, shift, source_samples="50%")
    whole = load_federation(spec)
    for name in whole.domains:
        forget()
        site = load_domain(spec, name)
        assert list(site.domains) == [name]
        assert replace(site, domains={}) == replace(whole, domains={})
        alone = replace(whole, domains={name: whole.domains[name]})
        for (_, *ours), (_, *others) in zip(sets_of(site), sets_of(alone), strict=True):
            assert all(map(torch.equal, ours, others)), name


@every_case
def test_loading_leaves_the_global_random_state(dataset: str, shift: str | None) -> None:
    forget()
    before = torch.get_rng_state()
    load_federation(spec_of(dataset, shift))
    assert torch.equal(torch.get_rng_state(), before)


@every_case
def test_another_seed_deals_other_samples_to_every_domain(dataset: str, shift: str | None) -> None:
    first, second = (load_federation(spec_of(dataset, shift, seed=seed)) for seed in (0, 1))
    for name in first.domains:
        ours, others = first.domains[name].train.x, second.domains[name].train.x
        assert ours.shape != others.shape or not torch.equal(ours, others), name


@pytest.mark.parametrize(("dataset", "shift"), OWN)
def test_another_seed_divides_all_of_an_own_domain_otherwise(dataset: str, shift: None) -> None:
    first, second = (load_unshifted(dataset, seed) for seed in (0, 1))
    for ours, others in zip(first, second, strict=True):
        assert not torch.equal(ours.test.x, others.test.x)
        for part in ("train", "test"):
            assert len(getattr(ours, part)) == len(getattr(others, part))


def load_unshifted(dataset: str, seed: int = 0) -> list[Split]:
    """The data set's one division, or that of each of its domains."""
    data = DATASETS[dataset].loader(Path(DATA_DIR) if DATA_DIR else None, seed)
    return [data] if isinstance(data, Split) else list(data.values())


@pytest.mark.parametrize("dataset", [case(name) for name in DATASETS if name in SHIFTED or name not in FILES])
def test_no_test_image_of_a_data_set_is_a_training_image(dataset: str) -> None:
    """Not of real data with domains of their own: some hold the same image twice."""
    for split in load_unshifted(dataset):
        train, test = (len(torch.unique(samples.x, dim=0)) for samples in (split.train, split.test))
        both = len(torch.unique(torch.cat([split.train.x, split.test.x]), dim=0))
        assert both == train + test


@every_dataset
def test_a_data_set_has_all_classes_on_both_sides_and_a_summary(dataset: str) -> None:
    splits = load_unshifted(dataset)
    for samples in ([split.train for split in splits], [split.test for split in splits]):
        y = torch.cat([part.y for part in samples])
        if y.dtype == torch.int64:
            assert sorted(torch.unique(y).tolist()) == list(range(splits[0].classes))
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
