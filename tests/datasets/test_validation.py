"""Labels held out from training: which, how many, and that they are nowhere else."""

import numpy as np
import pytest
import torch
from naming import names

from fda_flower.datasets import load_domain, load_federation
from fda_flower.datasets.amounts import HeldOut, hold_out, read_validation
from fda_flower.datasets.samples import Samples
from fda_flower.datasets.spec import DataSpec
from fda_flower.errors import ConfigError

DIGITS = DataSpec("digits", target_samples=60)


def samples(*counts):
    """So many samples of each class; `x` is the position of a sample."""
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return Samples(torch.arange(len(y), dtype=torch.float32)[:, None], y)


def rows(part):
    return part.x.flatten().int().tolist()


@pytest.mark.parametrize(
    ("given", "text"),
    [(0.2, "0.2"), ("0.20", "0.2"), ("25%", "0.25"), ("cv:5", "cv:5"), ("fold:2/5", "fold:2/5")],
)
def test_what_is_held_out_has_one_spelling(given, text):
    assert str(read_validation(given)) == text


@pytest.mark.parametrize("nothing", [None, ""])
def test_nothing_is_held_out_unless_asked_for(nothing):
    assert read_validation(nothing) is None


@pytest.mark.parametrize(
    "given", ["1", "0", "-0.2", "many", "cv:1", "cv:x", "fold:0/5", "fold:6/5", "fold:1/1"]
)
def test_what_cannot_be_held_out_is_refused(given):
    with pytest.raises(ConfigError, check=names("validation")):
        read_validation(given)


def test_a_share_is_stratified_and_the_rest_is_trained_on():
    whole = samples(40, 20, 20)
    train, held = hold_out(whole, HeldOut(0.25), 0, "the target")
    assert torch.bincount(held.y).tolist() == [10, 5, 5]
    assert sorted(rows(train) + rows(held)) == rows(whole)
    assert rows(train) == sorted(rows(train))


def test_the_seed_decides_which_samples_are_held_out():
    first, again, other = (rows(hold_out(samples(20, 20), HeldOut(0.2), seed, "")[1]) for seed in (0, 0, 1))
    assert first == again != other


def test_the_only_sample_of_a_class_is_trained_on():
    train, held = hold_out(samples(10, 1, 9), HeldOut(0.2), 0, "the target")
    assert 1 in train.y
    assert 1 not in held.y


def test_each_sample_is_in_one_fold():
    whole = samples(13, 7, 3)
    parts = [hold_out(whole, HeldOut(folds=5, fold=fold), 3, "")[1] for fold in range(1, 6)]
    assert sorted(row for part in parts for row in rows(part)) == rows(whole)
    assert {int((part.y == 0).sum()) for part in parts} == {2, 3}


@pytest.mark.parametrize("what", [HeldOut(0.2), HeldOut(folds=5, fold=2)])
def test_numbers_are_not_stratified(what):
    y = torch.arange(20, dtype=torch.float32)[:, None]
    train, held = hold_out(Samples(y, y), what, 0, "the target")
    assert (len(train), len(held)) == (16, 4)


@pytest.mark.parametrize(
    ("what", "counts"),
    [
        (HeldOut(0.2), (2, 2, 2)),  # two samples of three classes
        (HeldOut(0.2), (1, 1)),
        (HeldOut(folds=5, fold=1), (2, 2)),
    ],
)
def test_too_few_labels_are_refused(what, counts):
    with pytest.raises(ConfigError, check=names("validation")):
        hold_out(samples(*counts), what, 0, "domain 'a'")


def test_the_target_holds_out_labels_and_the_rest_stays_as_it_was():
    whole = load_federation(DIGITS).domains
    parted = load_federation(DataSpec("digits", target_samples=60, validation="0.2")).domains
    target, before = parted["target"], whole["target"]
    assert target.validation is not None
    assert (len(target.train), len(target.validation)) == (48, 12)
    for name in ("test", "unlabelled"):
        assert torch.equal(getattr(target, name).x, getattr(before, name).x)
    assert torch.equal(parted["source-1"].train.x, whole["source-1"].train.x)
    assert all(whole[name].validation is None for name in whole)
    kept = {row.numpy().tobytes() for row in torch.cat([target.train.x, target.validation.x])}
    assert kept == {row.numpy().tobytes() for row in before.train.x}
    held = {row.numpy().tobytes() for row in target.validation.x}
    assert not held & {row.numpy().tobytes() for row in target.inputs.x}


def test_a_site_holds_out_the_same_labels_as_a_simulation():
    spec = DataSpec("digits", target_samples=60, validation="fold:3/4")
    site, simulated = load_domain(spec, "target").domains["target"], load_federation(spec).domains["target"]
    assert site.validation is not None
    assert simulated.validation is not None
    assert torch.equal(site.validation.x, simulated.validation.x)
    assert torch.equal(site.train.y, simulated.train.y)


def test_sources_hold_out_a_share_each_where_they_choose():
    domains = load_federation(DataSpec("digits", validation="0.2", select_by="sources")).domains
    assert domains["target"].validation is None
    for name in ("source-1", "source-2", "source-3"):
        held = domains[name].validation
        assert held is not None
        assert np.isclose(len(held) / (len(held) + len(domains[name].train)), 0.2, atol=0.01)


def test_samples_held_out_go_to_the_device_too():
    domain = load_federation(DataSpec("digits", validation="0.2")).domains["target"]
    moved = domain.to(torch.device("cpu"))
    assert moved.validation is not None
    assert domain.validation is not None
    assert torch.equal(moved.validation.y, domain.validation.y)


def test_a_word_that_says_nobodys_labels_is_refused():
    with pytest.raises(ConfigError, check=names("select-by", "nobody")):
        DataSpec("digits", select_by="nobody")


def grouped(regression=False):
    """Thirty patients of two classes with two samples each."""
    y = torch.arange(30).repeat_interleave(2) % 2
    x = torch.arange(60, dtype=torch.float32)[:, None]
    labels = y.float()[:, None] if regression else y
    return Samples(x, labels, groups=torch.arange(30).repeat_interleave(2))


@pytest.mark.parametrize("regression", [False, True])
@pytest.mark.parametrize("what", [HeldOut(0.2), HeldOut(0.3), HeldOut(folds=5, fold=2)], ids=str)
def test_the_samples_of_a_group_stay_together(what, regression):
    train, held = hold_out(grouped(regression), what, 0, "the target")
    assert len(train) + len(held) == 60
    assert not {*train.groups.tolist()} & {*held.groups.tolist()}
    assert len(held) == (18 if what.share == 0.3 else 12)
    if what.share != 0.3 and not regression:
        assert torch.bincount(held.y).tolist() == [6, 6]


def test_each_group_is_held_out_once_in_all_folds():
    found = [hold_out(grouped(), HeldOut(folds=3, fold=i), 1, "")[1].groups.tolist() for i in (1, 2, 3)]
    assert sorted(group for part in found for group in part) == grouped().groups.tolist()


def test_too_few_groups_are_refused():
    samples = Samples(torch.zeros(9, 1), torch.zeros(9, dtype=torch.int64), groups=torch.zeros(9))
    with pytest.raises(ConfigError, check=names("validation")):
        hold_out(samples, HeldOut(0.2), 3, "the target")
