"""How many samples: numbers and shares, read and counted; labels held out from training to choose by."""

from dataclasses import replace

import pytest
import torch
from naming import names
from sites import write_table

from fda_flower.datasets import DataSpec, load_domain, load_federation
from fda_flower.datasets.amounts import HeldOut, count, hold_out, read_amount, read_validation
from fda_flower.datasets.samples import Samples
from fda_flower.errors import ConfigError
from fda_flower.runs.config import RunConfig


@pytest.mark.parametrize(
    ("value", "amount"),
    [
        *((value, None) for value in (None, "all")),
        *((value, 50) for value in (50, " 50 ", 50.0, "50.0", "5e1")),
        *((value, value.strip()) for value in ("15%", " 0.1% ")),
        ("up to 9.0", "up to 9"),
    ],
)
def test_an_amount_is_read_from_numbers_and_text_and_reads_as_itself(value, amount):
    read = read_amount("target-samples", value)
    assert (read, type(read)) == (amount, type(amount))
    assert read_amount("target-samples", read) == amount


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        *((text, "a number, or a share such as 15%") for text in ("many", "1_0", "1_0%")),
        ("2.5", "a whole number, or a share such as 15%"),
        ("up to 5%", "after 'up to'"),
        *((value, "a number") for value in ("", "%", "15%%", True, [5], "up to all")),
        *((value, "") for value in ("0%", "-5%", "100.5%", "nan%")),
        *((value, "a whole number") for value in ("nan", "inf")),
        *((value, "at least 1 is needed") for value in ("0", "-3", "up to 0")),
    ],
    ids=str,
)
def test_what_is_no_amount_is_refused_by_name_value_and_remedy(value, remedy):
    with pytest.raises(ConfigError, check=names("source-samples", value, remedy)):
        read_amount("source-samples", value)


@pytest.mark.parametrize(
    ("amount", "total", "expected"),
    [
        *((amount, 7, 7) for amount in (None, 7, "100%")),
        ("50%", 8, 4),
        ("0.1%", 20000, 20),
        *((amount, 10, expected) for amount, expected in ((3, 3), ("33%", 3), ("37%", 4))),
        *(("up to 50", total, min(total, 50)) for total in (49, 51)),
    ],
)
def test_an_amount_counts_samples_and_a_share_is_rounded(amount, total, expected):
    assert count("target-samples", amount, total) == expected


@pytest.mark.parametrize(
    ("amount", "total", "remedy"), [(8, 7, "fewer"), (1, 0, "fewer"), ("1%", 49, "more"), ("100%", 0, "more")]
)
def test_more_than_there_are_and_a_share_that_leaves_none_are_refused(amount, total, remedy):
    with pytest.raises(ConfigError, check=names("target-samples", amount, f"ask for {remedy}")):
        count("target-samples", amount, total)


def test_a_default_is_a_limit_and_a_number_that_is_given_is_not():
    config = RunConfig(dataset="digits", target_samples="up to 2000")
    given = replace(config, target_samples=2000)
    assert given.fingerprint() == config.fingerprint(), "a run of enough labels goes on with either"
    with pytest.raises(ConfigError, check=names("target-samples", 2000)):
        load_domain(given.data, "target")
    assert load_domain(config.data, "target").domains["target"].unlabelled is None


def test_all_labels_of_own_data_are_used_unless_a_number_is_given(tmp_path):
    for i, name in enumerate("ab"):
        write_table(tmp_path / f"{name}.csv", i, rows=100)
    for given, labels in (({}, 80), ({"target_samples": 30}, 30), ({"target_samples": "50"}, 50)):
        config = RunConfig(dataset="table", data_dir=str(tmp_path), **given)
        assert len(load_domain(config.data, "b").domains["b"].train) == labels


# Held out


def samples(*counts):
    """So many samples of each class; `x` is the position of a sample."""
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return Samples(torch.arange(len(y), dtype=torch.float32)[:, None], y)


def grouped(regression=False):
    """Thirty patients of two classes with two samples each."""
    groups = torch.arange(30).repeat_interleave(2)
    x, y = torch.arange(60, dtype=torch.float32)[:, None], groups % 2
    return Samples(x, y.float()[:, None] if regression else y, groups=groups)


def rows(part):
    return part.x.flatten().int().tolist()


@pytest.mark.parametrize(
    ("given", "text"),
    [(0.2, "0.2"), ("0.20", "0.2"), ("25%", "0.25"), ("cv:5", "cv:5"), ("fold:2/5", "fold:2/5")],
)
def test_what_is_held_out_has_one_spelling(given, text):
    assert str(read_validation(given)) == text
    assert read_validation("") is read_validation(None) is None


@pytest.mark.parametrize(
    "given", ["1", "0", "-0.2", "many", "0.1_0", "cv:1", "cv:x", "fold:0/5", "fold:6/5", "fold:1/1"]
)
def test_what_cannot_be_held_out_is_refused(given):
    with pytest.raises(ConfigError, check=names("validation", given)):
        read_validation(given)


