"""Flower's Ray simulation, really run: the same bits as in this process."""

from typing import Any

import pytest
from sites import write_images

from fda_flower import run
from fda_flower.errors import RunError

SETTINGS: dict[str, Any] = {"rounds": 3, "seed": 3, "device": "cpu"}


def with_batch_norm(folder):
    """The settings of a network with BatchNorm, and of images that are large enough for it."""
    for seed, domain in enumerate("abc"):
        write_images(folder / "images" / domain, seed)
    return {
        **{"dataset": "images", "dataset_options": {"domains": "a,b,c", "image_size": 16}, "target": "c"},
        **{"data_dir": str(folder / "images"), "model": "resnet9", "model_options": {"width": 2}},
        "target_samples": 10,
    }


def without_seconds(history):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "workers"),
    [
        pytest.param("fedgp-auto", 2, marks=pytest.mark.smoke),
        ("feddaf", 1),
        ("mixture", 1),
        ("apfl", 1),
        ("knn-per", 1),
        ("kd3a", 2),
        ("fedrep", 2),
        ("fedbn", 2),
        ("fedda", 2),
    ],
)
def test_same_seed_same_bits_whatever_the_number_of_workers(method, workers, tmp_path):
    """Clients keep a model, several ones (Mixture) or a part of it; with FedDA, what their noise has cost."""
    settings = {**SETTINGS, "method": method}
    settings |= {"model": "logistic", "dp_clip": 1.0, "dp_noise": 0.5} if method == "fedda" else {}
    settings |= with_batch_norm(tmp_path / "data") if method == "fedbn" else {}
    settings |= {"model": "mlp", "method_options": {"every": 2}} if method == "mixture" else {}
    local = run(**settings)
    result = run(engine="ray", workers=workers, output=tmp_path / "run", **settings)
    assert without_seconds(result.history) == without_seconds(local.history)
    for name, array in local.model.items():
        assert result.model[name].tobytes() == array.tobytes()
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.slow
def test_running_statistics_have_the_same_bits(tmp_path):
    for seed, domain in enumerate(("north", "south", "west")):
        write_images(tmp_path / "data" / domain, seed, count=12)
    settings = {**SETTINGS, "dataset": "images", "data_dir": str(tmp_path / "data"), "target": "west"}
    settings |= {"dataset_options": {"domains": "north,south,west", "image_size": 16}, "target_samples": 8}
    settings |= {"model": "resnet9", "model_options": {"width": 2}, "method": "fedavg", "buffers": "adabn"}
    local = run(**settings)
    result = run(engine="ray", workers=2, **settings)
    assert without_seconds(result.history) == without_seconds(local.history)
    for name, array in local.model.items():
        assert result.model[name].tobytes() == array.tobytes()


@pytest.mark.slow
def test_a_run_that_fails_on_ray_raises(tmp_path, monkeypatch):
    from fda_flower.strategies import base

    def fails(self, *args, **kwargs):
        raise RunError("no node wants to")

    monkeypatch.setattr(base.DomainAdaptationStrategy, "configure_train", fails)
    with pytest.raises(RunError, match="no node wants to"):
        run(engine="ray", workers=1, **SETTINGS)
