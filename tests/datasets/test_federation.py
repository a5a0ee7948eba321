"""The data of all clients, or of one: shares of samples, chosen sources."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from naming import names
from sites import write_images, write_table

from fda_flower.datasets import DATASETS, Dataset, DataSpec, Samples, Split, load_domain, load_federation
from fda_flower.errors import ConfigError

pytestmark = pytest.mark.usefixtures("loads")


def sizes(federation):
    return {name: len(domain.train) for name, domain in federation.domains.items()}


def same(first, second):
    return np.array_equal(first.x, second.x) and np.array_equal(first.y, second.y)


def same_domain(first, second):
    return same(first.train, second.train) and same(first.test, second.test)


# Shares


@pytest.mark.parametrize(
    ("settings", "brick", "glass", "wood"),
    [
        ({"target_samples": "15%"}, 20, 30, 6),
        ({"target_samples": "2.5%"}, 20, 30, 1),
        ({"target_samples": 7}, 20, 30, 7),
        ({"target_samples": 5, "target": "glass"}, 20, 5, 40),
        ({"source_samples": "10%"}, 2, 3, 40),
        ({"source_samples": 4}, 4, 4, 40),
        ({"source_samples": None, "target_samples": "100%"}, 20, 30, 40),
    ],
)
def test_samples_may_be_a_share_of_what_the_target_or_each_source_has(settings, brick, glass, wood):
    federation = load_federation(DataSpec("materials", **settings))
    assert sizes(federation) == {"brick": brick, "glass": glass, "wood": wood}
    assert federation.target == settings.get("target", "wood")
    assert (federation.classes, federation.shape) == (2, (1, 4, 4))
    for i, domain in enumerate(federation.domains.values()):
        assert len(domain.test) == (10, 15, 20)[i]
        assert set(domain.train.x.flatten().tolist()) == {i / 4}


def test_a_share_is_the_same_samples_as_the_number_it_comes_to_and_leaves_the_tests_alone():
    whole, share, number = (
        load_federation(DataSpec("digits", "noise", target_samples=amount, source_samples=amount))
        for amount in (None, "10%", 34)
    )
    assert set(sizes(number).values()) == {34}, "four domains share 1,347 digits"
    for name, domain in number.domains.items():
        assert same_domain(share.domains[name], domain)
        assert same(domain.test, whole.domains[name].test)


def test_each_source_draws_its_own_samples_by_the_seed(monkeypatch):
    samples = Samples(np.arange(20.0)[:, None], np.arange(20) % 2)
    twins = dict.fromkeys("abc", Split(samples, samples, 2))
    monkeypatch.setitem(DATASETS, "twins", Dataset("made", lambda data_dir, seed: twins, tuple(twins)))
    first, other = (load_federation(DataSpec("twins", source_samples=5, seed=i)).domains for i in (0, 1))
    assert not same(first["a"].train, first["b"].train)
    assert not same(first["a"].train, other["a"].train)


@pytest.mark.parametrize("settings", [{}, {"validation": "20%"}, {"target": "all"}])
def test_the_test_samples_are_the_same_whatever_else_is_cut(settings, monkeypatch):
    samples = Samples(np.arange(40.0)[:, None], np.arange(40) % 2)
    twins = dict.fromkeys("abc", Split(samples, samples, 2))
    monkeypatch.setitem(DATASETS, "twins", Dataset("made", lambda data_dir, seed: twins, tuple(twins)))
    first, *others = (
        load_federation(DataSpec("twins", test_samples=9, **cut, **settings)).domains["c"].test
        for cut in ({}, {"target_samples": 8}, {"target_samples": "50%"}, {"source_samples": 8})
    )
    assert len(first) == 9
    assert all(same(first, other) for other in others)


@pytest.mark.parametrize(
    ("setting", "value", "remedy"),
    [
        ("target_samples", "1%", "ask for more"),
        ("source_samples", 25, "ask for fewer"),
        ("test_samples", 25, "ask for fewer"),
    ],
)
def test_an_amount_that_the_data_cannot_give_is_refused_when_they_are_loaded(setting, value, remedy):
    spec = DataSpec("materials", **{setting: value})
    with pytest.raises(ConfigError, check=names(setting.replace("_", "-"), value, remedy)):
        load_federation(spec)


def test_the_target_keeps_the_rest_of_its_training_samples_without_their_labels():
    settings: dict[str, Any] = {"dataset": "digits", "shift": "noise", "shift_options": (("std", 0.3),)}
    whole = load_federation(DataSpec(**settings))
    part = load_federation(DataSpec(**settings, target_samples=50, source_samples=20))
    assert all(domain.unlabelled is None for domain in whole.domains.values())
    assert {name for name, domain in part.domains.items() if domain.unlabelled is not None} == {"target"}
    train, rest = part.domains["target"].train, part.domains["target"].unlabelled
    assert ({*rest.y.tolist()}, rest.noise) == ({-1}, 0.3)
    everything = sorted(x.tobytes() for x in whole.domains["target"].train.x)
    assert sorted(x.tobytes() for x in np.concatenate([train.x, rest.x])) == everything
    of_regression = load_federation(DataSpec("rbf", target_samples=10)).domains["target"].unlabelled
    assert np.isnan(of_regression.y).all()


# Domains


def test_chosen_sources_have_the_samples_that_they_have_among_all():
    settings: dict[str, Any] = {"num_sources": 4, "target_samples": 9, "source_samples": 8}
    whole = load_federation(DataSpec("digits", "noise", **settings))
    part = load_federation(DataSpec("digits", "noise", **settings, only_sources=("source-3",)))
    assert list(part.domains) == ["source-3", "target"]
    assert all(same_domain(domain, whole.domains[name]) for name, domain in part.domains.items())


@pytest.mark.parametrize("target", ["wood", "glass"])
def test_a_domain_without_test_samples_is_an_error_where_it_takes_part(target):
    with pytest.raises(ConfigError, check=names("domain", "glass")):
        load_federation(DataSpec("incomplete", target=target))
    spec = DataSpec("incomplete", only_sources=("brick",))
    assert list(load_federation(spec).domains) == ["brick", "wood"]


def test_options_of_the_data_set_reach_its_loader(loads):
    spec = DataSpec("materials", dataset_options=(("image-size", "6"),), data_dir="/some/where")
    assert spec.dataset_options == (("image_size", 6),)
    assert load_federation(spec).shape == (1, 6, 6)
    assert load_federation(DataSpec("materials")).shape == (1, 4, 4)
    assert loads == [(Path("/some/where"), 6), (None, 4)]


def test_a_site_has_its_domain_alone():
    spec = DataSpec("materials", target_samples=5, source_samples=7, only_sources=("brick",))
    site = load_domain(spec, "wood")
    assert (sizes(site), load_domain(spec, "wood") is site) == ({"wood": 5}, True)
    with pytest.raises(ConfigError, check=names("domain", "glass", "brick, wood")):
        load_domain(spec, "glass")


@pytest.mark.parametrize(
    ("dataset", "thing", "name", "write", "size"),
    [
        ("table", "data file", "b.csv", write_table, 32),
        ("images", "domain folder", "b", write_images, 16),
    ],
)
def test_data_that_have_been_corrected_are_read_again(tmp_path, dataset, thing, name, write, size):
    options = (("domains", "a,b"), *((("image_size", 8),) if dataset == "images" else ()))
    spec = DataSpec(dataset, dataset_options=options, data_dir=str(tmp_path))
    with pytest.raises(ConfigError, check=names(thing, tmp_path / name)):
        load_domain(spec, "b")
    write(tmp_path / name, 0)
    assert sizes(load_domain(spec, "b")) == {"b": size}