def test_a_share_is_stratified_and_the_rest_is_trained_on_by_the_seed():
    whole = samples(40, 20, 20)
    train, held = hold_out(whole, HeldOut(0.25), 0, "the target")
    assert torch.bincount(held.y).tolist() == [10, 5, 5]
    assert sorted(rows(train) + rows(held)) == rows(whole)
    assert rows(train) == sorted(rows(train))
    again, other = (rows(hold_out(whole, HeldOut(0.25), seed, "")[1]) for seed in (0, 1))
    assert rows(held) == again != other
    train, held = hold_out(samples(10, 1, 9), HeldOut(0.2), 0, "the target")
    assert (1 in train.y, 1 in held.y) == (True, False), "the only sample of a class is trained on"


@pytest.mark.parametrize(
    ("whole", "of_class_0"), [(samples(13, 7, 3), {2, 3}), (grouped(), {6}), (grouped(True), None)]
)
def test_each_sample_is_in_one_fold(whole, of_class_0):
    parts = [hold_out(whole, HeldOut(folds=5, fold=fold), 3, "")[1] for fold in range(1, 6)]
    assert sorted(row for part in parts for row in rows(part)) == rows(whole)
    assert of_class_0 in (None, {int((part.y == 0).sum()) for part in parts})


@pytest.mark.parametrize("what", [HeldOut(0.2), HeldOut(folds=5, fold=2)])
def test_numbers_are_not_stratified(what):
    y = torch.arange(20, dtype=torch.float32)[:, None]
    train, held = hold_out(Samples(y, y), what, 0, "the target")
    assert (len(train), len(held)) == (16, 4)


@pytest.mark.parametrize("regression", [False, True])
@pytest.mark.parametrize("what", [HeldOut(0.2), HeldOut(0.3), HeldOut(folds=5, fold=2)], ids=str)
def test_the_samples_of_a_group_stay_together(what, regression):
    train, held = hold_out(grouped(regression), what, 0, "the target")
    assert len(train) + len(held) == 60
    assert not {*train.groups.tolist()} & {*held.groups.tolist()}
    assert len(held) == (18 if what.share == 0.3 else 12)
    if what.share != 0.3 and not regression:
        assert torch.bincount(held.y).tolist() == [6, 6]


@pytest.mark.parametrize(
    ("what", "whole"),
    [
        (HeldOut(0.2), samples(2, 2, 2)),
        (HeldOut(0.2), samples(1, 1)),
        (HeldOut(folds=5, fold=1), samples(2, 2)),
        (HeldOut(0.2), replace(samples(9), groups=torch.zeros(9))),
    ],
)
def test_too_few_labels_or_groups_are_refused(what, whole):
    with pytest.raises(ConfigError, check=names("validation", what)):
        hold_out(whole, what, 3, "domain 'a'")


def test_the_target_holds_out_labels_and_the_rest_stays_as_it_was():
    spec = DataSpec("digits", target_samples=60)
    whole, parted = (load_federation(s).domains for s in (spec, replace(spec, validation="0.2")))
    target, before = parted["target"], whole["target"]
    assert target.validation
    assert (len(target.train), len(target.validation)) == (48, 12)
    for name in ("test", "unlabelled"):
        assert torch.equal(getattr(target, name).x, getattr(before, name).x)
    assert torch.equal(parted["source-1"].train.x, whole["source-1"].train.x)
    assert all(domain.validation is None for domain in [*whole.values(), parted["source-1"]])
    train, held, inputs, all_of_it = (
        {row.numpy().tobytes() for row in part.x}
        for part in (target.train, target.validation, target.inputs, before.train)
    )
    assert train | held == all_of_it
    assert not held & inputs
    moved = target.to(torch.device("meta"))
    assert moved.validation.y.device.type == moved.unlabelled.y.device.type == "meta"


def test_a_site_holds_out_the_same_labels_as_a_simulation():
    spec = DataSpec("digits", target_samples=60, validation="fold:3/4")
    site, simulated = load_domain(spec, "target").domains["target"], load_federation(spec).domains["target"]
    assert torch.equal(site.validation.x, simulated.validation.x)
    assert torch.equal(site.train.y, simulated.train.y)


def test_sources_hold_out_a_share_each_where_they_choose():
    domains = load_federation(DataSpec("digits", validation="0.2", select_by="sources")).domains
    assert domains.pop("target").validation is None
    for domain in domains.values():
        assert domain.validation
        held, kept = len(domain.validation), len(domain.train)
        assert held / (held + kept) == pytest.approx(0.2, abs=0.01)
    with pytest.raises(ConfigError, check=names("select-by", "nobody")):
        DataSpec("digits", select_by="nobody")
