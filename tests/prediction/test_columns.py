"""Columns of samples from Python: numbers, categories and gaps as lists, arrays and data frames hold them."""

import datetime
from decimal import Decimal

import numpy as np
import pytest
import torch
from naming import names

from fda_flower import ConfigError
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.prediction.columns import far_from_training, read_column, read_columns

pd = pytest.importorskip("pandas")

AGE = TablePreparation(("age",), (0.0,), (1.0,))
FILLED = TablePreparation(("age",), (0.0,), (1.0,), fill=(50.0,))
KIND = TablePreparation(("kind",), (0.0,), (1.0,), categories=(("kind", ("1", "2")),))
GAPS = [None, float("nan"), np.nan, pd.NA, pd.NaT, "", "?", "NA"]


@pytest.mark.parametrize("gap", GAPS)
def test_a_gap_is_filled_in_or_refused(gap):
    found = read_column("age", [61.0, gap], FILLED)
    assert np.isnan(found).tolist() == [False, True]
    filled = TablePreparation(("kind",), (0.0,), (1.0,), fill=(0.0,), categories=KIND.categories)
    assert read_column("kind", ["1", gap], filled) == ["1", ""]
    for preparation in (AGE, KIND):
        name = preparation.columns[0]
        with pytest.raises(ConfigError, check=names("column", name)):
            read_column(name, ["1", gap], preparation)


@pytest.mark.parametrize(
    "values",
    [
        [10, 2.5],
        ["1e1", " 2.5"],
        [Decimal("10"), np.float32(2.5)],
        np.array([10, 2.5], dtype=np.float32),
        np.array([np.int64(10), "2.5"], dtype=object),
        torch.tensor([10, 2.5], requires_grad=True),
        torch.tensor([10, 2.5], dtype=torch.bfloat16),
        pd.Series([10, 2.5], dtype="Float64"),
    ],
)
def test_numbers_are_read_in_each_form(values):
    assert list(read_column("age", values, AGE)) == [10, 2.5]


@pytest.mark.parametrize(
    "value",
    [
        "much",
        float("inf"),
        1j,
        b"1",
        [1],
        datetime.date(2024, 5, 1),
        np.datetime64("2024"),
    ],
)
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ConfigError, check=names("column", "age")):
        read_column("age", [1.5, value], AGE)


@pytest.mark.parametrize("values", ["12", 12, None, np.array(["2024"], dtype="M8[D]")])
def test_what_is_no_column_is_refused(values):
    with pytest.raises(ConfigError, check=names("column", "age")):
        read_column("age", values, AGE)


def test_whole_numbers_are_categories_as_text():
    assert read_column("kind", [1, 2.0, " 1"], KIND) == ["1", "2", "1"]
    assert read_column("kind", np.array([1, 2], dtype=np.float32), KIND) == ["1", "2"]
    with pytest.raises(ConfigError, check=names("column", "kind")):
        read_column("kind", [1, 3], KIND)


@pytest.mark.parametrize(
    ("columns", "thing"),
    [
        ({"a": [1.0], "b": [1.0, 2.0]}, "columns"),
        ({"a": [], "b": []}, "samples"),
        ({"a": [1.0]}, "column"),
        ({"a": [1.0], "b": [1.0], "c": [1.0]}, "columns"),
        ({"a": [1.0], "b": [1.0], "": [1.0]}, "column"),
        (pd.DataFrame([[1.0, 2.0, 3.0]], columns=["a", "b", "b"]), "column"),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(columns, thing):
    preparation = TablePreparation(("a", "b"), (0.0, 0.0), (1.0, 1.0))
    with pytest.raises(ConfigError) as error:
        read_columns(columns, preparation)
    assert error.value.thing == thing


@pytest.mark.parametrize(
    ("trained", "new", "far"),
    [
        ([50, 60, 70, 80], [600, 700, 61], True),
        ([50, 60, 70, 80], [600, 70, 61], False),
        ([0] * 99 + [1], [1], False),
        ([0] * 99 + [1], [2], True),
        ([7, 7, 7], [9], False),
    ],
    ids=["months", "one of three", "a rare 1", "outside [0, 1]", "constant"],
)
def test_columns_are_far_from_training_by_their_median(trained, new, far):
    fitted = TablePreparation.fit({"age": trained}, np.arange(len(trained)))
    assert bool(far_from_training({"age": new}, fitted)) == far
