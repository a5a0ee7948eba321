"""Exports in which another runtime computes the same as the model."""

import dataclasses
from itertools import product
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from naming import names

from fda_flower import ConfigError, load
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.prediction.columns import read_columns
from fda_flower.prediction.export import Probabilities, TableInput, export

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


@pytest.mark.slow
def test_rows_of_a_table_are_made_in_the_graph(rows_run, tmp_path):
    model, rows = load(rows_run), np.random.default_rng(0).normal(50, 20, (4, 2)).astype(np.float32)
    export(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    [found] = session.run(["probabilities"], {"samples": rows})
    np.testing.assert_allclose(found, model.predict_proba(rows), atol=1e-6)


@pytest.mark.slow
def test_a_label_has_all_its_digits_in_onnxruntime(patients_run, tmp_path):
    model = load(patients_run)
    assert isinstance(model.preparation, TablePreparation)
    scale = {**(model.about.preparation or {}), "label_mean": 100474.6, "label_deviation": 5.68}
    model.about = dataclasses.replace(model.about, preparation=scale)
    export(model, tmp_path / "model.onnx")
    ((_, sexes),) = model.preparation.categories
    row = np.array([[1.5, 1.0, 0.0]], dtype=np.float32)
    [found] = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["values"], {"samples": row})
    expected = model.predict({"größe": [1.5], "sex": [sexes[0]]})
    np.testing.assert_allclose(found[:, 0], expected, rtol=0, atol=1e-4)


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


BAD = [torch.nan, torch.inf, -torch.inf, 3e39]


def fitted(missing=False, baseline=()):
    """Two columns of numbers, the second far from 0 in steps of 1, around one of three categories."""
    rows: dict[str, Any] = {"a": [1.0, 2.0, 4.0], "sex": ["f", "m", ""], "day": [17e8, 17e8 + 1, 17e8 + 3]}
    words = {"sex": [word for word in ("f", "m", "x") if word not in dict(baseline).values()]}
    return TablePreparation.fit(rows, np.arange(3), words, missing=missing, baseline=dict(baseline))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("baseline", [(), (("sex", "x"),)])
def test_a_row_is_refused_where_predict_refuses_it_else_it_has_the_same_inputs(missing, baseline):
    ours = fitted(missing, baseline)
    table, width = TableInput(ours), len(ours.features) - 2
    assert table.dtype == torch.float64, "or else days are lost"
    codes = {word: [float(word == name) for name in ours.categories[0][1]] for word in ("f", "m", "x", "")}
    for number, (word, code) in product([3.0, *BAD], codes.items()):
        inputs, refused = table(torch.tensor([[number, *code, 17e8 + 2]], dtype=torch.float64))
        try:
            columns = read_columns({"a": [number], "sex": [word], "day": [17e8 + 2]}, ours)
            expected = ours.apply(columns)
        except ConfigError:
            # A graph cannot tell a missing category from the one that has no feature.
            assert refused.item() or (word == "" and baseline and number == 3.0)
        else:
            assert (refused.item(), inputs.tolist()) == (False, expected.tolist())
    for code in ([1.0] * width, [0.5, *[0.0] * (width - 1)], [7.0, -6.0, *[0.0] * (width - 2)]):
        assert table(torch.tensor([[3.0, *code, 17e8 + 2]], dtype=torch.float64))[1].item()


def test_a_refused_row_has_nan_and_leaves_the_others_alone(table_run):
    model = load(table_run)
    rows = torch.rand(4, 2)
    (alone,) = Probabilities(model)(rows)
    rows[1, 0], rows[2, 1] = torch.nan, torch.inf
    (found,) = Probabilities(model)(rows)
    assert found.isnan().all(dim=1).tolist() == [False, True, True, False]
    assert torch.equal(found[[0, 3]], alone[[0, 3]])


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
