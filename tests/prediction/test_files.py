"""A model's files: the same bytes again, and errors that say what to do."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from naming import names

from fda_flower import ConfigError, RunError, load, run
from fda_flower.files import DESCRIPTION, MODEL
from fda_flower.prediction import About, Predictor, Single, read_model, write_model

LAYERS = {"b": np.ones((2, 3), np.float32), "a": np.zeros(2, np.float32)}
ABOUT = About(method="fedavg", domain="t", network="logistic", shape=(3,), classes=2, round=1, rounds=2)


def changed(folder: Path, **fields: Any) -> None:
    """Write a model whose description has other fields, with a checksum that fits."""
    about, predictor = read_model(folder)
    write_model(folder, About(**{**vars(about), **fields}), predictor)


def test_a_model_is_read_as_it_was_written_and_written_with_the_same_bytes(tmp_path: Path) -> None:
    write_model(tmp_path / "a", ABOUT, Single(LAYERS))
    about, predictor = read_model(tmp_path / "a")
    assert about == ABOUT
    assert not about.finished
    assert list(predictor.networks["network"]) == ["b", "a"], "in the order of the state dictionary"
    write_model(tmp_path / "b", about, predictor)
    for name in (MODEL, DESCRIPTION):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    described = json.loads((tmp_path / "a" / DESCRIPTION).read_text())
    assert (described["network"], described["shape"], described["round"]) == ("logistic", [3], 1)


def test_every_bit_is_checked(tmp_path: Path) -> None:
    write_model(tmp_path, ABOUT, Single(LAYERS))
    whole = (tmp_path / MODEL).read_bytes()
    for damaged in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), b"", b"not a model"):
        (tmp_path / MODEL).write_bytes(damaged)
        with pytest.raises(RunError, check=names("model")):
            load(tmp_path)


def test_a_model_of_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fda_flower.prediction.files.FORMAT", 2)
    about = About(**{**vars(ABOUT), "versions": {"fda-flower": "9.0"}})
    write_model(tmp_path, about, Single(LAYERS))
    monkeypatch.undo()
    with pytest.raises(ConfigError, check=names("model")):
        load(tmp_path)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"network": None}, "its network is None"),
        ({"network": "lenet6"}, "unknown model 'lenet6'"),
        ({"network_options": {"depth": 3}}, "depth"),
        ({"classes": "2"}, "its classes is '2'"),
        ({"classes": 10**12}, "'1.bias' of shape (1000000000000,), the file (2,)"),
        ({"classes": 10**30}, ""),
        ({"shape": (10**6, 10**6)}, "'1.weight' of shape (2, 1000000000000), the file (2, 3)"),
        ({"shape": ("3",)}, ""),
        ({"class_names": ("a", "b", "c")}, "2 classes, and names for 3"),
        ({"preparation": {"kind": "magic"}}, ""),
        ({"dataset_options": {"label_mean": "much"}}, "much"),
    ],
)
def test_a_description_that_does_not_fit_its_arrays_is_refused_and_takes_no_memory(
    tmp_path: Path, fields: dict[str, Any], says: str
) -> None:
    layers = {"1.weight": np.ones((2, 3), np.float32), "1.bias": np.zeros(2, np.float32)}
    write_model(tmp_path, ABOUT, Single(layers))
    assert load(tmp_path).predict(np.zeros((1, 3))).tolist() == [0]
    changed(tmp_path, **fields)
    with pytest.raises(RunError, match=re.escape(f"the model '{tmp_path / MODEL}'") + ".*" + re.escape(says)):
        load(tmp_path)


CODE = """
from pathlib import Path
from torch import nn

