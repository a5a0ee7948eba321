"""A loaded model: what it takes, what it refuses, and that it is what scikit-learn's users expect."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from fda_flower import ConfigError, load
from fda_flower.prediction.model import LoadedModel


class Frame(dict):
    """As much of a data frame as a prediction needs."""


def raw_columns(folder: Path) -> dict[str, list[str]]:
    with (folder.parent / "c.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
    columns.pop("label")
    return columns


def test_columns_in_any_order_and_an_array_in_the_models_order_predict_alike(
    table: LoadedModel, table_run: Path
) -> None:
    columns = raw_columns(table_run)
    names = table.feature_names_in_.tolist()
    assert names == sorted(columns)
    frame = Frame({name: np.array(columns[name], dtype=float) for name in reversed(names)})
    array = np.stack([frame[name] for name in names], axis=1)
    whole = table.predict_proba(frame)
    assert whole.shape == (len(array), len(table.classes_))
    np.testing.assert_array_equal(whole, table.predict_proba(array))
    np.testing.assert_array_equal(whole, table.predict_proba(torch.from_numpy(array)))
    assert table.predict(frame).tolist() == table.classes_[whole.argmax(axis=1)].tolist()
    x = table.samples(frame).x
    with torch.no_grad():
        np.testing.assert_allclose(table.module(x).double().softmax(dim=1), whole, atol=1e-6)


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ({"b": [1.0]}, "the samples have no column a"),
        (np.zeros((2, 7)), r"the samples have shape \(2, 7\): give an array of shape \(samples, "),
        (["a.png"], "the model takes no image files: give an array"),
        ([], "there are no samples"),
        ([[1.0], [1.0, 2.0]], "the samples are no array of numbers"),
    ],
)
def test_samples_that_do_not_fit_are_refused(table: LoadedModel, samples: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        table.predict(samples)


def test_columns_that_do_not_fit_are_named(table: LoadedModel) -> None:
    columns: dict[str, object] = {name: [1.0] for name in table.feature_names_in_.tolist()}
    first = next(iter(columns))
    for more, says in (
        ({"weight": [1.0]}, "the samples have the columns weight, which the model does not know"),
        ({first: ["much"]}, f"column '{first}' of the samples holds no numbers"),
        ({first: [float("nan")]}, f"column '{first}' of the samples lacks values"),
    ):
        with pytest.raises(ConfigError, match=says):
            table.predict(columns | more)


def test_images_are_files_or_arrays(image_run: Path) -> None:
    model = load(str(image_run))
    paths = sorted((image_run.parent / "c").rglob("*.png"))
    x = model.samples(paths).x[torch.arange(len(paths))]
    np.testing.assert_array_equal(model.predict(paths), model.predict(x.numpy()))
    np.testing.assert_allclose(model.predict_proba(x), model.predict_proba(x.float() / 255), atol=1e-6)
    with pytest.raises(ConfigError, match=r"\(2, 3, 9, 9\): .* \(samples, 3, 8, 8\) or image files"):
        model.predict(np.zeros((2, 3, 9, 9)))
    with pytest.raises(ConfigError, match="the model takes no columns with names"):
        model.predict({"a": [1.0]})
    with pytest.raises(AttributeError, match="no feature_names_in_"):
        model.feature_names_in_  # noqa: B018


def test_a_regression_predicts_numbers(regression_run: Path) -> None:
    model = load(regression_run)
    x = np.zeros((3, *model.about.shape))
    assert model.predict(x).shape == (3, model.about.classes)
    with pytest.raises(ConfigError, match="have no probabilities: call predict"):
        model.predict_proba(x)
    with pytest.raises(AttributeError, match="no classes_"):
        model.classes_  # noqa: B018
    with torch.no_grad():
        alike = model.module(torch.zeros(3, *model.about.shape))
    np.testing.assert_allclose(alike, model.predict(x), rtol=1e-5)
    assert model.predictions(np.zeros((3, 1))).shape == (3,)


def test_classes_without_names_are_numbers(digits_run: Path) -> None:
    assert load(digits_run).classes_.tolist() == list(range(10))


def test_a_model_says_what_it_is(table: LoadedModel) -> None:
    about = table.about
    assert repr(table) == (
        f"LoadedModel(method='{about.method}', domain='c', network='{about.network}', shape={about.shape}, "
        f"classes={about.classes}, round={about.round})"
    )
