"""A loaded model: what it takes, and what it refuses."""

import csv

import numpy as np
import pytest
import torch
from naming import names

from fda_flower import ConfigError, load
from fda_flower.prediction.export import Probabilities

NAN = float("nan")


def raw_columns(folder):
    with (folder.parent / "c.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
    columns.pop("label")
    return columns


def test_columns_in_any_order_and_an_array_in_the_models_order_predict_alike(table, table_run):
    columns = raw_columns(table_run)
    wanted = table.feature_names_in_.tolist()
    assert wanted == sorted(columns)
    frame = {name: np.array(columns[name], dtype=float) for name in reversed(wanted)}
    array = np.stack([frame[name] for name in wanted], axis=1)
    whole = table.predict_proba(frame)
    assert whole.shape == (len(array), len(table.classes_))
    np.testing.assert_array_equal(whole, table.predict_proba(array))
    np.testing.assert_array_equal(whole, table.predict_proba(torch.from_numpy(array)))
    assert table.predict(frame).tolist() == table.classes_[whole.argmax(axis=1)].tolist()
    x = table.samples(frame).x
    with torch.no_grad():
        alike = table.module(torch.from_numpy(x)).double().softmax(dim=1)
    np.testing.assert_allclose(alike, whole, atol=1e-6)


def test_a_row_of_ridge_is_predicted_alone_as_in_a_table_and_as_by_pytorch(rows_run):
    model = load(rows_run)
    rows = np.random.default_rng(0).normal(50, 20, (9, 2)).round(1)
    rows[5] = rows[2]
    shares = model.predict_proba(rows)
    alone = np.concatenate([model.predict_proba(row[None]) for row in rows])
    np.testing.assert_allclose(alone, shares, rtol=0, atol=1e-9)
    np.testing.assert_allclose(shares[5], shares[2], rtol=0, atol=1e-9)
    x = torch.from_numpy(model.samples(rows).x)
    np.testing.assert_allclose(model.module(x).double().softmax(dim=1), shares, atol=1e-6)


@pytest.mark.parametrize(
    ("samples", "refused"),
    [
        ({"b": [1.0]}, names("column", remedy="the model needs a")),
        ({"age": [1.0], "height": [1.0], "weight": [1.0]}, names("columns", "weight")),
        *(({"age": [value], "height": [1.0]}, names("column", "age")) for value in ("much", NAN, np.inf)),
        (np.zeros((2, 7)), names("samples", (2, 7), "an array of shape (samples, ")),
        (["a.png"], names("image files", remedy="the columns a")),
        ([], names("samples", 0)),
        ([[1.0], [1.0, 2.0]], names("samples", (2,), "an array of shape (samples, ")),
    ],
)
def test_samples_that_do_not_fit_are_refused(table, samples, refused):
    with pytest.raises(ConfigError, check=refused):
        table.predict(samples)


def test_images_are_files_or_arrays(image_run):
    model = load(str(image_run))
    paths = sorted((image_run.parent / "c").rglob("*.png"))
    x = model.samples(paths).x[:]
    tensor = torch.from_numpy(x)
    np.testing.assert_array_equal(model.predict(paths), model.predict(x))
    shares = model.predict_proba(paths)
    np.testing.assert_array_equal(shares, model.predict_proba(tensor))
    np.testing.assert_array_equal(shares[::-1], model.predict_proba(x[::-1]))
    leaf = (tensor.float() / 255).requires_grad_()
    np.testing.assert_allclose(shares, model.predict_proba(leaf), atol=1e-6)
    wanted = names("samples", (2, 3, 9, 9), "(samples, 3, 8, 8) or image files")
    with pytest.raises(ConfigError, check=wanted):
        model.predict(np.zeros((2, 3, 9, 9)))
    with pytest.raises(ConfigError, check=names("columns", remedy="image files")):
        model.predict({"a": [1.0]})
    with pytest.raises(AttributeError, match="no feature_names_in_"):
        model.feature_names_in_  # noqa: B018


def test_a_regression_predicts_numbers(regression_run):
    model = load(regression_run)
    x = np.zeros((3, *model.about.shape))
    assert model.predict(x).shape == (3, model.about.classes)
    with pytest.raises(ConfigError, check=names("model", remedy="call predict")):
        model.predict_proba(x)
    with pytest.raises(AttributeError, match="no classes_"):
        model.classes_  # noqa: B018
    with torch.no_grad():
        alike = model.module(torch.zeros(3, *model.about.shape))
    np.testing.assert_allclose(alike, model.predict(x), rtol=1e-5)
    (exported,) = Probabilities(model)(torch.zeros(x.shape))
    np.testing.assert_allclose(exported, model.predict(x), rtol=1e-5)
    assert model.predictions(np.zeros((3, 1))).shape == (3,)
