"""Shares of samples, chosen sources, and data sets with domains of their own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from naming import names
from sites import write_table

from fda_flower.datasets import (
    DATASETS,
    Dataset,
    DataSpec,
    FederatedDataset,
    Samples,
    Split,
    load_domain,
    load_federation,
)
from fda_flower.datasets import federation as module
from fda_flower.errors import ConfigError

OWN = ("brick", "glass", "wood")
SIZES = {"brick": 20, "glass": 30, "wood": 40}
"""Training images of each domain; it tests on half as many."""

Calls = list[tuple[Path | None, int, int]]


def materials(size: int, empty: str = "") -> dict[str, Split]:
    """Images of two classes in three domains; each is of the domain's grey."""

    def samples(grey: float, number: int) -> Samples:
        return Samples(torch.full((number, 1, size, size), grey), torch.arange(number) % 2)

    return {
        name: Split(samples(i / 4, SIZES[name]), samples(i / 4, 0 if name == empty else SIZES[name] // 2), 2)
        for i, name in enumerate(OWN)
    }


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """The data sets "materials", and "incomplete", whose glass has no test images; what was loaded."""
    seen: Calls = []

    def load(data_dir: Path | None, seed: int, image_size: int = 4) -> dict[str, Split]:
        seen.append((data_dir, seed, image_size))
        return materials(image_size)

    def load_incomplete(data_dir: Path | None, seed: int) -> dict[str, Split]:
        return materials(4, empty="glass")

    monkeypatch.setitem(DATASETS, "materials", Dataset("made for a test", load, OWN))
    monkeypatch.setitem(DATASETS, "incomplete", Dataset("made for a test", load_incomplete, OWN))
    for cached in (load_federation, load_domain, module._load):
        cached.cache_clear()
    yield seen
    for cached in (load_federation, load_domain, module._load):
        cached.cache_clear()


def sizes(federation: FederatedDataset) -> dict[str, int]:
    return {name: len(domain.train) for name, domain in federation.domains.items()}


def same(first: Samples, second: Samples) -> bool:
    return torch.equal(first.x, second.x) and torch.equal(first.y, second.y)


# Shares


@pytest.mark.parametrize(("share", "kept"), [("15%", 6), ("100%", 40), ("2.5%", 1), (None, 40), (7, 7)])
def test_target_samples_may_be_a_share_of_what_the_target_has(share: Any, kept: int) -> None:
    spec = DataSpec("materials", target_samples=share)
    assert sizes(load_federation(spec)) == {"brick": 20, "glass": 30, "wood": kept}


@pytest.mark.parametrize(
    ("share", "kept"), [("10%", (2, 3)), ("50%", (10, 15)), (4, (4, 4)), (None, (20, 30))]
)
def test_source_samples_may_be_a_share_of_what_each_source_has(share: Any, kept: tuple[int, int]) -> None:
    spec = DataSpec("materials", source_samples=share)
    assert sizes(load_federation(spec)) == {"brick": kept[0], "glass": kept[1], "wood": 40}


def test_a_share_of_the_digits_target() -> None:
    whole = load_federation(DataSpec("digits", "noise"))
    part = load_federation(DataSpec("digits", "noise", target_samples="15%"))
    assert sizes(part) == {**sizes(whole), "target": round(0.15 * len(whole.domains["target"].train))}


def test_a_share_is_the_same_samples_as_the_number_it_comes_to() -> None:
    share, number = (
        load_federation(DataSpec("digits", "noise", target_samples=amount, source_samples=few))
        for amount, few in (("10%", "10%"), (34, 34))
    )
    assert set(sizes(number).values()) == {34}, "four domains share 1,347 digits"
    assert all(same(share.domains[name].train, number.domains[name].train) for name in number.domains)


def test_fewer_samples_leave_the_tests_and_the_other_side_alone() -> None:
    whole = load_federation(DataSpec("digits", "rotate", source_samples=None))
    part = load_federation(DataSpec("digits", "rotate", source_samples=9))
    for name, domain in part.domains.items():
        assert same(domain.test, whole.domains[name].test)
    assert same(part.domains["target"].train, whole.domains["target"].train)


def test_sources_keep_samples_of_their_own_choosing_and_seed() -> None:
    first, again, other = (
        load_federation(DataSpec("digits", "noise", source_samples=9, seed=seed)) for seed in (0, 0, 1)
    )
    assert first is again
    for name in ("source-1", "source-2", "source-3"):
        assert not same(first.domains[name].train, other.domains[name].train)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target_samples": "1%"}, "target-samples is '1%', which leaves none of 40 samples: ask for more"),
        ({"source_samples": "2%"}, "source-samples is '2%', which leaves none of 20 samples: ask for more"),
        ({"target_samples": 41}, "target-samples is 41, but there are only 40: ask for fewer"),
        ({"source_samples": 25}, "source-samples is 25, but there are only 20: ask for fewer"),
    ],
    ids=str,
)
def test_an_amount_that_the_data_cannot_give_is_refused_when_they_are_loaded(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_federation(DataSpec("materials", **settings))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["target_samples", "source_samples"])
def test_an_invalid_amount_is_refused_before_anything_is_loaded(name: str, calls: Calls) -> None:
    none: dict[str, Any] = {name: 0}
    with pytest.raises(ConfigError, match=f"{name.replace('_', '-')} is '0': at least 1 is needed"):
        DataSpec("materials", **none)
    assert calls == []


