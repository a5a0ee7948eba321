"""What the tests of runs, of yardsticks and of experiments share: small settings, cells in this process."""

import importlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from in_process import run_all

import fda_flower.client_app
from fda_flower.datasets import federation, load_domain, load_federation

SMALL: dict[str, Any] = {
    "model": "mlp",
    "target_samples": 16,
    "target_batch_size": 4,
    "batch_size": 32,
    "learning_rate": 0.003,
    "evaluate_every": 1,
    "device": "cpu",
}

EXPERIMENT = """
title = "Digits with noise"
source = "Nobody, 2024, Table 1"
axis = "Noise"
seeds = [0, 1]
columns = [
    { label = "little", value = 0.1, shift-options = { std = 0.1 } },
    { label = "much", value = 0.5, shift-options = { std = 0.5 } },
]
rows = [
    { label = "FedAvg", method = "fedavg", paper = { little = 60.5, much = 30 } },
    { label = "Target Only", method = "target-only" },
]

[run]
model = "mlp"
shift = "noise"
rounds = 4
target-samples = 16
batch-size = 64
"""


@pytest.fixture(scope="session")
def small():
    """Settings of a run that takes a tenth of a second."""
    return dict(SMALL)


@pytest.fixture
def files_of():
    """Every file below a folder, with its bytes and the time it was last changed."""

    def read(folder):
        return {
            str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    return read


@pytest.fixture
def in_process(monkeypatch):
    """Cells that run here, one after the other; their module."""
    module = importlib.import_module("fda_flower.running.processes")
    monkeypatch.setattr(module, "run_all", run_all)
    return module


@pytest.fixture
def shuffled(monkeypatch):
    """Shuffle the labels of every test set."""
    cached = load_federation, load_domain, fda_flower.client_app._sites
    cut = federation._cut

    def with_shuffled_test(*arguments):
        domain = cut(*arguments)
        order = np.random.default_rng(1).permutation(len(domain.test))
        test = domain.test.__class__(domain.test.x, domain.test.y[order], domain.test.noise)
        return replace(domain, test=test)

    def shuffle():
        monkeypatch.setattr(federation, "_cut", with_shuffled_test)
        for function in cached:
            function.cache_clear()

    yield shuffle
    monkeypatch.undo()
    for function in cached:
        function.cache_clear()
