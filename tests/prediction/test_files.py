"""A model's files: the same bytes again, and errors that say what to do."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from naming import names

from fda_flower import ConfigError, RunError, load
from fda_flower.aggregation import Calibration
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.files import DESCRIPTION, MODEL, checksum
from fda_flower.models.linear import table_network
from fda_flower.prediction import About, Predictor, Single, read_model, write_model

LAYERS = {"b": np.ones((2, 3), np.float32), "a": np.zeros(2, np.float32)}
ABOUT = About(method="fedavg", domain="t", network="logistic", shape=(3,), classes=2, round=1, rounds=2)


FITTING = {"1.weight": np.ones((2, 3), np.float32), "1.bias": np.zeros(2, np.float32)}


def test_a_model_is_read_as_it_was_written_and_written_with_the_same_bytes(tmp_path):
    scores = Calibration.of(np.array([[0.75, 0.25], [0.5, 0.5]]), np.array([0, 1]))
    write_model(tmp_path / "a", ABOUT, Single(LAYERS), calibration=scores)
    about, predictor, calibration = read_model(tmp_path / "a")
    assert about == ABOUT
    assert calibration is not None
    assert {n: a.tolist() for n, a in calibration.to_arrays().items()} == {
        "scores": [[0.25], [0.5]],
        "classes": [0, 1],
    }
    assert not about.finished
    assert list(predictor.parts.networks["network"]) == ["b", "a"], "in the order of the state dictionary"
    write_model(tmp_path / "b", about, predictor, calibration=calibration)
    for name in (MODEL, DESCRIPTION):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    described = json.loads((tmp_path / "a" / DESCRIPTION).read_text())
    assert (described["network"], described["shape"], described["round"]) == ("logistic", [3], 1)


def test_every_bit_is_checked(tmp_path):
    write_model(tmp_path, ABOUT, Single(LAYERS))
    whole = (tmp_path / MODEL).read_bytes()
    for damaged in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), b"", b"not a model"):
        (tmp_path / MODEL).write_bytes(damaged)
        with pytest.raises(RunError, check=names("model")):
            load(tmp_path)


def test_a_model_of_a_newer_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fda_flower.prediction.files.FORMAT", 2)
    write_model(tmp_path, replace(ABOUT, versions={"fda-flower": "9.0"}), Single(LAYERS))
    monkeypatch.undo()
    with pytest.raises(ConfigError, check=names("model")):
        load(tmp_path)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"network": None}, "its network is None"),
        ({"network": "lenet6"}, "lenet6"),
        ({"network_options": {"depth": 3}}, "depth"),
        ({"classes": "2"}, "its classes is '2'"),
        ({"classes": 10**12}, "'1.bias' of shape (1000000000000,), the file (2,)"),
        ({"classes": 10**30}, ""),
        ({"shape": (10**6, 10**6)}, "'1.weight' of shape (2, 1000000000000), the file (2, 3)"),
        ({"shape": ("3",)}, ""),
        ({"class_names": ("a", "b", "c")}, "names for 3"),
        ({"preparation": {"kind": "magic"}}, ""),
        ({"dataset_options": {"label_mean": "much"}}, "much"),
    ],
)
def test_a_description_that_does_not_fit_its_arrays_is_refused_and_takes_no_memory(tmp_path, fields, says):
    write_model(tmp_path, ABOUT, Single(FITTING))
    assert load(tmp_path).predict(np.zeros((1, 3))).tolist() == [0]
    write_model(tmp_path, replace(ABOUT, **fields), Single(FITTING))
    with pytest.raises(RunError, match=re.escape(says) or None, check=names("model", tmp_path / MODEL)):
        load(tmp_path)


@pytest.mark.parametrize(
    ("network", "fields"),
    [
        ("hinges", {"classes": 10**12}),
        ("hinges", {"shape": (10**12,)}),
        ("fourier", {"shape": (10**9,)}),
        ("hinges", {"network_options": {"depth": 3}}),
    ],
)
def test_a_linear_layer_that_does_not_fit_is_refused_and_takes_no_memory(tmp_path, network, fields):
    parts = table_network(network, (3,), 2)
    assert parts is not None
    assert parts.body is not None
    body = parts.body.layers
    about = replace(ABOUT, network=network, train="linear", body=checksum({}, body))
    write_model(tmp_path, about, Single(parts.network.layers), body=body)
    assert load(tmp_path).predict(np.zeros((1, 3))).tolist() == [0]
    write_model(tmp_path, replace(about, **fields), Single(parts.network.layers))
    with pytest.raises(RunError, check=names("model", tmp_path / MODEL)):
        load(tmp_path)


def test_a_layer_that_an_earlier_version_fitted_to_columns_predicts_as_it_did(tmp_path):
    now = TablePreparation(("a", "b", "c"), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)).to_json()
    before = {name: value for name, value in now.items() if name not in ("farthest", "fitted")}
    weight, x = np.array([[1, 2, 3], [4, 5, 6]], np.float32), np.array([[0.5, -1, 2]])
    model = Single({"head.weight": weight, "head.bias": np.zeros(2, np.float32)})
    for preparation, expected in ((before, x @ weight.T), (now, x @ weight.T / 3**0.5)):
        write_model(tmp_path, replace(ABOUT, train="linear", preparation=preparation), model)
        loaded = load(tmp_path)
        np.testing.assert_allclose(loaded.outputs(loaded.samples(x)), expected, rtol=1e-6)


CODE = """
from pathlib import Path
from torch import nn

