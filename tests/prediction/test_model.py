"""A loaded model: what it takes, what it refuses, and exports in which another runtime computes the same."""

import csv
import dataclasses

import numpy as np
import onnxruntime
import pytest
import torch
from naming import names

from fda_flower import ConfigError, load
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.prediction.model import Probabilities, export

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
        np.testing.assert_allclose(table.module(x).double().softmax(dim=1), whole, atol=1e-6)


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
    x = model.samples(paths).x[torch.arange(len(paths))]
    np.testing.assert_array_equal(model.predict(paths), model.predict(x.numpy()))
    np.testing.assert_allclose(model.predict_proba(x), model.predict_proba(x.float() / 255), atol=1e-6)
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


# --- Exports -----------------------------------------------------------------------------------------

X = np.random.default_rng(0).random((5, 1, 8, 8)).astype(np.float32)


@pytest.fixture(
    scope="module",
    params=[("fedavg", {}), ("apfl", {}), ("knn-per", {"mixing": 0.5, "k": 3}), ("mixture", {"epochs": "1"})],
    ids=lambda param: param[0],
)
def folder(request, run_in):
    method, options = request.param
    small = {"rounds": 1, "sources": 2, "model": "mlp", "target_samples": 16, "source_samples": 40}
    return run_in(**small, method=method, method_options=options)


@pytest.mark.slow
def test_onnxruntime_has_the_same_probabilities(folder, table_run, tmp_path):
    rows = np.random.default_rng(0).normal(50, 20, (4, 2)).astype(np.float32)
    for run, samples in ((folder, X), (table_run, rows)):
        model = load(run)
        export(model, tmp_path / "model.onnx")
        assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"], "one file"
        session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
        for x in (samples, samples[:1]):
            [found] = session.run(["probabilities"], {"samples": x})
            np.testing.assert_allclose(found, model.predict_proba(x), atol=1e-6)


def test_a_missing_number_is_filled_in_by_the_graph(table_run):
    model = load(table_run)
    assert isinstance(model.preparation, TablePreparation)
    model.preparation = dataclasses.replace(model.preparation, fill=(7.0,) * len(model.preparation.mean))
    raw = torch.rand(3, *model.about.shape)
    raw[1, 0] = torch.nan
    (found,) = Probabilities(model)(raw)
    assert torch.equal(found[1], Probabilities(model)(raw.nan_to_num(7.0))[0][1])
    np.testing.assert_allclose(found, model.predict_proba(raw.numpy()), atol=1e-6)


def test_the_graph_takes_categories_as_1_or_0_and_gives_the_unit_of_the_label(patients_run):
    model = load(patients_run)
    assert isinstance(model.preparation, TablePreparation)
    ((_, sexes),) = model.preparation.categories
    assert model.preparation.features == ("größe", *(f"sex={sex}" for sex in sexes))
    rows = {"größe": [1.5, 1.9], "sex": [sexes[0], sexes[1]]}
    (found,) = Probabilities(model)(torch.tensor([[1.5, 1.0, 0.0], [1.9, 0.0, 1.0]]))
    np.testing.assert_allclose(found[:, 0], model.predict(rows), rtol=1e-5)


def test_a_model_says_what_it_is_and_an_unwritable_place_is_an_error(digits_run, tmp_path, quick_export):
    model = load(digits_run)
    assert model.classes_.tolist() == list(range(10)), "numbers where classes have no names"
    said = (
        "LoadedModel(method='fedavg', domain='target', network='mlp', shape=(1, 8, 8), classes=10, round=2)"
    )
    assert repr(model) == said
    (tmp_path / "m").mkdir()
    with pytest.raises(ConfigError, check=names("file", tmp_path / "m")):
        export(model, tmp_path / "m")
