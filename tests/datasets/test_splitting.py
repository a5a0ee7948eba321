"""Splits of samples: what is held out from training to choose by, and scikit-learn's stratified split."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from naming import names
from sklearn.model_selection import train_test_split

from fda_flower.datasets import DataSpec, load_domain, load_federation
from fda_flower.datasets.samples import Samples
from fda_flower.datasets.splitting import HeldOut, divide, hold_out, read_validation, stratified
from fda_flower.errors import ConfigError


def samples(*counts):
    """So many samples of each class; `x` is the position of a sample."""
    y = np.repeat(np.arange(len(counts)), counts)
    return Samples(np.arange(len(y), dtype=np.float32)[:, None], y)


def grouped(regression=False):
    """Thirty patients of two classes with two samples each."""
    groups = np.repeat(np.arange(30), 2)
    x, y = np.arange(60, dtype=np.float32)[:, None], groups % 2
    return Samples(x, y.astype(np.float32)[:, None] if regression else y, groups=groups)


def rows(part):
    return part.x.flatten().astype(int).tolist()


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
    assert np.bincount(held.y).tolist() == [10, 5, 5]
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
    y = np.arange(20, dtype=np.float32)[:, None]
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
        assert np.bincount(held.y).tolist() == [6, 6]


def test_the_largest_patient_is_tested_and_held_out_no_more_often_than_others():
    groups = np.repeat(np.arange(15), [30, *[3] * 14])
    patients = Samples(np.zeros((len(groups), 1)), groups % 2, groups=groups)
    times = np.zeros((2, 15))
    for seed in range(100):
        _, test = divide(patients.y, seed, "a", groups=list(map(str, groups.tolist())))
        _, held = hold_out(patients, HeldOut(0.2), seed, "a")
        for row, chosen in zip(times, (groups[test], held.groups), strict=True):
            assert chosen is not None
            row[np.unique(chosen)] += 1
    assert ((times > 8) & (times < 35)).all(), "each with a chance of a fifth"


@pytest.mark.parametrize("regression", [False, True])
def test_few_patients_are_held_out_whole(regression):
    for patients, (trained, out) in {3: (2, 1), 4: (3, 1), 8: (6, 2)}.items():
        few = grouped(regression).take(np.arange(0, 2 * patients, 1 if patients == 3 else 2))
        train, held = hold_out(few, HeldOut(0.2), 0, "a")
        assert (train.units, held.units) == (trained, out)


def test_a_fold_that_few_patients_leave_empty_is_not_drawn():
    labels = [0] * 27 + [1] * 6 + [0] * 11 + [1] * 15
    groups = np.repeat(np.arange(5), [11, 16, 6, 11, 15])
    for seed in range(30):
        train, test = divide(np.array(labels), seed, "a", groups=list(map(str, groups.tolist())))
        assert len(train), len(test)


@pytest.mark.parametrize(
    ("what", "whole"),
    [
        (HeldOut(0.2), samples(2, 2, 2)),
        (HeldOut(0.2), samples(1, 1)),
        (HeldOut(folds=5, fold=1), samples(2, 2)),
        (HeldOut(0.2), replace(samples(9), groups=np.zeros(9, np.int64))),
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
        assert np.array_equal(getattr(target, name).x, getattr(before, name).x)
    assert np.array_equal(parted["source-1"].train.x, whole["source-1"].train.x)
    assert all(domain.validation is None for domain in [*whole.values(), parted["source-1"]])
    train, held, inputs, all_of_it = (
        {row.tobytes() for row in part.x}
        for part in (target.train, target.validation, target.inputs, before.train)
    )
    assert train | held == all_of_it
    assert not held & inputs


def test_a_site_holds_out_the_same_labels_as_a_simulation():
    spec = DataSpec("digits", target_samples=60, validation="fold:3/4")
    site, simulated = load_domain(spec, "target").domains["target"], load_federation(spec).domains["target"]
    assert np.array_equal(site.validation.x, simulated.validation.x)
    assert np.array_equal(site.train.y, simulated.train.y)


@drawn(st.lists(st.integers(2, 12), min_size=1, max_size=6), st.data())
def test_a_stratified_split_is_scikit_learns_with_ties_too(counts, data):
    labels = np.repeat(np.arange(len(counts)), counts)
    labels = np.random.default_rng(sum(counts)).permutation(labels)
    num_test = data.draw(st.integers(len(counts), len(labels) - len(counts)))
    seed = data.draw(st.integers(0, 2**32 - 1))
    theirs = train_test_split(np.arange(len(labels)), test_size=num_test, stratify=labels, random_state=seed)
    for ours, expected in zip(stratified(labels, num_test, seed), theirs, strict=True):
        assert ours.tolist() == expected.tolist()