Path("ran").touch()

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(3, classes))
"""


@pytest.fixture
def downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: a run of somebody else's, whose network is a function of a module in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "their_network.py").write_text(CODE)
    layers = {"1.weight": np.ones((2, 3), np.float32), "1.bias": np.zeros(2, np.float32)}
    write_model(tmp_path, About(**{**vars(ABOUT), "network": "their_network:net"}), Single(layers))
    settings = {"model": "their_network:net", "model_options": {"width": 3}}
    (tmp_path / "config.json").write_text(json.dumps({"run": {}, "settings": settings}))
    yield tmp_path
    sys.modules.pop("their_network", None)


def test_the_code_of_a_folder_runs_only_if_it_is_trusted(downloaded: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(downloaded)
    assert all(
        word in str(refused.value) for word in ("'their_network:net'", str(downloaded / MODEL), "--trust")
    )
    assert not (downloaded / "ran").exists()
    assert load(downloaded, trust=True).predict(np.zeros((1, 3))).tolist() == [0]
    assert (downloaded / "ran").exists()


@pytest.mark.usefixtures("downloaded")
@pytest.mark.parametrize(
    "command",
    [
        ("predict", ".", "--csv", "new.csv"),
        ("export", ".", "--format", "state-dict"),
        ("evaluate", "."),
    ],
    ids=lambda command: command[0],
)
def test_a_command_runs_no_code_of_a_folder(command: tuple[str, ...], fda: Any) -> None:
    code, _, error = fda(*command)
    assert (code, "--trust" in error, Path("ran").exists()) == (2, True, False)


def test_a_report_or_a_test_set_runs_no_code_of_a_folder_either(downloaded: Path, fda: Any) -> None:
    assert fda("report", "--html", ".", "--output", "report.html")[0] == 0
    write_model(
        downloaded,
        About(**{**vars(ABOUT), "shape": (1, 8, 8), "classes": 10}),
        Single({"1.weight": np.ones((10, 64), np.float32), "1.bias": np.zeros(10, np.float32)}),
    )
    code, out, _ = fda("evaluate", ".")
    assert (code, "450 samples" in out) == (0, True)
    assert not Path("ran").exists()


def test_an_unknown_predictor_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(ConfigError, check=names("kind of predictor", "tree")):
        Predictor.of_kind("tree", {}, {})


def test_without_a_model_the_error_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no folder '.*nowhere': give the folder of a run"):
        load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="holds no model"):
        load(tmp_path)
    (tmp_path / "checkpoint").touch()
    with pytest.raises(ConfigError, match=r"the run in '.*' has no model .*; go on with --resume"):
        load(tmp_path)


def test_a_folder_of_nodes_names_those_with_a_model(tmp_path: Path) -> None:
    write_model(tmp_path / "va-12", ABOUT, Single(LAYERS))
    with pytest.raises(ConfigError, match="give one of the folders in it: va-12"):
        load(tmp_path)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="the model cannot be written to"):
        write_model(tmp_path / "file", ABOUT, Single(LAYERS))


SETTINGS: dict[str, Any] = {
    **{"device": "cpu", "model": "mlp", "sources": 2, "target_samples": 16, "source_samples": 40},
}


@pytest.mark.parametrize("method", ["fedgp-auto", "ditto", "apfl", "mixture", "central:erm"])
def test_a_resumed_run_writes_the_same_bytes(method: str, tmp_path: Path) -> None:
    options = {"method_options": {"every": 1}} if method == "mixture" else {}
    settings = {**SETTINGS, "method": method, **options}
    run(**settings, rounds=3, output=tmp_path / "whole")
    run(**settings, rounds=1, output=tmp_path / "cut")
    assert load(tmp_path / "cut").about.round == 1
    run(**settings, rounds=3, output=tmp_path / "cut", resume=True)
    for name in (MODEL, DESCRIPTION):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_ray_writes_the_same_bytes(tmp_path: Path) -> None:
    for engine in ("local", "ray"):
        run(**SETTINGS, rounds=2, method="apfl", engine=engine, output=tmp_path / engine)
    for name in (MODEL, DESCRIPTION):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()


def test_an_average_is_not_the_model(tmp_path: Path) -> None:
    for name, average in (("plain", None), ("averaged", "tail:2")):
        run(**SETTINGS, rounds=2, method="fedavg", average=average, output=tmp_path / name)
    assert (tmp_path / "plain" / MODEL).read_bytes() == (tmp_path / "averaged" / MODEL).read_bytes()
