"""Columns that alone tell the label."""

import numpy as np
import pytest

from fda_flower.own_data.telling import telling

RNG = np.random.default_rng(0)
LABELS = {name: np.arange(40) % 2 for name in "ab"}
NOISE = {name: RNG.normal(size=40) for name in "ab"}


def told(columns, labels=LABELS, regression=False):
    return telling(columns, labels, {name: np.arange(len(each)) for name, each in labels.items()}, regression)


@pytest.mark.parametrize(
    "tells",
    [
        lambda y: 10.0 * y + 3,
        lambda y: np.array(["J", "K"], object)[y],
        lambda y: y + RNG.uniform(0, 0.9, len(y)),
        lambda y: np.array(["C18", "C20", "I10", "I11"], object)[2 * y + RNG.integers(0, 2, len(y))],
        lambda y: np.where(y == 1, RNG.normal(size=len(y)), np.nan),
    ],
    ids=["code", "word", "threshold", "several words", "only in one class"],
)
def test_a_column_that_tells_each_label_is_named(tells):
    columns = {"x": NOISE, "icd": {name: tells(each) for name, each in LABELS.items()}}
    (note,) = told(columns)
    assert "of every row: icd;" in note
    assert "ignore=icd" in note
    columns["icd"]["b"][0] = columns["icd"]["b"][1]
    assert told(columns) == [], "one row is not told"


def test_few_rows_and_values_that_are_all_different_tell_by_chance():
    few = {"a": np.array([0, 0, 0, 1, 1, 1])}
    assert told({"x": {"a": np.arange(6.0)}}, few) == []
    assert told({"id": {name: RNG.permutation(40) * 1.0 for name in "ab"}}) == []
    one_class = LABELS | {"c": np.zeros(40, int)}
    columns = {"icd": {name: 1.0 * each for name, each in one_class.items()}}
    assert told(columns, one_class), "a domain of one class says nothing"


@pytest.mark.parametrize(
    ("column", "expected"), [(lambda y: 38.67 * y, 1), (np.exp, 1), (lambda y: y + RNG.normal(0, 0.1, 40), 0)]
)
def test_a_number_to_predict_in_another_form_is_named(column, expected):
    labels = {name: RNG.normal(5, 1, 40) for name in "ab"}
    columns = {"mmol": {name: column(each) for name, each in labels.items()}}
    assert len(told(columns, labels, regression=True)) == expected