# Chosen sources


def test_only_the_sources_named_take_part_in_the_data_sets_order() -> None:
    spec = DataSpec("digits", "noise", num_sources=4, only_sources=("source-3", "source-1"))
    assert spec.domain_names == ["source-1", "source-3", "target"]
    assert spec.source_names == ["source-1", "source-3"]
    assert list(load_federation(spec).domains) == spec.domain_names


def test_they_have_the_samples_that_they_have_among_all() -> None:
    whole = load_federation(DataSpec("digits", "noise", num_sources=4, target_samples=9, source_samples=8))
    spec = DataSpec(
        "digits", "noise", num_sources=4, target_samples=9, source_samples=8, only_sources=("source-3",)
    )
    part = load_federation(spec)
    assert list(part.domains) == ["source-3", "target"]
    for name, domain in part.domains.items():
        assert same(domain.train, whole.domains[name].train)
        assert same(domain.test, whole.domains[name].test)


def test_sources_of_a_data_set_with_its_own_domains_can_be_chosen() -> None:
    spec = DataSpec("materials", target="glass", only_sources=("wood",))
    assert spec.domain_names == ["glass", "wood"]
    assert sizes(load_federation(spec)) == {"glass": 30, "wood": 40}


@pytest.mark.parametrize(
    ("dataset", "only", "message"),
    [
        ("digits", ("source-9",), "?): choose one of source-1, source-2, source-3"),
        ("digits", ("source-1", "nobody"), "unknown source 'nobody'"),
        ("digits", ("target",), "unknown source 'target': choose one of source-1, source-2, source-3"),
        ("materials", ("wood",), "unknown source 'wood': choose one of brick, glass"),
        ("materials", (), "only-sources names no source: choose some of brick, glass"),
    ],
    ids=str,
)
def test_names_that_are_not_sources_are_refused(dataset: str, only: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DataSpec(dataset, only_sources=only)
    assert message in str(caught.value)


# Domains of its own


def test_the_default_target_is_the_last_domain() -> None:
    spec = DataSpec("materials")
    assert (spec.target_name, spec.source_names, spec.shift) == ("wood", ["brick", "glass"], None)
    federation = load_federation(spec)
    assert list(federation.domains) == spec.domain_names == list(OWN)
    assert (federation.target, federation.classes, federation.shape) == ("wood", 2, (1, 4, 4))


@pytest.mark.parametrize("target", OWN)
def test_any_domain_can_be_the_target(target: str) -> None:
    spec = DataSpec("materials", target=target, target_samples=5)
    federation = load_federation(spec)
    assert federation.target == target
    assert spec.source_names == sorted(set(OWN) - {target})
    assert sizes(federation) == {**SIZES, target: 5}
    for i, (name, domain) in enumerate(federation.domains.items()):
        assert len(domain.test) == SIZES[name] // 2
        assert set(domain.train.x.unique().tolist()) == {i / 4}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"shift": "noise"}, ["shift is 'noise'", "(brick, glass, wood): leave it out"]),
        ({"num_sources": 2}, ["sources is 2", "'materials' has domains of its own", "leave it out"]),
        ({"partition": "labels"}, ["partition is 'labels'", "domains of its own", "leave it out"]),
        ({"shift_options": (("std", 0.3),)}, ["'materials' takes no shift options: leave them out"]),
        ({"target": "steel"}, ["unknown target domain 'steel': choose one of brick, glass, wood"]),
    ],
    ids=str,
)
def test_what_makes_domains_of_other_data_sets_is_refused(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        DataSpec("materials", **settings)
    for word in words:
        assert word in str(caught.value)


def test_it_has_no_shift_object() -> None:
    with pytest.raises(ConfigError, check=names("data set", "materials")):
        _ = DataSpec("materials").shift_object


@pytest.mark.parametrize("target", ["wood", "glass"])
def test_a_domain_without_test_samples_is_an_error(target: str) -> None:
    with pytest.raises(ConfigError, check=names("domain", "glass")):
        load_federation(DataSpec("incomplete", target=target))


def test_such_a_domain_is_no_error_where_it_does_not_take_part() -> None:
    spec = DataSpec("incomplete", only_sources=("brick",))
    assert list(load_federation(spec).domains) == ["brick", "wood"]


# Options of the data set


def test_options_of_the_data_set_reach_its_loader(calls: Calls) -> None:
    spec = DataSpec("materials", dataset_options=(("image-size", "6"),), data_dir="/some/where")
    assert spec.dataset_options == (("image_size", 6),)
    assert load_federation(spec).shape == (1, 6, 6)
    assert load_federation(DataSpec("materials")).shape == (1, 4, 4)
    assert [(folder, size) for folder, _, size in calls] == [(Path("/some/where"), 6), (None, 4)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((("colour", "red"),), "unknown option 'colour' of data set 'materials': choose one of image_size"),
        ((("image_size", "big"),), "option 'image_size' of data set 'materials' is 'big'"),
        ((("seed", 3),), "unknown option 'seed' of data set 'materials'"),
        ((("data_dir", "x"),), "unknown option 'data_dir' of data set 'materials'"),
    ],
)
def test_other_options_are_refused_before_anything_is_loaded(
    options: tuple[tuple[str, str | int], ...], message: str, calls: Calls
) -> None:
    with pytest.raises(ConfigError) as caught:
        DataSpec("materials", dataset_options=options)
    assert message in str(caught.value)
    assert calls == []


