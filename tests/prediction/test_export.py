"""Exported models: another runtime computes the same numbers."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from naming import names
from safetensors.torch import load_file

from fda_flower import ConfigError, load, run
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.prediction.model import Probabilities, export

SETTINGS: dict[str, Any] = {
    **{"device": "cpu", "rounds": 1, "sources": 2, "model": "mlp", "epochs": 1},
    **{"target_samples": 16, "source_samples": 40},
}

X = np.random.default_rng(0).random((5, 1, 8, 8)).astype(np.float32)


@pytest.fixture(
    scope="module",
    params=[("fedavg", {}), ("apfl", {}), ("knn-per", {"mixing": 0.5, "k": 3}), ("mixture", {"epochs": "1"})],
    ids=lambda param: param[0],
)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    method, options = request.param
    path = tmp_path_factory.mktemp(method)
    run(**SETTINGS, method=method, method_options=options, output=path)
    return path


@pytest.mark.slow
def test_onnxruntime_has_the_same_probabilities(folder: Path, tmp_path: Path) -> None:
    model = load(folder)
    export(model, tmp_path / "model.onnx", "onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"], "one file"
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for x in (X, X[:1]):
        [found] = session.run(["probabilities"], {"samples": x})
        np.testing.assert_allclose(found, model.predict_proba(x), atol=1e-6)


@pytest.mark.slow
def test_the_graph_of_a_table_takes_its_own_numbers(table_run: Path, tmp_path: Path) -> None:
    model = load(table_run)
    export(model, tmp_path / "model.onnx", "onnx")
    rows = np.random.default_rng(0).normal(50, 20, (4, *model.about.shape)).astype(np.float32)
    [found] = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["probabilities"], {"samples": rows})
    np.testing.assert_allclose(found, model.predict_proba(rows), atol=1e-6)


def test_a_missing_number_is_filled_in_by_the_graph(table_run: Path) -> None:
    model = load(table_run)
    assert isinstance(model.preparation, TablePreparation)
    model.preparation = dataclasses.replace(model.preparation, fill=(7.0,) * len(model.preparation.mean))
    raw = torch.rand(3, *model.about.shape)
    raw[1, 0] = torch.nan
    found = Probabilities(model)(raw)
    assert torch.equal(found[1], Probabilities(model)(raw.nan_to_num(7.0))[1])
    np.testing.assert_allclose(found, model.predict_proba(raw.numpy()), atol=1e-6)


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_a_state_dictionary_is_that_of_the_module(folder: Path, name: str, tmp_path: Path) -> None:
    model = load(folder)
    export(model, tmp_path / "new" / name, "state-dict")
    path = tmp_path / "new" / name
    found = load_file(path) if path.suffix == ".safetensors" else torch.load(path)
    state = model.module.state_dict()
    assert found.keys() == state.keys()
    assert all(torch.equal(found[key], tensor) for key, tensor in state.items())


def test_a_regressions_graph_gives_numbers(regression_run: Path) -> None:
    model = load(regression_run)
    x = torch.rand(4, *model.about.shape)
    np.testing.assert_allclose(Probabilities(model)(x), model.predict(x.numpy()), rtol=1e-5)


def test_the_graph_takes_categories_as_1_or_0_and_gives_the_unit_of_the_label(patients_run: Path) -> None:
    model = load(patients_run)
    assert isinstance(model.preparation, TablePreparation)
    ((_, sexes),) = model.preparation.categories
    assert model.preparation.features == ("größe", *(f"sex={sex}" for sex in sexes))
    rows = {"größe": [1.5, 1.9], "sex": [sexes[0], sexes[1]]}
    found = Probabilities(model)(torch.tensor([[1.5, 1.0, 0.0], [1.9, 0.0, 1.0]]))
    np.testing.assert_allclose(found[:, 0], model.predict(rows), rtol=1e-5)


def test_an_unknown_format_or_a_place_that_cannot_be_written_is_an_error(
    digits_run: Path, tmp_path: Path
) -> None:
    model = load(digits_run)
    with pytest.raises(ConfigError, check=names("format", "tflite")):
        export(model, tmp_path / "m", "tflite")
    (tmp_path / "m").mkdir()
    with pytest.raises(ConfigError, match=r"'.*/m' cannot be written .*: choose another --output"):
        export(model, tmp_path / "m", "state-dict")
