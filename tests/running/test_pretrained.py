"""Runs of a network whose backbone makes features: what is trained travels, with any method and engine."""

import shutil
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from naming import names
from sites import run_sites
from whole_runs import check_same, same_bits, untimed

from fda_flower import RunConfig, compare, load, run
from fda_flower.datasets import load_domain
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import BODY, MODEL
from fda_flower.models.exchange import Exchange
from fda_flower.records.verification import verify
from fda_flower.running.processes import BODIES, share
from fda_flower.runs.methods import find_method, method_names
from fda_flower.runs.network import make_model
from fda_flower.site import read_log

SETTINGS: dict[str, Any] = {
    **{"shift": "rotate", "sources": 2, "device": "cpu", "seed": 3, "rounds": 2, "model": "blocks_net:net"},
    **{"target_samples": 20, "source_samples": 30, "test_samples": 40, "train": "head"},
}
REFUSE: dict[str, set[str]] = {
    "head": {
        "fada",
        "fedrep",
        "fedper",
        "fedbn",
        *(f"central:{name}" for name in ("coral", "dann", "mmd", "mme")),
    },
    "last": {"pfedfda", "ridge"},
    "adapters:2": {"fedbn"},
}
"""Methods that need what this part of the network lacks, or less."""


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FDA_CACHE_DIR", str(tmp_path / "cache"))


def probabilities(folder, settings):
    model = load(folder, trust=True)
    config = RunConfig(**settings)
    test = load_domain(config.data, config.data.target_name).domains[config.data.target_name].test
    return model, model.predict_proba(test.x), test.y


OWN_PARTS = ("fedrep", "fedper", "fedbn", "apfl", "ditto", "feddaf", "kd3a", "fada", "mixture")
"""Methods whose clients keep or mix parts of a network."""
SOME = ("fedavg", "fedgp-auto", "irm", "central:erm", *OWN_PARTS)
CASES = [
    *((name, "head") for name in method_names() if "flower:" not in name),
    *((name, "last") for name in (*SOME, *sorted(REFUSE["last"]))),
    *((name, "adapters:2") for name in OWN_PARTS),
]


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.parametrize(("method", "train"), CASES)
def test_every_method_runs_on_features_or_says_what_it_needs(method, train, tmp_path):
    settings = {**SETTINGS, "method": method, "train": train}
    if method in REFUSE[train]:
        told = ("train", train) if method == "ridge" else ("method", method)
        with pytest.raises(ConfigError, check=names(*told)):
            run(**settings)
        return
    result = run(**settings, output=tmp_path / "run")
    assert not any(name.startswith(("stem", "blocks.0", "blocks.1")) for name in result.model)
    if not find_method(method).centralised and train == "head":
        assert set(result.model) - {"rows.power"} == {"head.weight", "head.bias"}
    _, found, y = probabilities(tmp_path / "run", settings)
    if method != "central:kd3a":
        assert np.mean(found.argmax(axis=1) == y) == pytest.approx(result.history[-1]["accuracy"])


@pytest.mark.parametrize("train", ["head", "adapters:2"])
def test_it_has_the_same_bits_in_several_processes_and_resumed(train, tmp_path):
    settings = {**SETTINGS, "method": "fedgp-auto", "train": train}
    whole = run(**settings, output=tmp_path / "whole")
    check_same(run(**settings, engine="local", workers=2), whole)
    run(**{**settings, "rounds": 1}, output=tmp_path / "run")
    resumed = run(**settings, output=tmp_path / "run", resume=True)
    assert untimed(resumed.history)[-1] == untimed(whole.history)[-1]
    assert same_bits(resumed.model, whole.model)
    assert (tmp_path / "run" / BODY).read_bytes() == (tmp_path / "whole" / BODY).read_bytes()


def test_the_model_file_has_what_was_trained_and_the_body_is_checked(tmp_path):
    run(**SETTINGS, method="fedavg", output=tmp_path / "run")
    body = tmp_path / "run" / BODY
    assert (tmp_path / "run" / MODEL).stat().st_size < 10_000
    before = load(tmp_path / "run", trust=True).predict_proba(np.zeros((1, 1, 8, 8), np.float32))
    raw = bytearray(body.read_bytes())
    raw[-3] ^= 1
    body.write_bytes(raw)
    with pytest.raises(RunError, check=names("body", body)):
        load(tmp_path / "run", trust=True)
    assert any(BODY in problem for problem in verify(tmp_path / "run").problems)
    body.unlink()
    with pytest.raises(RunError, check=names("body", body)):
        load(tmp_path / "run", trust=True)
    run(**SETTINGS, method="fedavg", output=tmp_path / "again")
    again = load(tmp_path / "again", trust=True).predict_proba(np.zeros((1, 1, 8, 8), np.float32))
    np.testing.assert_array_equal(before, again)