# Defaults


@pytest.mark.parametrize(
    ("dataset", "shift", "domains"),
    [
        ("digits", "rotate", ["source-1", "source-2", "source-3", "target"]),
        ("colored-mnist", "color", ["+90%", "+80%", "-90%"]),
        ("cifar-10", "noise", ["source-1", "source-2", "source-3", "target"]),
        ("materials", None, list(OWN)),
    ],
)
def test_without_a_shift_the_data_sets_own_is_taken(
    dataset: str, shift: str | None, domains: list[str]
) -> None:
    spec = DataSpec(dataset)
    assert spec.shift == shift
    assert spec.domain_names == domains
    assert spec.target_name == domains[-1]


def test_another_shift_may_be_named() -> None:
    assert DataSpec("colored-mnist", "noise").shift == "noise"
    assert DataSpec("colored-mnist") == DataSpec("colored-mnist", "color")


# A site's own domain


def test_a_site_has_its_domain_alone() -> None:
    spec = DataSpec("materials", target_samples=5, source_samples=7)
    site = load_domain(spec, "wood")
    assert sizes(site) == {"wood": 5}
    assert (site.target, site.classes, site.shape) == ("wood", 2, (1, 4, 4))
    assert load_domain(spec, "wood") is site


def test_a_domain_that_takes_no_part_has_no_site() -> None:
    spec = DataSpec("materials", only_sources=("brick",))
    with pytest.raises(ConfigError, check=names("domain", "glass")):
        load_domain(spec, "glass")


