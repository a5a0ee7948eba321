"""Runs on a pretended accelerator: the bits of the CPU, and no tensor of the CPU among its own."""

from typing import Any

import pytest
from pretend_accelerator import both, in_process, is_possible

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


def same(device, settings, folder=None):
    different, calls = device.submit(both, settings, folder).result()
    assert different == []
    assert calls > 100


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in method_names() if name not in NOT_HERE])
def test_each_method_has_the_bits_of_the_cpu(device, method):
    same(device, {**SETTINGS, "method": method, **OWN.get(method, {})})


@pytest.mark.slow
@pytest.mark.smoke
def test_a_short_run_has_the_bits_of_the_cpu(device):
    same(device, {**SETTINGS, "model": "mlp", "method": "target-only", "rounds": 1})


PATIENTS = {"dp_unit": "patient", "dp_noise": 1.0}
PARTS: dict[str, dict[str, Any]] = {
    **{f"cnn, {train}": {"train": train} for train in ("head", "linear", "last", "adapters:2")},
    "kinds of rows": {
        "model": "logistic+conv3x64",
        "method": "ridge",
        "method_options": {"unlabelled": True},
    },
    "cnn, bf16": {"precision": "bf16"},
    "student": {"model": "mlp", "method": "mixture", "method_options": {"student": True}},
    "steps with noise": {**PATIENTS, "model": "logistic", "method": "fedavg"},
}
"""What trains in other ways."""


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_it_trains_predicts_and_is_exported_as_on_the_cpu(device, part, tmp_path):
    settings = {**SETTINGS, "method": "fedgp-auto", "rounds": 1, **PARTS[part]}
    same(device, settings, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mixture", "knn-per", "fedavg"])
def test_a_device_without_float64_trains_and_predicts(method, tmp_path):
    with in_process(float64=False) as pool:
        different, _ = pool.submit(both, {**SETTINGS, "method": method, "rounds": 1}).result()
    assert set(different) <= {"history", "model"}


@pytest.mark.slow
def test_a_run_is_predicted_with_and_exported_from_the_device_as_from_the_cpu(device, tmp_path):
    same(device, {**SETTINGS, "model": "mlp", "method": "target-only"}, tmp_path)
