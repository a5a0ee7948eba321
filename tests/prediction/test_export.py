"""Exported models: another runtime computes the same numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file

from fda_flower import ConfigError, load, run
from fda_flower.prediction.export import export

SETTINGS: dict[str, Any] = {
    **{"device": "cpu", "rounds": 1, "sources": 2, "model": "mlp", "epochs": 1},
    **{"target_samples": 16, "source_samples": 40},
}
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated")

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


def test_torchscript_has_the_same_probabilities(folder: Path, tmp_path: Path) -> None:
    model = load(folder)
    export(model, tmp_path / "model.ts", "torchscript")
    graph = torch.jit.load(str(tmp_path / "model.ts"))
    for x in (X, X[:1]):
        np.testing.assert_allclose(graph(torch.from_numpy(x)).numpy(), model.predict_proba(x), atol=1e-6)


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_a_state_dictionary_is_that_of_the_module(folder: Path, name: str, tmp_path: Path) -> None:
    model = load(folder)
    export(model, tmp_path / "new" / name, "state-dict")
    path = tmp_path / "new" / name
    found = load_file(path) if path.suffix == ".safetensors" else torch.load(path)
    state = model.module.state_dict()
    assert found.keys() == state.keys()
    assert all(torch.equal(found[key], tensor) for key, tensor in state.items())


def test_a_regression_exports_numbers(regression_run: Path, tmp_path: Path) -> None:
    model = load(regression_run)
    export(model, tmp_path / "model.ts", "torchscript")
    x = torch.rand(4, *model.about.shape)
    found = torch.jit.load(str(tmp_path / "model.ts"))(x)
    np.testing.assert_allclose(found, model.predict(x), rtol=1e-5)


def test_an_unknown_format_or_a_place_that_cannot_be_written_is_an_error(
    digits_run: Path, tmp_path: Path
) -> None:
    model = load(digits_run)
    with pytest.raises(ConfigError, match="unknown format 'tflite': choose one of onnx, state-dict, torchsc"):
        export(model, tmp_path / "m", "tflite")
    (tmp_path / "m").mkdir()
    with pytest.raises(ConfigError, match=r"'.*/m' cannot be written .*: choose another --output"):
        export(model, tmp_path / "m", "state-dict")
