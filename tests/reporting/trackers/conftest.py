"""A run to track, and records made by hand."""

import os

import pytest

from fda_flower.reporting.trackers import TrackedRun

SETTINGS = {"method": "fedgp", "seed": 3, "shift_options": {"angle": 45}, "target": None}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    """Trackers as they are where nobody has set them up."""
    for name in [name for name in os.environ if name.startswith(("MLFLOW_", "WANDB_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


@pytest.fixture
def record():
    """A maker of records of a round."""

    def make(number, accuracy=0.5):
        return {
            **{"round": number, "warmup": False, "held": None, "accuracy": accuracy, "loss": float("nan")},
            "target": {"domain": "t", "examples": 50, "train-loss": 0.25},
            "sources": {"hôpital (1)": {"domain": "hôpital (1)", "beta": 0.25, "fallback": None}},
            "dropped": [{"domain": "b", "reason": "late"}],
            "outcomes": "AAECAw==",
            "seconds": {"train": 1.5},
        }

    return make


@pytest.fixture
def tracked(tmp_path):
    """A run in a folder of a comparison."""
    folder = tmp_path / "runs" / "fedgp-seed3"
    folder.mkdir(parents=True)
    return TrackedRun(folder, folder.parent, SETTINGS, {"torch": "2.9"})