Path("ran").touch()

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(3, classes))
"""


@pytest.fixture
def downloaded(tmp_path, monkeypatch):
    """The current folder: a run of somebody else's, whose network is a function of a module in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "their_network.py").write_text(CODE)
    write_model(tmp_path, replace(ABOUT, network="their_network:net"), Single(FITTING))
    settings = {"model": "their_network:net", "model_options": {"width": 3}}
    (tmp_path / "config.json").write_text(json.dumps({"run": {}, "settings": settings}))
    yield tmp_path
    sys.modules.pop("their_network", None)


def test_the_code_of_a_folder_runs_only_if_it_is_trusted(downloaded, fda):
    with pytest.raises(ConfigError, check=names("model", downloaded / MODEL)):
        load(downloaded)
    for command in ("predict . --csv x", "export .", "evaluate ."):
        code, _, error = fda(*command.split())
        assert (code, "--trust" in error) == (2, True)
    assert fda("report", "--html", ".", "--output", "report.html")[0] == 0
    assert not Path("ran").exists()
    assert load(downloaded, trust=True).predict(np.zeros((1, 3))).tolist() == [0]
    assert Path("ran").exists()


@pytest.mark.usefixtures("downloaded")
def test_a_test_set_runs_no_code_of_a_folder(fda):
    layers = {"1.weight": np.ones((10, 64), np.float32), "1.bias": np.zeros(10, np.float32)}
    write_model(Path(), replace(ABOUT, shape=(1, 8, 8), classes=10), Single(layers))
    code, out, _ = fda("evaluate", ".")
    assert (code, "450 samples" in out) == (0, True)
    assert not Path("ran").exists()


def test_an_unknown_predictor_is_an_error_that_lists_the_known():
    with pytest.raises(ConfigError, check=names("kind of predictor", "tree")):
        Predictor.of_kind("tree", {}, {})


def test_without_a_model_the_error_says_why(tmp_path):
    def refused(path, remedy):
        with pytest.raises(ConfigError, check=names("folder", path, remedy)):
            load(path)

    refused(tmp_path / "nowhere", "the folder of a run")
    refused(tmp_path, "at a site the node's own")
    write_model(tmp_path / "va-12", ABOUT, Single(LAYERS))
    refused(tmp_path, "va-12")
    (tmp_path / "checkpoint").touch()
    refused(tmp_path, "add --resume")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, check=names("folder", tmp_path / "file", "make room")):
        write_model(tmp_path / "file", ABOUT, Single(LAYERS))


SETTINGS: dict[str, Any] = {"model": "mlp", "sources": 2, "target_samples": 16, "source_samples": 40}


def test_an_average_is_not_the_model(run_in):
    plain, averaged = (run_in(**SETTINGS, rounds=2, method="fedavg", average=a) for a in (None, "tail:2"))
    assert (plain / MODEL).read_bytes() == (averaged / MODEL).read_bytes()
