"""A model's files: the same bytes again, and errors that say what to do."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
        with pytest.raises(RunError, match=r"model.safetensors' is damaged .*: restore it from a copy"):
            load(tmp_path)


def test_a_model_of_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fda_flower.prediction.files.FORMAT", 2)
    about = About(**{**vars(ABOUT), "versions": {"fda-flower": "9.0"}})
    write_model(tmp_path, about, Single(LAYERS))
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"has the format 2, .*: install fda-flower 9.0 or later"):
        load(tmp_path)


def test_an_unknown_predictor_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="unknown kind of predictor 'tree': choose one of mixture, neighb"):
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
