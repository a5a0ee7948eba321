"""Personal methods on whole runs: any kind of data, and a resumed run."""

import math
from typing import Any

import pytest
from sites import write_images, write_table

from fda_flower import run

PERSONAL = ["feddaf", "feddwa", "fedavg-ft", "ditto"]
SMALL: dict[str, Any] = {"device": "cpu", "target_samples": 10}
DATA: dict[str, dict[str, Any]] = {
    "noisy digits": {"model": "cnn", "shift": "noise"},
    "numbers": {"dataset": "rbf", "model": "sigmoid", "target_samples": 8},
    "images": {
        "dataset": "images",
        "dataset_options": {"domains": "a,b,c", "image_size": 16},
        "target": "c",
        "model": "resnet9",
        "model_options": {"width": 2},
    },
    "tables": {
        "dataset": "table",
        "dataset_options": {"domains": "a,b,c"},
        "target": "c",
        "model": "logistic",
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables and folders of images of three domains."""
    path = tmp_path_factory.mktemp("data")
    for seed, domain in enumerate("abc"):
        write_table(path / f"{domain}.csv", seed)
        write_images(path / domain, seed)
    return path


@pytest.mark.parametrize("method", PERSONAL)
@pytest.mark.parametrize("kind", DATA)
def test_they_run_on_any_data_and_a_resumed_run_has_the_same_bits(method, kind, folder, tmp_path):
    settings = {**SMALL, **DATA[kind], "method": method}
    if kind in ("tables", "images"):
        settings["data_dir"] = str(folder)
    whole = run(**settings, rounds=3)
    run(**settings, rounds=2, output=tmp_path / "run")
    resumed = run(**settings, rounds=3, output=tmp_path / "run", resume=True)
    assert all(math.isfinite(accuracy) for accuracy in whole.accuracies)
    assert resumed.accuracies == whole.accuracies
    for name, array in whole.model.items():
        assert resumed.model[name].tobytes() == array.tobytes()
    assert not any(record["dropped"] or record["held"] for record in whole.history)


def test_feddafs_records_say_how_the_models_were_blended():
    first, *others = run(**SMALL, model="mlp", method="feddaf", rounds=3).history
    assert first["target"]["alpha"] is None
    for record in others:
        target = record["target"]
        assert target["theta"] == pytest.approx(math.acos(target["sim"]))
        assert target["alpha"] == pytest.approx(1 - math.exp(-math.exp(-5 * (target["theta"] - 1))))
        assert 0 <= record["accuracy-global"] <= 1


def test_feddwas_weights_sum_to_1_and_a_scarce_target_trusts_itself():
    for record in run(**SMALL, model="mlp", method="feddwa", rounds=2).history:
        weights = [record["target"]["weight"], *(s["weight"] for s in record["sources"].values())]
        assert sum(weights) == pytest.approx(1)
        assert weights[0] == max(weights)