def test_data_that_have_been_corrected_are_read_again(tmp_path: Path) -> None:
    spec = DataSpec("table", dataset_options=(("domains", "a,b"),), data_dir=str(tmp_path))
    with pytest.raises(ConfigError, match=r"b\.csv' is missing"):
        load_domain(spec, "b")
    write_table(tmp_path / "b.csv", 0)
    assert sizes(load_domain(spec, "b")) == {"b": 32}


# Domains that an option names


def test_the_option_domains_names_them_and_the_last_is_the_target() -> None:
    spec = DataSpec("table", dataset_options=(("domains", "rome, paris,oslo"),))
    assert (spec.domain_names, spec.target_name) == (["rome", "paris", "oslo"], "oslo")
    other = DataSpec("images", target="rome", dataset_options=(("domains", "rome,New York"),))
    assert (other.source_names, other.target_name) == (["New York"], "rome")


@pytest.mark.parametrize("dataset", ["images", "table"])
@pytest.mark.parametrize(
    ("options", "settings", "says"),
    [
        ((), {}, "option 'domains' is missing: name the domains, separated by commas"),
        ((), {"data_dir": "/nowhere"}, "data-dir is '/nowhere', which is not a folder on this machine"),
        ((("domains", "a,,b"),), {}, "option 'domains' is 'a,,b': give names separated by commas"),
        ((("domains", "a,b"),), {"shift": "noise"}, "has domains of its own .a, b.: leave it out"),
        ((("domains", "a,b"),), {"target": "c"}, "unknown target domain 'c': choose one of a, b"),
    ],
)
def test_invalid_domains_are_refused(
    dataset: str, options: tuple[tuple[str, str], ...], settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        DataSpec(dataset, dataset_options=options, **settings)


def test_the_target_keeps_the_rest_of_its_training_samples_without_their_labels() -> None:
    whole = load_federation(DataSpec("digits", "rotate", target_samples=None))
    part = load_federation(DataSpec("digits", "rotate", target_samples=50))
    assert all(domain.unlabelled is None for domain in whole.domains.values())
    train, rest = part.domains["target"].train, part.domains["target"].unlabelled
    assert rest is not None
    assert rest.y.unique().tolist() == [-1]
    everything = sorted(x.tobytes() for x in whole.domains["target"].train.x.numpy())
    assert sorted(x.tobytes() for x in torch.cat([train.x, rest.x]).numpy()) == everything
    sources = [domain for name, domain in part.domains.items() if name != "target"]
    assert all(domain.unlabelled is None for domain in sources)


def test_sources_have_no_unlabelled_samples_and_noise_stays() -> None:
    spec = DataSpec("digits", "noise", (("std", 0.3),), target_samples=10, source_samples=20)
    domains = load_federation(spec).domains
    assert {name for name, domain in domains.items() if domain.unlabelled is not None} == {"target"}
    rest = domains["target"].unlabelled
    assert rest is not None
    assert rest.noise == 0.3


def test_unlabelled_samples_of_a_regression_have_no_number_either() -> None:
    rest = load_federation(DataSpec("rbf", target_samples=10)).domains["target"].unlabelled
    assert rest is not None
    assert rest.y.isnan().all()