def test_runs_of_a_table_keep_one_body_and_each_can_be_used_alone(tmp_path, in_process):
    settings = {**SETTINGS, "target_samples": 60, "validation": 0.2}
    del settings["seed"]
    folder = compare(["fedavg", "ditto"], [3], tmp_path / "out", **settings).path / "runs"
    (kept,) = (folder / BODIES).iterdir()
    bodies = sorted(folder.rglob(BODY))
    assert [str(body.parent.relative_to(folder)) for body in bodies] == [
        *("Ditto-seed3", "Ditto-seed3/selected", "FedAvg-seed3", "FedAvg-seed3/selected")
    ]
    assert all(body.samefile(kept) for body in bodies)
    assert not list(folder.rglob("*.link"))
    assert not verify(folder / "Ditto-seed3").problems
    copy = shutil.copytree(folder / "FedAvg-seed3", tmp_path / "copy")
    shutil.rmtree(folder)
    load(copy, trust=True).predict_proba(np.zeros((1, 1, 8, 8), np.float32))


def test_a_file_is_no_link_to_one_that_has_changed_or_where_there_are_no_links(tmp_path, monkeypatch):
    for name in "abc":
        (tmp_path / name).write_text("the same")
    share(tmp_path / "missing", tmp_path / BODIES)
    share(tmp_path / "a", tmp_path / BODIES)
    (kept,) = (tmp_path / BODIES).iterdir()
    kept.write_text("another")
    share(tmp_path / "b", tmp_path / BODIES)
    monkeypatch.setattr("os.link", Mock(side_effect=OSError("no links here")))
    share(tmp_path / "c", tmp_path / "others")
    assert [(tmp_path / name).read_text() for name in "bc"] == ["the same"] * 2


@pytest.mark.slow
@pytest.mark.smoke
def test_one_onnx_file_goes_from_pixels_to_probabilities(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from fda_flower.prediction.export import export

    run(**SETTINGS, method="mixture", output=tmp_path / "run")
    model, expected, _ = probabilities(tmp_path / "run", {**SETTINGS, "method": "mixture"})
    export(model, tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    config = RunConfig(**SETTINGS, method="mixture")
    x = load_domain(config.data, config.data.target_name).domains[config.data.target_name].test.x
    (found,) = session.run(None, {"samples": x.astype(np.float32)})
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_frozen_body_begins_with_the_rate_for_features():
    assert RunConfig(**SETTINGS).rate == 0.001
    assert RunConfig(**{**SETTINGS, "train": "all"}).rate == 0.003
    assert RunConfig(**SETTINGS, learning_rate=0.01).rate == 0.01
    assert str(RunConfig(model="mlp").trained) == "all"
    assert str(RunConfig(model="resnet18", model_options={"weights": "a.pth"}).trained) == "head"


@pytest.mark.parametrize(("train", "sent"), [("head", ["fc"]), ("adapters:2", ["lora_B", "fc"])])
def test_a_sites_log_and_its_rules_are_of_what_is_sent_alone(train, sent, tmp_path):
    config = RunConfig(
        **{**SETTINGS, "train": train, "method": "fedgp-auto", "max_update_norm": 0.01},
        method_options={"batch_update_encoding": "full"},
    )
    nodes = [
        {"domain": name, "state-dir": str(tmp_path / name), "allow-batch-updates": "full"}
        for name in config.data.domain_names
    ]
    model, history = run_sites(config, nodes)
    numbers = sum(array.size for array in model.values())
    for name in config.data.domain_names:
        lines = [line for line in read_log(tmp_path / name) if line["message"] == "train"]
        assert [line["round"] for line in lines] == [1, 2]
        for line in lines:
            arrays = line["records"]["arrays"]
            assert list(arrays["arrays"]) == list(model)
            assert 4 * numbers < arrays["bytes"] < 4 * numbers + 200 * len(model)
            if name == "target":
                assert line["records"]["batch-updates"]["arrays"]["full"][1][1] == numbers
    for name in model:
        assert any(part in name for part in sent) or "head" in name, name
    assert all(entry["clipped"] < 1 for entry in history[-1]["sources"].values())
    kept = sum(float(np.square(model[name] - first).sum()) for name, first in initial(config).items()) ** 0.5
    assert 0 < kept <= 2 * 0.01


def initial(config):
    site = load_domain(config.data, config.data.target_name)
    network = make_model(config, site.shape, site.classes)
    return Exchange.of(network).layers(network)
